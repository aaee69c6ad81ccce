/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan` in three parts: cmd_plan.c reads the command line, plan_model.c chooses ranks
 * and sizes and measures the model, plan_show.c prints.
 */
#ifndef ACCEL_PLAN_CMD_H
#define ACCEL_PLAN_CMD_H

#include "plan/plan.h"
#include "scripts/accel/settings.h"

/* The command line; 0 and NULL: not given. */
struct plan_args {
    const char *file, *model; /* model: name of a preset; NULL: the first */
    accel_gpt2_t shape;       /* 0: as the model */
    int nodes, gpus, ranks, seq, batch, accumulate, threads;
    double storage, mtbf; /* GB/s of all ranks, hours */
    struct cli_settings settings;
    bool json, compare;
};

struct planned {
    struct cli_config sources;
    const struct config *config; /* of `sources` */
    struct plan_input in;        /* unit_elems: owned */
    accel_gpt2_t shape;
    int seq, batch, threads;
    char model[64];
    double storage, mtbf; /* bytes/s, seconds; 0: not given */
};

/* Names of the models, "a|b"; is `name` one of them? */
#define PLAN_MODELS "gpt2-124M|gpt2-355M|gpt2-774M|gpt2-1558M"
bool plan_model_known(const char *name);
/* Ranks, shape, layout, and the model measured. p->config is set. The caller frees
 * p->in.unit_elems. */
accel_status_t plan_prepare(const struct plan_args *a, struct planned *p,
                            accel_error_t *err);

/* One plan as rows or JSON; all strategies as a table. Return the exit code. */
int plan_show(const struct planned *p, const char *file, bool json);
int plan_show_all(const struct planned *p, bool json);

#endif
