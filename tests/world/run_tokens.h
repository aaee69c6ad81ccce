/* SPDX-License-Identifier: Apache-2.0
 *
 * A small language task for tests that open whole runs: tokens that follow each other.
 */
#ifndef ACCEL_TESTS_RUN_TOKENS_H
#define ACCEL_TESTS_RUN_TOKENS_H

#include "accel.h"

/* Sizes of the task; all ranks together have at most TOKENS_SAMPLES samples. */
enum { TOKENS_SAMPLES = 8, TOKENS_SEQ = 16, TOKENS_VOCAB = 64 };

/* The model's loss of this rank's samples of batch `number`; all ranks have `samples`.
 * NULL: an error, which is in the run. */
accel_tensor_t *run_tokens_loss(accel_t *run, accel_module_t *model, int samples,
                                int number, accel_error_t *err);
/* The same of batch 0 in inference mode, as a number. */
accel_status_t run_tokens_evaluate(accel_t *run, accel_module_t *model, int samples,
                                   double *loss_out, accel_error_t *err);
/* A micro-batch of its own: begin, backward of batch `number`, step. */
accel_status_t run_tokens_step(accel_t *run, accel_module_t *model, int samples,
                               int number, accel_error_t *err);
/* A Llama for the task: two layers, grouped heads, MLPs of that width. NULL: an error. */
accel_module_t *run_tokens_llama(accel_t *run, int hidden, accel_error_t *err);

#endif
