/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of accel.h that build and run models on a run: a thin layer over nn/.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/sized.h"
#include "loop/loop.h"
#include "state/save/background.h"
#include "models/model_config.h"
#include "ops/kv.h"
#include "tensor/tape.h"
#include "handle/run.h"

/* For ops/ and tests: tensor/graph.h declares it. */
struct graph *accel_run_graph(accel_t *run)
{
    return &run->graph;
}

/* Remembers the root of a new tree, so that accel_close frees it. */
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

/* Only a root is adopted; children belong to their tree. */
accel_module_t *accel_module_new(accel_t *run, const accel_class_t *cls,
                                 accel_module_t *parent, const char *name)
{
    accel_class_t known;
    accel_error_t why;
    accel_module_t *m;

    if (!run)
        return NULL;
    /* the module keeps `cls` itself, which has all members as long as none was added */
    if (sized_read(SIZED(accel_class_t, state_bytes), &known, cls, &why) != ACCEL_OK)
        return graph_fail(&run->graph, message_of(&why), NULL, why.hint, "%s: %s",
                          why.where, why.text);
    if (parent && parent->g != &run->graph)
        return graph_fail(&run->graph, A0609, NULL, "build each tree in one run",
                          "the parent of module '%s' belongs to another run",
                          name ? name : "");
    m = nn_module_new(&run->graph, cls, parent, name);
    return parent ? m : adopt(run, m);
}

/* Ends the micro-batch at work: its tensors are dropped. */
void accel_inference_mode(accel_t *run, int on)
{
    accel_error_t why;

    if (!run)
        return;
    if (run->graph.depth > 0 || run->graph.inside) {
        graph_fail(&run->graph, A0901, NULL, "call it between forwards",
                   "accel_inference_mode inside %s",
                   run->graph.inside ? run->graph.inside : "the forward of a module");
        return;
    }
    /* as in accel_evaluate */
    if (on && background_copied(run, &why))
        run->graph.error = why;
    run->graph.evaluating = on != 0;
    phases_evaluate(run, run->graph.evaluating);
    run->graph.recording = run->graph.training = !on;
    if (run->graph_open && run->graph.error.code == ACCEL_OK)
        graph_reset(&run->graph);
}

accel_kv_t *accel_kv_new(accel_t *run, int layers, int batch, int capacity,
                         int kv_heads, int head_width, accel_error_t *err)
{
    if (run_outside(run, "accel_kv_new", err) != ACCEL_OK)
        return NULL;
    return kv_new(&run->graph, layers, batch, capacity, kv_heads, head_width, err);
}

/* A new model belongs to the run. What went wrong is kept as the graph's error too,
 * so that accel_prepare reports it once for all ranks, also where the program did
 * not look. */
static accel_module_t *model_take(accel_t *run, accel_module_t *m,
                                  const accel_error_t *why, accel_error_t *err)
{
    if (!m && run && run->graph.error.code == ACCEL_OK)
        run->graph.error = *why;
    if (m && adopt(run, m))
        return m;
    if (err)
        *err = run ? run->graph.error : *why;
    return NULL;
}

accel_module_t *accel_model_new(accel_t *run, const accel_model_config_t *config,
                                accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_model_config_t c;
    accel_module_t *m = NULL;

    if (run_given(run, "accel_model_new", &why) == ACCEL_OK &&
        model_config_take(config, &c, &why) == ACCEL_OK)
        m = model_new(&run->graph, &c, &why);
    return model_take(run, m, &why, err);
}

/* The directory of the config.json that a model was opened by; NULL: a preset. */
static char *directory_of(const char *name)
{
    char *path = realpath(name, NULL), *slash;
    struct stat sb;

    if (!path || stat(path, &sb) != 0 || S_ISDIR(sb.st_mode))
        return path;
    slash = strrchr(path, '/');
    *(slash > path ? slash : slash + 1) = '\0';
    return path;
}

accel_module_t *accel_model_open(accel_t *run, const char *name, accel_error_t *err)
{
    accel_model_config_t c = { .bytes = sizeof(c) };
    accel_error_t why = { 0 };
    accel_module_t *m = NULL;

    if (run_given(run, "accel_model_open", &why) == ACCEL_OK &&
        model_config_open(name, &c, &why) == ACCEL_OK)
        m = model_new(&run->graph, &c, &why);
    m = model_take(run, m, &why, err);
    if (m)
        run->tree_from[run->trees - 1] = directory_of(name);
    return m;
}
