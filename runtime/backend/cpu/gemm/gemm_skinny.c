/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with few rows or few k and a b that is not transposed: dx and dweight of a
 * few samples. Memory is the bottleneck. With few rows a thread reads its columns of b
 * once, a few rows of b at a time, and the sums stay in its cache; with few k it does
 * the same with c. The bits are those of the packed product (panels.h).
 */
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "backend/cpu/vmath.h"

/* Products with more rows and more k are packed, which needs fewer loads. It widens
 * narrow numbers strip by strip of b, so it begins to pay later there. */
enum { MOST_ROWS = 16, MOST_F32_ROWS = 8 };

/* Columns of b that are widened at a time; rows of c of a task with few k; floats of c
 * or of sums that a cache holds beside b; least columns of a task with few rows. */
enum { CHUNK = 512, TASK_ROWS = 64, CACHED = 8192, LEAST_COLUMNS = 256, TASKS = 2 };

/* The room of a thread, in floats: a block of k of a, rows of b, the sums of a block
 * and those of all blocks. */
enum {
    ROOM_A = PANEL_DEPTH * MOST_ROWS,
    ROOM_B = PANEL_FEW * CHUNK,
    ROOM_SUMS = TASK_ROWS * CHUNK
};

struct thin_room {
    float *a, *b, *sums, *all;
};

struct thin {
    const struct gemm *p;
    const struct panel_kernel *kernel;
    struct panel_operand a, b;
    int64_t step;          /* of k: what a streaming kernel takes */
    int64_t rows, columns; /* of a task */
    int64_t wide, tasks;   /* tasks beside each other, and all */
    bool few_rows;
};

static int64_t thin_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The multiple of the kernel's lanes that holds n columns. */
static int64_t thin_lanes(const struct thin *t, int64_t n)
{
    int64_t lanes = t->kernel->lanes;

    return (n + lanes - 1) / lanes * lanes;
}

static int64_t thin_step(const struct panel_kernel *kernel)
{
    return kernel->pairs ? 2 * PANEL_FEW : PANEL_FEW;
}

static bool has_few_rows(const struct gemm *p)
{
    return p->m <= (p->b_type == ACCEL_F32 ? MOST_F32_ROWS : MOST_ROWS);
}

/* b is read by rows: not transposed. */
bool cpu_thin_fits(const struct backend *be, const struct gemm *p)
{
    return !p->trans_b && !p->a_inverse && !p->a_blocks.inverse &&
           (has_few_rows(p) || p->k <= thin_step(panel_kernel_for(be->state, p)));
}

/* A kernel reads whole vectors and pairs where they are stored. With few k all rows of
 * c need the same ones: they are widened once. */
static bool reads_stored(const struct thin *t, int64_t n, int64_t k)
{
    if (thin_lanes(t, n) != n)
        return false;
    if (t->b.type == ACCEL_F32)
        return true;
    return t->kernel->direct && t->few_rows && (!t->kernel->pairs || k % 2 == 0) &&
           (t->b.type == ACCEL_BF16 || t->b.type == ACCEL_F16);
}

/* Columns [j, j + n) of rows [k0, k0 + k) of b: where they are, or in the room. */
static void set_rows(const struct thin *t, struct panel_stream *s, float *room,
                     int64_t j, int64_t n, int64_t k0, int64_t k)
{
    s->k = panel_floats(t->kernel, k, 1);
    s->n = thin_lanes(t, n);
    s->ahead = reads_stored(t, n, k);
    if (s->ahead) {
        s->b = (const char *)t->b.data +
               (k0 * t->b.ld + j) * (int64_t)accel_dtype_bytes(t->b.type);
        s->b_type = t->b.type;
        s->b_step = t->b.ld;
        return;
    }
    panel_rows(t->kernel, room, &t->b, j, n, k0, k, s->n);
    s->b = room;
    s->b_type = ACCEL_F32;
    s->b_step = s->n;
}

/* Between the numbers of two k of packed rows of a: packing stores whole vectors, so
 * the last of several must be whole. */
static int64_t a_width(int64_t rows)
{
    return rows <= 8 ? rows : (rows + 15) / 16 * 16;
}

/* The kernel on all rows of c, PANEL_FEW at a time. */
static void stream_rows(const struct thin *t, struct panel_stream *s, int64_t rows)
{
    struct panel_stream part = *s;

    for (int64_t r = 0; r < rows; r += PANEL_FEW) {
        part.rows = thin_least(PANEL_FEW, rows - r);
        t->kernel->stream(&part);
        part.a += PANEL_FEW;
        part.c += PANEL_FEW * part.ldc;
    }
}

/* The sums of one block of k, [rows][ld], of a task's columns. */
static void sum_block(const struct thin *t, const struct thin_room *room, float *sums,
                      const struct cpu_part *at, int64_t k0, int64_t k)
{
    struct panel_stream s = { .a_step = a_width(at->m), .ldc = thin_lanes(t, at->n) };

    panel_pack(t->kernel, room->a, &t->a, 0, at->m, k0, k, s.a_step);
    for (int64_t i = 0; i < k; i += t->step) {
        int64_t some = thin_least(t->step, k - i), chunk;

        s.chain = i == 0 ? CHAIN_BEGIN : CHAIN_GO_ON;
        s.a = room->a + panel_floats(t->kernel, i, s.a_step);
        /* all columns at once where nothing is widened */
        chunk = reads_stored(t, at->n, some) ? at->n : CHUNK;
        for (int64_t j = 0; j < at->n; j += chunk) {
            set_rows(t, &s, room->b, at->j0 + j, thin_least(chunk, at->n - j), k0 + i,
                     some);
            s.c = sums + j;
            stream_rows(t, &s, at->m);
        }
    }
}

/* Finished sums into c. A float32 result without bias and activation is complete. */
static void store_sums(const struct gemm *p, const struct cpu_part *at,
                       const float *sums, int64_t ld, bool added)
{
    if (p->c_type != ACCEL_F32 || p->bias || p->act != ACCEL_ACT_NONE) {
        cpu_epilogue_tile(p, at, sums, ld);
        return;
    }
    for (int64_t r = 0; r < at->m; r++)
        cpu_store_row((float *)p->c + (at->i0 + r) * p->ldc + at->j0, sums + r * ld,
                      ACCEL_F32, at->n, p->add && !added);
}

/* Few rows: all of them, of some columns. The blocks of k are added in order, to c
 * where it is float32 and added to. */
static void run_rows(const struct thin *t, const struct cpu_part *at,
                     const struct thin_room *room)
{
    const struct gemm *p = t->p;
    int64_t ld = thin_lanes(t, at->n);
    bool begun = p->add && p->c_type == ACCEL_F32;

    for (int64_t r = 0; begun && r < at->m; r++)
        cpu_load_row(room->all + r * ld, (const float *)p->c + r * p->ldc + at->j0,
                     ACCEL_F32, at->n);
    for (int64_t k0 = 0; k0 < p->k; k0 += PANEL_DEPTH) {
        bool onto = begun || k0 > 0;

        sum_block(t, room, onto ? room->sums : room->all, at, k0,
                  thin_least(PANEL_DEPTH, p->k - k0));
        for (int64_t r = 0; onto && r < at->m; r++)
            cpu_store_row(room->all + r * ld, room->sums + r * ld, ACCEL_F32, at->n,
                          true);
    }
    store_sums(p, at, room->all, ld, begun);
}

/* Few k: some rows, all columns, which b's rows are widened for once. Whole vectors of
 * a float32 c are computed in place. */
static void run_k(const struct thin *t, const struct cpu_part *at,
                  const struct thin_room *room)
{
    const struct gemm *p = t->p;
    bool direct = p->c_type == ACCEL_F32 && !p->bias && p->act == ACCEL_ACT_NONE;
    struct panel_stream s = { .a = room->a, .a_step = a_width(at->m) };

    if (p->trans_a)
        panel_rows(t->kernel, room->a, &t->a, at->i0, at->m, 0, p->k, s.a_step);
    else
        panel_pack(t->kernel, room->a, &t->a, at->i0, at->m, 0, p->k, s.a_step);
    for (int64_t j = 0; j < p->n; j += CHUNK) {
        struct cpu_part some = { at->i0, at->m, j, thin_least(CHUNK, p->n - j) };
        bool in_place;

        set_rows(t, &s, room->b, j, some.n, 0, p->k);
        in_place = direct && s.n == some.n;
        s.ahead = false;
        s.chain = in_place && p->add ? CHAIN_ADD : CHAIN_BEGIN;
        s.c = in_place ? (float *)p->c + at->i0 * p->ldc + j : room->sums;
        s.ldc = in_place ? p->ldc : CHUNK;
        stream_rows(t, &s, at->m);
        if (!in_place)
            store_sums(p, &some, room->sums, CHUNK, false);
    }
}

/* Few rows are shared out by columns, few k by rows. */
static struct thin thin_of(const struct backend *be, const struct gemm *p)
{
    struct thin t = {
        .p = p,
        .kernel = panel_kernel_for(be->state, p),
        .a = { p->a, p->a_type, p->lda, !p->trans_a, p->a_blocks },
        .b = { p->b, p->b_type, p->ldb, false, p->b_blocks },
        .rows = p->m,
        .columns = p->n,
        .few_rows = has_few_rows(p),
    };

    t.step = thin_step(t.kernel);
    if (t.few_rows) {
        t.columns = be->threads > 1 ? p->n / (TASKS * be->threads) : p->n;
        t.columns = t.columns < LEAST_COLUMNS ? LEAST_COLUMNS : t.columns;
        t.columns = thin_lanes(&t, thin_least(t.columns, CACHED / p->m));
    } else {
        t.rows = TASK_ROWS;
    }
    t.wide = (p->n + t.columns - 1) / t.columns;
    t.tasks = t.wide * ((p->m + t.rows - 1) / t.rows);
    return t;
}

void cpu_thin(const struct backend *be, const struct gemm *p)
{
    const struct thin t = thin_of(be, p);
    const struct cpu_state *state = be->state;

#pragma omp parallel num_threads(be->threads) if (p->m * p->n * p->k >                 \
                                                  CPU_ALONE_PRODUCTS)
    {
        float *own = state->panels + (size_t)omp_get_thread_num() * state->panel_floats;
        struct thin_room room = { .a = own, .b = own + ROOM_A };

        room.sums = room.b + ROOM_B;
        room.all = room.sums + ROOM_SUMS;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < t.tasks; i++) {
            struct cpu_part at = { .i0 = i / t.wide * t.rows,
                                   .j0 = i % t.wide * t.columns };

            at.m = thin_least(t.rows, p->m - at.i0);
            at.n = thin_least(t.columns, p->n - at.j0);
            if (t.few_rows)
                run_rows(&t, &at, &room);
            else
                run_k(&t, &at, &room);
        }
    }
}
