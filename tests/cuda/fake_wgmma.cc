/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a warpgroup (wgmma), as references: a warp makes its own 16 of the 64
 * rows. Operands in shared memory are read where their descriptor says, after the PTX
 * ISA ("Matrix Descriptor Format", "Strides"); fragments in registers have the layouts
 * of mma.m16n8k16, side by side. In every other block a product is made at once, else
 * only when it is waited for.
 */
#include <string.h>

#include "fake_layout.h"
#include "fake_ptx.h"

enum { LANES = 32, ROWS = 16, STEP = 16, WARPS = 4, N_MOST = 128, ELEMENTS = 64 };

struct product {
    int n, group;
    bool add;          /* to what the registers hold; else it replaces that */
    bool transposed_b; /* b has n side by side in memory, not k */
    bool registers_a;
    bool f16;                   /* operands; else bfloat16 */
    uint64_t a, b;              /* descriptors */
    uint32_t a_held[LANES][4];  /* or a itself */
    float *to[LANES][ELEMENTS]; /* the accumulators */
    bool first;                 /* none before it writes the same */
    float was[LANES][ELEMENTS]; /* then: what they held */
    int warp;
};

struct warp_products {
    std::vector<struct product> left;
    int groups;
    bool fenced;
};

static std::vector<struct warp_products> warps;
static bool late;

void fake_wgmma_begin(unsigned count, bool wait)
{
    if (warps.size() < count)
        warps.resize(count);
    for (struct warp_products &w : warps) {
        w.left.clear();
        w.groups = 0;
        w.fenced = false;
    }
    late = wait;
}

bool fake_wgmma_left(unsigned warp)
{
    return !warps[warp].left.empty();
}

/* Where a descriptor has element (mn, k), which lies in memory after the first of its 8;
 * mn is a row of a or a column of b. */
static const char *element_at(uint64_t descriptor, bool transposed, int mn, int k)
{
    const uint64_t start = (descriptor & 0x3fff) << 4;
    const uint64_t leading = (descriptor >> 16 & 0x3fff) << 4;
    const uint64_t stride = (descriptor >> 32 & 0x3fff) << 4;
    uint64_t at = start;

    if (descriptor >> 62 != 1 || (descriptor & 0x3fffc000c000c000))
        fake_give_up("wgmma: a descriptor of another layout than the stand-in knows");
    /* 128 bytes are 64 elements of mn or of k */
    if (transposed)
        at += (uint64_t)(mn / 64) * leading + (uint64_t)(mn % 64) * 2 +
              (uint64_t)(k / 8) * stride + (uint64_t)(k % 8) * 128;
    else
        at += (uint64_t)(mn / 8) * stride + (uint64_t)(mn % 8) * 128 + (uint64_t)k * 2;
    at ^= (at >> 7 & 7) << 4;
    return fake_shared_at(at / 16 * 16, 16) + at % 16;
}

/* x[k][mn] of an operand in shared memory, 8 elements at a time. */
static void take_shared(float x[STEP][N_MOST], uint64_t descriptor, bool transposed,
                        bool f16, int first, int count)
{
    uint16_t eight[8];

    for (int i = 0; i < count * STEP; i += 8) {
        const int k = transposed ? i / count : i % STEP;
        const int mn = first + (transposed ? i % count : i / STEP);

        memcpy(eight, element_at(descriptor, transposed, mn, k), sizeof(eight));
        for (int e = 0; e < 8; e++)
            x[k + (transposed ? 0 : e)][mn - first + (transposed ? e : 0)] =
                fake_wide(eight[e], f16);
    }
}

static void take_registers(float x[STEP][N_MOST], const uint32_t held[LANES][4],
                           bool f16)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < layout_a.elements; i++) {
            struct place p = layout_place(&layout_a, lane, i);

            x[p.col][p.row] =
                fake_wide((uint16_t)(held[lane][i / 2] >> 16 * (i % 2)), f16);
        }
}

/* The accumulator of a row and column: results of mma side by side. */
static float *sum_at(const struct product *p, int lane, int i, int *row, int *col)
{
    struct place at = layout_place(&layout_c, lane, i % 4);

    *row = at.row;
    *col = at.col + i / 4 * 8;
    return p->to[lane][i];
}

static void make(const struct product *p)
{
    static float a[STEP][N_MOST], b[STEP][N_MOST], sum[ROWS][N_MOST];
    int row, col;

    if (p->registers_a)
        take_registers(a, p->a_held, p->f16);
    else
        take_shared(a, p->a, false, p->f16, p->warp % WARPS * ROWS, ROWS);
    take_shared(b, p->b, p->transposed_b, p->f16, 0, p->n);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < p->n / 2; i++) {
            float *at = sum_at(p, lane, i, &row, &col);

            if (p->first && memcmp(at, &p->was[lane][i], sizeof(*at)))
                fake_give_up("wgmma: sums were written while it was under way");
            sum[row][col] = p->add ? *at : 0.0f;
        }
    for (int m = 0; m < ROWS; m++)
        for (int step = 0; step < STEP; step++) {
            /* the order of fake_mma_m16n8k16 */
            int k = step / 4 * 2 + step / 2 % 2 * 8 + step % 2;

            for (int n = 0; n < p->n; n++)
                sum[m][n] += a[k][m] * b[k][n];
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < p->n / 2; i++) {
            float *at = sum_at(p, lane, i, &row, &col);

            *at = sum[row][col];
        }
}

/* d[n / 2], a (a descriptor, or four registers), b's descriptor, add, scale_a, scale_b,
 * trans_a (with a descriptor), trans_b */
template <int n, bool registers_a, bool f16> void fake_wgmma(uint64_t *const lanes[])
{
    const int a = n / 2, b = a + (registers_a ? 4 : 1), signs = b + 2;
    const uint64_t *v = lanes[0];
    struct warp_products *w = &warps[fake_thread() / LANES];
    struct product p = { n,
                         w->groups,
                         v[b + 1] != 0,
                         v[signs + (registers_a ? 2 : 3)] == 1,
                         registers_a,
                         f16,
                         v[a],
                         v[b],
                         {},
                         {},
                         true,
                         {},
                         (int)(fake_thread() / LANES) };

    if (v[signs] != 1 || v[signs + 1] != 1 || (!registers_a && v[signs + 2] != 0))
        fake_give_up("wgmma: signs and majors that the stand-in does not know");
    if (!w->fenced)
        fake_give_up("wgmma: registers that may have been written are not fenced");
    for (int lane = 0; lane < LANES; lane++) {
        if (lanes[lane][b] != p.b || (!registers_a && lanes[lane][a] != p.a))
            fake_give_up("wgmma: the lanes' descriptors differ");
        for (int i = 0; i < 4; i++)
            p.a_held[lane][i] = (uint32_t)lanes[lane][a + i];
        for (int i = 0; i < n / 2; i++) {
            p.to[lane][i] = (float *)(uintptr_t)lanes[lane][FAKE_OPERANDS + i];
            memcpy(&p.was[lane][i], p.to[lane][i], sizeof(float));
        }
    }
    for (const struct product &before : w->left)
        p.first = p.first && before.to[0][0] != p.to[0][0];
    if (!late)
        make(&p);
    w->left.push_back(p);
}

template void fake_wgmma<64, false, false>(uint64_t *const[]);
template void fake_wgmma<64, false, true>(uint64_t *const[]);
template void fake_wgmma<64, true, false>(uint64_t *const[]);
template void fake_wgmma<64, true, true>(uint64_t *const[]);
template void fake_wgmma<128, false, false>(uint64_t *const[]);
template void fake_wgmma<128, false, true>(uint64_t *const[]);
template void fake_wgmma<128, true, false>(uint64_t *const[]);
template void fake_wgmma<128, true, true>(uint64_t *const[]);

void fake_wgmma_fence(uint64_t *const[])
{
    warps[fake_thread() / LANES].fenced = true;
}

void fake_wgmma_commit(uint64_t *const[])
{
    warps[fake_thread() / LANES].groups++;
}

/* There are registers enough here; what the ISA allows is looked at. */
void fake_setmaxnreg(uint64_t *const lanes[])
{
    if (lanes[0][0] % 8 || lanes[0][0] < 24 || lanes[0][0] > 256)
        fake_give_up("setmaxnreg: a number that is not 24, 32, ... 256");
}

/* Products that no group has yet are not waited for. After it, registers may be written,
 * so the next product needs a fence. */
void fake_wgmma_wait(uint64_t *const lanes[])
{
    struct warp_products *w = &warps[fake_thread() / LANES];
    std::vector<struct product> kept;

    for (const struct product &p : w->left) {
        if (p.group >= w->groups - (int)lanes[0][0])
            kept.push_back(p);
        else if (late)
            make(&p);
    }
    w->left = kept;
    w->fenced = false;
}
