/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run will need, from sizes alone: memory per rank as shard/ allocates it, bytes on
 * the wire, bytes of a checkpoint. In: config, world, unit sizes. Out: numbers. Never
 * reads the environment, never allocates.
 */
#include "plan/plan.h"

#define PAD 32 /* elements: 128 bytes of float32 per rank */

int64_t plan_padded_elems(int64_t elems, int world)
{
    int64_t step = (int64_t)PAD * world;

    if (elems < 0 || world < 1 || elems > INT64_MAX - step)
        return -1;
    return (elems + step - 1) / step * step;
}

enum sharding_strategy plan_strategy(const struct config *c)
{
    return c->distributed_type == DIST_FSDP ? c->sharding_strategy : SHARD_NONE;
}

/* The gather ring of shard/, played with sizes only. */
struct ring {
    int unit[2], newest;
    int64_t gathered; /* elements */
};

static void ring_want(struct ring *r, const struct plan_input *in, int unit)
{
    int slot = r->unit[0] == unit ? 0 : r->unit[1] == unit ? 1 : -1;

    if (slot < 0) {
        slot = in->units == 1 || r->unit[0] < 0 ? 0 : r->unit[1] < 0 ? 1 : !r->newest;
        r->unit[slot] = unit;
        r->gathered += plan_padded_elems(in->unit_elems[unit], in->world);
    }
    r->newest = slot;
}

/* Elements gathered and reduced in one step when unit 0 (the root) is used before and
 * after all others, as in a transformer: embedding first, head last. */
static void step_traffic(const struct plan_input *in, int64_t *gathered,
                         int64_t *reduced)
{
    struct ring r = { .unit = { -1, -1 } };

    *reduced = 0;
    for (int a = 0; a < in->accumulate; a++) {
        for (int u = 0; u < in->units; u++)
            ring_want(&r, in, u);
        ring_want(&r, in, 0);
        for (int u = in->units - 1; u >= 0; u--) {
            ring_want(&r, in, u);
            *reduced += plan_padded_elems(in->unit_elems[u], in->world);
        }
        if (in->units > 1)
            *reduced += plan_padded_elems(in->unit_elems[0], in->world);
    }
    *gathered = r.gathered;
}

/* Every rank sends each of its world - 1 peers 1/world of the elements. */
static int64_t sent(const struct plan_input *in, int64_t elems, int64_t elem_bytes)
{
    return elems / in->world * (in->world - 1) * elem_bytes;
}

void plan_compute(const struct plan_input *in, struct plan *p)
{
    bool full = plan_strategy(in->config) == SHARD_FULL;
    bool bf16 = in->config->mixed_precision == PRECISION_BF16;
    int64_t elem = bf16 ? 2 : 4, all = 0, largest = 0, second = 0;

    *p = (struct plan){ .activation_bytes = in->activation_bytes,
                        .base_bytes = in->base_bytes };
    for (int u = 0; u < in->units; u++) {
        int64_t n = plan_padded_elems(in->unit_elems[u], in->world);

        all += n;
        if (n > largest) {
            second = largest;
            largest = n;
        } else if (n > second) {
            second = n;
        }
    }
    p->shard_elems = full ? all / in->world : all;
    p->param_bytes = p->gradient_bytes = p->shard_elems * 4;
    p->moment_bytes = p->shard_elems * 8;
    /* The masters themselves serve where they are whole and of the compute dtype. */
    if (full && (in->world > 1 || bf16))
        p->gather_bytes = (largest + second) * elem;
    else if (!full && bf16)
        p->gather_bytes = all * elem;
    if (full && in->world > 1)
        p->reduce_bytes = largest * 4;
    p->total_bytes = p->param_bytes + p->moment_bytes + p->gradient_bytes +
                     p->gather_bytes + p->reduce_bytes + p->activation_bytes +
                     p->base_bytes;
    if (full) {
        int64_t gathered, reduced;

        step_traffic(in, &gathered, &reduced);
        p->wire_bytes_per_step = sent(in, gathered, elem) + sent(in, reduced, elem);
    } else {
        p->wire_bytes_per_step = 2 * sent(in, all, 4); /* one float32 all-reduce */
    }
    p->checkpoint_bytes = in->params * 12; /* parameter and two moments, float32 */
}
