/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels take by themselves is what the backend says beforehand: in a room of
 * that size nothing more comes from the device, without a room as much does. And what
 * is in the books.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/cuda_device.h"

#define MIB ((size_t)1 << 20)

/* The stand-in's: the most that its pool had is forgotten. A GPU's pool keeps what it
 * got. */
static void (*reset)(void);

static void *get(const struct backend *be, size_t bytes)
{
    accel_error_t err;
    void *p = NULL;

    if (be->alloc(be, MEMORY_BUFFERS, bytes, &p, &err))
        tap_diag("%s", err.text);
    return p;
}

static size_t peak(const struct backend *be)
{
    struct backend_usage u;
    accel_error_t err;

    if (be->sync(be, &err))
        tap_diag("%s", err.text);
    be->usage(be, &u);
    return u.peak;
}

/* The product [m,k] x [k,n] of these types, with operands and result of its own. */
static struct gemm product(const struct backend *be, accel_dtype_t a, accel_dtype_t b,
                           accel_dtype_t c, accel_activation_t act)
{
    enum { M = 256, N = 512, K = 128 };
    struct gemm g = {
        .m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N, .act = act
    };

    g.a = get(be, (size_t)M * K * accel_dtype_bytes(a));
    g.b = get(be, (size_t)K * N * accel_dtype_bytes(b));
    g.c = get(be, (size_t)M * N * accel_dtype_bytes(c));
    g.a_type = a;
    g.b_type = b;
    g.c_type = c;
    return g;
}

/* How much more of the device there was for the product, with a room of its size or
 * without. */
static size_t growth(const struct gemm *shape, bool room, size_t *own_out)
{
    struct backend *be;
    accel_error_t err;
    struct gemm g;
    size_t before;

    if (reset)
        reset();
    be = cuda_device();
    g = product(be, shape->a_type, shape->b_type, shape->c_type, shape->act);
    *own_out = be->gemm_own(be, &g);
    if (room && be->room(be, *own_out, &err))
        tap_diag("%s", err.text);
    before = peak(be);
    be->gemm(be, &g);
    before = peak(be) - before;
    be->close(be);
    return before;
}

static void test_gemm(void)
{
    static const struct {
        struct gemm g;
        size_t own;
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
        size_t own, more = growth(&t[i].g, true, &own);

        tap_is_int((long long)own, (long long)t[i].own, "%s: takes", t[i].what);
        tap_is_int((long long)more, 0, "%s: nothing beside the room", t[i].what);
        if (!reset)
            continue;
        more = growth(&t[i].g, false, &own);
        tap_ok(own ? more >= own : more == 0, "%s: without one as much", t[i].what);
    }
}

static void test_embed_grad(void)
{
    enum { ROWS = 20000, VOCAB = 10, COLS = 8 };
    struct backend *be;
    size_t own, before;
    accel_error_t err;
    int32_t *ids;
    float *table;
    void *dy;

    if (reset)
        reset();
    be = cuda_device();
    own = be->embed_grad_own(be, ROWS);
    table = get(be, VOCAB * COLS * sizeof(float));
    ids = get(be, ROWS * sizeof(*ids));
    dy = get(be, (size_t)ROWS * COLS * sizeof(float));
    tap_is_int((long long)own, 20 * ROWS / 256 * 256 + 256 * (20 * ROWS % 256 != 0),
               "sorted ids");
    be->room(be, own, &err);
    before = peak(be);
    be->embed_grad(be, table, NULL, ids, dy, ACCEL_F32, ROWS, ROWS, COLS);
    tap_is_int((long long)(peak(be) - before), 0, "in the room");
    be->close(be);
}

static void test_books(void)
{
    struct backend *be = cuda_device();
    struct backend_usage a, b;
    accel_error_t err;

    be->usage(be, &a);
    tap_ok(!be->room(be, 8 * MIB, &err), "a room");
    tap_ok(!be->room(be, 64 * MIB, &err), "there is one only");
    be->count(be, MEMORY_REDUCE, 1000);
    be->usage(be, &b);
    tap_is_int((long long)(b.held[MEMORY_WORK] - a.held[MEMORY_WORK]), 8 << 20,
               "is working memory");
    tap_ok(b.used >= a.used + 8 * MIB && b.used < a.used + 64 * MIB, "that is used");
    tap_is_int((long long)(b.held[MEMORY_REDUCE] - a.held[MEMORY_REDUCE]), 1000,
               "a library's memory is in the books");
    be->count(be, MEMORY_REDUCE, -1000);
    be->usage(be, &b);
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
    test_gemm();
    test_embed_grad();
    test_books();
    return tap_done();
}
