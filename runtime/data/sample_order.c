/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of samples: a keyed bijection of [0, n), evaluated at one point. A
 * Feistel network over 2k bits (Philox as round function) with cycle walking: outputs
 * beyond n go through it again. Constant memory, any position at once, the same for
 * every world size.
 */
#include "numbers/rng.h"
#include "data/data.h"

/* 4 already make a strong pseudo-random permutation (Luby and Rackoff, 1988) */
#define ROUNDS 6

/* One pass over [0, 2^(2k)). Every round can be undone whatever the round function is,
 * so it is a bijection. */
static uint64_t feistel(uint64_t seed, int64_t epoch, int k, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << k) - 1;
    uint64_t left = x >> k, right = x & mask;

    for (int round = 0; round < ROUNDS; round++) {
        uint32_t f[4];
        uint64_t next;

        rng_block(seed, (uint64_t)epoch, (uint64_t)round << 32 | right, f);
        next = left ^ (f[0] & mask);
        left = right;
        right = next;
    }
    return left << k | right;
}

/* 2^(2k) < 4n: fewer than 4 passes on average. It ends because the cycle of i leads
 * back into [0, n). */
int64_t data_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    uint64_t x = (uint64_t)i;
    int k = 1;

    while (k < 31 && (uint64_t)1 << (2 * k) < (uint64_t)n)
        k++;
    do {
        x = feistel(seed, epoch, k, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
