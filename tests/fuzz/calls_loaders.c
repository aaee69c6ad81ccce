/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of accel_loaders.h: loaders of all kinds and their batches.
 */
#include <stdlib.h>

#include "tests/fuzz/calls_world.h"

static int64_t index_of_place(void *user, int64_t epoch, int64_t place)
{
    (void)user;
    return place == 6 && epoch == 3 ? -1 : place / 2;
}

static int64_t length_of_sample(void *user, int64_t index, void *const *sample)
{
    (void)user, (void)sample;
    return index == 5 ? 4 : 1 + (index + 1) % 3;
}

/* Turns samples around; now and then it cannot. */
static int collate_back(void *user, accel_batch_t *batch)
{
    (void)user;
    return batch->count > 0 && batch->index[0] == 9;
}

/* What one rank alone would meet is left out where there are several: the others wait
 * for it, as the header says. */
static accel_loader_options_t some_options(struct world *w)
{
    static const double weights[17] = { 1, 0, 2, 1, 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    accel_loader_options_t o = { sizeof(o), .batch = 2 * (1 + (int)calls_random(w, 2)),
                                 .seed = calls_random(w, 3) };
    bool alone = w->ranks == 1;

    if (calls_once_in(w, 2))
        o.sampler = (accel_sampler_t)calls_number(w);
    if (o.sampler == ACCEL_SAMPLER_WEIGHTED) {
        o.weights = calls_once_in(w, 10) ? NULL : weights;
        o.once = calls_once_in(w, 3);
    }
    if (o.sampler == ACCEL_SAMPLER_OWN)
        o.index = calls_once_in(w, 10) || !alone ? NULL : index_of_place;
    o.samples = calls_once_in(w, 6) ? calls_number(w) : 0;
    if (o.samples > 1000)
        o.samples = 1000;
    o.held_out = calls_once_in(w, 6);
    o.drop_last = calls_once_in(w, 3);
    o.uneven = calls_once_in(w, 3);
    o.join = o.uneven && (!alone || calls_once_in(w, 2));
    o.split_batches = calls_once_in(w, 3);
    o.dispatch_batches = (accel_dispatch_t)calls_random(w, 3);
    o.prefetch = calls_once_in(w, 2) ? (int)calls_random(w, 4) : 0;
    o.threads = o.prefetch ? (int)calls_random(w, 3) : 0;
    if (calls_once_in(w, 6) && alone) {
        o.length = length_of_sample;
        o.pad = (unsigned)calls_random(w, 4);
        o.pad_multiple = (int)calls_number(w);
        o.bucket = calls_once_in(w, 2) ? calls_number(w) : 0;
        if (o.bucket > 1000)
            o.bucket = 8;
    }
    if (calls_once_in(w, 6) && alone)
        o.collate = collate_back;
    if (calls_once_in(w, 12))
        o.batch = (int)calls_number(w);
    if (o.batch > 1 << 20)
        o.batch = 1 << 21;
    return o;
}

static void call_loader_new(struct world *w)
{
    static const char *const names[] = { "one", "two", "three", "four", "five", "six" };
    accel_loader_options_t o = some_options(w);
    bool bad = o.batch < 1 || o.batch > 1 << 20;
    accel_t *run = calls_run(w, &bad);
    accel_dataset_t *d = PICK(w, data, &bad);
    const char *name = calls_once_in(w, 10) ? calls_name(w) : names[calls_random(w, 6)];
    accel_loader_t *l = NULL;

    if (d && bad && o.batch >= 1 && run)
        bad = o.batch > 1 << 20; /* a dataset belongs to no run ... */
    for (int i = 0; i < CALLS_SLOTS; i++)
        if (d && d != w->now->data[i] && d == w->side[w->now == w->side].data[i])
            return; /* ... but ends with one here */
    if (CALL(w, bad,
             accel_loader_new(calls_once_in(w, 40) ? NULL : &l, run, name, d,
                              calls_once_in(w, 40) ? NULL : &o, calls_error(w))))
        KEEP(w, loader, l);
}

/* Often a run has none yet. */
static accel_loader_t *some_loader(struct world *w, bool *none_out)
{
    accel_loader_t *l = PICK(w, loader, none_out);

    if (l || calls_once_in(w, 4))
        return l;
    call_loader_new(w);
    *none_out = false;
    return PICK(w, loader, none_out);
}

static void call_loader_next(struct world *w)
{
    bool none = false, bad = !w->now->prepared || w->inside > 0;
    accel_loader_t *l = some_loader(w, &none);
    accel_tensor_t *batch[8] = { NULL };
    int got = -1, n = calls_once_in(w, 2) ? 2 : (int)calls_number(w);

    if (none && l)
        return; /* its run has its own rules */
    bad = bad || !l;
    if (n > 2)
        n = 1;
    if (CALL(w, bad || n < 1,
             accel_loader_next(l, calls_once_in(w, 30) ? NULL : batch, n,
                               calls_once_in(w, 40) ? NULL : &got, calls_error(w))) &&
        got)
        for (int i = 0; i < n; i++)
            KEEP(w, tensor, batch[i]);
}

/* A whole epoch as it should be: its batches are as many as it has said. */
static void walk_loader(struct world *w)
{
    bool none = false;
    accel_loader_t *l = some_loader(w, &none);
    accel_tensor_t *batch[2];
    int64_t length;
    int got = 1, n = 2;

    if (none || !w->now->prepared || w->inside ||
        !CALL(w, false,
              accel_loader_set_epoch(l, (int64_t)calls_random(w, 6), calls_error(w))))
        return;
    length = accel_loader_length(l);
    if (!CALL(w, false, accel_loader_next(l, batch, n, &got, calls_error(w))) &&
        !CALL(w, false, accel_loader_next(l, batch, n = 1, &got, calls_error(w))))
        return;
    for (int64_t i = 1; got && i < 100; i++) {
        if (accel_loader_real(l) < 0 || accel_loader_epoch(l) < 0 ||
            accel_loader_remainder(l) < -1)
            calls_finding(w, "accel_loader_real", "it cannot be");
        if (length >= 0 && accel_loader_at_end(l) != (i == length))
            calls_finding(w, "accel_loader_at_end", "it is not at the length");
        if (!CALL(w, false, accel_loader_next(l, batch, n, &got, calls_error(w))))
            return;
    }
}

static void call_loader_place(struct world *w)
{
    bool none = false;
    accel_loader_t *l = PICK(w, loader, &none);
    int64_t n = calls_number(w);

    if (none && l)
        return;
    if (calls_once_in(w, 2))
        CALL(w, !l || n < 0, accel_loader_set_epoch(l, n, calls_error(w)));
    else
        CALL(w, !l || n < 0, accel_loader_skip(l, n, calls_error(w)));
    (void)accel_loader_length(l);
    (void)accel_loader_epoch(l);
    (void)accel_loader_at_end(l);
    (void)accel_loader_remainder(l);
    (void)accel_loader_real(l);
    if (accel_loader_loss(l, NULL))
        calls_finding(w, "accel_loader_loss", "a loss without one");
}

static void call_loader_close(struct world *w)
{
    size_t at = calls_random(w, CALLS_SLOTS);
    accel_loader_t *l = w->now->loader[at];

    for (int i = 0; i < CALLS_SLOTS; i++)
        if (w->now->loader[i] == l)
            w->now->loader[i] = NULL;
    calls_say(w, "accel_loader_close");
    accel_loader_close(l);
}

const struct calls_action calls_of_loaders[] = {
    { call_loader_new, 4, false },   { call_loader_next, 6, false },
    { walk_loader, 2, false },       { call_loader_place, 2, false },
    { call_loader_close, 1, false }, { NULL, 0, false },
};
