/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan` in three parts: cmd_plan.c reads the command line, plan_model.c chooses ranks
 * and sizes and measures the model, plan_show.c prints.
 */
#ifndef ACCEL_PLAN_CMD_H
#define ACCEL_PLAN_CMD_H

#include "nn/models/any.h"
#include "plan/plan.h"
#include "cli/config/settings.h"

/* The command line; 0 and NULL: not given. */
struct plan_args {
    const char *file, *model; /* model: see model_shape_open; NULL: GPT-2 124M */
    struct model_sizes shape; /* 0: as the model */
    int nodes, gpus, ranks, seq, batch, accumulate, threads;
    double storage, mtbf; /* GB/s of all ranks, hours */
    double gpu_memory;    /* GiB */
    struct cli_settings settings;
    bool json, compare;
};

struct planned {
    struct cli_config sources;
    const struct config *config; /* of `sources` */
    struct plan_input in;
    struct plan_input other; /* what plan_cure tries, where `in` does not fit */
    struct model_shape shape;
    struct model_sizes sizes; /* of it */
    int seq, batch, threads;
    char model[64];
    double storage, mtbf; /* bytes/s, seconds; 0: not given */
};

/* Ranks, shape, layout, and the model measured. p->config is set. */
accel_status_t plan_prepare(const struct plan_args *a, struct planned *p,
                            accel_error_t *err);
void plan_free(struct planned *p);

/* Is the memory of the GPUs enough? True where there are none, or it is not known. */
bool plan_fits(const struct planned *p);

/* One plan as rows or JSON; all strategies as a table. Return the exit code. */
int plan_show(const struct planned *p, const char *file, bool json);
int plan_show_all(const struct planned *p, bool json);

#endif
