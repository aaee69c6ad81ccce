/* SPDX-License-Identifier: Apache-2.0
 *
 * A published model as the trainer opens it, without config and program: its shape, its
 * units sharded over ranks, on a given backend; and its logits beside torch's.
 */
#ifndef ACCEL_TESTS_MODEL_RUN_H
#define ACCEL_TESTS_MODEL_RUN_H

#include "models/model_config.h"
#include "handle/run.h"

struct model_request {
    const char *dir; /* with its config.json; what cannot be read is a small gpt2 */
    accel_model_config_t sizes; /* 0: as in the file */
    enum sharding_strategy strategy;
    accel_dtype_t compute;
    struct backend *backend; /* closed with the run, and if it does not open */
};

/* tests/data/weights/NAME, of the source in $ACCEL_SRC or of the build; valid until the next
 * call. */
const char *model_run_data(const char *name);

accel_status_t model_run_open(accel_t *run, struct boot *b,
                              const struct model_request *r, accel_error_t *err);
void model_run_close(accel_t *run);

/* Logits of ten tokens: of a causal model behind every prefix, of the others at once.
 * `name` is the model's in tests/data/weights/logits.safetensors. */
#define MODEL_RUN_LOGITS (10 * 41)
accel_status_t model_run_logits(accel_t *run, const char *name, float *out,
                                int64_t *count_out, accel_error_t *err);
accel_status_t model_run_torch(const char *name, float *out, accel_error_t *err);

#endif
