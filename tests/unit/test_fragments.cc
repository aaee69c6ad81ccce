/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of the attention on tensor cores, on the stand-in toolkit: what one block
 * stages, multiplies and stores, beside plain products of random matrices. A lane,
 * register, row or half in the wrong place shows here.
 */
#include "tests/unit/emulator.h"

#include "backend/cuda/attention_mma.h"

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

struct tiles {
    bf16_t a[ROWS * STRIDE], b[ROWS * STRIDE], out[ROWS * STRIDE];
    float scores[ROWS][ROWS], sums[ROWS][WIDTH];
};

struct tiles_shared {
    bf16_t a[ROWS * LD], b[ROWS * LD];
};

/* scores = a b^T; sums = scores b, with scores rounded; out = sums times a factor of
 * the row. */
static __global__ void both_products(struct tiles *t, bool add)
{
    DYNAMIC_SHARED(struct tiles_shared, sh);
    struct attn_rows<bf16_t> a = {
        t->a, STRIDE, COUNT, 1.0f
    };
    struct attn_rows<bf16_t> b = {
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
    mma_store<WIDTH>(to, 0, 0, 0, COUNT, acc,
                     mma_rows_by((float)(row + 1), (float)(row + 9)), HEAD);
}

static void fill(bf16_t *x)
{
    for (int i = 0; i < ROWS * STRIDE; i++)
        x[i] = f32_to_bf16(draw());
}

/* Rows behind COUNT and columns behind HEAD count as zero. */
static double at(const bf16_t *x, int row, int col)
{
    return row < COUNT && col < HEAD ? (double)bf16_to_f32(x[row * STRIDE + col]) : 0.0;
}

/* A NaN, which is what nobody wrote, is the farthest of all. */
static double farther(double far, double off)
{
    return isnan(far) || fabs(off) <= far ? far : fabs(off);
}

static void check_scores(const struct tiles *t)
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

static void check_sums(const struct tiles *t)
{
    double far = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++) {
            double want = 0;

            for (int k = 0; k < ROWS; k++)
                want +=
                    (double)bf16_to_f32(f32_to_bf16(t->scores[r][k])) * at(t->b, k, c);
            far = farther(far, want - (double)t->sums[r][c]);
        }
    tap_ok(far < 1e-4, "sums: rounded scores times b, %.1e", far);
}

/* Rows and columns that are not there stay as they were. */
static void check_stored(const struct tiles *t, const struct tiles *was, bool add)
{
    int wrong = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < STRIDE; c++) {
            bf16_t old = was->out[r * STRIDE + c];
            float sum = t->sums[r][c] * (float)(r + 1);
            bf16_t want = r >= COUNT || c >= HEAD
                              ? old
                              : f32_to_bf16(add ? bf16_to_f32(old) + sum : sum);

            wrong += t->out[r * STRIDE + c] != want;
        }
    tap_is_int(wrong, 0, "%s: each row times its factor", add ? "added" : "stored");
}

int main(void)
{
    static struct tiles was, got;
    struct tiles *on_device;

    begin();
    cudaMalloc(&on_device, sizeof(was));
    for (int add = 0; add < 2; add++) {
        fill(was.a);
        fill(was.b);
        fill(was.out);
        cudaMemcpyAsync(on_device, &was, sizeof(was), cudaMemcpyHostToDevice, one);
        RUN(both_products, 1, MMA_THREADS, sizeof(struct tiles_shared), one, on_device,
            (bool)add);
        cudaMemcpyAsync(&got, on_device, sizeof(got), cudaMemcpyDeviceToHost, one);
        tap_is_int(cudaStreamSynchronize(one), cudaSuccess, "the kernel runs");
        check_scores(&got);
        check_sums(&got);
        check_stored(&got, &was, add);
    }
    fakecuda_reset();
    return tap_done();
}
