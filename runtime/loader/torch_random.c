/* SPDX-License-Identifier: Apache-2.0
 *
 * MT19937 and torch.randperm: see torch_random.h. Accelerate's seedable sampler draws
 * its order with them; with the same code a run of accel can take the same samples.
 */
#include "loader/torch_random.h"

enum { SHIFT = 397, STATE = 624 };

/* MT19937 (Matsumoto and Nishimura 1998). */
struct torch_random {
    uint32_t state[STATE];
    /* the next word of `state`; STATE: all are used */
    int at;
};

/* torch takes the low 32 bits of the seed. */
static void torch_random_seed(struct torch_random *r, uint64_t seed)
{
    r->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < STATE; i++) {
        uint32_t before = r->state[i - 1];

        r->state[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    r->at = STATE;
}

/* One word of the recurrence: the high bit of a, the others of b. */
static uint32_t twist(uint32_t a, uint32_t b)
{
    uint32_t mixed = (a & 0x80000000u) | (b & 0x7fffffffu);

    return mixed >> 1 ^ (b & 1 ? 0x9908b0dfu : 0);
}

static void next_state(struct torch_random *r)
{
    uint32_t *s = r->state;

    for (int i = 0; i < STATE; i++)
        s[i] = s[(i + SHIFT) % STATE] ^ twist(s[i], s[(i + 1) % STATE]);
    r->at = 0;
}

static uint32_t torch_random_next(struct torch_random *r)
{
    uint32_t y;

    if (r->at == STATE)
        next_state(r);
    y = r->state[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* Fisher and Yates from the front. The remainder of a 32-bit draw is not quite even,
 * but it is what torch does. */
void torch_permutation(uint64_t seed, int64_t n, int64_t *out)
{
    struct torch_random r;

    torch_random_seed(&r, seed);
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t other = i + torch_random_next(&r) % (n - i);
        int64_t kept = out[i];

        out[i] = out[other];
        out[other] = kept;
    }
}
