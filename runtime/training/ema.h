/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving averages of weights (accel_ema).
 */
#ifndef ACCEL_TRAINING_EMA_H
#define ACCEL_TRAINING_EMA_H

#include "handle/run.h"

/* Gives each optimizer its rule. A0986: a name clashes. */
accel_status_t averaging_begin(accel_t *run, accel_error_t *err);
/* After a step of the optimizer that was taken. Not collective. */
void averaging_step(struct accel_optim *o);
/* run_ready for calls that change or save the weights; they are refused while the
 * averages are in their place. */
accel_status_t run_trains(accel_t *run, const char *call, accel_error_t *err);

/* ---- in the texts of checkpoints ------------------------------------------------- */

/* The optimizer's rule, as a line of the settings; `of` is its optim_suffix. */
void average_put_rule(const struct accel_optim *o, const char *of, struct strbuf *b);
/* Where the averages stand. */
void average_put_progress(const accel_t *run, struct strbuf *b);
/* A0987: the trainer state `text` of checkpoint `dir` has no average for an optimizer
 * that keeps one. */
accel_status_t average_check(const struct accel_optim *o, const char *dir,
                             const char *text, accel_error_t *err);
void average_take_progress(accel_t *run, const char *text);

#endif
