/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed and streamed products: every element is a chain of fused multiply-adds in the order of k
 * per block of k, to the bit, with every instruction set of this CPU, every dtype of the operands,
 * stored either way, in odd sizes and with 1 to 4 threads. Packing alone: every code of a narrow
 * type, and rows that end where memory does.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "numbers/minifloat.h"
#include "tests/tap.h"

enum { THREADS = TAP_SANITIZED ? 2 : 4, MARGIN = 3 };

/* Rows of few and many slivers, columns that fill no panel, and k of one and of several
 * blocks, one with more rows than a tile; then few rows and few k, whose b is streamed,
 * of one and of several pieces of columns. */
static const struct {
    int m, n, k;
} shapes[] = {
    { 9, 1, 1 },    { 14, 32, 64 },  { 15, 31, 17 },  { 17, 35, 1030 }, { 31, 85, 530 },
    { 9, 800, 20 }, { 361, 18, 70 }, { 1, 97, 1030 }, { 3, 1061, 515 }, { 8, 64, 530 },
    { 71, 545, 3 }, { 67, 32, 1 },   { 94, 33, 4 },
};

static const accel_dtype_t types[] = { ACCEL_F32,    ACCEL_BF16,   ACCEL_F16,
                                       ACCEL_F8E4M3, ACCEL_F8E5M2, ACCEL_I8 };

static void *need(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p)
        exit(1);
    return p;
}

static float drawn(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int64_t)(*state >> 40) - (1 << 23)) / (float)(1 << 21);
}

/* Stores v as `type` and returns what is then read. */
static float stored(void *p, int64_t i, accel_dtype_t type, float v)
{
    switch (type) {
    case ACCEL_BF16:
        return bf16_to_f32(((bf16_t *)p)[i] = f32_to_bf16(v));
    case ACCEL_F16:
        return f16_to_f32(((f16_t *)p)[i] = f32_to_f16(v));
    case ACCEL_F8E4M3:
        return e4m3_to_f32(((f8_t *)p)[i] = f32_to_e4m3(v));
    case ACCEL_F8E5M2:
        return e5m2_to_f32(((f8_t *)p)[i] = f32_to_e5m2(v));
    case ACCEL_I8: /* from -128 to 127; what must not be read is 99 */
        return ((int8_t *)p)[i] = isnan(v) ? 99 : (int8_t)(v * 32 - 0.5f);
    default:
        return ((float *)p)[i] = v;
    }
}

/* [rows][cols] of `type`, stored as it is or transposed; NaN lies behind each row.
 * `values` gets what it holds. */
static void *matrix(accel_dtype_t type, int64_t rows, int64_t cols, bool transposed,
                    float *values)
{
    int64_t across = transposed ? cols : rows, along = transposed ? rows : cols;
    int64_t ld = along + MARGIN;
    void *p = need((size_t)(across * ld) * accel_dtype_bytes(type));
    uint64_t state = 17;

    for (int64_t i = 0; i < across * ld; i++)
        stored(p, i, type, NAN);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            values[r * cols + c] =
                stored(p, transposed ? c * ld + r : r * ld + c, type, drawn(&state));
    return p;
}

/* c (+)= a b: a chain per block of k, the blocks added in order. */
static void chains(float *c, bool add, const float *a, const float *b, int64_t m,
                   int64_t n, int64_t k)
{
    for (int64_t r = 0; r < m; r++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k0 = 0; k0 < k; k0 += PANEL_DEPTH) {
                float sum = 0.0f;

                for (int64_t i = k0; i < k && i < k0 + PANEL_DEPTH; i++)
                    sum = fmaf(a[r * k + i], b[i * n + j], sum);
                c[r * n + j] = add || k0 > 0 ? c[r * n + j] + sum : sum;
            }
}

/* Number of elements of c that differ from `want` in some bit. */
static int64_t wrong(struct backend *const be[THREADS], enum tile_isa isa,
                     struct gemm p, const float *want)
{
    size_t bytes = (size_t)(p.m * p.n) * sizeof(float);
    float *c = need(bytes);
    int64_t count = 0;

    p.c = c;
    for (int t = 0; t < THREADS; t++) {
        ((struct cpu_state *)be[t]->state)->kernel = panel_kernel_of(isa);
        for (int64_t i = 0; i < p.m * p.n; i++)
            c[i] = p.add ? 0.75f : NAN;
        be[t]->gemm(be[t], &p);
        for (int64_t i = 0; i < p.m * p.n; i++)
            count += memcmp(&c[i], &want[i], sizeof(float)) != 0;
    }
    free(c);
    return count;
}

/* One shape and pair of dtypes: stored in all ways, on all instruction sets. */
static void test_chains(struct backend *const be[THREADS], int64_t m, int64_t n,
                        int64_t k, accel_dtype_t a_type, accel_dtype_t b_type)
{
    float *a = need((size_t)(m * k) * sizeof(float));
    float *b = need((size_t)(k * n) * sizeof(float));
    float *want = need((size_t)(m * n) * sizeof(float));
    int64_t count = 0;

    for (int how = 0; how < 8; how++) {
        struct gemm p = { .trans_a = how & 1,
                          .trans_b = how & 2,
                          .add = how & 4,
                          .m = m,
                          .n = n,
                          .k = k,
                          .ldc = n,
                          .c_type = ACCEL_F32,
                          .a_type = a_type,
                          .b_type = b_type };
        void *stored_a = matrix(a_type, m, k, p.trans_a, a);
        void *stored_b = matrix(b_type, k, n, p.trans_b, b);

        p.a = stored_a;
        p.b = stored_b;
        p.lda = (p.trans_a ? m : k) + MARGIN;
        p.ldb = (p.trans_b ? k : n) + MARGIN;
        for (int64_t i = 0; i < m * n; i++)
            want[i] = 0.75f;
        chains(want, p.add, a, b, m, n, k);
        /* cpu_gemv adds in an order of its own */
        for (int isa = TILE_GENERIC; isa <= (int)tile_isa() && !cpu_gemv_fits(&p);
             isa++)
            count += wrong(be, (enum tile_isa)isa, p, want);
        free(stored_a);
        free(stored_b);
    }
    tap_ok(count == 0, "%d x %d x %d, %s times %s: chains, %ld wrong", (int)m, (int)n,
           (int)k, accel_dtype_name(a_type), accel_dtype_name(b_type), (long)count);
    free(a);
    free(b);
    free(want);
}

static float code_value(accel_dtype_t type, uint32_t code)
{
    switch (type) {
    case ACCEL_BF16:
        return bf16_to_f32((bf16_t)code);
    case ACCEL_F16:
        return f16_to_f32((f16_t)code);
    case ACCEL_F8E4M3:
        return e4m3_to_f32((f8_t)code);
    case ACCEL_F8E5M2:
        return e5m2_to_f32((f8_t)code);
    case ACCEL_I8:
        return (int8_t)code;
    default:
        return minifloat_float(code * 0x9e3779b9u);
    }
}

static bool same_number(float a, float b)
{
    return isnan(a) ? isnan(b) : minifloat_bits(a) == minifloat_bits(b);
}

/* `rows` stored rows of `cols` numbers, the codes from `code` on. They end where the
 * memory does: `end` is the first byte that must not be touched. */
static char *codes_before(char *end, accel_dtype_t type, int64_t rows, int64_t cols,
                          uint32_t code)
{
    const int64_t size = (int64_t)accel_dtype_bytes(type);
    char *p = end - rows * cols * size;

    for (int64_t i = 0; i < rows * cols; i++) {
        uint32_t bits = code + (uint32_t)i;

        if (type == ACCEL_F32)
            bits = minifloat_bits(code_value(type, bits));
        memcpy(p + i * size, &bits, (size_t)size);
    }
    return p;
}

/* Packs n rows or columns of k codes and looks at each: the number of wrong ones. */
static int64_t wrong_packed(const struct panel_kernel *kernel, char *end,
                            accel_dtype_t type, bool k_rows, int64_t n, int64_t k,
                            uint32_t code)
{
    static float to[PANEL_LANES * PANEL_DEPTH + PANEL_SLACK];
    const int64_t rows = k_rows ? n : k, cols = k_rows ? k : n, width = kernel->lanes;
    struct panel_operand from = { codes_before(end, type, rows, cols, code), type, cols,
                                  k_rows, .blocks = { 0 } };
    int64_t count = 0;

    panel_pack(kernel, to, &from, 0, n, 0, k, width);
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < width; i++) {
            int64_t at = k_rows ? i * k + p : p * n + i;
            float want = i < n ? code_value(type, code + (uint32_t)at) : 0.0f;

            count += !same_number(to[p * width + i], want);
        }
    return count;
}

/* Every code of 8 or 16 bits, and all sizes of a few vectors. */
static void test_packing(accel_dtype_t type)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 64 * page;
    char *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int64_t codes = 0, sizes = 0;

    if (base == MAP_FAILED || mprotect(base + room, page, PROT_NONE))
        exit(1);
    for (int isa = TILE_GENERIC; isa <= (int)tile_isa(); isa++)
        for (int k_rows = 0; k_rows < 2; k_rows++) {
            const struct panel_kernel *kernel = panel_kernel_of((enum tile_isa)isa);

            for (uint32_t code = 0; code < 65536; code += 4096)
                codes += wrong_packed(kernel, base + room, type, k_rows, 16, 256, code);
            for (int64_t n = 1; n <= kernel->lanes; n++)
                for (int64_t k = 1; k <= 35; k += TAP_SANITIZED ? 3 : 1)
                    sizes += wrong_packed(kernel, base + room, type, k_rows, n, k, 90);
        }
    munmap(base, room + page);
    tap_ok(codes == 0, "%s: every code packed, %ld wrong", accel_dtype_name(type),
           (long)codes);
    tap_ok(sizes == 0, "%s: rows of all sizes that end where memory does, %ld wrong",
           accel_dtype_name(type), (long)sizes);
}

int main(void)
{
    struct backend *be[THREADS];

    for (int t = 0; t < THREADS; t++) {
        if (backend_cpu_open(&be[t], t + 1, NULL))
            return 1;
        /* the instruction that takes pairs has bits of its own */
        ((struct cpu_state *)be[t]->state)->bf16_products = false;
    }
    tap_diag("%d instruction sets", (int)tile_isa() + 1);
    /* With the sanitizer each access takes its time: two types, others of each shape. */
    for (size_t s = 0; s < ACCEL_ARRAY_SIZE(shapes); s++)
        for (size_t i = TAP_SANITIZED ? s % 3 : 0; i < ACCEL_ARRAY_SIZE(types);
             i += TAP_SANITIZED ? 3 : 1) {
            accel_dtype_t other = types[(i + s) % ACCEL_ARRAY_SIZE(types)];

            test_chains(be, shapes[s].m, shapes[s].n, shapes[s].k, types[i], other);
        }
    for (int t = 0; t < THREADS; t++)
        backend_close(be[t]);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(types); i++)
        test_packing(types[i]);
    return tap_done();
}
