/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's plans of an attention call: a call and a device in, an engine, a plan and the
 * size of the parts out, such that each part fits the workspace. A function of shapes,
 * device and version, so that two runs make the same bits. C and C++; no device needed.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_PLANS_H
#define ACCEL_BACKEND_CUDA_ATTENTION_PLANS_H

#include "backend/cuda/attention/attention_dnn.h"
#include "backend/cuda/dnn_plan.h"

/* NVIDIA's engine and settings for a deterministic backward on sm_100 to sm_103: a
 * kernel for dk and dv and one for dq, which keep no scores. cuDNN proposes only the
 * engine of sm_80 there. NULL: none on this device, or in this version. */
static inline const struct dnn_engine *dnn_attention_engine(int compute, size_t version)
{
    static const struct dnn_engine by_number = {
        5, 2, { { DNN_KNOB_KERNEL_CFG, 31 }, { DNN_KNOB_STAGES, 2 } }
    };
    /* 9.23 has a knob of its own for each part of that number */
    static const struct dnn_engine by_part = { 5,
                                               6,
                                               { { DNN_KNOB_TILE_M, 3 },
                                                 { DNN_KNOB_TILE_N, 2 },
                                                 { DNN_KNOB_KERNEL_CFG, 2 },
                                                 { DNN_KNOB_STREAM_K, 0 },
                                                 { DNN_KNOB_TILE_CGA_M, 0 },
                                                 { DNN_KNOB_STAGES, 2 } } };

    if (compute < 100 || compute > 103 || version < 91801)
        return NULL;
    return version < 92300 ? &by_number : &by_part;
}

/* The device and the library that plans are made for. */
struct dnn_place {
    const struct dnn_api *api;
    void *handle, *device; /* as in struct dnn_want */
    int compute;           /* 90: 9.0 */
    size_t version;
    int64_t most; /* bytes of workspace */
};

/* Begins g and makes the graph and the plan of c in it, with `engine` or what cuDNN
 * proposes. */
static inline bool dnn_attention_try(struct dnn_graph *g, const struct dnn_place *at,
                                     const struct attn_part *c,
                                     const struct dnn_engine *engine,
                                     struct dnn_got *got)
{
    struct dnn_want w;

    w.handle = at->handle;
    w.device = at->device;
    w.engine = engine;
    w.least = c->backward && !engine ? attn_kept_bytes(&c->p) : 0;
    w.most = at->most;
    dnn_begin(g, at->api);
    if (c->backward)
        dnn_attention_backward(g, c, at->handle);
    else
        dnn_attention_forward(g, c, at->handle);
    return dnn_plan(g, &w, got);
}

/* The plan of a call or a part. False: none; got->needs says whether a smaller part may
 * have one. dnn_end(g) in either case. */
static inline bool dnn_attention_plan(struct dnn_graph *g, const struct dnn_place *at,
                                      const struct attn_part *c, struct dnn_got *got)
{
    const struct dnn_engine *engine =
        c->backward ? dnn_attention_engine(at->compute, at->version) : NULL;

    if (engine) {
        if (dnn_attention_try(g, at, c, engine, got) || got->needs)
            return got->needs == 0;
        dnn_end(g);
    }
    return dnn_attention_try(g, at, c, NULL, got);
}

/* A call's plans: of its parts, and of the last part where that is smaller. */
struct dnn_attention_plans {
    struct attn_split split;
    struct dnn_graph graph[2];
    struct dnn_got got[2];
    int count; /* of plans; 0: refused */
    /* the graph that was refused */
    const struct dnn_graph *refused;
};

/* Drops the plans, and what is left of refused ones. */
static inline void dnn_attention_end(struct dnn_attention_plans *plans)
{
    for (int i = 0; i < 2; i++)
        dnn_end(&plans->graph[i]);
}

/* Plan i, of part `part`; false: refused. */
static inline bool dnn_attention_add(struct dnn_attention_plans *plans, int i,
                                     const struct dnn_place *at,
                                     const struct attn_part *part)
{
    if (dnn_attention_plan(&plans->graph[i], at, part, &plans->got[i])) {
        plans->count = i + 1;
        return true;
    }
    plans->count = 0;
    plans->refused = &plans->graph[i];
    return false;
}

/* Makes the plans of a whole call, in as few parts as fit. */
static inline void dnn_attention_plans(struct dnn_attention_plans *plans,
                                       const struct dnn_place *at,
                                       const struct attn_part *whole)
{
    const struct attention *p = &whole->p;
    struct attn_part part, last;

    memset(plans, 0, sizeof(*plans));
    plans->split = attn_unsplit(p);
    part = *whole;
    while (!dnn_attention_add(plans, 0, at, &part)) {
        if (!plans->got[0].needs ||
            !attn_split_further(p, plans->got[0].needs, at->most, &plans->split))
            return;
        dnn_end(&plans->graph[0]);
        part = attn_part_at(whole, plans->split, 0);
    }
    last = attn_part_at(whole, plans->split, attn_parts(p, plans->split) - 1);
    if (last.p.batch != part.p.batch || last.p.kv_heads != part.p.kv_heads)
        dnn_attention_add(plans, 1, at, &last);
}

/* The plan of one of the parts. */
static inline const struct dnn_got *dnn_attention_got(
    const struct dnn_attention_plans *plans, const struct attn_part *part)
{
    const bool smaller = part->p.batch < plans->split.samples ||
                         part->p.kv_heads < plans->split.kv_heads;

    return &plans->got[smaller];
}

#endif
