/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels' workspace: its size depends on the device alone. Once it is reserved a
 * kernel takes nothing more from the device, in passes where its shape needs more, and
 * the books agree with what the plan counts. What no pass can make smaller is allocated
 * and counted.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_sizes.h"
#include "numbers/bf16.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

#define MIB ((size_t)1 << 20)

/* The stand-in's: forgets its pool's peak, and reads its memory's size again. A GPU's
 * pool keeps what it got. */
static void (*reset)(void);

static void test_size(void)
{
    static const struct {
        size_t memory, want;
        const char *what;
    } t[] = {
        { 0, 1280 * MIB, "not known: the most" },
        { 180 * 1024 * MIB, 1280 * MIB, "180 GiB: the most" },
        { 80 * 1024 * MIB, 1280 * MIB, "80 GiB: just the most" },
        { 80 * 1024 * MIB - 1, 1278 * MIB, "a byte less: whole pages" },
        { 8 * 1024 * MIB, 128 * MIB, "8 GiB: a 64th part" },
        { 64 * MIB, 4 * MIB, "64 MiB: the least" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        tap_is_int((long long)cuda_workspace_bytes(t[i].memory), (long long)t[i].want,
                   "%s", t[i].what);
        tap_is_int((long long)cuda_fixed_bytes(t[i].memory),
                   (long long)(t[i].want + 32 * MIB), "with cuBLASLt's");
    }
}

static void *get(const struct backend *be, size_t bytes)
{
    accel_error_t err;
    void *p = NULL;

    if (be->alloc(be, MEMORY_BUFFERS, bytes, &p, &err))
        tap_diag("%s", err.text);
    return p;
}

/* A device with its workspace or without. `memory`: bytes of the stand-in's. */
static struct backend *open_one(const char *memory, bool reserve)
{
    struct backend *be;
    accel_error_t err;

    if (reset) {
        setenv("FAKE_CUDA_MEMORY", memory, 1);
        reset();
    }
    be = cuda_device();
    if (reserve && be->reserve_workspace(be, &err))
        tap_diag("%s", err.text);
    return be;
}

static struct backend_usage usage(const struct backend *be)
{
    struct backend_usage u;
    accel_error_t err;

    if (be->sync(be, &err))
        tap_diag("%s", err.text);
    be->usage(be, &u);
    return u;
}

/* Values that differ from each other: float32 or bfloat16, exact in both. */
static void *values(const struct backend *be, accel_dtype_t type, int64_t n)
{
    const size_t bytes = (size_t)n * accel_dtype_bytes(type);
    float *v = malloc((size_t)n * sizeof(*v));
    void *p = get(be, bytes);

    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(i * 7 % 61 - 30) / 16.0f;
    if (type == ACCEL_BF16)
        bf16_narrow((bf16_t *)v, v, (size_t)n);
    be->from_host(be, p, v, bytes);
    free(v);
    return p;
}

/* The product `shape` with operands and result of its own: how much more of the device
 * there was for it, and the result. */
struct made {
    size_t peak;
    void *c;
};

static struct made multiply(const struct gemm *shape, const char *memory, bool reserve)
{
    struct backend *be = open_one(memory, reserve);
    const size_t bytes =
        (size_t)(shape->m * shape->n) * accel_dtype_bytes(shape->c_type);
    struct made made = { .c = malloc(bytes) };
    struct gemm g = *shape;
    size_t before;

    g.lda = g.k;
    g.ldb = g.ldc = g.n;
    g.a = values(be, g.a_type, g.m * g.k);
    g.b = values(be, g.b_type, g.k * g.n);
    g.c = get(be, bytes);
    before = usage(be).peak;
    be->gemm(be, &g);
    made.peak = usage(be).peak - before;
    be->to_host_bytes(be, made.c, g.c, bytes);
    be->close(be);
    return made;
}

#define LARGE "17179869184" /* 16 GiB: 256 MiB of workspace */
#define SMALL "134217728"   /* 128 MiB: 4 MiB of workspace, half of it for sums */

static void test_gemm(void)
{
    static const struct {
        struct gemm g;
        size_t needs;
        const char *what;
    } t[] = {
        { { .a_type = ACCEL_F32, .b_type = ACCEL_F32, .c_type = ACCEL_F32 },
          0,
          "float32" },
        { { .a_type = ACCEL_BF16, .b_type = ACCEL_F32, .c_type = ACCEL_F32 },
          256 * 128 * 4,
          "a widened" },
        { { .a_type = ACCEL_F32, .b_type = ACCEL_BF16, .c_type = ACCEL_F32 },
          128 * 512 * 4,
          "b widened" },
        { { .a_type = ACCEL_BF16,
            .b_type = ACCEL_BF16,
            .c_type = ACCEL_BF16,
            .act = ACCEL_ACT_SILU },
          256 * 512 * 4,
          "float32 sums that are rounded" },
        { { .a_type = ACCEL_BF16, .b_type = ACCEL_F32, .c_type = ACCEL_BF16 },
          256 * 128 * 4 + 256 * 512 * 4,
          "both" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(t); i++) {
        struct gemm g = t[i].g;
        struct made with, without;

        g.m = 256;
        g.n = 512;
        g.k = 128;
        with = multiply(&g, LARGE, true);
        tap_is_int((long long)with.peak, 0, "%s: nothing beside the workspace",
                   t[i].what);
        free(with.c);
        if (!reset)
            continue;
        without = multiply(&g, LARGE, false);
        tap_ok(t[i].needs ? without.peak >= t[i].needs : without.peak == 0,
               "%s: without one %zu bytes", t[i].what, without.peak);
        free(without.c);
    }
}

/* Sums of 5 MiB, for which a small device has 2 MiB: three passes. */
static void test_passes(void)
{
    enum { M = 2560, N = 512, K = 24 };
    struct gemm g = { .m = M,
                      .n = N,
                      .k = K,
                      .a_type = ACCEL_BF16,
                      .b_type = ACCEL_BF16,
                      .c_type = ACCEL_BF16,
                      .act = ACCEL_ACT_SILU };
    struct made one = multiply(&g, LARGE, true), three = multiply(&g, SMALL, true);

    tap_is_int((long long)three.peak, 0, "passes: in a small workspace");
    tap_ok(!memcmp(one.c, three.c, (size_t)M * N * 2), "passes: with the same result");
    free(one.c);
    free(three.c);
}

/* A widened operand has no passes. */
static void test_too_large(void)
{
    enum { M = 2560, N = 8, K = 512, BYTES = M * K * 4 };
    struct gemm g = { .m = M,
                      .n = N,
                      .k = K,
                      .a_type = ACCEL_BF16,
                      .b_type = ACCEL_F32,
                      .c_type = ACCEL_F32 };
    struct made in = multiply(&g, LARGE, true), out = multiply(&g, SMALL, true);

    tap_is_int((long long)in.peak, 0, "5 MiB: within a large workspace");
    tap_ok(out.peak >= BYTES, "beside a small one: %zu bytes in the books", out.peak);
    tap_ok(!memcmp(in.c, out.c, (size_t)M * N * 4), "with the same result");
    free(in.c);
    free(out.c);
}

static void test_embed_grad(void)
{
    enum { ROWS = 20000, VOCAB = 10, COLS = 8 };
    struct backend *be = open_one(LARGE, true);
    float *table = get(be, VOCAB * COLS * sizeof(float));
    int32_t *ids = get(be, ROWS * sizeof(*ids));
    void *dy = get(be, (size_t)ROWS * COLS * sizeof(float));
    size_t before = usage(be).peak;

    be->embed_grad(be, table, NULL, ids, dy, ACCEL_F32, ROWS, ROWS, COLS);
    tap_is_int((long long)(usage(be).peak - before), 0, "sorted ids: in the workspace");
    be->close(be);
}

/* Sums of columns end later: their parts lie at the end of the workspace until another
 * kernel wants that, the same sums grow, or somebody reads. */
static void test_ends(void)
{
    enum { ROWS = 512, COLS = 4096, M = 996, K = 1024 };
    struct gemm g = {
        .m = M, .n = 8, .k = K, .a_type = ACCEL_BF16, .lda = K, .ldb = 8, .ldc = 8
    };
    struct backend *be = open_one(SMALL, true);
    float *src = values(be, ACCEL_F32, ROWS * COLS), got[COLS];
    float *dst = get(be, sizeof(got));
    int bad = 0;

    g.a = values(be, ACCEL_BF16, M * K);
    g.b = values(be, ACCEL_F32, K * 8);
    g.c = get(be, M * 8 * sizeof(float));
    be->column_sum(be, dst, src, ACCEL_F32, ROWS, COLS, COLS);
    be->column_sum(be, dst, src, ACCEL_F32, ROWS, COLS, COLS);
    be->gemm(be, &g); /* its widened operand takes all but 100 KiB */
    be->to_host(be, got, dst, ACCEL_F32, COLS);
    for (int64_t c = 0; c < COLS; c++) {
        float want = 0;

        for (int64_t r = 0; r < ROWS; r++)
            want += 2 * (float)((r * COLS + c) * 7 % 61 - 30) / 16.0f;
        bad += got[c] != want;
    }
    tap_is_int(bad, 0, "sums whose workspace another kernel takes are complete");
    be->close(be);
}

/* The rest of the device is taken. */
static void test_full(void)
{
    struct backend *be = open_one(SMALL, false);
    struct backend_usage u = usage(be);
    accel_error_t err = { 0 };
    void *all = get(be, be->memory_bytes - u.used - (1 << 20));

    tap_is_int(be->reserve_workspace(be, &err), ACCEL_ENOMEM, "no room for one: %s",
               err.text);
    be->free(be, all);
    be->close(be);
}

static void test_books(void)
{
    struct backend *be = open_one(LARGE, false);
    const size_t bytes = cuda_workspace_bytes(be->memory_bytes);
    struct backend_usage a = usage(be), b;
    accel_error_t err;

    tap_ok(!be->reserve_workspace(be, &err), "a workspace");
    tap_ok(!be->reserve_workspace(be, &err), "there is one only");
    be->count(be, MEMORY_REDUCE, 1000);
    b = usage(be);
    tap_is_int((long long)(b.held[MEMORY_WORK] - a.held[MEMORY_WORK]), (long long)bytes,
               "is working memory");
    tap_is_int((long long)b.held[MEMORY_WORK], (long long)be->fixed_bytes,
               "the plan's row of the kernels is what is held");
    tap_ok(b.used >= a.used + bytes && b.used < a.used + 2 * bytes, "that is used");
    tap_is_int((long long)(b.held[MEMORY_REDUCE] - a.held[MEMORY_REDUCE]), 1000,
               "a library's memory is in the books");
    be->count(be, MEMORY_REDUCE, -1000);
    b = usage(be);
    tap_is_int((long long)b.held[MEMORY_REDUCE], (long long)a.held[MEMORY_REDUCE],
               "until it is given back");
    be->close(be);
}

int main(void)
{
    struct backend *be = cuda_device();

    if (!cuda_stand_in("fakecuda_reset", &reset))
        reset = NULL;
    be->close(be);
    test_size();
    test_gemm();
    if (reset) {
        test_passes();
        test_too_large();
        test_ends();
        test_full();
    }
    test_embed_grad();
    test_books();
    return tap_done();
}
