/* SPDX-License-Identifier: Apache-2.0
 *
 * torch's random numbers on the CPU, as far as its samplers need them: the Mersenne
 * twister with torch's seeding, and torch.randperm. In: a seed. Out: the numbers that
 * torch draws after generator.manual_seed(seed). Allocates nothing.
 */
#ifndef ACCEL_LOADER_TORCH_RANDOM_H
#define ACCEL_LOADER_TORCH_RANDOM_H

#include <stdint.h>

/* From this many elements on, torch.randperm draws 64 bits for each, unlike
 * torch_permutation. */
#define TORCH_PERMUTATION_MAX (UINT32_MAX / 20)

/* torch.randperm(n, generator=manual_seed(seed)) into out[n], n <
 * TORCH_PERMUTATION_MAX. */
void torch_permutation(uint64_t seed, int64_t n, int64_t *out);

#endif
