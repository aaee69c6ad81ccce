/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a few rows with a large weight, c = act(a b^T + bias): generation, one
 * token at a time. Reading b is the bottleneck, so it is read once, in its own type.
 * Every element is one sum over 2 x 16 lanes, whichever thread computes it.
 */

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#define SUMS  2  /* vectors of partial sums per element: struct sums */
#define CHUNK 64 /* most rows of b between two epilogues */

/* More rows go to cpu_gemm, which packs. Widened rows of a must fit a panel:
 * MAX_FLOATS. */
enum { MAX_M = 8, MAX_FLOATS = 512 * 1024, CHUNK_BYTES = 192 * 1024 };

/* b; a is widened first, whatever it is. */
static bool gemv_takes(accel_dtype_t t)
{
    return t == ACCEL_F32 || t == ACCEL_BF16 || t == ACCEL_F16;
}

/* b must be stored by rows of k: then each of its rows is one sum's operand. */
bool cpu_gemv_fits(const struct gemm *p)
{
    return (gemv_takes(p->a_type) || p->a_type == ACCEL_I8) && gemv_takes(p->b_type) &&
           !p->trans_a && p->trans_b && !p->act_grad && p->m <= MAX_M &&
           p->m * p->k <= MAX_FLOATS;
}

typedef uint32_t bit_lanes __attribute__((vector_size(4 * VM_LANES)));

/* Loads two vectors of b, from element i, in order but for bfloat16. A word holds two
 * of its numbers: a shift makes the even ones float32, a mask the odd ones, which is a
 * third of the work of widening them in order. `pair_up` puts a into the same order. */
VM_INLINE void load_two(vm_lanes *even, vm_lanes *odd, const void *p, int64_t i,
                        const accel_dtype_t t)
{
    bit_lanes bits, bit;
    float lane[2 * VM_LANES];

    if (t == ACCEL_F32) {
        memcpy(even, (const float *)p + i, sizeof(*even));
        memcpy(odd, (const float *)p + i + VM_LANES, sizeof(*odd));
        return;
    }
    if (t == ACCEL_BF16) {
        memcpy(&bits, (const bf16_t *)p + i, sizeof(bits));
        bit = bits << 16;
        memcpy(even, &bit, sizeof(bit));
        bit = bits & 0xffff0000U;
        memcpy(odd, &bit, sizeof(bit));
        return;
    }
#pragma omp simd
    for (int l = 0; l < 2 * VM_LANES; l++)
        lane[l] = vm_load(p, i + l, t);
    memcpy(even, lane, sizeof(*even));
    memcpy(odd, lane + VM_LANES, sizeof(*odd));
}

/* In place: the even elements of every two vectors, then the odd ones, as far as `dots`
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

/* Two independent sums, so that no addition waits for the previous one. Members, not an
 * array: they stay in registers. */
struct sums {
    vm_lanes a, b;
};

/* The total, with elements [i, k) after the last whole vectors added. */
VM_INLINE float gemv_finish(const struct sums *s, const float *a, const void *b,
                            int64_t i, int64_t k, const accel_dtype_t t)
{
    /* 16 lanes, then the rest of k one lane after the other, then the tree of vm_total
     */
    vm_lanes sum = s->a + s->b;
    float lane[VM_LANES];

    memcpy(lane, &sum, sizeof(lane));
    for (; i < k; i++)
        lane[i % VM_LANES] += a[i] * vm_load(b, i, t);
    return vm_total(lane);
}

/* Adds 32 products, elements [i, i + 32), to the sums. */
VM_INLINE void add(struct sums *s, const float *a, const void *b, int64_t i,
                   const accel_dtype_t t)
{
    vm_lanes x, y, even, odd;

    memcpy(&x, a + i, sizeof(x));
    memcpy(&y, a + i + VM_LANES, sizeof(y));
    load_two(&even, &odd, b, i, t);
    s->a += x * even;
    s->b += y * odd;
}

/* Two dot products, a . b and a2 . b2, that share one operand, which the compiler loads
 * once. out2 NULL: the first one alone. */
VM_INLINE void dots(float *out, float *out2, const float *a, const float *a2,
                    const void *b, const void *b2, int64_t k, const accel_dtype_t t)
{
    const vm_lanes zero = { 0 };
    struct sums s = { zero, zero }, s2 = s;
    int64_t i = 0;

    for (; i + SUMS * VM_LANES <= k; i += SUMS * VM_LANES) {
        add(&s, a, b, i, t);
        if (out2)
            add(&s2, a2, b2, i, t);
    }
    *out = gemv_finish(&s, a, b, i, k, t);
    if (out2)
        *out2 = gemv_finish(&s2, a2, b2, i, k, t);
}

#define INLINE VM_INLINE
typedef float number;

#include "backend/cpu/gemm/gemv_rows.h"

/* Fixes the type before the loops, so that each is compiled without the branch. */
ACCEL_MULTIVERSION
static void chunk_any(float *out, const float *a, int64_t m, const void *b, int64_t ldb,
                      int64_t rows, int64_t k, accel_dtype_t type)
{
    const int64_t row_bytes = ldb * (int64_t)accel_dtype_bytes(type);

    VM_BY_TYPE(type, few_rows, out, CHUNK, a, k, m, b, row_bytes, rows, k);
}

/* Rows of b per task. Long rows come in smaller tasks, so that the threads finish
 * together. */
static int64_t chunk_rows(const struct gemm *p)
{
    int64_t rows =
        /* 192 KiB of b per task, an even number of rows: one_row takes them in pairs
         */
        CHUNK_BYTES / (p->ldb * (int64_t)accel_dtype_bytes(p->b_type) + 1) / 2 * 2;

    return rows > CHUNK ? CHUNK : rows < 8 ? 8 : rows;
}

/* One task: rows [j0, j0 + n) of b, which are columns of c, with their epilogue. `a` is
 * NULL where both operands stay bfloat16. */
static void columns(const struct gemm *p, const float *a, int64_t j0, int64_t n)
{
    /* columns of c are few per task, so their sums fit the stack */
    float out[MAX_M * CHUNK], bias[CHUNK];

    if (!a)
        cpu_bf16_dots(out, CHUNK, p->a, p->lda, p->m,
                      vm_at(p->b, j0 * p->ldb, p->b_type), p->ldb, n, p->k);
    else if (p->b_type == ACCEL_F16 && cpu_has_f16_dots())
        cpu_f16_dots(out, CHUNK, a, p->k, p->m, vm_at(p->b, j0 * p->ldb, p->b_type),
                     p->ldb, n, p->k);
    else
        chunk_any(out, a, p->m, vm_at(p->b, j0 * p->ldb, p->b_type), p->ldb, n, p->k,
                  p->b_type);
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

/* a is small: it is widened once by the calling thread and then shared by all. */
void cpu_gemv(const struct backend *be, const struct gemm *p)
{
    const struct cpu_state *s = be->state;
    bool pairs = s->bf16_products && p->a_type == ACCEL_BF16 && p->b_type == ACCEL_BF16;
    float *a = pairs ? NULL : s->panels;
    int64_t step = chunk_rows(p), chunks = (p->n + step - 1) / step;
    int piece;

    for (int64_t r = 0; a && r < p->m; r++) {
        cpu_load_row(a + r * p->k, vm_at(p->a, r * p->lda, p->a_type), p->a_type, p->k);
        if (p->b_type == ACCEL_BF16)
            pair_up(a + r * p->k, p->k);
    }
    /* Threads seldom get equal shares of the memory bandwidth, so they take rows
     * dynamically; if there are many chunks, several at a time. */
    piece = (int)(chunks / (32 * be->threads)) + 1;
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(dynamic, piece) if (p->n * p->k > CPU_ALONE_ELEMS)
    for (int64_t j = 0; j < chunks; j++)
        columns(p, a, j * step, p->n - j * step < step ? p->n - j * step : step);
}
