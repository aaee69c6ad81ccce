/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of whole runs in mixed precision and in the levels of MS-AMP, on one rank:
 * what the backend is asked for, by kind, is the plan, and per parameter what the table
 * of doc/precision.md says. A step asks for no more of it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"
#include "tests/world/run_tokens.h"

#define MSAMP "mixed_precision: fp8\nfp8_config: {backend: MSAMP, opt_level: "

/* Bytes per parameter that the issue of such levels is known by. */
static const struct level {
    const char *name, *keys;
    double bytes;
    /* weights as ops see them are a part of it */
    bool weights;
} levels[] = {
    { "AMP", "mixed_precision: bf16\n", 16, false },
    { "O1", MSAMP "O1}\n", 11, false },
    { "O2", MSAMP "O2}\n", 6, false },
    { "O3", MSAMP "O3}\n", 7, true },
};

struct measured {
    int64_t bytes[MEMORY_KINDS], after[MEMORY_KINDS];
    int64_t params;
    struct plan plan;
};

struct scene {
    char dir[128];
    struct measured *out; /* shared */
};

static char root[64] = "/tmp/accel-memory.XXXXXX";

/* ---- what the backend is asked for ----------------------------------------------- */

static int64_t asked[MEMORY_KINDS];
static accel_status_t (*real_alloc)(const struct backend *be, enum backend_memory kind,
                                    size_t bytes, void **memory_out,
                                    accel_error_t *err);

static accel_status_t counting_alloc(const struct backend *be, enum backend_memory kind,
                                     size_t bytes, void **memory_out,
                                     accel_error_t *err)
{
    const accel_status_t st = real_alloc(be, kind, bytes, memory_out, err);

    asked[kind] += st ? 0 : (int64_t)bytes;
    return st;
}

/* ---- a run ----------------------------------------------------------------------- */

/* Nearly all of it are linears between the first and the last. */
static accel_status_t open_run(accel_t **run_out, accel_module_t **model_out,
                               const struct scene *p, accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = 4,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .width = 256,
                                         .hidden = 704,
                                         .context = TOKENS_SEQ,
                                         .vocab = TOKENS_VOCAB };
    const accel_optimizer_t adam = { sizeof(adam), .lr = 1e-3f };
    accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .seed = 1,
                          .out_dir = p->dir };
    accel_t *run;

    if (run_net_run(run_out, p->dir, NULL, NULL, err))
        return err->code;
    run = *run_out;
    real_alloc = run->backend->alloc;
    run->backend->alloc = counting_alloc;
    *model_out = accel_model_new(run, &llama, err);
    if (!*model_out || accel_model_add(run, "", *model_out, err) ||
        !accel_optim_add(run, "o", model_out, 1, &adam, err))
        return err->code;
    return accel_prepare_all(run, &loop, err);
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    accel_error_t err = { 0 };
    accel_module_t *model = NULL;
    accel_t *run = NULL;
    accel_status_t st = open_run(&run, &model, p, &err);

    (void)b;
    if (!st) {
        memcpy(p->out->bytes, asked, sizeof(asked));
        p->out->plan = run->plan;
        for (int u = 0; u < run->units.count; u++)
            for (int i = 0; i < run->units.unit[u].param_count; i++)
                p->out->params += run->units.unit[u].param[i]->elems;
        st = run_tokens_step(run, model, 1, 0, &err);
        memcpy(p->out->after, asked, sizeof(asked));
    }
    if (st)
        fprintf(stderr, "# %s: %s\n", err.where, err.text);
    accel_close(run, NULL);
    return (int)st;
}

static void test_level(const struct level *l)
{
    struct measured *m = fork_shared(sizeof(*m));
    struct scene p = { .out = m };
    double each;

    snprintf(p.dir, sizeof(p.dir), "%s/%s", root, l->name);
    run_net_config(p.dir, "FULL_SHARD", 1, 1, l->keys);
    tap_is_int(open_world(1, 1, rank_main, &p, HANG_S), 0, "%s", l->name);
    each = (double)(m->bytes[MEMORY_PARAMETERS] + m->bytes[MEMORY_GRADIENTS] +
                    m->bytes[MEMORY_MOMENTS] +
                    (l->weights ? m->bytes[MEMORY_GATHERED] : 0)) /
           (double)m->params;
    tap_ok(fabs(each / l->bytes - 1) < 0.03,
           "%.3f bytes per parameter, %g in the table", each, l->bytes);
    tap_is_int(m->bytes[MEMORY_PARAMETERS], m->plan.param_bytes, "masters as planned");
    tap_is_int(m->bytes[MEMORY_GRADIENTS], m->plan.gradient_bytes,
               "gradients as planned");
    tap_is_int(m->bytes[MEMORY_MOMENTS], m->plan.moment_bytes, "moments as planned");
    tap_is_int(m->bytes[MEMORY_GATHERED], m->plan.gather_bytes + m->plan.code_bytes,
               "weights for ops as planned");
    tap_is_int(m->bytes[MEMORY_REDUCE], m->plan.reduce_bytes,
               "the reduce buffer as planned");
    for (int k = MEMORY_PARAMETERS; k <= MEMORY_REDUCE; k++)
        tap_is_int(m->after[k], m->bytes[k], "a step asks for no more %s",
                   backend_memory_name((enum backend_memory)k));
}

int main(void)
{
    run_folder_new(root);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(levels); i++)
        test_level(&levels[i]);
    run_folder_remove(root);
    return tap_done();
}
