/* SPDX-License-Identifier: Apache-2.0
 *
 * The moving average of parameters: one more array beside the optimizer's state, cut
 * as that is. In: the factors of a step. Out: new averages, or averages in the place of
 * the parameters and back. Masters are float32 here: narrow ones could not hold an
 * average. Never communicates.
 */
#include "shard/shard_impl.h"

/* The next unit of an averaged optimizer from *at on, which moves past it; NULL:
 * there is none. *average_out is its average, [u->state]. */
static const struct shard_unit *next_averaged(const struct shard *s, int optim, int *at,
                                              float **average_out)
{
    const struct shard_trainer *t = &s->store.trainer[optim];

    for (; t->o.averaged && *at < s->layout.units; ++*at) {
        const struct shard_unit *u = &s->layout.unit[*at];

        if (u->optim != optim || u->state == 0)
            continue;
        *average_out = shard_state_at(t, t->states, u->state_at);
        ++*at;
        return u;
    }
    return NULL;
}

void shard_average(struct shard *s, int optim, float keep, float take)
{
    const struct shard_unit *u;
    float *average;

    for (int at = 0; (u = next_averaged(s, optim, &at, &average));)
        s->home->blend(s->home, average, shard_master_at(s, u->at), u->state, keep,
                       take);
}

/* By way of the gradients: copies keep all bits, and nothing is allocated. */
void shard_swap_average(struct shard *s, int optim)
{
    const struct backend *home = s->home;
    const struct shard_unit *u;
    float *average;

    shard_draw(s);
    shard_readers_settle(s);
    shard_settle_home(s);
    shard_wait_reduced(s);
    for (int at = 0; (u = next_averaged(s, optim, &at, &average));) {
        const size_t bytes = (size_t)u->state * sizeof(*average);
        float *spare = s->store.grad + u->grad_at, *weights = shard_master_at(s, u->at);

        home->copy(home, spare, weights, bytes);
        home->copy(home, weights, average, bytes);
        home->copy(home, average, spare, bytes);
        home->zero(home, spare, bytes);
    }
    shard_updated(s, optim);
}
