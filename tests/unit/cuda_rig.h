/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend beside the CPU's: arrays with the same values on both sides, and how
 * far results are apart.
 */
#ifndef ACCEL_TESTS_CUDA_RIG_H
#define ACCEL_TESTS_CUDA_RIG_H

#include "backend/device.h"

struct cuda_rig {
    struct backend *cpu, *device;
    size_t skew; /* elements that arrays begin behind what the device allocates */
    void **host; /* copies on the host */
    void **room; /* and memory of the device */
    int count, space;
    uint32_t seed;
};

struct cuda_array {
    void *host, *device;
};

/* With the device of cuda_device(). */
void cuda_rig_open(struct cuda_rig *rig);
void cuda_rig_close(struct cuda_rig *rig);
/* Gives all arrays back. */
void cuda_rig_reset(struct cuda_rig *rig);

/* n random values in [-scale, scale), the same on both sides. */
struct cuda_array cuda_rig_values(struct cuda_rig *rig, accel_dtype_t type, int64_t n,
                                  float scale);
/* n bytes of the host, kept until the reset. */
void *cuda_rig_copy(struct cuda_rig *rig, const void *from, size_t bytes);
void *cuda_rig_fetch(struct cuda_rig *rig, const void *device, size_t bytes);

/* The largest distance from what is wanted, in parts of what is allowed: float32 1e-5
 * of the value and of 4, bfloat16 2 units in the last place besides. NaN wants NaN. */
double cuda_rig_distance(const void *want, const void *got, accel_dtype_t type,
                         int64_t n);

#endif
