/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer steps on masters of 16 bits, and on gradients and state with scales. A
 * piece is widened, stepped and narrowed while it is near. In: ranges of parameters.
 * Out: the same bits for any number of threads, and for any vectors.
 */
#include "backend/cpu/cpu.h"
#include "numbers/block_formats.h"
#include "numbers/masters.h"

/* Elements of a piece: whole blocks of moments, and no more than one thread's share of
 * the kernels for float32, so that these stay on the calling thread. */
#define PIECE 4096

_Static_assert(PIECE % MOMENT_BLOCK == 0 && PIECE % SCALED_BLOCK == 0,
               "pieces are whole blocks");

/* n numbers by the draws for elements `first` on of their parameter. */
ACCEL_MULTIVERSION
static void narrow_drawn(uint16_t *restrict to, const float *restrict x, int64_t n,
                         struct moment_key key, int64_t first)
{
    const uint32_t low = (uint32_t)first, high = (uint32_t)(first >> 32);

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t e = low + (uint32_t)i;

        to[i] = master_of(x[i], moment_word(key, e, high + (uint32_t)(e < low)));
    }
}

/* Elements [at, at + n) of a range as one of float32, without parameters and
 * gradients. */
static struct update_span piece_of(const struct update_span *x, int64_t at, int64_t n)
{
    struct update_span y = *x;
    const int64_t bytes = x->m.scale ? 1 : (int64_t)sizeof(float);

    y.narrow = NULL;
    y.scaled = NULL;
    y.n = n;
    y.first += at;
    if (y.m.data)
        y.m.data = (char *)y.m.data + at * bytes;
    if (y.v.data)
        y.v.data = (char *)y.v.data + at * bytes;
    if (y.m.scale)
        y.m.scale += at / MOMENT_BLOCK;
    if (y.v.scale)
        y.v.scale += at / MOMENT_BLOCK;
    return y;
}

/* What the weights and the state of a range are rounded by. */
struct keys {
    struct moment_key weights, state;
};

/* n elements of state from number `at` on, in `room`. */
static float *widen_state(float *room, struct scaled from, int64_t at, int64_t n)
{
    scaled_widen(room, from, at, n);
    return room;
}

/* Steps elements [at, at + n), which fit p. */
static void step_piece(const struct backend *be, const struct update_span *x,
                       const struct optim_step *k, update_fn *update, int64_t at,
                       int64_t n, const struct keys *key)
{
    const struct scaled_arrays none = { 0 }, *to = x->scaled ? x->scaled : &none;
    float p[PIECE], g[PIECE], m[PIECE], v[PIECE];
    struct update_span y = piece_of(x, at, n);

    y.p = x->p ? x->p + at : p;
    y.g = x->g ? x->g + at : g;
    if (to->gradient.data)
        scaled_widen(g, to->gradient, at, n);
    if (to->m.data)
        y.m.data = widen_state(m, to->m, at, n);
    if (to->v.data)
        y.v.data = widen_state(v, to->v, at, n);
    if (x->narrow)
        cpu_load_row(p, x->narrow + at, ACCEL_BF16, n);
    else if (to->master.data)
        scaled_widen(p, to->master, at, n);
    update(be, &y, 1, k);
    if (x->narrow && k[x->step].nearest)
        cpu_store_row(x->narrow + at, p, ACCEL_BF16, n, false);
    else if (x->narrow)
        narrow_drawn(x->narrow + at, p, n, key->weights, y.first);
    else if (to->master.data)
        scaled_narrow_by(scaled_from(to->master, at), p, n, SCALED_MASTERS,
                         key->weights, y.first);
    if (to->m.data)
        scaled_narrow_by(scaled_from(to->m, at), m, n, SCALED_STATE, key->state,
                         y.first);
    if (to->v.data)
        scaled_narrow_by(scaled_from(to->v, at), v, n, SCALED_STATE, key->state,
                         y.first);
}

/* k: all constants, of which the range names its own. */
void cpu_update_narrow(const struct backend *be, const struct update_span *x,
                       const struct optim_step *k, update_fn *update)
{
    const uint64_t draws = k[x->step].draws;
    const struct keys key = { master_key_of(draws, x->name),
                              moment_key_of(draws, x->name) };

#pragma omp parallel for schedule(static) num_threads(be->threads) if (x->n > PIECE)
    for (int64_t at = 0; at < x->n; at += PIECE)
        step_piece(be, x, k, update, at, x->n - at < PIECE ? x->n - at : PIECE, &key);
}
