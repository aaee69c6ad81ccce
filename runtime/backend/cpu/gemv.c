/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a few rows with a large weight, c = act(a b^T + bias): generation, a token at
 * a time. Bound by reading b, so it is read once, in its own type and order. Every
 * element is one sum over 4 x 16 lanes, whichever thread makes it.
 */
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#define SUMS  4  /* vectors of partial sums per element: struct sums */
#define CHUNK 64 /* rows of b between two epilogues */

enum { MAX_M = 8, MAX_FLOATS = 512 * 1024 };

bool cpu_gemv_fits(const struct gemm *p)
{
    return !p->trans_a && p->trans_b && !p->act_grad && p->m <= MAX_M &&
           p->m * p->k <= MAX_FLOATS;
}

typedef uint32_t bit_lanes __attribute__((vector_size(4 * VM_LANES)));

/* Two vectors of b, from element i. A word holds two bfloat16 numbers: a shift makes the
 * even ones float32, a mask the odd ones, which is a third of the work of widening them in
 * their order. `pair_up` puts a into that order. */
VM_INLINE void load_two(vm_lanes *even, vm_lanes *odd, const void *p, int64_t i,
                        const int bf)
{
    bit_lanes bits, bit;

    if (!bf) {
        memcpy(even, (const float *)p + i, sizeof(*even));
        memcpy(odd, (const float *)p + i + VM_LANES, sizeof(*odd));
        return;
    }
    memcpy(&bits, (const bf16_t *)p + i, sizeof(bits));
    bit = bits << 16;
    memcpy(even, &bit, sizeof(bit));
    bit = bits & 0xffff0000U;
    memcpy(odd, &bit, sizeof(bit));
}

/* In place: of every two vectors the even elements, then the odd ones, as far as `dots`
 * takes whole vectors. */
static void pair_up(float *a, int64_t k)
{
    for (int64_t i = 0; i + SUMS * VM_LANES <= k; i += SUMS * VM_LANES)
        for (float *p = a + i; p < a + i + SUMS * VM_LANES; p += 2 * VM_LANES) {
            float odd[VM_LANES];

            for (int l = 0; l < VM_LANES; l++)
                odd[l] = p[2 * l + 1];
            for (int l = 0; l < VM_LANES; l++)
                p[l] = p[2 * l];
            memcpy(p + VM_LANES, odd, sizeof(odd));
        }
}

/* Four sums side by side, so that no addition waits for the one before. Members, not an
 * array: they stay in registers. */
struct sums {
    vm_lanes a, b, c, d;
};

VM_INLINE void add_two(vm_lanes *p, vm_lanes *q, const float *a, const vm_lanes *even,
                       const vm_lanes *odd)
{
    vm_lanes x;

    memcpy(&x, a, sizeof(x));
    *p += x * *even;
    memcpy(&x, a + VM_LANES, sizeof(x));
    *q += x * *odd;
}

/* The sum with what is behind the last whole vectors, elements [i, k). */
VM_INLINE float finish(const struct sums *s, const float *a, const void *b, int64_t i,
                       int64_t k, const int bf)
{
    vm_lanes sum = (s->a + s->b) + (s->c + s->d);
    float lane[VM_LANES];

    memcpy(lane, &sum, sizeof(lane));
    for (; i < k; i++)
        lane[i % VM_LANES] += a[i] * vm_load(b, i, bf);
    return vm_total(lane);
}

/* out[r * CHUNK] = a row r . b for `m` rows of a, one or two, and one of b, which is read in
 * its order. */
VM_INLINE void dots(float *out, const float *a, const int m, const void *b, int64_t k,
                    const int bf)
{
    const vm_lanes zero = { 0 };
    struct sums s = { zero, zero, zero, zero }, t = s;
    const float *second = a + k;
    int64_t i = 0;

    for (; i + SUMS * VM_LANES <= k; i += SUMS * VM_LANES) {
        vm_lanes even, odd;

        load_two(&even, &odd, b, i, bf);
        add_two(&s.a, &s.b, a + i, &even, &odd);
        if (m > 1)
            add_two(&t.a, &t.b, second + i, &even, &odd);
        load_two(&even, &odd, b, i + 2 * VM_LANES, bf);
        add_two(&s.c, &s.d, a + i + 2 * VM_LANES, &even, &odd);
        if (m > 1)
            add_two(&t.c, &t.d, second + i + 2 * VM_LANES, &even, &odd);
    }
    out[0] = finish(&s, a, b, i, k, bf);
    if (m > 1)
        out[CHUNK] = finish(&t, second, b, i, k, bf);
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

/* `a` is NULL where both are bfloat16 and stay so. */
static void columns(const struct gemm *p, const float *a, int64_t j0)
{
    int64_t n = p->n - j0 < CHUNK ? p->n - j0 : CHUNK;
    float out[MAX_M * CHUNK], bias[CHUNK];

    if (!a)
        cpu_bf16_dots(out, CHUNK, p->a, p->lda, p->m,
                      vm_at(p->b, j0 * p->ldb, p->b_type), p->ldb, n, p->k);
    else
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
    bool pairs = s->bf16_products && p->a_type == ACCEL_BF16 && p->b_type == ACCEL_BF16;
    float *a = pairs ? NULL : s->panels;
    int64_t chunks;
    int piece;

    for (int64_t r = 0; a && r < p->m; r++) {
        cpu_load_row(a + r * p->k, vm_at(p->a, r * p->lda, p->a_type), p->a_type, p->k);
        if (p->b_type == ACCEL_BF16)
            pair_up(a + r * p->k, p->k);
    }
    chunks = (p->n + CHUNK - 1) / CHUNK;
    /* Threads seldom get the same part of the memory's bandwidth: they share the rows out
     * as they go, in pieces large enough to be read ahead. */
    piece = (int)(chunks / (8 * be->threads)) + 1;
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic, piece) if (p->n * p->k > CPU_ALONE_ELEMS)
    for (int64_t j = 0; j < chunks; j++)
        columns(p, a, j * CHUNK);
}
