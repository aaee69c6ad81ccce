/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of batches: see batch_plan.h.
 */
#include "loader/batch_plan.h"

int plan_rank_batch(const struct batch_plan *p)
{
    return p->split ? p->batch / p->ranks : p->batch;
}

int64_t plan_step_batch(const struct batch_plan *p)
{
    return p->split ? p->batch : (int64_t)p->batch * p->ranks;
}

/* Places from the base on. */
static int64_t places_left(const struct batch_plan *p, int64_t samples)
{
    return samples > p->base ? samples - p->base : 0;
}

int64_t plan_steps(const struct batch_plan *p, int64_t samples)
{
    int64_t left = places_left(p, samples), each = plan_step_batch(p);

    return p->drop_last ? left / each : (left + each - 1) / each;
}

int64_t plan_step_real(const struct batch_plan *p, int64_t samples, int64_t step)
{
    int64_t each = plan_step_batch(p), left = places_left(p, samples);

    if (step >= plan_steps(p, samples))
        return 0;
    left -= step * each;
    return left < each ? left : each;
}

/* What a rank lacks begins after the last real sample: the ranks' parts lie one after
 * the other, and so do the samples that fill them up. */
struct batch_part plan_part(const struct batch_plan *p, int64_t at, int64_t real,
                            int rank)
{
    bool whole = real == plan_step_batch(p);
    int64_t count =
        p->dispatch && !whole ? (real + p->ranks - 1) / p->ranks : plan_rank_batch(p);
    int64_t before = rank * count, own = real - before;
    struct batch_part part = { .first = at + before };

    own = own < 0 ? 0 : own < count ? own : count;
    part.real = (int)own;
    part.fill = before + own - real;
    part.count = p->ends == ENDS_EVEN ? (int)count : part.real;
    if (p->ends == ENDS_JOIN && part.count == 0) {
        part.count = 1;
        part.fill = 0;
    }
    return part;
}

/* Where the epoch has fewer places than are lacking, they come several times. */
int64_t plan_place(const struct batch_part *part, int64_t samples, int i)
{
    return i < part->real ? part->first + i : (part->fill + i - part->real) % samples;
}

int64_t plan_length(const struct batch_plan *p, int64_t samples, int rank)
{
    int64_t steps = plan_steps(p, samples);
    int64_t real = steps > 0 ? plan_step_real(p, samples, steps - 1) : 0;

    if (real == 0)
        return 0;
    return steps - (plan_part(p, 0, real, rank).count == 0);
}

int64_t plan_remainder(const struct batch_plan *p, int64_t samples)
{
    return p->drop_last ? -1 : places_left(p, samples) % plan_step_batch(p);
}
