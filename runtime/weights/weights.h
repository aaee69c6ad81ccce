/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading and writing weights share: this rank's part of every parameter.
 */
#ifndef ACCEL_TRAIN_WEIGHTS_H
#define ACCEL_TRAIN_WEIGHTS_H

#include "accel_safetensors.h"
#include "weights/huggingface/hf_names.h"
#include "run/run.h"

/* Elements [begin, begin + count) of a parameter, one after the other in this rank's
 * shard, in the backend's memory. */
struct weight_part {
    const accel_tensor_t *param;
    int64_t begin, count; /* count 0: nothing of it */
    float *data;
};

/* All parameters of the run in the order of their units, the same list on every rank;
 * *out is one malloc. for_load as for shard_boxes. */
accel_status_t weight_parts(accel_t *run, bool for_load, struct weight_part **parts_out,
                            size_t *count_out, accel_error_t *err);

#endif
