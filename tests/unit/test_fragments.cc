/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of the attention on tensor cores, on the stand-in toolkit: what one block
 * stages, multiplies and stores, beside plain products of random matrices. A lane,
 * register, row or half in the wrong place shows here.
 */
#include "tests/unit/emulator.h"

#include "backend/cuda/attention/attention_mma.h"

/* The last columns are padding: heads of 40 elements in tiles of 64. */
enum { ROWS = ATTN_TILE, WIDTH = 64, HEAD = 40, COUNT = 59, LD = WIDTH + MMA_PAD };

/* Row r of an operand is at r * STRIDE. */
enum { STRIDE = 48 };

static uint32_t seed = 11;

static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

template <typename T> struct tiles {
    T a[ROWS * STRIDE], b[ROWS * STRIDE], out[ROWS * STRIDE];
    float scores[ROWS][ROWS], sums[ROWS][WIDTH];
};

template <typename T> struct tiles_shared {
    T a[ROWS * LD], b[ROWS * LD];
};

/* scores = a b^T; sums = scores b, with scores rounded; out = sums times a factor of
 * the row. */
template <typename T> static __global__ void both_products(struct tiles<T> *t, bool add)
{
    DYNAMIC_SHARED(struct tiles_shared<T>, sh);
    struct attn_rows<T> a = {
        t->a, STRIDE, COUNT, 1.0f
    };
    struct attn_rows<T> b = {
        t->b, STRIDE, COUNT, 1.0f
    };
    struct heads_out to = { t->out, 0, STRIDE, 0, add };
    const int row = mma_first() + mma_row();
    float c[ROWS / 8][4], acc[WIDTH / 8][4];

    mma_stage<WIDTH, ROWS>(sh->a, a, HEAD);
    mma_stage<WIDTH, ROWS>(sh->b, b, HEAD);
    mma_staged();
    mma_scores<WIDTH, ROWS / 8>(c, sh->a + mma_first() * LD, sh->b);
    for (int n = 0; n < WIDTH / 8; n++)
        for (int i = 0; i < 4; i++)
            acc[n][i] = 0.0f;
    mma_gather<WIDTH, ROWS / 8>(acc, c, sh->b);
    for (int n = 0; n < ROWS / 8; n++)
        for (int i = 0; i < 4; i++) {
            t->scores[row + i / 2 * 8][n * 8 + mma_col() + i % 2] = c[n][i];
            t->sums[row + i / 2 * 8][n * 8 + mma_col() + i % 2] = acc[n][i];
        }
    mma_store<T, WIDTH>(to, 0, 0, 0, COUNT, acc,
                        mma_rows_by((float)(row + 1), (float)(row + 9)), HEAD);
}

template <typename T> static void fill(T *x)
{
    for (int i = 0; i < ROWS * STRIDE; i++)
        store_float(x, i, draw());
}

template <typename T> static T rounded(float x)
{
    T to;

    store_float(&to, 0, x);
    return to;
}

/* Rows behind COUNT and columns behind HEAD count as zero. */
template <typename T> static double at(const T *x, int row, int col)
{
    return row < COUNT && col < HEAD ? (double)load_float(x, row * STRIDE + col) : 0.0;
}

/* A NaN, which is what nobody wrote, is the farthest of all. */
static double farther(double far, double off)
{
    return isnan(far) || fabs(off) <= far ? far : fabs(off);
}

template <typename T> static void check_scores(const struct tiles<T> *t)
{
    double far = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < ROWS; c++) {
            double want = 0;

            for (int k = 0; k < HEAD; k++)
                want += at(t->a, r, k) * at(t->b, c, k);
            far = farther(far, want - (double)t->scores[r][c]);
        }
    tap_ok(far < 1e-5, "scores: a times b transposed, %.1e", far);
}

template <typename T> static void check_sums(const struct tiles<T> *t)
{
    double far = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++) {
            double want = 0;

            for (int k = 0; k < ROWS; k++) {
                const T score = rounded<T>(t->scores[r][k]);

                want += (double)load_float(&score, 0) * at(t->b, k, c);
            }
            far = farther(far, want - (double)t->sums[r][c]);
        }
    tap_ok(far < 1e-4, "sums: rounded scores times b, %.1e", far);
}

/* Rows and columns that are not there stay as they were. */
template <typename T>
static void check_stored(const struct tiles<T> *t, const struct tiles<T> *was, bool add)
{
    int wrong = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < STRIDE; c++) {
            const float old = load_float(was->out, r * STRIDE + c);
            const float sum = t->sums[r][c] * (float)(r + 1);
            const T want = rounded<T>(r >= COUNT || c >= HEAD ? old
                                      : add                   ? old + sum
                                                              : sum);

            wrong += memcmp(&t->out[r * STRIDE + c], &want, sizeof(want)) != 0;
        }
    tap_is_int(wrong, 0, "%s: each row times its factor", add ? "added" : "stored");
}

template <typename T> static void test_type(const char *name)
{
    static struct tiles<T> was, got;
    struct tiles<T> *on_device;

    tap_diag("%s", name);
    begin();
    cudaMalloc(&on_device, sizeof(was));
    for (int add = 0; add < 2; add++) {
        fill(was.a);
        fill(was.b);
        fill(was.out);
        cudaMemcpyAsync(on_device, &was, sizeof(was), cudaMemcpyHostToDevice, one);
        RUN(both_products<T>, 1, MMA_THREADS, sizeof(struct tiles_shared<T>), one,
            on_device, (bool)add);
        cudaMemcpyAsync(&got, on_device, sizeof(got), cudaMemcpyDeviceToHost, one);
        tap_is_int(cudaStreamSynchronize(one), cudaSuccess, "the kernel runs");
        check_scores(&got);
        check_sums(&got);
        check_stored(&got, &was, add);
    }
}

int main(void)
{
    test_type<bf16_t>("bfloat16");
    test_type<half_t>("float16");
    fakecuda_reset();
    return tap_done();
}
