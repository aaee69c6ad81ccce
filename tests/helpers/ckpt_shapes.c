/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt_shapes ROOT WANT: checkpoints of several worlds and ways to cut tensors, for
 * readers that are not accel's. Out: ROOT/step_N, and what each one holds as plain
 * files, WANT/N/tensors/NAME and WANT/N/blobs/NAME. Prints one line per checkpoint.
 * Exits 0, or with the first save's error. Never reads a checkpoint.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/world/ckpt_world.h"

#define LONG_PART  "0123456789abcdefghijklmnopqrstuvwxyz.ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define BLOB_BYTES (2 * (1 << 20) + 7)

static const struct shape {
    const char *name;
    accel_dtype_t dtype;
    int ndim;
    int64_t dim[ACCEL_CKPT_MAX_DIMS];
} shapes[] = {
    { "model/scalar.f32", ACCEL_F32, 0, { 0 } },
    { "model/scalar.u8", ACCEL_U8, 0, { 0 } },
    { "model/one", ACCEL_I64, 1, { 1 } },
    { "model/empty", ACCEL_F32, 1, { 0 } },
    { "model/empty.inside", ACCEL_F64, 3, { 4, 0, 9 } },
    { "model/two-pieces", ACCEL_F32, 2, { 512, 1024 } },
    { "model/one-more", ACCEL_U8, 1, { (1 << 20) + 1 } },
    { "model/wide", ACCEL_BF16, 2, { 3, 500009 } },
    { "model/tall", ACCEL_U16, 2, { 70001, 5 } },
    { "model/cube", ACCEL_I32, 3, { 5, 7, 11 } },
    { "model/bytes", ACCEL_I8, 2, { 9, 31 } },
    { "model/narrow.e4m3", ACCEL_F8E4M3, 2, { 70, 9 } },
    { "model/narrow.e5m2", ACCEL_F8E5M2, 3, { 3, 5, 77 } },
    { "model/half", ACCEL_F16, 1, { 333 } },
    { "model/eight", ACCEL_U8, 8, { 2, 1, 3, 1, 2, 1, 3, 2 } },
    { "optim/tall/exp_avg", ACCEL_F64, 2, { 13, 17 } },
    { "x", ACCEL_F32, 2, { 2, 3 } },
    { "model/!#$%&'()*+,-:;<=>?[\\]^_`{|}~", ACCEL_U8, 1, { 3 } },
    /* 511 bytes */
    { LONG_PART "/" LONG_PART "/" LONG_PART "/" LONG_PART "/" LONG_PART "/" LONG_PART
                "/" LONG_PART "/" LONG_PART,
      ACCEL_U8,
      1,
      { 5 } },
    { "optim/fp8/exp_avg", ACCEL_U8, 2, { 70, 9 } },
    { "optim/fp8/exp_avg.scale", ACCEL_U8, 1, { 20 } },
    { "optim/8bit/exp_avg", ACCEL_U8, 1, { 64 } },
    { "optim/8bit/exp_avg.scale", ACCEL_BF16, 1, { 4 } },
};

enum cut { CUT_FLAT, CUT_WHOLE, CUT_LAST, CUT_BLOCKS, CUT_TURNS };

static const struct world_case {
    int ranks;
    enum cut cut;
    const char *sharding;
    int64_t step;
} cases[] = {
    { 1, CUT_FLAT, "FULL_SHARD", 0 },
    { 2, CUT_FLAT, "FULL_SHARD", 1 },
    { 3, CUT_FLAT, "SHARD_GRAD_OP", 2 },
    { 2, CUT_WHOLE, "NO_SHARD", 3 },
    { 3, CUT_LAST, "HYBRID_SHARD", 4 },
    { 3, CUT_BLOCKS, "any~other!word", 123456789 },
    { 3, CUT_TURNS, "HYBRID_SHARD_ZERO2", INT64_C(999999999999) },
};

static int64_t volume(int ndim, const int64_t *dim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= dim[d];
    return n;
}

/* Bytes that tell every tensor and step apart. */
static void fill(unsigned char *to, int64_t bytes, uint64_t tensor, int64_t step)
{
    uint64_t x =
        (tensor + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)step * 0xbf58476d1ce4e5b9u;

    for (int64_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[i] = (unsigned char)(x >> 32);
    }
}

/* Copies the box's elements out of the whole tensor. */
static void *part_of(const unsigned char *whole, const accel_ckpt_box_t *b)
{
    int64_t n = volume(b->ndim, b->shape), size = (int64_t)accel_dtype_bytes(b->dtype);
    unsigned char *part = malloc((size_t)(n * size) + 1);

    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;

        for (int d = b->ndim - 1; d >= 0; d--) {
            at += (b->offset[d] + rest % b->shape[d]) * stride;
            rest /= b->shape[d];
            stride *= b->global_shape[d];
        }
        memcpy(part + i * size, whole + at * size, (size_t)size);
    }
    return part;
}

/* The whole tensor, to be cut further. */
static accel_ckpt_box_t whole_box(const struct shape *t)
{
    accel_ckpt_box_t b = { .name = t->name, .dtype = t->dtype, .ndim = t->ndim };

    memcpy(b.global_shape, t->dim, sizeof(t->dim));
    memcpy(b.shape, t->dim, sizeof(t->dim));
    return b;
}

/* Two cuts through the last two dimensions: four blocks, taken by the ranks in turn. */
static int blocks(const struct shape *t, int rank, int ranks, accel_ckpt_box_t *out)
{
    int a = t->ndim - 2, b = t->ndim - 1, n = 0;

    for (int k = 0; k < 4; k++) {
        int64_t half[2] = { t->dim[a] / 2, t->dim[b] / 2 };
        accel_ckpt_box_t box = whole_box(t);

        if ((k + 1) % ranks != rank)
            continue;
        box.offset[a] = k / 2 ? half[0] : 0;
        box.offset[b] = k % 2 ? half[1] : 0;
        box.shape[a] = k / 2 ? t->dim[a] - half[0] : half[0];
        box.shape[b] = k % 2 ? t->dim[b] - half[1] : half[1];
        out[n++] = box;
    }
    return n;
}

/* What this rank holds of tensor i. */
static int cut(const struct world_case *c, int i, int rank, accel_ckpt_box_t *out)
{
    const struct shape *t = &shapes[i];
    int64_t n = volume(t->ndim, t->dim), each = (n + c->ranks - 1) / c->ranks;
    accel_ckpt_box_t flat[2 * ACCEL_CKPT_MAX_DIMS] = { 0 };
    int parts, owner = c->cut == CUT_LAST    ? c->ranks - 1
                       : c->cut == CUT_TURNS ? i % c->ranks
                                             : 0;

    if (c->cut == CUT_BLOCKS && t->ndim >= 2 && n > 0)
        return blocks(t, rank, c->ranks, out);
    if (c->cut != CUT_FLAT || n == 0) {
        out[0] = whole_box(t);
        return rank == owner;
    }
    parts = accel_ckpt_boxes_of_range(t->ndim, t->dim, rank * each, (rank + 1) * each,
                                      flat);
    for (int k = 0; k < parts; k++) {
        out[k] = whole_box(t);
        memcpy(out[k].offset, flat[k].offset, sizeof(flat[k].offset));
        memcpy(out[k].shape, flat[k].shape, sizeof(flat[k].shape));
    }
    return parts;
}

/* WANT/STEP/KIND/NAME, with the directories above it. */
static void keep(const char *want, int64_t step, const char *kind, const char *name,
                 const void *data, size_t bytes)
{
    char path[1200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%lld/%s/%s", want, (long long)step, kind, name);
    for (char *p = path + strlen(want); *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    f = fopen(path, "we");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        abort();
}

static accel_status_t save(const struct world_case *c, const struct world *w,
                           const char *root, const char *want, accel_error_t *err)
{
    static unsigned char large[BLOB_BYTES];
    static accel_ckpt_box_t box[ACCEL_ARRAY_SIZE(shapes) * 2 * ACCEL_CKPT_MAX_DIMS];
    const accel_ckpt_blob_t blobs[] = { { "trainer", "step=1\ncursor=2\n", 16 },
                                        { "none", "", 0 },
                                        { "model/one", "\0\377\n", 3 },
                                        { "deep/er/large", large, sizeof(large) } };
    accel_ckpt_save_t s = { sizeof(s),
                            .root = root,
                            .step = c->step,
                            .owner = "17.0",
                            .run_id = " a run: with  blanks ",
                            .sharding = c->sharding,
                            .boxes = box,
                            .blobs = blobs,
                            .blob_count = ACCEL_ARRAY_SIZE(blobs),
                            .keep = 99 };
    accel_status_t st;

    fill(large, sizeof(large), 99, c->step);
    for (size_t i = 0; w->rank == 0 && i < ACCEL_ARRAY_SIZE(blobs); i++)
        keep(want, c->step, "blobs", blobs[i].name, blobs[i].data, blobs[i].bytes);
    for (int i = 0; i < (int)ACCEL_ARRAY_SIZE(shapes); i++) {
        const struct shape *t = &shapes[i];
        int64_t bytes = volume(t->ndim, t->dim) * (int64_t)accel_dtype_bytes(t->dtype);
        unsigned char *whole = malloc((size_t)bytes + 1);
        int parts = cut(c, i, w->rank, box + s.box_count);

        fill(whole, bytes, (uint64_t)i, c->step);
        if (w->rank == 0)
            keep(want, c->step, "tensors", t->name, whole, (size_t)bytes);
        for (int k = 0; k < parts; k++, s.box_count++)
            box[s.box_count].data = part_of(whole, &box[s.box_count]);
        free(whole);
    }
    st = accel_ckpt_save(&s, &w->coll, NULL, err);
    for (size_t i = 0; i < s.box_count; i++)
        free(box[i].data);
    return st;
}

int main(int argc, char **argv)
{
    if (argc != 3 || (mkdir(argv[2], 0777) && access(argv[2], F_OK)))
        return 64;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_error_t err = { 0 };
        struct world w;
        accel_status_t st;

        world_start(&w, cases[i].ranks);
        st = save(&cases[i], &w, argv[1], argv[2], &err);
        if (st && w.rank == 0)
            fprintf(stderr, "%s: %s (%s)\n", err.where, err.text, err.hint);
        if (world_end(&w, st ? accel_exit_code(st) : 0))
            return st ? accel_exit_code(st) : 1;
        printf("%lld %d %s\n", (long long)cases[i].step, cases[i].ranks,
               cases[i].sharding);
        fflush(stdout);
    }
    return 0;
}
