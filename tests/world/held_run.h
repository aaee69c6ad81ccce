/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of number_run.h that save every second step, and a gate that holds whoever
 * writes a checkpoint, so that each case is the same every time. The weight of a step is
 * its number: it falls by 1 in each. A test that links this wraps accel_ckpt_save_write.
 */
#ifndef ACCEL_TESTS_HELD_RUN_H
#define ACCEL_TESTS_HELD_RUN_H

#include "checkpoint/accel_ckpt.h"
#include "tests/world/number_run.h"

#define START 2 /* what the weight begins with */

/* The config of the runs and what they write to, set by the test. */
extern char config[100], out_dir[100];
/* Lines of rank 0 about checkpoints and stops, since begin. */
extern char said[8192];

/* Who writes waits, or goes on. */
void gate(bool hold);
/* Not who trains: the thread that called begin. */
extern bool trainer_passes;
bool is_trainer(void);
/* In place of the write, behind the gate; NULL: the real one. */
extern accel_status_t (*held_write)(accel_ckpt_saving_t *g, accel_error_t *err);
accel_status_t __real_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err);

/* FULL_SHARD; `more`: lines of accel.checkpoint. */
void held_config(int world, const char *more);
accel_status_t begin(struct number_run *k, int64_t steps);
extern uint64_t held_seed; /* of the run */
accel_status_t step(struct number_run *k);
accel_status_t steps(struct number_run *k, int n);
/* Rank 0 says how a run stopped, with `text` in it, and nobody else says anything. */
bool tells(const struct boot *b, const accel_error_t *err, const char *text);
/* The newest complete checkpoint in out_dir; -1. */
int64_t newest(void);

#endif
