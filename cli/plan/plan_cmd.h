/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan` in three parts: cmd_plan.c reads the command line, plan_model.c chooses
 * ranks and sizes and measures the model, plan_show.c prints. All sizes are bytes per
 * rank unless a name says else.
 */
#ifndef ACCEL_PLAN_CMD_H
#define ACCEL_PLAN_CMD_H

#include "models/model_config.h"
#include "plan/plan.h"
#include "cli/config/settings.h"

/* What is shown beside each other. */
enum plan_compare { COMPARE_NONE, COMPARE_STRATEGIES, COMPARE_PRECISION };

/* The command line. 0 and NULL: not given. */
struct plan_args {
    /* model: a preset or a directory, see accel_model_config; NULL: GPT-2 124M. */
    const char *file, *model;
    /* 0: as the model has it. */
    accel_model_config_t shape;
    int nodes, gpus, ranks, seq, batch, accumulate, threads;
    /* 1e9 bytes per second that all ranks write together; hours between failures. */
    double storage, mtbf;
    /* GiB. */
    double gpu_memory;
    struct cli_settings settings;
    bool json;
    enum plan_compare compare;
};

/* A plan's input, complete: what the command line and the config
 * leave open is decided. */
struct planned {
    struct cli_config sources;
    /* Points into `sources`. */
    const struct config *config;
    struct plan_input in;
    /* The same run with what plan_cure suggests; filled only
     * where `in` does not fit. */
    struct plan_input other;
    accel_model_config_t shape;
    /* Tokens of a sample, samples of a micro-batch and rank,
     * compute threads of a rank. */
    int seq, batch, threads;
    /* The model's name, with ", changed" where options changed its sizes. */
    char model[64];
    /* Bytes per second and seconds; 0: not given. */
    double storage, mtbf;
};

/* Decides ranks, shape and layout and measures the model on the meta backend. p->config
 * is set. plan_free frees, also after an error. */
accel_status_t plan_prepare(const struct plan_args *a, struct planned *p,
                            accel_error_t *err);
void plan_free(struct planned *p);

/* The same run with the keys of another config that have no say in ranks or layout: its
 * model is measured again. plan_free frees, also after an error. */
accel_status_t plan_again(const struct planned *p, const struct config *config,
                          struct planned *again_out, accel_error_t *err);

/* Is the memory of the GPUs enough? True where there are none, and
 * where it is not known. */
bool plan_fits(const struct planned *p);

/* Print one plan as rows or JSON, or all strategies or levels of precision as a table.
 * All return the exit code. */
int plan_show(const struct planned *p, const char *file, bool json);
int plan_show_all(const struct planned *p, bool json);
int plan_show_levels(const struct planned *p, bool json);

#endif
