/* SPDX-License-Identifier: Apache-2.0
 *
 * PTX of sm_90a on the stand-in toolkit: products of warpgroups beside plain ones, with
 * operands that tensor copies bring, barriers and their phases, and instructions that
 * are used wrongly.
 */
#include "tests/unit/emulator.h"

#include "backend/cuda/ptx_sm90.h"

/* Tensors of [SAMPLES][HEADS][ROWS][COLS], of which a box has 128 rows and 64
 * columns. */
enum { SAMPLES = 2, HEADS = 3, ROWS = 150, COLS = 128, BOX = 128, PANEL = 64 };
enum { ELEMENTS = SAMPLES * HEADS * ROWS * COLS, PANEL_BYTES = BOX * PANEL * 2 };
enum { GROUP = 128, SHARED = 4 * PANEL_BYTES + 64 };

/* What a kernel is to do wrong. */
enum {
    RIGHT,
    NO_PRODUCTS_BEGIN,
    NO_PRODUCTS_WAIT,
    NO_FENCE,
    NO_COPY_WAIT,
    WRONG_PHASE,
    TOO_FEW_BYTES,
    TOO_MANY_ARRIVE,
    TOUCHED,
    OTHER_SWIZZLE,
    HALF_A_WARP,
    KINDS
};

static uint32_t seed = 21;

/* Of few digits: sums of products are exact, in any order. */
static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)((int)(seed >> 24) % 15 - 7);
}

struct shared {
    uint16_t a[2][BOX * PANEL], b[2][BOX * PANEL];
    uint64_t full;
};

struct result {
    float scores[64][128], sums[64][128], narrow[64][64], half[64][64];
};

static __device__ void bring(struct shared *sh, const CUtensorMap *map, int kind)
{
    if (threadIdx.x == 0) {
        ptx_barrier_init(&sh->full, 1);
        if (kind != NO_FENCE)
            ptx_fence_async();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx_barrier_expect(&sh->full,
                           4 * PANEL_BYTES - (kind == TOO_FEW_BYTES ? 2 : 0));
        for (int c = 0; c < 2; c++) {
            ptx_copy_box(sh->a[c], map, c * PANEL, 0, 1, 1, &sh->full);
            ptx_copy_box(sh->b[c], map, c * PANEL, 100, 2, 0, &sh->full);
        }
        if (kind == TOO_MANY_ARRIVE) {
            ptx_barrier_arrive(&sh->full);
            ptx_barrier_arrive(&sh->full);
        }
    }
    if (kind != NO_COPY_WAIT)
        ptx_barrier_wait(&sh->full, kind == WRONG_PHASE ? 1 : 0);
}

/* Row r and column c of what this lane holds as element i of a row of tiles, by the
 * ISA's formula for the sums of wgmma.m64nNk16. */
static __device__ void isa_sum(int i, int *r, int *c)
{
    const int thread = (int)threadIdx.x, lane = thread % 32;

    *r = thread / 32 * 16 + lane / 4 + (i % 4 < 2 ? 0 : 8);
    *c = i / 4 * 8 + lane % 4 * 2 + i % 2;
}

/* By the formula for a in registers. */
static __device__ void isa_a(int i, int *r, int *c)
{
    const int thread = (int)threadIdx.x, lane = thread % 32;

    *r = thread / 32 * 16 + lane / 4 + (i / 2 % 2 ? 8 : 0);
    *c = lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8);
}

/* Columns [c, c + 16) of the first 64 rows of the first box, in registers. */
static __device__ void take_a(uint32_t left[4], const uint16_t *from, int c)
{
    for (int i = 0; i < 8; i++) {
        int row, col;

        isa_a(i, &row, &col);
        left[i / 2] = (i % 2 ? left[i / 2] : 0) | (uint32_t)from[row * COLS + c + col]
                                                      << 16 * (i % 2);
    }
}

template <typename T>
static __global__ void products(struct result *r, CUtensorMap map, const uint16_t *a,
                                int kind)
{
    struct shared *sh = (struct shared *)fakecuda_shared();
    float scores[16][4] = {}, sums[16][4] = {}, narrow[8][4] = {}, half[8][4] = {};
    uint32_t left[4];

    bring(sh, &map, kind);
    if (kind != NO_PRODUCTS_BEGIN)
        ptx_products_begin<16>(scores);
    for (int c = 0; c < COLS; c += 16) {
        const int at = c / PANEL, in = c % PANEL;
        uint64_t tile = ptx_tile(sh->b[at] + in, 0);

        if (kind == OTHER_SWIZZLE)
            tile ^= (uint64_t)3 << 62;
        if (kind != HALF_A_WARP || threadIdx.x % 32 < 16)
            ptx_products<T>(scores, ptx_tile(sh->a[at] + in, 0), tile, c > 0);
        ptx_products_64<T>(half, ptx_tile(sh->a[at] + in, 0),
                           ptx_tile(sh->b[at] + 64 * PANEL + in, 0), c > 0);
    }
    for (int k = 0; k < BOX; k += 16) {
        take_a(left, a, k);
        ptx_products_add<T>(sums, left, ptx_tile(sh->b[0] + k * PANEL, PANEL_BYTES));
        ptx_products_add_64<T>(narrow, left, ptx_tile(sh->b[1] + k * PANEL, 0));
    }
    if (kind == TOUCHED)
        sums[3][1] += 1;
    if (kind != NO_PRODUCTS_WAIT)
        ptx_products_end<16>(scores);
    for (int i = 0; i < 64; i++) {
        int row, col;

        isa_sum(i, &row, &col);
        r->scores[row][col] = scores[i / 4][i % 4];
        r->sums[row][col] = sums[i / 4][i % 4];
        if (i < 32) {
            r->narrow[row][col] = narrow[i / 4][i % 4];
            r->half[row][col] = half[i / 4][i % 4];
        }
    }
}

static CUresult describe(CUtensorMap *map, void *data)
{
    CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, uint32_t, void *,
                       const uint64_t *, const uint64_t *, const uint32_t *,
                       const uint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = NULL;
    const uint64_t dim[4] = { COLS, ROWS, HEADS, SAMPLES };
    const uint64_t stride[3] = { COLS * 2, ROWS * COLS * 2, HEADS * ROWS * COLS * 2 };
    const uint32_t box[4] = { PANEL, BOX, 1, 1 }, step[4] = { 1, 1, 1, 1 };
    enum cudaDriverEntryPointQueryResult found;

    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                     cudaEnableDefault, &found);
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, dim, stride, box,
                  step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static float tensor[ELEMENTS];

/* The boxes that bring() copies; rows behind the last one are zeros. */
static float first(int row, int col)
{
    return tensor[((1 * HEADS + 1) * ROWS + row) * COLS + col];
}

static float second(int row, int col)
{
    return 100 + row < ROWS ? tensor[(2 * ROWS + 100 + row) * COLS + col] : 0.0f;
}

/* Products of the boxes; the right half of the columns was made again, 64 at a time. */
static int wrong_products(const float got[64][128], const float half[64][64],
                          bool transposed)
{
    int wrong = 0;

    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 128; n++) {
            float want = 0;

            for (int k = 0; k < 128; k++)
                want += first(m, k) * (transposed ? second(n, k) : second(k, n));
            wrong += got[m][n] != want;
            wrong += n >= 64 && half[m][n - 64] != want;
        }
    return wrong;
}

/* Of two launches, in which copies and products are early and late: how many were
 * right; the last state. T is the type of the tensor's elements. */
template <typename T> static int right(int kind, cudaError_t *st)
{
    static T narrow[ELEMENTS];
    static struct result r;
    struct result *out;
    uint16_t *data;
    CUtensorMap map;
    int good = 0;

    begin();
    cudaMalloc(&out, sizeof(r));
    for (int i = 0; i < ELEMENTS; i++)
        store_float(narrow, i, tensor[i]);
    cudaMalloc(&data, sizeof(narrow));
    cudaMemcpyAsync(data, narrow, sizeof(narrow), cudaMemcpyHostToDevice, one);
    if (describe(&map, data))
        return 0;
    cudaFuncSetAttribute(products<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         SHARED);
    for (int launch = 0; launch < 2; launch++) {
        RUN(products<T>, 1, GROUP, SHARED, one, out, map,
            data + (1 * HEADS + 1) * ROWS * COLS, kind);
        cudaMemcpyAsync(&r, out, sizeof(r), cudaMemcpyDeviceToHost, one);
        *st = cudaStreamSynchronize(one);
        good += *st == cudaSuccess && !wrong_products(r.scores, r.half, true) &&
                !wrong_products(r.sums, r.narrow, false);
    }
    return good;
}

static void test_misuse(void)
{
    static const char *const what[KINDS] = {
        "",
        "registers that are not fenced",
        "products that nobody waits for",
        "a barrier that copies cannot see",
        "tiles that are not waited for",
        "a phase that is over already",
        "fewer bytes than come",
        "more arrivals than were said",
        "sums that are written meanwhile",
        "a swizzle that is not there",
        "half a warp",
    };
    cudaError_t st;

    for (int kind = RIGHT + 1; kind < KINDS; kind++) {
        int good = right<bf16_t>(kind, &st);

        tap_ok(good < 2, "found: %s (%s)", what[kind], cudaGetErrorName(st));
    }
}

/* ---- phases ------------------------------------------------------------------------ */

enum { TURNS = 7 };

/* Two threads take turns: one writes, the other reads and says so. */
static __global__ void turns(int *out, int skipped)
{
    uint64_t *b = (uint64_t *)fakecuda_shared();
    int *box = (int *)(b + 2);

    if (threadIdx.x == 0) {
        ptx_barrier_init(&b[0], 1);
        ptx_barrier_init(&b[1], 1);
    }
    __syncthreads();
    for (int i = 0; i < TURNS; i++) {
        if (threadIdx.x == 0) {
            ptx_barrier_wait(&b[1], (unsigned)(i + 1) % 2);
            *box = 10 * i;
            ptx_barrier_arrive(&b[0]);
        } else {
            ptx_barrier_wait(&b[0], (unsigned)i % 2);
            out[i] = *box;
            if (i != skipped)
                ptx_barrier_arrive(&b[1]);
        }
    }
}

static void test_phases(void)
{
    int got[TURNS], wrong = 0;
    int *out;

    begin();
    cudaMalloc(&out, sizeof(got));
    RUN(turns, 1, 2, 32, one, out, -1);
    cudaMemcpyAsync(got, out, sizeof(got), cudaMemcpyDeviceToHost, one);
    tap_is_int(cudaStreamSynchronize(one), cudaSuccess, "phases: no failure");
    for (int i = 0; i < TURNS; i++)
        wrong += got[i] != 10 * i;
    tap_is_int(wrong, 0, "phases: every turn");
    RUN(turns, 1, 2, 32, one, out, 3);
    tap_is_int(cudaStreamSynchronize(one), cudaErrorLaunchFailure,
               "phases: who waits for ever is found");
}

int main(void)
{
    cudaError_t st;
    int equal;

    for (int i = 0; i < ELEMENTS; i++)
        tensor[i] = draw();
    equal = right<bf16_t>(RIGHT, &st);
    tap_is_int(equal, 2, "products of copied tiles (%s)", cudaGetErrorName(st));
    equal = right<half_t>(RIGHT, &st);
    tap_is_int(equal, 2, "in float16 (%s)", cudaGetErrorName(st));
    test_misuse();
    test_phases();
    fakecuda_reset();
    return tap_done();
}
