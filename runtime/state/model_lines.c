/* SPDX-License-Identifier: Apache-2.0
 *
 * The model that a checkpoint holds: a line in the trainer state, for the tools that
 * make a model directory from the checkpoint. In: the run's one model. Out: its
 * config.json on one line; no line if the model has none, or if there are several.
 */
#include <stdlib.h>

#include "state/state.h"
#include "handle/run.h"
#include "models/huggingface/hf_config.h"

void model_put(const accel_t *run, struct strbuf *b)
{
    const struct run_model *m = run->models == 1 ? &run->model[0] : NULL;
    const char *from = NULL;
    accel_error_t err;
    char *line;

    /* the names of its tensors begin with its own */
    if (!m || m->name[0])
        return;
    for (int i = 0; i < run->trees; i++)
        if (run->tree[i] == m->root)
            from = run->tree_from[i];
    if (hf_config_line(m->root, from, &line, &err) != ACCEL_OK)
        b->failed = true;
    else if (line)
        strbuf_printf(b, STATE_MODEL_KEY "=%s\n", line);
    free(line);
}
