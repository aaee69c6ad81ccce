/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a few rows with a large weight, c = act(a b^T + bias): generation, a token at
 * a time. Bound by reading b, so it is read once, in its own type and order. Every
 * element is one sum over 4 x 16 lanes, whichever thread makes it.
 */
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#define SUMS  4  /* vectors of partial sums per element */
#define CHUNK 64 /* rows of b between two epilogues */

enum { MAX_M = 8, MAX_FLOATS = 512 * 1024 };

bool cpu_gemv_fits(const struct gemm *p)
{
    return !p->trans_a && p->trans_b && p->m <= MAX_M && p->m * p->k <= MAX_FLOATS;
}

typedef uint16_t half_lanes __attribute__((vector_size(2 * VM_LANES)));
typedef uint32_t bit_lanes __attribute__((vector_size(4 * VM_LANES)));

VM_INLINE void load_lanes(vm_lanes *to, const void *p, int64_t i, const int bf)
{
    half_lanes half;
    bit_lanes bits;

    if (!bf) {
        memcpy(to, (const float *)p + i, sizeof(*to));
        return;
    }
    memcpy(&half, (const bf16_t *)p + i, sizeof(half));
    bits = __builtin_convertvector(half, bit_lanes) << 16;
    memcpy(to, &bits, sizeof(*to));
}

/* out[r * CHUNK] = a row r . b for `m` rows of a and one of b: four sums side by side, so
 * that b is read in its order and no addition waits for the one before. */
VM_INLINE void dots(float *out, const float *a, const int m, const void *b, int64_t k,
                    const int bf)
{
    vm_lanes acc[2][SUMS] = { 0 };
    int64_t i = 0;

    for (; i + SUMS * VM_LANES <= k; i += SUMS * VM_LANES)
#pragma GCC unroll 4
        for (int j = 0; j < SUMS; j++) {
            vm_lanes w, x;

            load_lanes(&w, b, i + j * VM_LANES, bf);
#pragma GCC unroll 2
            for (int r = 0; r < m; r++) {
                memcpy(&x, a + r * k + i + j * VM_LANES, sizeof(x));
                acc[r][j] += x * w;
            }
        }
    for (int r = 0; r < m; r++) {
        vm_lanes sum = (acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3]);
        float lane[VM_LANES];

        memcpy(lane, &sum, sizeof(lane));
        for (int64_t l = i; l < k; l++)
            lane[l % VM_LANES] += a[r * k + l] * vm_load(b, l, bf);
        out[r * CHUNK] = vm_total(lane);
    }
}

VM_INLINE void chunk(float *out, const float *a, int64_t m, const void *b, int64_t ldb,
                     int64_t rows, int64_t k, const int bf)
{
    for (int64_t j = 0; j < rows; j++) {
        const void *at = (const char *)b + j * ldb * (bf ? 2 : 4);
        int64_t r = 0;

        for (; r + 2 <= m; r += 2)
            dots(out + r * CHUNK + j, a + r * k, 2, at, k, bf);
        if (r < m)
            dots(out + r * CHUNK + j, a + r * k, 1, at, k, bf);
    }
}

ACCEL_MULTIVERSION
static void chunk_any(float *out, const float *a, int64_t m, const void *b, int64_t ldb,
                      int64_t rows, int64_t k, bool bf)
{
    if (bf)
        chunk(out, a, m, b, ldb, rows, k, 1);
    else
        chunk(out, a, m, b, ldb, rows, k, 0);
}

static void columns(const struct gemm *p, const float *a, int64_t j0)
{
    int64_t n = p->n - j0 < CHUNK ? p->n - j0 : CHUNK;
    float out[MAX_M * CHUNK], bias[CHUNK];

    chunk_any(out, a, p->m, vm_at(p->b, j0 * p->ldb, p->b_type), p->ldb, n, p->k,
              p->b_type == ACCEL_BF16);
    if (p->bias)
        cpu_load_row(bias, vm_at(p->bias, j0, p->bias_type), p->bias_type, n);
    for (int64_t r = 0; r < p->m; r++) {
        int64_t at = r * p->ldc + j0;
        void *to = vm_to(p->c, at, p->c_type);

        if (!p->bias && p->act == ACCEL_ACT_NONE)
            cpu_store_row(to, out + r * CHUNK, p->c_type, n, p->add);
        else
            cpu_epilogue_row(to, p->pre ? vm_to(p->pre, at, p->c_type) : NULL,
                             p->c_type, out + r * CHUNK, p->bias ? bias : NULL, n,
                             p->act, p->add);
    }
}

void cpu_gemv(const struct backend *be, const struct gemm *p)
{
    const struct cpu_state *s = be->state;
    float *a = s->panels;

    for (int64_t r = 0; r < p->m; r++)
        cpu_load_row(a + r * p->k, vm_at(p->a, r * p->lda, p->a_type), p->a_type, p->k);
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static) if (p->n * p->k > CPU_ALONE_ELEMS)
    for (int64_t j = 0; j < p->n; j += CHUNK)
        columns(p, a, j);
}
