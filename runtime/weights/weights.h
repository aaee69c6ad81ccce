/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading and writing weights share: this rank's part of every parameter of a
 * model.
 */
#ifndef ACCEL_WEIGHTS_H
#define ACCEL_WEIGHTS_H

#include "accel_safetensors.h"
#include "weights/huggingface/hf_names.h"
#include "run/run.h"

/* Elements [begin, begin + count) of a parameter, row-major, which lie one after the
 * other in this rank's shard, in the memory of the run's home backend. */
struct weight_part {
    const accel_tensor_t *param;
    /* in elements of the parameter; count 0: this rank has none of it */
    int64_t begin, count;
    /* points into the shard; not owned */
    float *data;
};

/* All parameters of the model (NULL: of the run) in the order of their units: the same
 * list on every rank, with other ranges. *parts_out is one malloc, freed by the caller.
 * for_load as for shard_boxes. Not collective. */
accel_status_t weight_parts(accel_t *run, const struct run_model *model, bool for_load,
                            struct weight_part **parts_out, size_t *count_out,
                            accel_error_t *err);

#endif
