/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products, as tiles of c that the threads take one after the other. A thread
 * packs the tile's rows of a, which its next tiles mostly share, then the columns of b
 * where it must, a few panels at a time, and multiplies them. The epilogue (bias,
 * activation, rounding) runs over the tile while it is in cache. How a product is cut
 * changes no bits (panels.h), so the cut may follow the number of threads.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/vmath.h"

/* Most rows and columns of a tile: a block of k of its rows takes two thirds of a
 * second-level cache of 1 MiB. Tiles get as few as FEWEST_COLUMNS while there are fewer
 * than TASKS of them per thread. */
enum { TILE_ROWS = CPU_KEPT_ROWS, TILE_COLUMNS = 768, FEWEST_COLUMNS = 128, TASKS = 4 };

/* The room of a thread, in floats: packed slivers of a with their slack, three blocks
 * of k of a tile; panels of b, the sums of a tile whose c is not float32, and those of
 * a panel that c has too few columns for. */
enum {
    SLIVERS = 3 * TILE_ROWS * (PANEL_DEPTH + 2 * PANEL_SLACK),
    PANELS = PANEL_DEPTH * PANEL_LANES,
    SUMS = TILE_ROWS * TILE_COLUMNS,
    EDGE = PANEL_ROWS * PANEL_LANES,
    FLOATS = SLIVERS + PANELS + SUMS + EDGE
};

/* What a thread has packed: all k of the rows of tiles from `row` on; -1: of none. */
struct room {
    float *slivers, *panels, *sums, *edge;
    int64_t row;
};

/* How a product is cut: slivers of `height` rows; `slivers` of them and `columns` are a
 * tile. */
struct cutting {
    const struct gemm *p;
    const struct panel_kernel *kernel;
    struct panel_operand a, b;
    int64_t height, slivers, columns;
    int64_t wide, tiles; /* tiles beside each other, and all */
    int64_t sliver;      /* floats of a packed sliver */
    bool whole;          /* a room holds all k of a tile's rows */
    bool in_place;       /* panels of b are read where they are stored */
    bool direct;         /* sums are made where c is, and added to there */
};

/* One tile: rows [i0, i0 + m), columns [j0, j0 + n), and where its sums are. */
struct tile_task {
    const struct cutting *cut;
    struct room *room;
    int64_t i0, m, j0, n;
    float *c;
    int64_t ldc;
};

/* Some panels of a tile: columns [j, j + n) of the product, k in [k0, k0 + k). n 0:
 * none are left. */
struct group {
    int64_t j, n, k0, k;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Room of one thread. */
size_t gemm_panel_floats(void)
{
    return FLOATS;
}

/* A product of scaled operands becomes that of what they stand for. */
static void unscale_tile(const struct tile_task *t)
{
    const struct gemm *p = t->cut->p;
    const float by = p->a_inverse[0] * p->b_inverse[0];

    for (int64_t r = 0; r < t->m; r++) {
        float *c = t->c + r * t->ldc;

#pragma omp simd
        for (int64_t i = 0; i < t->n; i++)
            c[i] *= by;
    }
}

/* As many panels as fit the room: with few k a whole row of the tile, so that c is
 * walked along its rows. */
static struct group group_at(const struct tile_task *t, int64_t j, int64_t k0)
{
    const struct panel_kernel *kernel = t->cut->kernel;
    struct group g = { .j = j, .k0 = k0 };

    g.k = least(PANEL_DEPTH, t->cut->p->k - k0);
    if (g.k > 0)
        g.n = least(PANEL_DEPTH * kernel->lanes /
                        panel_floats(kernel, g.k, kernel->lanes) * kernel->lanes,
                    t->j0 + t->n - j);
    return g;
}

/* The group after g: further columns, then the next block of k. */
static struct group group_after(const struct tile_task *t, const struct group *g)
{
    bool wrap = g->j + g->n >= t->j0 + t->n;

    return group_at(t, wrap ? t->j0 : g->j + g->n, wrap ? g->k0 + g->k : g->k0);
}

/* Where sliver i of a tile's block of k is packed. */
static float *sliver_at(const struct tile_task *t, int64_t i, int64_t k0)
{
    int64_t block = t->cut->whole ? k0 / PANEL_DEPTH : 0;

    return t->room->slivers + (block * t->cut->slivers + i) * t->cut->sliver;
}

/* Packs the tile's rows: one block of k. */
static void pack_block(const struct tile_task *t, int64_t k0)
{
    const struct cutting *cut = t->cut;
    int64_t k = least(PANEL_DEPTH, cut->p->k - k0);

    for (int64_t i = 0, row = 0; row < t->m; i++, row += cut->height) {
        int64_t rows = least(cut->height, t->m - row);

        panel_pack(cut->kernel, sliver_at(t, i, k0), &cut->a, t->i0 + row, rows, k0, k,
                   rows);
    }
}

/* Packs all blocks, unless the thread's last tile had the same rows. */
static void pack_rows(const struct tile_task *t)
{
    if (t->room->row == t->i0)
        return;
    for (int64_t k0 = 0; k0 < t->cut->p->k; k0 += PANEL_DEPTH)
        pack_block(t, k0);
    t->room->row = t->i0;
}

/* The kernel stores whole panels: where c has fewer columns, it works on a copy. */
static void multiply_edge(const struct tile_task *t, struct panel_step *s, int64_t n)
{
    const struct panel_kernel *kernel = t->cut->kernel;
    float *c = s->c;

    if (n == kernel->lanes) {
        kernel->multiply(s);
        return;
    }
    for (int64_t i = 0; s->add && i < s->rows; i++)
        memcpy(t->room->edge + i * kernel->lanes, c + i * s->ldc,
               (size_t)n * sizeof(*c));
    s->c = s->next_c = t->room->edge;
    s->ldc = kernel->lanes;
    kernel->multiply(s);
    s->ldc = t->ldc;
    for (int64_t i = 0; i < s->rows; i++)
        memcpy(c + i * t->ldc, t->room->edge + i * kernel->lanes,
               (size_t)n * sizeof(*c));
}

/* Where the panel of column j of a group is: whole panels may be read in place. */
static void set_panel(const struct tile_task *t, const struct group *g, int64_t j,
                      struct panel_step *s)
{
    const struct cutting *cut = t->cut;
    int64_t lanes = cut->kernel->lanes;

    if (cut->in_place && g->n - j >= lanes) {
        s->b = (const float *)cut->b.data + g->k0 * cut->b.ld + g->j + j;
        s->b_step = cut->b.ld;
    } else {
        s->b = t->room->panels + panel_floats(cut->kernel, g->k, j);
        s->b_step = lanes;
    }
}

static void pack_panels(const struct tile_task *t, const struct group *g)
{
    const struct cutting *cut = t->cut;
    int64_t lanes = cut->kernel->lanes;

    for (int64_t j = 0; j < g->n; j += lanes)
        if (!cut->in_place || g->n - j < lanes)
            panel_pack(cut->kernel,
                       t->room->panels + panel_floats(cut->kernel, g->k, j), &cut->b,
                       g->j + j, least(lanes, g->n - j), g->k0, g->k, lanes);
}

/* All slivers of the tile times the panels of a group, sliver by sliver. */
static void multiply_group(const struct tile_task *t, const struct group *g,
                           const struct group *after)
{
    const struct cutting *cut = t->cut;
    int64_t lanes = cut->kernel->lanes;
    struct panel_ahead ahead =
        panel_ahead(&cut->b, after->j, after->n, after->k0, after->k);
    struct panel_step s = {
        .a = sliver_at(t, 0, g->k0),
        .k = panel_floats(cut->kernel, g->k, 1),
        .ldc = t->ldc,
        .add = g->k0 > 0 || (cut->p->add && cut->direct),
        .ahead = &ahead,
    };
    float *row = t->c + g->j - t->j0;

    if (after->n == 0)
        ahead.runs = 0;
    pack_panels(t, g);
    for (int64_t i = 0; i < t->m; i += cut->height, s.a += cut->sliver) {
        s.rows = least(cut->height, t->m - i);
        for (int64_t j = 0; j < g->n; j += lanes) {
            set_panel(t, g, j, &s);
            s.c = row + j;
            s.next_c = j + lanes < g->n ? s.c + lanes : row + cut->height * t->ldc;
            multiply_edge(t, &s, least(lanes, g->n - j));
        }
        row += cut->height * t->ldc;
    }
}

/* Tile number `tile`: product, then epilogue if there is anything to do in it. Tiles of
 * one row of tiles follow each other: they read the same a. */
static void run_tile(const struct cutting *cut, int64_t tile, struct room *room)
{
    const struct gemm *p = cut->p;
    int64_t i0 = tile / cut->wide * cut->slivers * cut->height;
    int64_t j0 = tile % cut->wide * cut->columns;
    struct tile_task t = {
        .cut = cut,
        .room = room,
        .i0 = i0,
        .m = least(cut->slivers * cut->height, p->m - i0),
        .j0 = j0,
        .n = least(cut->columns, p->n - j0),
        .c = cut->direct ? (float *)p->c + i0 * p->ldc + j0 : room->sums,
        .ldc = cut->direct ? p->ldc : TILE_COLUMNS,
    };
    struct group g, after;

    if (cut->whole)
        pack_rows(&t);
    for (g = group_at(&t, j0, 0); g.n > 0; g = after) {
        after = group_after(&t, &g);
        if (g.j == j0 && !cut->whole)
            pack_block(&t, g.k0);
        multiply_group(&t, &g, &after);
    }
    /* a float32 result without bias and activation is complete */
    if (p->a_inverse)
        unscale_tile(&t);
    if (!cut->direct || p->bias || p->act != ACCEL_ACT_NONE)
        cpu_epilogue_tile(p, &(struct cpu_part){ t.i0, t.m, t.j0, t.n }, t.c, t.ldc);
}

/* The columns of a tile, of which `high` lie above each other: narrower ones than need
 * be only where the thread that has most then multiplies a sixteenth less. */
static int64_t columns_of(int64_t n, int64_t high, int64_t lanes, int threads)
{
    const int64_t most = parts_of(n, FEWEST_COLUMNS);
    int64_t wide = parts_of(n, TILE_COLUMNS), best = 0, fewest = INT64_MAX;

    if (threads > 1 && high * wide < (int64_t)TASKS * threads)
        wide = least(parts_of(TASKS * threads, high), most);
    for (int64_t w = wide; w == wide || (w <= 2 * wide && w <= most); w++) {
        const int64_t columns = parts_of(parts_of(n, w), lanes) * lanes;
        const int64_t tiles = high * parts_of(n, columns);
        const int64_t busiest = parts_of(tiles, threads) * columns;

        if (busiest < fewest - fewest / 16) {
            fewest = busiest;
            best = columns;
        }
    }
    return best;
}

/* Rows of float32 along the panels may be read where they are stored: by a kernel that
 * takes them so, or where each panel is read once. Rows that lie a multiple of 2 KiB
 * apart share so few lines of a cache that a panel does not stay there; the second
 * sliver would read it from memory. Those are packed. */
static bool reads_in_place(const struct gemm *p, const struct panel_kernel *kernel,
                           int64_t slivers)
{
    enum { CLASH = 2048 / sizeof(float) };

    return !p->trans_b && p->b_type == ACCEL_F32 &&
           (slivers == 1 || (kernel->strided && p->ldb % CLASH != 0));
}

/* Slivers and tiles of equal size, rather than full ones and a small rest. */
static struct cutting cut_of(const struct gemm *p, const struct cpu_state *state,
                             int threads)
{
    struct cutting cut = {
        .p = p,
        .kernel = panel_kernel_for(state, p),
        .a = { p->a, p->a_type, p->lda, !p->trans_a, p->a_blocks },
        .b = { p->b, p->b_type, p->ldb, p->trans_b, p->b_blocks },
        .direct = p->c_type == ACCEL_F32 && !p->a_inverse,
    };
    int64_t high = parts_of(p->m, TILE_ROWS), lanes = cut.kernel->lanes, slivers;

    cut.height = parts_of(p->m, parts_of(p->m, cut.kernel->rows));
    slivers = parts_of(p->m, cut.height);
    cut.slivers = least(parts_of(slivers, high), TILE_ROWS / cut.height);
    high = parts_of(slivers, cut.slivers);
    cut.columns = columns_of(p->n, high, lanes, threads);
    cut.wide = parts_of(p->n, cut.columns);
    cut.tiles = high * cut.wide;
    cut.sliver = panel_floats(cut.kernel, least(p->k, PANEL_DEPTH), cut.height);
    cut.sliver = (parts_of(cut.sliver, PANEL_SLACK) + 1) * PANEL_SLACK;
    cut.whole = parts_of(p->k, PANEL_DEPTH) * cut.slivers * cut.sliver <= SLIVERS;
    cut.in_place = reads_in_place(p, cut.kernel, slivers);
    return cut;
}

/* This thread's room, with nothing packed. */
static struct room room_of(const struct cpu_state *s)
{
    float *own = s->panels + (size_t)omp_get_thread_num() * FLOATS;

    return (struct room){ .slivers = own,
                          .panels = own + SLIVERS,
                          .sums = own + SLIVERS + PANELS,
                          .edge = own + SLIVERS + PANELS + SUMS,
                          .row = -1 };
}

void cpu_gemm_alone(const struct backend *be, const struct gemm *p, bool same_a)
{
    struct cutting cut = cut_of(p, be->state, 1);
    struct room room = room_of(be->state);

    /* one row of tiles: what the last product packed is all of a */
    if (same_a && cut.tiles == cut.wide)
        room.row = 0;
    for (int64_t t = 0; t < cut.tiles; t++)
        run_tile(&cut, t, &room);
}

/* c [m, n] = op(a) op(b) with all that struct gemm adds to it. */
void cpu_gemm(const struct backend *be, const struct gemm *p)
{
    const struct cpu_state *s = be->state;
    struct cutting cut;

    /* k 0 comes only with add (struct gemm): nothing to add */
    if (!p->m || !p->n || !p->k)
        return;
    /* a is stored [k, m]: its column sums are op(a)'s sums over k */
    if (p->row_sums)
        cpu_column_sum(be, p->row_sums, p->a, p->a_type, p->k, p->m, p->lda);
    if (cpu_gemv_fits(p)) {
        cpu_gemv(be, p);
        return;
    }
    if (cpu_thin_fits(be, p)) {
        cpu_thin(be, p);
        return;
    }
    cut = cut_of(p, s, be->threads);
#pragma omp parallel num_threads(be->threads) if (p->m * p->n * p->k >                 \
                                                  CPU_ALONE_PRODUCTS)
    {
        struct room room = room_of(s);

#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < cut.tiles; t++)
            run_tile(&cut, t, &room);
    }
}
