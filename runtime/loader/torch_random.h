/* SPDX-License-Identifier: Apache-2.0
 *
 * torch's random numbers on the CPU, as far as its samplers need them: the Mersenne
 * twister with torch's seeding, and torch.randperm. In: a seed. Out: the numbers that
 * torch draws after generator.manual_seed(seed). Allocates nothing.
 */
#ifndef ACCEL_LOADER_TORCH_RANDOM_H
#define ACCEL_LOADER_TORCH_RANDOM_H

#include <stdint.h>

#define TORCH_STATE 624

/* MT19937 (Matsumoto and Nishimura 1998). */
struct torch_random {
    uint32_t state[TORCH_STATE];
    /* the next word of `state`; TORCH_STATE: all are used */
    int at;
};

/* torch takes the low 32 bits of the seed. */
void torch_random_seed(struct torch_random *r, uint64_t seed);
uint32_t torch_random_next(struct torch_random *r);

/* From this many elements on, torch.randperm draws 64 bits for each, unlike
 * torch_permutation. */
#define TORCH_PERMUTATION_MAX (UINT32_MAX / 20)

/* torch.randperm(n, generator=manual_seed(seed)) into out[n], n <
 * TORCH_PERMUTATION_MAX. */
void torch_permutation(uint64_t seed, int64_t n, int64_t *out);

#endif
