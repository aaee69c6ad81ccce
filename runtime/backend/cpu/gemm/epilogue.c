/* SPDX-License-Identifier: Apache-2.0
 *
 * What a row of a product goes through before it is stored: bias and activation in
 * the forward, the activation's slope in the backward. In: float32 sums of one row.
 * Out: the row in its storage type. Runs on the calling thread, while the row is in its
 * cache.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* v = a + b */
ACCEL_MULTIVERSION
static void add_rows(float *restrict v, const float *a, const float *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        v[i] = a[i] + b[i];
}

/* Without bias and activation this is only a store, of what was not computed in
 * place. */
void cpu_epilogue_row(void *out, void *pre, accel_dtype_t type, const float *c,
                      const float *bias, int64_t n, accel_activation_t act, bool add)
{
    float room[CPU_PIECE];

    if (!bias && act == ACCEL_ACT_NONE) {
        if (out != c)
            cpu_store_row(out, c, type, n, add);
        return;
    }
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        int64_t len = cpu_piece(n, i);
        /* float32: computed where it is stored, which may be c itself */
        float *v = type == ACCEL_F32 ? (float *)out + i : room;

        if (bias)
            add_rows(v, c + i, bias + i, len);
        else if (v != c + i)
            memcpy(v, c + i, (size_t)len * sizeof(*v));
        if (pre)
            cpu_store_row(vm_to(pre, i, type), v, type, len, false);
        cpu_act_piece(v, v, len, act);
        cpu_put(out, i, type, false, v, len);
    }
}

/* out = c, rounded, * act'(pre), rounded: the same bits as act_grad on a stored result.
 * `out` may be c itself. */
static void slope_row(void *out, const void *pre, accel_dtype_t type, const float *c,
                      int64_t n, accel_activation_t act)
{
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float a[CPU_PIECE], b[CPU_PIECE], *v = cpu_room(out, i, type, false, b);
        int64_t len = cpu_piece(n, i);

        /* round first, as if act_grad ran as a pass of its own */
        if (type != ACCEL_F32) {
            cpu_put(out, i, type, false, c + i, len);
            cpu_load_row(b, vm_at(out, i, type), type, len);
        }
        cpu_act_grad_piece(v, type != ACCEL_F32 ? b : c + i,
                           cpu_get(pre, i, type, len, a), len, act);
        cpu_put(out, i, type, false, v, len);
    }
}

void cpu_epilogue_tile(const struct gemm *p, const struct cpu_part *at,
                       const float *sums, int64_t ld)
{
    float bias[CPU_PIECE];

    for (int64_t j = 0; j < at->n; j += CPU_PIECE) {
        int64_t n = cpu_piece(at->n, j), column = at->j0 + j;

        if (p->bias)
            cpu_load_row(bias, vm_at(p->bias, column, p->bias_type), p->bias_type, n);
        for (int64_t r = 0; r < at->m; r++) {
            int64_t i = (at->i0 + r) * p->ldc + column;
            const float *c = sums + r * ld + j;

            if (p->act_grad)
                slope_row(vm_to(p->c, i, p->c_type), vm_at(p->pre, i, p->c_type),
                          p->c_type, c, n, p->act);
            else
                cpu_epilogue_row(vm_to(p->c, i, p->c_type),
                                 p->pre ? vm_to(p->pre, i, p->c_type) : NULL, p->c_type,
                                 c, p->bias ? bias : NULL, n, p->act, p->add);
        }
    }
}
