/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, activations and gated products that make 8-bit copies of their results: the
 * bits of the kernel without copies and of a pass over what that has stored, the
 * largest magnitude too. On a device and on the CPU. Arrays may
 * begin between packs, and are watched behind their ends.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/device.h"
#include "numbers/floats.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

/* Arrays of a call; what is written of it. */
enum { Y, SUM, STATS, COPY, TURNED, AMAX, WRITTEN, A = WRITTEN, B, GAIN, BIAS, ARRAYS };
enum { WATCHED = 64 };

enum kind { ACT, GATED, NORM, RMS, ADD_NORM, ADD_RMS, KINDS };
static const char *const names[KINDS] = { "act",      "gated",    "norm",
                                          "rms norm", "add norm", "add rms norm" };

struct shape {
    int64_t rows, cols;
    /* elements that y and what it is made of begin behind 16 bytes */
    int64_t shift;
};

/* Which copies are made: none, one, the transposed one, both; as what; is there an
 * amax? */
struct wish {
    bool copy, transposed, amax;
    accel_dtype_t to;
};

struct call {
    enum kind kind;
    struct shape shape;
    struct wish wish;
    accel_dtype_t type;
    accel_activation_t act;
};

struct world {
    const struct backend *be;
    /* in the memory of the backend, and where the values begin */
    char *memory[ARRAYS], *at[ARRAYS];
    size_t bytes[ARRAYS];
};

static void world_size(struct world *w, const struct call *c)
{
    const int64_t n = c->shape.rows * c->shape.cols;
    const size_t each = accel_dtype_bytes(c->type);

    for (int i = 0; i < ARRAYS; i++)
        w->bytes[i] =
            i == GAIN || i == BIAS ? (size_t)c->shape.cols * each : (size_t)n * each;
    w->bytes[STATS] = (size_t)c->shape.rows * 2 * sizeof(float);
    w->bytes[COPY] = (size_t)n;
    w->bytes[TURNED] = (size_t)(c->shape.cols * narrow_ld(c->shape.rows));
    w->bytes[AMAX] = 2 * sizeof(float);
}

/* The same values on every backend; amax and scale are 0.5 and 100. Some results are
 * beyond what the copies hold, and one is infinite. */
static void world_fill(struct world *w, const struct call *c, int i, char *host)
{
    static const float amax[] = { 0.5f, 100 };
    const int64_t n = (int64_t)(w->bytes[i] / accel_dtype_bytes(c->type));

    memset(host, 0x5a, w->bytes[i] + WATCHED);
    if (i == AMAX)
        memcpy(host, amax, sizeof(amax));
    if (i < WRITTEN)
        return;
    for (int64_t k = 0; k < n; k++) {
        const float v = (float)((k * 37 + i * 11) % 101) / 16.0f - 3;

        floats_narrow(host + (size_t)k * accel_dtype_bytes(c->type), c->type,
                      k == 7 && i == A && c->kind < NORM ? &(float){ INFINITY } : &v,
                      1);
    }
}

static void world_open(struct world *w, const struct backend *be, const struct call *c)
{
    w->be = be;
    world_size(w, c);
    for (int i = 0; i < ARRAYS; i++) {
        const bool skew = i == Y || i == SUM || i == A || i == B;
        const size_t shift =
            skew ? (size_t)c->shape.shift * accel_dtype_bytes(c->type) : 0;
        const size_t bytes = w->bytes[i] + WATCHED;
        char *host = malloc(bytes);
        void *memory = NULL;

        if (!host || be->alloc(be, MEMORY_BUFFERS, bytes + shift, &memory, NULL))
            exit(1);
        world_fill(w, c, i, host);
        w->memory[i] = memory;
        w->at[i] = w->memory[i] + shift;
        be->from_host(be, w->at[i], host, bytes);
        free(host);
    }
}

static void world_close(struct world *w)
{
    for (int i = 0; i < ARRAYS; i++)
        w->be->free(w->be, w->memory[i]);
}

static void make(const struct world *w, const struct call *c,
                 const struct narrow_copy *to)
{
    const struct backend *be = w->be;
    const struct norm p = { c->type, c->shape.rows, c->shape.cols, 1e-5f,
                            c->kind == RMS || c->kind == ADD_RMS };
    void *const *at = (void *const *)w->at;
    const void *bias = p.rms ? NULL : at[BIAS];
    const int64_t n = p.rows * p.cols;

    if (c->kind == ACT)
        be->act(be, at[Y], at[A], c->type, n, c->act, to);
    else if (c->kind == GATED)
        be->gated(be, at[Y], at[A], at[B], c->type, n, c->act, to);
    else if (c->kind < ADD_NORM)
        be->norm(be, &p, at[Y], (float *)at[STATS], at[A], at[GAIN], bias, to);
    else
        be->add_norm(be, &p, at[SUM], at[Y], (float *)at[STATS], at[A], at[B], at[GAIN],
                     bias, to);
}

static void run_call(const struct world *w, const struct call *c, bool apart)
{
    float *amax = (float *)(void *)w->at[AMAX];
    const struct narrow_copy to = {
        .type = c->wish.to,
        .rows = c->shape.rows,
        .cols = c->shape.cols,
        .copy = c->wish.copy ? w->at[COPY] : NULL,
        .transposed = c->wish.transposed ? w->at[TURNED] : NULL,
        .scale = c->wish.copy || c->wish.transposed ? amax + 1 : NULL,
        .amax = c->wish.amax ? amax : NULL
    };

    make(w, c, apart ? NULL : &to);
    if (apart && to.transposed)
        w->be->quantize_transposed(w->be, to.copy, to.transposed, to.type, w->at[Y],
                                   c->type, to.rows, to.cols, to.scale, to.amax);
    else if (apart)
        w->be->quantize(w->be, to.copy, to.type, w->at[Y], c->type, to.rows * to.cols,
                        to.scale, to.amax);
}

/* Which arrays differ, as bits; -1: the device has failed. */
static int differing(const struct world *a, const struct world *b)
{
    int which = 0;

    for (int i = 0; i < WRITTEN; i++) {
        const size_t bytes = a->bytes[i] + WATCHED;
        char *got[2] = { malloc(bytes), malloc(bytes) };

        if (!got[0] || !got[1])
            exit(1);
        a->be->to_host_bytes(a->be, got[0], a->at[i], bytes);
        b->be->to_host_bytes(b->be, got[1], b->at[i], bytes);
        which |= memcmp(got[0], got[1], bytes) ? 1 << i : 0;
        free(got[0]);
        free(got[1]);
    }
    return a->be->sync(a->be, NULL) ? -1 : which;
}

static void test_call(const struct backend *be, const struct call *c)
{
    struct world one, two;

    world_open(&one, be, c);
    world_open(&two, be, c);
    run_call(&one, c, false);
    run_call(&two, c, true);
    tap_is_int(differing(&one, &two), 0,
               "%s: %s, %lld x %lld %s from element %lld on, to %s:%s%s%s", be->name,
               names[c->kind], (long long)c->shape.rows, (long long)c->shape.cols,
               accel_dtype_name(c->type), (long long)c->shape.shift,
               accel_dtype_name(c->wish.to), c->wish.copy ? " copy" : "",
               c->wish.transposed ? " transposed" : "", c->wish.amax ? " amax" : "");
    world_close(&one);
    world_close(&two);
}

/* Rows of a warp and of a block, with and without packs, too long to be kept; rows that
 * fill squares and that do not. */
static const struct shape shapes[] = { { 0, 16, 0 },    { 1, 1, 0 },    { 16, 16, 0 },
                                       { 21, 48, 1 },   { 65, 136, 0 }, { 5, 2056, 0 },
                                       { 18, 1031, 0 }, { 2, 25008, 0 } };
static const struct wish wishes[] = {
    { true, false, true, ACCEL_F8E4M3 },  { true, true, true, ACCEL_F8E4M3 },
    { false, true, true, ACCEL_F8E5M2 },  { false, false, true, ACCEL_F8E4M3 },
    { true, false, false, ACCEL_F8E5M2 },
};

static void test_backend(const struct backend *be)
{
    static const accel_dtype_t types[] = { ACCEL_BF16, ACCEL_F32, ACCEL_F16 };
    int turn = 0;

    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++)
            for (size_t k = 0; k < ACCEL_ARRAY_SIZE(wishes); k++, turn++) {
                const struct call c = {
                    .kind = (enum kind)kind,
                    .shape = shapes[i],
                    .wish = wishes[k],
                    /* bfloat16 every other time */
                    .type = types[turn % 2 ? 0 : 1 + turn / 2 % 2],
                    .act = (accel_activation_t)(turn % (ACCEL_ACT_TANH + 1))
                };

                test_call(be, &c);
            }
}

/* Kernels of the stand-in read any memory: a read behind the last element ends the
 * test. */
static void test_end(const struct backend *be)
{
    enum { ROWS = 2, MOST = 16, BYTES = 1 << 16 };
    char *room = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const float scale = 1;
    static char across[MOST * NARROW_MULTIPLE];
    void (*reset)(void);

    if (!cuda_stand_in("fakecuda_reset", (void *)&reset) || room == MAP_FAILED ||
        mprotect(room + BYTES, BYTES, PROT_NONE))
        return;
    for (int cols = MOST; cols > MOST - 2; cols--) /* packs, and elements */
        be->quantize_transposed(be, NULL, across, ACCEL_F8E4M3,
                                room + BYTES - (size_t)(ROWS * cols) * sizeof(float),
                                ACCEL_F32, ROWS, cols, &scale, NULL);
    tap_ok(!be->sync(be, NULL), "nothing is read behind the source");
    munmap(room, 2 * BYTES);
}

int main(void)
{
    struct backend *be = cuda_device();

    test_backend(be);
    test_end(be);
    backend_close(be);
    if (backend_cpu_open(&be, 2, NULL))
        return 1;
    test_backend(be);
    backend_close(be);
    return tap_done();
}
