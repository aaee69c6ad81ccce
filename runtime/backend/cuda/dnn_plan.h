/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine and the plan of a cuDNN graph: a finished graph and a device in, a plan
 * out. Gradients must have the same bits every time, and cuDNN does not tell which
 * engines add with float atomics: all carry the same numerical notes. So the graph has
 * a form that needs no atomics, and an engine is taken only if its workspace shows that
 * it follows that form, or with settings that NVIDIA gives for it. C and C++.
 */
#ifndef ACCEL_BACKEND_CUDA_DNN_PLAN_H
#define ACCEL_BACKEND_CUDA_DNN_PLAN_H

#include "backend/cuda/dnn.h"

struct dnn_knob {
    int type;
    int64_t value;
};

enum { DNN_KNOBS = 6 };

/* An engine and its settings. */
struct dnn_engine {
    int64_t index;
    int count;
    struct dnn_knob knob[DNN_KNOBS];
};

/* What a plan must be. */
struct dnn_want {
    /* NULL: no device. An engine is chosen, but its kernels are not built. */
    void *handle;
    void *device;                    /* descriptor of a device; NULL: that of handle */
    const struct dnn_engine *engine; /* NULL: the best of those that cuDNN proposes */
    /* Bytes of workspace. An engine with less than `least` does not follow the graph's
     * form. */
    int64_t least, most;
};

/* What was found. */
struct dnn_got {
    void *plan; /* NULL without a handle */
    int64_t engine, workspace;
    /* nothing, for its size: the workspace of the smallest engine; else 0 */
    int64_t needs;
};

/* The config of one engine with its settings. */
static inline void *dnn_config(struct dnn_graph *g, const struct dnn_want *w)
{
    void *engine = dnn_make(g, DNN_ENGINE), *knobs[DNN_KNOBS], *config;

    dnn_set_desc(g, engine, DNN_ENGINE_GRAPH, g->whole);
    dnn_set_int(g, engine, DNN_ENGINE_INDEX, w->engine->index);
    if (w->device)
        dnn_set_desc(g, engine, DNN_ENGINE_DEVICEPROP, w->device);
    dnn_finish(g, engine, "engine");
    for (int i = 0; i < w->engine->count; i++) {
        knobs[i] = dnn_make(g, DNN_KNOB_CHOICE);
        dnn_set_enum(g, knobs[i], DNN_KNOB_CHOICE_TYPE, DNN_TYPE_KNOB_TYPE,
                     w->engine->knob[i].type);
        dnn_set_int(g, knobs[i], DNN_KNOB_CHOICE_VALUE, w->engine->knob[i].value);
        dnn_finish(g, knobs[i], "knob");
    }
    config = dnn_make(g, DNN_ENGINECFG);
    dnn_set_desc(g, config, DNN_CFG_ENGINE, engine);
    dnn_set(g, config, DNN_CFG_KNOBS, DNN_TYPE_DESCRIPTOR, w->engine->count, knobs);
    dnn_finish(g, config, "engine config");
    return config;
}

/* Fills configs_out with those that cuDNN proposes, best first; returns their
 * number. */
static inline int dnn_proposals(struct dnn_graph *g, const struct dnn_want *w,
                                void **configs_out, int most)
{
    void *heur = dnn_make(g, DNN_ENGINEHEUR);
    int64_t count = 0;

    dnn_set_desc(g, heur, DNN_HEUR_GRAPH, g->whole);
    dnn_set_enum(g, heur, DNN_HEUR_MODE, DNN_TYPE_HEUR_MODE, DNN_HEUR_A);
    if (w->device)
        dnn_set_desc(g, heur, DNN_HEUR_DEVICEPROP, w->device);
    dnn_finish(g, heur, "heuristics");
    /* the library fills descriptors that the caller has made */
    for (int i = 0; i < most; i++)
        configs_out[i] = dnn_make(g, DNN_ENGINECFG);
    if (g->failed || !dnn_check(g,
                                g->api->get(heur, DNN_HEUR_RESULTS, DNN_TYPE_DESCRIPTOR,
                                            most, &count, configs_out),
                                "heuristics"))
        return 0;
    return count < most ? (int)count : most;
}

/* Notes an engine that fits but for its size; false. */
static inline bool dnn_too_large(struct dnn_got *got, int64_t bytes)
{
    if (!got->needs || bytes < got->needs)
        got->needs = bytes;
    return false;
}

/* Takes the engine of a config if it is as wanted. Its workspace is known before its
 * kernels are built, which takes time. */
static inline bool dnn_take(struct dnn_graph *g, const struct dnn_want *w, void *config,
                            struct dnn_got *got)
{
    void *engine = dnn_make(g, DNN_ENGINE), *plan;
    int64_t count, index, room;

    if (g->failed ||
        g->api->get(config, DNN_CFG_ENGINE, DNN_TYPE_DESCRIPTOR, 1, &count, &engine) ||
        g->api->get(engine, DNN_ENGINE_INDEX, DNN_TYPE_INT64, 1, &count, &index) ||
        g->api->get(config, DNN_CFG_WORKSPACE, DNN_TYPE_INT64, 1, &count, &room) ||
        room < w->least)
        return false;
    if (room > w->most)
        return dnn_too_large(got, room);
    got->engine = index;
    got->workspace = room;
    if (!w->handle)
        return true;
    plan = dnn_make(g, DNN_PLAN);
    dnn_set(g, plan, DNN_PLAN_HANDLE, DNN_TYPE_HANDLE, 1, &w->handle);
    if (w->device)
        dnn_set_desc(g, plan, DNN_PLAN_DEVICEPROP, w->device);
    dnn_set_desc(g, plan, DNN_PLAN_CFG, config);
    if (g->failed || g->api->finalize(plan) ||
        g->api->get(plan, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &count, &room))
        return false;
    if (room > w->most)
        return dnn_too_large(got, room);
    got->plan = plan;
    got->workspace = room;
    return true;
}

/* Says why no engine was taken. The library's own words tell whether something that it
 * opens by itself is missing. */
static inline void dnn_none(struct dnn_graph *g, int count, const struct dnn_got *got)
{
    char text[512] = "";

    if (g->failed)
        return;
    g->failed = true;
    g->api->last_error(text, sizeof(text));
    g->lacks = !got->needs && strstr(text, "PREREQUISITE_MISSING");
    if (g->lacks)
        snprintf(g->why, sizeof(g->why), "a library that it needs is missing");
    else if (got->needs)
        snprintf(g->why, sizeof(g->why), "%d engines, the smallest takes %lld MiB",
                 count, (long long)(got->needs >> 20));
    else
        snprintf(g->why, sizeof(g->why), "%d engines, none is deterministic and works",
                 count);
}

/* The plan of the best engine as wanted. False: nothing was found, `why` says why. */
static inline bool dnn_plan(struct dnn_graph *g, const struct dnn_want *w,
                            struct dnn_got *got)
{
    enum { MOST = 8 };
    void *configs[MOST];
    int count = 1;

    memset(got, 0, sizeof(*got));
    if (w->engine)
        configs[0] = dnn_config(g, w);
    else
        count = dnn_proposals(g, w, configs, MOST);
    for (int i = 0; i < count; i++)
        if (dnn_take(g, w, configs[i], got)) {
            got->needs = 0;
            return true;
        }
    dnn_none(g, count, got);
    return false;
}

#endif
