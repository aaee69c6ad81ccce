/* SPDX-License-Identifier: Apache-2.0
 *
 * PTX on the stand-in toolkit: register layouts beside the formulas of the PTX ISA,
 * products of random matrices, loads, conversions and copies, and instructions that are
 * used wrongly.
 */
#include <float.h>

#include "tests/unit/emulator.h"

#include "backend/cuda/ptx.h"
#include "tests/cuda/fake_layout.h"

enum { LANES = 32 };

static uint32_t seed = 5;

/* Of few digits, so that 16 bits hold it and sums of products are exact. */
static int draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 24) % 31 - 15;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static uint32_t halves(float low, float high, bool f16)
{
    if (f16)
        return f32_to_f16(low) | (uint32_t)f32_to_f16(high) << 16;
    return bits_of(low) >> 16 | (bits_of(high) & 0xffff0000u);
}

/* ---- layouts --------------------------------------------------------------------- */

/* The ISA's formulas for m16n8k16 and 16-bit elements, as they are printed there. */
static struct place isa_a(int lane, int i)
{
    int group = lane >> 2, thread = lane % 4;

    return { (0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
             i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8 };
}

static struct place isa_b(int lane, int i)
{
    int group = lane >> 2, thread = lane % 4;

    return { i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group };
}

static struct place isa_c(int lane, int i)
{
    int group = lane >> 2, thread = lane % 4;

    return { i < 2 ? group : group + 8, thread * 2 + (i & 1) };
}

static struct place isa_8x8(int lane, int i)
{
    return { lane / 4, lane % 4 * 2 + i };
}

/* Every lane's elements are where the formula has them, and each is somewhere once. */
static void check_layout(const char *name, const struct layout *l,
                         struct place (*isa)(int, int))
{
    int seen[16][16] = { { 0 } }, once = 0;
    bool same = true;

    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < l->elements; i++) {
            struct place p = layout_place(l, lane, i), want = isa(lane, i);

            same = same && p.row == want.row && p.col == want.col;
            seen[p.row % 16][p.col % 16]++;
        }
    for (int r = 0; r < l->rows; r++)
        for (int c = 0; c < l->cols; c++)
            once += seen[r][c] == 1;
    tap_ok(same, "layout of %s: the ISA's formula", name);
    tap_is_int(once, l->rows * l->cols, "layout of %s: every element once", name);
}

/* ---- instructions ------------------------------------------------------------------ */

struct registers {
    uint32_t a[LANES][4], b[LANES][2];
    float c[LANES][4];
};

template <typename T> static __global__ void multiply(struct registers *r)
{
    unsigned t = threadIdx.x % LANES;

    ptx_mma<T>(r->c[t], r->a[t], r->b[t][0], r->b[t][1]);
}

static void test_mma(bool f16)
{
    static struct registers r;
    static float a[16][16], b[16][8], c[16][8];
    struct registers *on_device;
    int wrong = 0;

    begin();
    for (int i = 0; i < 16 * 16; i++)
        a[i / 16][i % 16] = (float)draw();
    for (int i = 0; i < 16 * 8; i++) {
        b[i / 8][i % 8] = (float)draw();
        c[i / 8][i % 8] = (float)draw();
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 8; i += 2) {
            struct place p = isa_a(lane, i), q = isa_a(lane, i + 1);

            r.a[lane][i / 2] = halves(a[p.row][p.col], a[q.row][q.col], f16);
        }
        for (int i = 0; i < 4; i += 2) {
            struct place p = isa_b(lane, i), q = isa_b(lane, i + 1);

            r.b[lane][i / 2] = halves(b[p.row][p.col], b[q.row][q.col], f16);
        }
        for (int i = 0; i < 4; i++)
            r.c[lane][i] = c[isa_c(lane, i).row][isa_c(lane, i).col];
    }
    cudaMalloc(&on_device, sizeof(r));
    cudaMemcpyAsync(on_device, &r, sizeof(r), cudaMemcpyHostToDevice, one);
    if (f16)
        RUN(multiply<half_t>, 1, LANES, 0, one, on_device);
    else
        RUN(multiply<bf16_t>, 1, LANES, 0, one, on_device);
    cudaMemcpyAsync(&r, on_device, sizeof(r), cudaMemcpyDeviceToHost, one);
    cudaStreamSynchronize(one);
    for (int i = 0; i < 16 * 8; i++)
        for (int k = 0; k < 16; k++)
            c[i / 8][i % 8] += a[i / 8][k] * b[k][i % 8];
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++)
            wrong += r.c[lane][i] != c[isa_c(lane, i).row][isa_c(lane, i).col];
    tap_is_int(wrong, 0, "mma: the product of random matrices, %s",
               f16 ? "float16" : "bfloat16");
}

/* Rows are scattered over shared memory: number i is 1000 (i / 8) + i % 8. */
static __global__ void load(uint32_t *out, bool transposed)
{
    uint16_t *m = (uint16_t *)fakecuda_shared();
    unsigned t = threadIdx.x;
    uint32_t r[4];

    for (int c = 0; c < 8; c++)
        m[(LANES - 1 - t) * 8 + c] = (uint16_t)(1000 * t + c);
    __syncthreads();
    if (transposed)
        ptx_load_transposed(r, m + (LANES - 1 - t) * 8);
    else
        ptx_load(r, m + (LANES - 1 - t) * 8);
    for (int i = 0; i < 4; i++)
        out[t * 4 + i] = r[i];
}

static void test_load(bool transposed)
{
    static uint32_t r[LANES][4];
    uint32_t *out;
    int wrong = 0;

    begin();
    cudaMalloc(&out, sizeof(r));
    RUN(load, 1, LANES, LANES * 16, one, out, transposed);
    cudaMemcpyAsync(r, out, sizeof(r), cudaMemcpyDeviceToHost, one);
    tap_is_int(cudaStreamSynchronize(one), cudaSuccess, "ldmatrix: no failure");
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++) {
                int row = transposed ? lane % 4 * 2 + half : lane / 4;
                int col = transposed ? lane / 4 : lane % 4 * 2 + half;
                uint32_t want = (uint32_t)(1000 * (8 * i + row) + col) & 0xffff;

                wrong += (r[lane][i] >> 16 * half & 0xffff) != want;
            }
    tap_is_int(wrong, 0, "ldmatrix%s: every element", transposed ? ".trans" : "");
}

template <typename T>
static __global__ void convert(uint32_t *out, float low, float high)
{
    *out = ptx_pack<T>(low, high);
}

static void test_convert(void)
{
    static const struct {
        float low, high;
        uint32_t want;
        const char *what;
        bool f16 = false;
    } cases[] = {
        { 1.0f, 2.0f, 0x40003f80, "the first source is the upper half" },
        { 1.00390625f, 1.01171875f, 0x3f823f80, "ties go to even" },
        { 1.0040f, -1.0038f, 0xbf803f81, "what lies beside a tie" },
        { NAN, -INFINITY, 0xff807fff, "NaN and infinity" },
        { 3.4e38f, -0.0f, 0x80007f80, "too large, and a zero's sign" },
        { 1.0f, 2.0f, 0x40003c00, "float16, the upper half", true },
        { 1.00048828125f, 1.00146484375f, 0x3c023c00, "float16, ties", true },
        { NAN, -INFINITY, 0xfc007fff, "float16, NaN and infinity", true },
        { 65504.0f, 65520.0f, 0x7c007bff, "float16, the largest and beyond", true },
        { 0x1p-24f, -0x1p-26f, 0x80000001, "float16, the smallest and below", true },
    };

    begin();
    for (const auto &c : cases) {
        uint32_t got = 0;

        if (c.f16)
            RUN(convert<half_t>, 1, 1, 0, one, (uint32_t *)a, c.low, c.high);
        else
            RUN(convert<bf16_t>, 1, 1, 0, one, (uint32_t *)a, c.low, c.high);
        cudaMemcpyAsync(&got, a, sizeof(got), cudaMemcpyDeviceToHost, one);
        cudaStreamSynchronize(one);
        tap_ok(got == c.want, "cvt: %s (%08x)", c.what, got);
    }
}

static __global__ void exponential(float *out, float x)
{
    *out = ptx_exp2(x);
}

static void test_exponential(void)
{
    static const struct {
        float x, want;
    } cases[] = { { 0.0f, 1.0f },    { 3.0f, 8.0f },      { -126.0f, FLT_MIN },
                  { -126.5f, 0.0f }, { -INFINITY, 0.0f }, { 128.0f, INFINITY } };
    float got = 0;

    begin();
    for (const auto &c : cases) {
        RUN(exponential, 1, 1, 0, one, a, c.x);
        cudaMemcpyAsync(&got, a, sizeof(got), cudaMemcpyDeviceToHost, one);
        cudaStreamSynchronize(one);
        tap_ok(got == c.want, "2 to the %g: %g", (double)c.x, (double)got);
    }
    RUN(exponential, 1, 1, 0, one, a, NAN);
    cudaMemcpyAsync(&got, a, sizeof(got), cudaMemcpyDeviceToHost, one);
    cudaStreamSynchronize(one);
    tap_ok(isnan(got), "NaN stays NaN");
}

/* ---- copies ------------------------------------------------------------------------ */

enum { SKEWED_TO = 1, SKEWED_FROM = 2, NO_COMMIT = 4, EARLY = 8, OUT = 16 };

/* Thread t copies 16 bytes; the last thread has nothing to copy. Each then reads what
 * its neighbour copied. */
static __global__ void copy(float *out, const float *from, int how)
{
    float *shared = (float *)fakecuda_shared();
    const unsigned t = threadIdx.x, n = blockDim.x;
    const bool there = t < n - 1;

    ptx_copy(shared + 4 * t + (how & SKEWED_TO ? 1 : 0),
             from + 4 * t + (how & SKEWED_FROM ? 1 : 0) + (how & OUT ? 1 << 20 : 0),
             there);
    if (!(how & NO_COMMIT))
        ptx_copy_commit();
    if (!(how & EARLY))
        ptx_copy_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; i++)
        out[4 * t + i] = shared[4 * ((t + 1) % n) + i];
    ptx_copy_wait<0>();
}

/* The second group is waited for after the first one was read. */
static __global__ void copy_two(float *out, const float *from)
{
    float *shared = (float *)fakecuda_shared();

    ptx_copy(shared, from, true);
    ptx_copy_commit();
    ptx_copy(shared + 4, from + 4, true);
    ptx_copy_commit();
    ptx_copy_wait<1>();
    out[0] = shared[1];
    out[1] = shared[5];
    ptx_copy_wait<0>();
    out[2] = shared[5];
}

/* Of two launches, in which copies are early and late: how many were right. */
static int right_copies(int how, cudaError_t *st)
{
    int right = 0;

    for (int launch = 0; launch < 2; launch++) {
        RUN(iota, 1, 64, 0, one, a, 64);
        RUN(copy, 1, 8, 128, one, b, a, how);
        cudaMemcpyAsync(host, b, 128, cudaMemcpyDeviceToHost, one);
        *st = cudaStreamSynchronize(one);
        right += host[0] == 4 && host[7] == 11 && host[24] == 0 && host[27] == 0 &&
                 host[28] == 0 && host[31] == 3;
    }
    return right;
}

static void test_copies(void)
{
    static const struct {
        int how;
        const char *what;
    } wrong[] = { { SKEWED_TO, "to an address that is not a multiple of 16" },
                  { SKEWED_FROM, "from such an address" },
                  { NO_COMMIT, "of no group, never waited for" },
                  { OUT, "from outside of what was allocated" } };
    cudaError_t st;

    begin();
    tap_is_int(right_copies(0, &st), 2, "copies and zeros, by neighbours");
    tap_ok(right_copies(EARLY, &st) < 2 && st == cudaSuccess,
           "what is read before it is waited for is wrong");
    for (int launch = 0; launch < 2; launch++) {
        RUN(iota, 1, 64, 0, one, a, 64);
        RUN(copy_two, 1, 1, 32, one, b, a);
        cudaMemcpyAsync(host, b, 12, cudaMemcpyDeviceToHost, one);
        cudaStreamSynchronize(one);
        tap_ok(host[0] == 1 && host[2] == 5, "one group, then the other");
    }
    for (const auto &w : wrong) {
        begin();
        right_copies(w.how, &st);
        tap_is_int(st, cudaErrorLaunchFailure, "refused: a copy %s", w.what);
    }
}

/* ---- wrong use --------------------------------------------------------------------- */

static __global__ void misuse(int kind)
{
    char *shared = (char *)fakecuda_shared();
    uint32_t r[4] = { 0, 0, 0, 0 };
    float c[4] = { 0, 0, 0, 0 };
    unsigned t = threadIdx.x;

    if (kind <= 1 && t < 16)
        ptx_mma<bf16_t>(c, r, 0, 0);
    else if (kind == 1)
        ptx_load(r, shared);
    if (kind == 2)
        ptx_load(r, shared + 8 * t);
    if (kind == 3)
        ptx_load(r, shared + 16 * 31 + (t == 7 ? 16 : 0));
    if (kind == 4)
        PTX("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 %0, %1;",
            (PTX_OUT_R(r[0])), (PTX_R(r[1])));
    if (kind == 5)
        PTX("cvt.rn.bf16x2.f32 %0, %1, %2;", (PTX_OUT_R(r[0])),
            (PTX_F(c[0]), PTX_R(r[1])));
    if (kind == 6)
        PTX("cvt.rn.bf16x2.f32 %1, %2, %2;", (PTX_OUT_R(r[0])),
            (PTX_R(r[1]), PTX_F(c[0])));
    if (kind == 7)
        PTX("cvt.rn.bf16x2.f32 %0, %1, %3;", (PTX_OUT_R(r[0])),
            (PTX_F(c[0]), PTX_F(c[1])));
    if (kind == 8)
        PTX("cp.async.commit_group;", (), ());
}

static void test_misuse(void)
{
    static const char *const what[] = { "half a warp",
                                        "two instructions at once",
                                        "rows of 8 bytes",
                                        "a row behind the shared memory",
                                        "what it does not know",
                                        "an operand of another kind",
                                        "a result that is an input",
                                        "an operand that is not there",
                                        "memory is not said to be ordered" };

    for (int kind = 0; kind < 9; kind++) {
        begin();
        RUN(misuse, 1, LANES, LANES * 16, one, kind);
        tap_is_int(cudaStreamSynchronize(one), cudaErrorLaunchFailure, "refused: %s",
                   what[kind]);
    }
}

int main(void)
{
    check_layout("a", &layout_a, isa_a);
    check_layout("b", &layout_b, isa_b);
    check_layout("c and d", &layout_c, isa_c);
    check_layout("ldmatrix", &layout_8x8, isa_8x8);
    test_mma(false);
    test_mma(true);
    test_load(false);
    test_load(true);
    test_convert();
    test_exponential();
    test_copies();
    test_misuse();
    return tap_done();
}
