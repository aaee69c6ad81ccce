/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations, products and dropout on the CPU: one element in, one out. Pieces
 * of a thousand elements are widened, computed in float32 and stored, all in L1.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* A switch over constants: each loop holds one activation only, so that it
 * vectorizes. */
#define ACT_CASE(name, LOOP)                                                           \
    case ACCEL_ACT_##name:                                                             \
        LOOP(ACCEL_ACT_##name);                                                        \
        break
#define FOR_ACT(act, LOOP)                                                             \
    do {                                                                               \
        switch (act) {                                                                 \
            ACT_CASE(NONE, LOOP);                                                      \
            ACT_CASE(GELU, LOOP);                                                      \
            ACT_CASE(GELU_ERF, LOOP);                                                  \
            ACT_CASE(SILU, LOOP);                                                      \
            ACT_CASE(RELU, LOOP);                                                      \
            ACT_CASE(RELU2, LOOP);                                                     \
            ACT_CASE(TANH, LOOP);                                                      \
            ACT_CASE(SIGMOID, LOOP);                                                   \
            ACT_CASE(EXP, LOOP);                                                       \
            ACT_CASE(LOG, LOOP);                                                       \
        }                                                                              \
    } while (0)

/* `act` is a constant after inlining; the switch inside maths_act disappears. */
VM_INLINE void act_loop(float *y, const float *x, int64_t n, accel_activation_t act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = maths_act(x[i], act);
}

ACCEL_MULTIVERSION
void cpu_act_piece(float *y, const float *x, int64_t n, accel_activation_t act)
{
    if (act == ACCEL_ACT_NONE && y == x)
        return;
#define LOOP(a) act_loop(y, x, n, a)
    FOR_ACT(act, LOOP);
#undef LOOP
}

VM_INLINE void act_grad_loop(float *dx, const float *dy, const float *x, int64_t n,
                             accel_activation_t act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * maths_act_grad(x[i], act);
}

ACCEL_MULTIVERSION
void cpu_act_grad_piece(float *dx, const float *dy, const float *x, int64_t n,
                        accel_activation_t act)
{
#define LOOP(a) act_grad_loop(dx, dy, x, n, a)
    FOR_ACT(act, LOOP);
#undef LOOP
}

/* v = a * b; v may be either. */
ACCEL_MULTIVERSION
static void times_piece(float *v, const float *a, const float *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        v[i] = a[i] * b[i];
}

/* y = act(gate), times `up` where that is not NULL: then the activation goes through
 * the stack, the product to y. A thousand elements at a time: narrow ones are widened
 * into the stack. */
static void act_pieces(const struct backend *be, void *y, const void *gate,
                       const void *up, accel_dtype_t type, int64_t n,
                       accel_activation_t act, const struct narrow_copy *narrow)
{
    uint32_t most = 0;

#pragma omp parallel for num_threads(be->threads)                                      \
    reduction(max                                                                      \
              : most) if (n > CPU_ELEM_BLOCK)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], c[CPU_PIECE];
        float *v = cpu_room(y, i, type, false, c);
        int64_t len = cpu_piece(n, i);

        cpu_act_piece(up ? a : v, cpu_get(gate, i, type, len, a), len, act);
        if (up)
            times_piece(v, a, cpu_get(up, i, type, len, b), len);
        cpu_put(y, i, type, false, v, len);
        most = cpu_narrow_piece(narrow, y, type, i, len, most);
    }
    cpu_narrow_end(narrow, y, type, most);
}

void cpu_act(const struct backend *be, void *y, const void *x, accel_dtype_t type,
             int64_t n, accel_activation_t act, const struct narrow_copy *narrow)
{
    act_pieces(be, y, x, NULL, type, n, act, narrow);
}

void cpu_gated(const struct backend *be, void *y, const void *gate, const void *up,
               accel_dtype_t type, int64_t n, accel_activation_t act,
               const struct narrow_copy *narrow)
{
    act_pieces(be, y, gate, up, type, n, act, narrow);
}

void cpu_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                  const void *pre, accel_dtype_t type, int64_t n,
                  accel_activation_t act)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ELEM_BLOCK)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], c[CPU_PIECE];
        float *v = cpu_room(dx, i, type, add, c);
        int64_t len = cpu_piece(n, i);

        cpu_act_grad_piece(v, cpu_get(dy, i, type, len, a),
                           cpu_get(pre, i, type, len, b), len, act);
        cpu_put(dx, i, type, add, v, len);
    }
}

/* Both gradients from one read of the three inputs. */
void cpu_gated_grad(const struct backend *be, void *dgate, bool add_gate, void *dup,
                    bool add_up, const void *dy, const void *gate, const void *up,
                    accel_dtype_t type, int64_t n, accel_activation_t act)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ELEM_BLOCK)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], c[CPU_PIECE], v[CPU_PIECE];
        int64_t len = cpu_piece(n, i);
        const float *g = cpu_get(gate, i, type, len, a), *d;

        d = cpu_get(dy, i, type, len, b);
        if (dgate) {
            times_piece(v, d, cpu_get(up, i, type, len, c), len);
            cpu_act_grad_piece(v, v, g, len, act);
            cpu_put(dgate, i, type, add_gate, v, len);
        }
        if (dup) {
            cpu_act_piece(v, g, len, act);
            times_piece(v, v, d, len);
            cpu_put(dup, i, type, add_up, v, len);
        }
    }
}

/* keep[j]: factor of element 4 * block + j; writes up to 3 more than n. */
static void keep_piece(float *keep, const struct mask *mask, uint64_t block, int64_t n)
{
    for (int64_t j = 0; j < n; j += 4)
        maths_mask(mask, block + (uint64_t)j / 4, keep + j);
}

ACCEL_MULTIVERSION
static void multiply_piece(float *v, const float *x, int64_t n, float by)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        v[i] = x[i] * by;
}

void cpu_multiply(const struct backend *be, void *y, bool add, const void *x,
                  accel_dtype_t type, int64_t n, float by)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ELEM_BLOCK)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], *v = cpu_room(y, i, type, add, b);
        int64_t len = cpu_piece(n, i);

        multiply_piece(v, cpu_get(x, i, type, len, a), len, by);
        cpu_put(y, i, type, add, v, len);
    }
}

/* Random words come in fours, counted over the whole run: a piece may start inside one,
 * hence `into`. Generating them costs more than the product, so teams start sooner. */
void cpu_dropout(const struct backend *be, void *y, bool add, const void *x,
                 accel_dtype_t type, int64_t n, const struct mask *mask)
{
#pragma omp parallel for num_threads(be->threads) if (n > CPU_ELEM_BLOCK / 8)
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], keep[CPU_PIECE + 8];
        float *v = cpu_room(y, i, type, add, b);
        int64_t len = cpu_piece(n, i);
        uint64_t first = mask->first + (uint64_t)i, into = first % 4;

        keep_piece(keep, mask, first / 4, len + (int64_t)into);
        times_piece(v, cpu_get(x, i, type, len, a), keep + into, len);
        cpu_put(y, i, type, add, v, len);
    }
}
