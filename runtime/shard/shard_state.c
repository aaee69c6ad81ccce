/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizers' state on this rank: one array for each kind of number, float32 or
 * quantised, with the scales following the codes. In: layout and settings. Out: memory,
 * addresses in it, and means over ranks that each keep all state.
 */
#include <string.h>
#include <xxhash.h>

#include "numbers/rng.h"
#include "plan/plan.h"
#include "shard/shard_impl.h"

_Static_assert(PLAN_STATE_ELEMS == SCALED_BLOCK && SCALED_BLOCK % MOMENT_BLOCK == 0,
               "the plan counts whole blocks");

/* The form of array k. */
static accel_moments_t form_of(const struct shard_trainer *t, int k)
{
    return k < t->states ? t->form : ACCEL_MOMENTS_FLOAT32;
}

bool shard_has_scaled_state(const struct shard *s)
{
    bool has = false;

    for (int i = 0; i < s->store.trainers; i++)
        has = has || s->store.trainer[i].form == ACCEL_MOMENTS_FP8;
    return has;
}

/* Units begin at multiples of 32 elements, and so do the trained parts of them. */
size_t shard_state_bytes(const struct shard_trainer *t, int k)
{
    const size_t n = (size_t)t->state_elems;

    switch (form_of(t, k)) {
    case ACCEL_MOMENTS_8BIT:
        return n + moment_scales(t->state_elems) * sizeof(uint16_t);
    case ACCEL_MOMENTS_FP8:
        return scaled_bytes(t->state_elems, optim_scaled_type(&t->o.settings, k));
    default:
        return n * sizeof(float);
    }
}

struct state_array shard_array_at(const struct shard_trainer *t, int k, int64_t at)
{
    char *data = t->state[k];
    const int64_t n = t->state_elems;
    struct state_array a = { .plain.data = NULL };

    switch (form_of(t, k)) {
    case ACCEL_MOMENTS_8BIT:
        a.plain.data = data + at;
        a.plain.scale = (uint16_t *)(void *)(data + n) + at / MOMENT_BLOCK;
        break;
    case ACCEL_MOMENTS_FP8:
        a.scaled =
            scaled_from(scaled_in(data, n, optim_scaled_type(&t->o.settings, k)), at);
        break;
    default:
        a.plain.data = (float *)t->state[k] + at;
    }
    return a;
}

float *shard_state_at(const struct shard_trainer *t, int k, int64_t at)
{
    return (float *)t->state[k] + at;
}

/* 8-bit moments from element `at` on. */
static struct moments codes_from(struct moments x, int64_t at)
{
    return (struct moments){ (char *)x.data + at, x.scale + at / MOMENT_BLOCK };
}

void shard_widen_state(const struct backend *be, float *to, struct state_array x,
                       bool positive, int64_t at, int64_t n)
{
    if (x.scaled.data)
        be->scaled_widen(be, to, ACCEL_F32, scaled_from(x.scaled, at), n);
    else if (x.plain.scale)
        be->moments_widen(be, to, codes_from(x.plain, at), positive, n);
    else
        memcpy(to, (const float *)x.plain.data + at, (size_t)n * sizeof(*to));
}

void shard_narrow_state(const struct backend *be, struct state_array x, int64_t at,
                        const float *from, bool positive, int64_t n)
{
    if (x.scaled.data)
        be->scaled_narrow(be, scaled_from(x.scaled, at), from, n, positive);
    else if (x.plain.scale)
        be->moments_narrow(be, codes_from(x.plain, at), from, positive, n);
    else
        memcpy((float *)x.plain.data + at, from, (size_t)n * sizeof(*from));
}

uint64_t shard_name_hash(const accel_tensor_t *p)
{
    const char *name = tensor_full_name(p);

    return XXH3_64bits(name, strlen(name));
}

/* A stream of its own: initial values are drawn with the hashes of names. */
uint64_t shard_draws(const struct shard *s, int64_t t)
{
    static const char stream[] = "moments";
    uint32_t word[4];

    rng_block(s->o.seed, XXH3_64bits(stream, sizeof(stream)), (uint64_t)t, word);
    return (uint64_t)word[1] << 32 | word[0];
}
