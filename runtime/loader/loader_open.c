/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a loader. In: options, which are checked. Out: slots, threads and tables. All
 * memory of a loader is allocated here.
 */
#include <stdlib.h>
#include <string.h>

#include "loader/loader.h"
#include "backend/device.h"
#include "loader/loader_impl.h"

static accel_status_t bad_option(accel_error_t *err, const char *name, const char *what)
{
    return accel_fail_at(err, A0930, name,
                         "see struct accel_loader_options in accel_loaders.h", "%s",
                         what);
}

static bool name_fits(const char *name)
{
    size_t n = name ? strlen(name) : 0;

    return n > 0 && n < 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_-.") == n;
}

/* What needs no other option to be judged. */
static accel_status_t check_numbers(const char *name, const accel_loader_options_t *o,
                                    const struct accel_loader *l, accel_error_t *err)
{
    int64_t sample = host_sample_bytes(l->field, l->fields);

    if (o->batch < 1 || o->batch > 1 << 20)
        return bad_option(err, name, "batch must be between 1 and 1048576");
    if (o->split_batches && o->batch % l->place.ranks != 0)
        return bad_option(err, name,
                          "split_batches: batch must be a multiple of the ranks");
    if (sample > HOST_BATCH_MAX / loader_capacity(l))
        return bad_option(err, name, "a batch must have at most 2 GiB");
    if (o->join && !o->uneven)
        return bad_option(err, name, "join is for uneven batches");
    if (o->prefetch < 0 || o->prefetch > 1024 || o->threads < 0 || o->threads > 256)
        return bad_option(err, name,
                          "prefetch must be between 0 and 1024, and threads "
                          "between 0 and 256");
    if (o->threads > 0 && o->prefetch == 0)
        return bad_option(err, name, "threads read ahead: prefetch must be at least 1");
    if (o->threads > data_threads(l->data))
        return bad_option(err, name,
                          "more threads than the dataset may be read on "
                          "(accel_dataset_set_threads)");
    return ACCEL_OK;
}

static accel_status_t check_iterable(const char *name, const accel_loader_options_t *o,
                                     accel_error_t *err)
{
    if (o->sampler != ACCEL_SAMPLER_KEYED || o->samples || o->bucket || o->weights ||
        o->index)
        return bad_option(err, name,
                          "an iterable dataset has its own order: no "
                          "sampler, samples, weights, index or bucket");
    if (o->held_out)
        return bad_option(err, name, "an iterable dataset has no held-out part");
    return ACCEL_OK;
}

/* With one rank nothing is uneven, and the last batch may be short, as Accelerate
 * leaves it. */
static struct batch_plan plan_from(const accel_loader_options_t *o, bool iterable,
                                   int ranks)
{
    bool dispatch = o->dispatch_batches == ACCEL_DISPATCH_ON ||
                    (o->dispatch_batches == ACCEL_DISPATCH_AUTO && iterable);

    return (struct batch_plan){ .batch = o->batch,
                                .ranks = ranks,
                                .split = o->split_batches,
                                .dispatch = dispatch && ranks > 1,
                                .drop_last = o->drop_last,
                                .ends = ranks == 1  ? ENDS_UNEVEN
                                        : o->join   ? ENDS_JOIN
                                        : o->uneven ? ENDS_UNEVEN
                                                    : ENDS_EVEN };
}

static accel_status_t open_order(struct accel_loader *l,
                                 const accel_loader_options_t *o, accel_error_t *err)
{
    int64_t samples;

    if (l->iterable)
        return stream_open(&l->stream, l->data, err);
    samples =
        l->held_out ? data_holdout_samples(l->data) : accel_dataset_samples(l->data);
    if (samples < 1)
        return bad_option(err, l->name, "the dataset has no held-out samples");
    return sampler_open(&l->sampler, o, samples, err);
}

static accel_status_t open_slot(struct accel_loader *l, struct loader_slot *s,
                                accel_error_t *err)
{
    size_t n = (size_t)loader_capacity(l);

    s->index = malloc(n * sizeof(*s->index));
    s->lengths = malloc(n * sizeof(*s->lengths));
    if (!s->index || !s->lengths)
        return accel_fail_nomem(err, "a slot of a loader", 2 * n * sizeof(*s->index));
    s->step = -1;
    return host_batch_open(&s->host, l->backend, (int64_t)n, l->field, l->fields, err);
}

/* One slot is handed out while the others are read ahead; where the end of an epoch
 * shows only after its last batch, one more is looked at. A rank that is only sent to
 * needs one, and so does a loader that never repeats a batch. */
static accel_status_t open_ring(struct accel_loader *l, const accel_loader_options_t *o,
                                accel_error_t *err)
{
    bool receives = l->plan.dispatch && l->place.rank != 0;
    bool one = receives || l->place.alone;
    int threads = o->prefetch == 0 ? 0 : o->threads > 0 ? o->threads : 1;
    accel_status_t st = ACCEL_OK;

    l->slots =
        one ? 1 : 1 + (o->prefetch > 0 ? o->prefetch : 1) + (loader_places(l) < 0);
    l->slot = calloc((size_t)l->slots, sizeof(*l->slot));
    if (!l->slot)
        return accel_fail_nomem(err, "slots of a loader", (size_t)l->slots);
    for (int i = 0; i < l->slots && st == ACCEL_OK; i++)
        st = open_slot(l, &l->slot[i], err);
    if (st != ACCEL_OK || receives)
        return st;
    return prefetch_open(&l->ahead, l->slots, threads, &loader_ring, l, err);
}

static accel_status_t open_parts(struct accel_loader *l,
                                 const accel_loader_options_t *o, accel_error_t *err)
{
    accel_status_t st = check_numbers(l->name, o, l, err);

    if (st == ACCEL_OK && l->iterable)
        st = check_iterable(l->name, o, err);
    ACCEL_TRY(st, collate_open(&l->collate, o, l->field, l->fields, err));
    ACCEL_TRY(st, open_order(l, o, err));
    ACCEL_TRY(st, open_ring(l, o, err));
    if (st == ACCEL_OK && l->backend->device && !l->place.alone)
        st = stage_open(&l->stage, l->backend, l->slot[0].host.bytes, err);
    return st;
}

accel_status_t loader_open(struct accel_loader **loader_out,
                           const struct loader_place *place, const char *name,
                           const accel_dataset_t *data, const accel_loader_options_t *o,
                           accel_error_t *err)
{
    struct accel_loader *l;
    accel_status_t st;

    if (!loader_out || !data || !o || !name_fits(name))
        return bad_option(err, name && *name ? name : "loader",
                          "a loader needs a dataset, options, and a name of 1 to 63 "
                          "letters, digits, '_', '-' or '.'");
    l = calloc(1, sizeof(*l));
    if (!l)
        return accel_fail_nomem(err, "loader", sizeof(*l));
    strcpy(l->name, name);
    l->place = *place;
    l->backend = place->graph->backend;
    l->data = data;
    l->fields = data_fields(data, &l->field);
    l->held_out = o->held_out;
    l->iterable = data_is_iterable(data);
    l->plan = plan_from(o, l->iterable, place->ranks);
    l->state.remainder = -1;
    l->idle_at = -1;
    st = open_parts(l, o, err);
    if (st != ACCEL_OK) {
        loader_free(l);
        return st;
    }
    *loader_out = l;
    return ACCEL_OK;
}

/* Threads end first: they use all the rest. */
void loader_free(struct accel_loader *l)
{
    if (!l)
        return;
    prefetch_close(&l->ahead);
    for (int i = 0; i < l->slots && l->slot; i++) {
        host_batch_close(&l->slot[i].host, l->backend);
        free(l->slot[i].index);
        free(l->slot[i].lengths);
    }
    free(l->slot);
    stage_close(&l->stage);
    sampler_close(&l->sampler);
    stream_close(&l->stream);
    free(l);
}
