/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of accel.h that build and run models on a run: thin, they hand on to nn/.
 */
#include "nn/models/gpt2.h"
#include "ops/kv.h"
#include "train/run.h"

struct graph *accel_run_graph(accel_t *run)
{
    return &run->graph;
}

/* Remembers the root of a new tree so that accel_close frees it. */
static accel_module_t *adopt(accel_t *run, accel_module_t *m)
{
    if (!m)
        return NULL;
    if (run->trees == RUN_MAX_TREES) {
        nn_module_free(m);
        accel_fail(&run->graph.error, A0609, "reuse a tree",
                   "a run holds at most %d module trees", RUN_MAX_TREES);
        return NULL;
    }
    run->tree[run->trees++] = m;
    return m;
}

accel_module_t *accel_module_new(accel_t *run, const accel_class_t *cls,
                                 accel_module_t *parent, const char *name)
{
    accel_module_t *m = nn_module_new(&run->graph, cls, parent, name);

    return parent ? m : adopt(run, m);
}

void accel_eval(accel_t *run, int on)
{
    run->graph.evaluating = on != 0;
    run->graph.recording = run->graph.training = !on;
}

accel_kv_t *accel_kv_new(accel_t *run, int layers, int batch, int capacity,
                         int kv_heads, int head_width, accel_error_t *err)
{
    return kv_new(&run->graph, layers, batch, capacity, kv_heads, head_width, err);
}

accel_module_t *accel_gpt2_new(accel_t *run, const accel_gpt2_t *cfg,
                               accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_module_t *m = gpt2_new(&run->graph, cfg, &e);

    if (!m && run->graph.error.code == ACCEL_OK)
        run->graph.error = e; /* accel_prepare reports it, once for all ranks */
    if (m && adopt(run, m))
        return m;
    if (err)
        *err = run->graph.error;
    return NULL;
}
