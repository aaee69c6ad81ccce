/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading and writing weights share: this rank's part of every parameter of a
 * model, and how parts become whole.
 */
#ifndef ACCEL_WEIGHTS_H
#define ACCEL_WEIGHTS_H

#include "accel_safetensors.h"
#include "models/huggingface/hf_names.h"
#include "handle/run.h"

/* Elements [begin, begin + count) of a parameter, row-major, which lie one after the
 * other in this rank's shard, in the memory of the run's home backend. */
struct weight_part {
    const accel_tensor_t *param;
    /* in elements of the parameter; count 0: this rank has none of it */
    int64_t begin, count;
    /* points into the shard, elements of `type`; not owned */
    void *data;
    accel_dtype_t type;
    /* scales of float16 ones; begin is a multiple of 32 then */
    uint8_t *exponent;
};

/* The part's elements from number `first` of its own on. */
static inline void *weight_part_at(const struct weight_part *p, int64_t first)
{
    return (char *)p->data + first * (int64_t)accel_dtype_bytes(p->type);
}

/* Do values of this run's weights need host memory of their own on the way, because the
 * shard is on a device or narrow? */
bool weights_are_staged(const accel_t *run);
/* Host memory to elements [first, first + n) of the part's own, rounded to the nearest
 * where they are narrow; first is a multiple of 32. Not collective. */
void weight_part_write(accel_t *run, const struct weight_part *p, int64_t first,
                       int64_t n, const float *src);

/* All parameters of the model (NULL: of the run) in the order of their units: the same
 * list on every rank, with other ranges. *parts_out is one malloc, freed by the caller.
 * for_load as for shard_boxes. Not collective. */
accel_status_t weight_parts(accel_t *run, const struct run_model *model, bool for_load,
                            struct weight_part **parts_out, size_t *count_out,
                            accel_error_t *err);

/* "[768, 3072]" into buf[len]; transposed: reversed, as a file has the transpose. */
void weight_shape_text(int ndim, const int64_t *dim, bool transposed, char *buf,
                       size_t len);

/* Elements [first, first + count) of the parameter into dst[count] on rank `root`;
 * elsewhere dst may be NULL. stage: host memory for as many, NULL unless
 * weights_are_staged. Collective. */
accel_status_t weight_gather(accel_t *run, const struct weight_part *p, int root,
                             int64_t first, int64_t count, float *stage, float *dst,
                             accel_error_t *err);

#endif
