/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in for a GPU counts, for tests that also run on a GPU, where nothing
 * does: then the counts are zeros, and a line that judges one is skipped.
 */
#ifndef ACCEL_TESTS_CUDA_COUNTS_H
#define ACCEL_TESTS_CUDA_COUNTS_H

#include <cuda_runtime_api.h>

/* Since the device was opened, or since `from`. */
struct fakecuda_counts counted(const struct fakecuda_counts *from);
/* A TAP line. */
void is_count(uint64_t got, uint64_t want, const char *what);

#endif
