/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD reduction of gradients where each rank stores everything: one for each
 * optimizer, over the flat range of its gradients. In: this rank's gradients. Out: an
 * approximation of their mean over the ranks, bit-identical on all of them.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

/* The trained parameters of an optimizer, in the order of the flat gradients. */
struct shape_list {
    struct powersgd_shape *shape;
    int count;
    /* flat places where the first begins and the last ends */
    int64_t first, end;
};

/* Appends those of a unit that begins at flat place `at`. Between them are alignment
 * gaps, frozen parameters, padding and units of other optimizers. */
static void shapes_add(struct shape_list *l, const struct unit *def, int64_t at)
{
    for (int j = 0; j < def->param_count; j++) {
        const accel_tensor_t *p = def->param[j];
        const int64_t from = at + p->param->unit_offset,
                      rows = p->ndim > 0 ? p->dim[0] : 1;

        if (!param_is_trained(p))
            continue;
        if (l->count > 0)
            l->shape[l->count - 1].gap = from - l->end;
        else
            l->first = from;
        l->shape[l->count++] =
            (struct powersgd_shape){ .rows = rows, .cols = p->elems / rows };
        l->end = from + p->elems;
    }
}

const accel_tensor_t *shard_trained_param(const struct shard *s, int optim, int number)
{
    for (int i = 0; i < s->layout.units; i++) {
        const struct unit *def = s->layout.unit[i].def;

        for (int j = 0; def->optim == optim && j < def->param_count; j++)
            if (param_is_trained(def->param[j]) && number-- == 0)
                return def->param[j];
    }
    return NULL;
}

static accel_status_t shapes_new(struct shape_list *list_out, int params,
                                 accel_error_t *err)
{
    const size_t bytes = ((size_t)params + 1) * sizeof(*list_out->shape);

    *list_out = (struct shape_list){ .shape = calloc(1, bytes) };
    return list_out->shape ? ACCEL_OK
                           : accel_fail_nomem(err, "the list of gradients", bytes);
}

accel_status_t shard_powersgd_sizes(const struct units *units, int optim,
                                    const accel_powersgd_t *rule,
                                    struct powersgd_sizes *sizes_out,
                                    accel_error_t *err)
{
    struct powersgd *sized = NULL;
    struct shape_list l;
    int params = 0;
    accel_status_t st;

    for (int i = 0; i < units->count; i++)
        params += units->unit[i].param_count;
    ACCEL_CHECK(st, shapes_new(&l, params, err));
    for (int i = 0; i < units->count; i++)
        if (units->unit[i].optim == optim)
            shapes_add(&l, &units->unit[i], l.end);
    st = powersgd_open(&sized, NULL, rule, 0, l.shape, l.count, err);
    if (st == ACCEL_OK)
        *sizes_out = powersgd_sizes(sized);
    powersgd_close(sized);
    free(l.shape);
    return st;
}

static accel_status_t open_one(struct shard *s, int optim, accel_error_t *err)
{
    struct shard_trainer *t = &s->store.trainer[optim];
    struct shape_list l;
    int params = 0;
    accel_status_t st;

    for (int i = 0; i < s->layout.units; i++)
        params += s->layout.unit[i].def->param_count;
    ACCEL_CHECK(st, shapes_new(&l, params, err));
    for (int i = 0; i < s->layout.units; i++)
        if (s->layout.unit[i].optim == optim && s->layout.unit[i].grad_at >= 0)
            shapes_add(&l, s->layout.unit[i].def, s->layout.unit[i].grad_at);
    st = powersgd_open(&t->powersgd, s->be, s->o.powersgd, s->o.seed + (uint64_t)optim,
                       l.shape, l.count, err);
    t->compressed_at = l.first;
    free(l.shape);
    if (st == ACCEL_OK)
        s->layout.memory.powersgd +=
            (size_t)powersgd_sizes(t->powersgd).memory * sizeof(float);
    return st;
}

accel_status_t shard_powersgd_open(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < s->store.trainers && s->o.powersgd && st == ACCEL_OK; i++)
        st = open_one(s, i, err);
    return st;
}

void shard_powersgd_close(struct shard *s)
{
    for (int i = 0; i < s->store.trainers; i++)
        powersgd_close(s->store.trainer[i].powersgd);
}

int64_t shard_powersgd_sent(const struct shard *s)
{
    int64_t most = 0;

    for (int i = 0; i < s->store.trainers && s->o.powersgd; i++) {
        const int64_t sent = powersgd_sizes(s->store.trainer[i].powersgd).sent;

        most = sent > most ? sent : most;
    }
    return most;
}

bool shard_compresses(const struct shard *s, int optim)
{
    const struct shard_trainer *t = &s->store.trainer[optim];

    return t->powersgd && !powersgd_exact(t->powersgd, t->sums);
}

/* The factors come from the compute queue, which needs their sums at once. */
static accel_status_t add_over_ranks(void *user, float *x, int64_t n,
                                     accel_error_t *err)
{
    struct shard *s = user;
    accel_status_t st;

    if (s->world == 1)
        return ACCEL_OK;
    shard_begin_reduce(s);
    st = comm_all_reduce(s->reduce_data, x, (size_t)n, ACCEL_F32, COMM_SUM, err);
    shard_end_reduce(s);
    shard_wait_reduced(s);
    return st;
}

/* Scaled before, not after: what is left out of one step is added to the next, which
 * may have another scale. */
accel_status_t shard_compress(struct shard *s, int optim, float scale,
                              accel_error_t *err)
{
    struct shard_trainer *t = &s->store.trainer[optim];
    const struct powersgd_peers peers = { s->world, add_over_ranks, s };
    int64_t count;
    float *first;

    shard_wait_reduced(s);
    shard_readers_settle(s);
    for (int at = 0;
         scale != 1.0f && shard_next_gradients(s, optim, &at, &first, &count);)
        s->be->scale(s->be, first, count, scale);
    return powersgd_reduce(t->powersgd, s->store.grad + t->compressed_at, t->sums++,
                           &peers, err);
}

/* In pieces that the communicator has room for. */
accel_status_t shard_meet_errors(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    shard_readers_settle(s);
    shard_begin_reduce(s);
    for (int i = 0; i < s->store.trainers && s->o.powersgd && s->world > 1; i++) {
        const struct powersgd_state state =
            powersgd_state_of(s->store.trainer[i].powersgd);
        int64_t n;

        for (int64_t at = 0; at < state.errors && st == ACCEL_OK; at += n) {
            n = state.errors - at < s->reducer.sum_most ? state.errors - at
                                                        : s->reducer.sum_most;
            st = shard_mean(s, state.error + at, n, err);
        }
    }
    shard_end_reduce(s);
    shard_wait_reduced(s);
    return st;
}

int64_t shard_sums(const struct shard *s, int optim)
{
    return s->store.trainer[optim].powersgd ? s->store.trainer[optim].sums : 0;
}

void shard_set_sums(struct shard *s, int optim, int64_t sums)
{
    s->store.trainer[optim].sums = sums;
}
