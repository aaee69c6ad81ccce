/* SPDX-License-Identifier: Apache-2.0
 *
 * What grows with the number of things and not with their bytes: bench_ckpt_many [DIR].
 * An index of 500 tensors in 64 files (32 000 mappings), a list of 1000 checkpoints
 * with the reasons why each stays, and a manifest of 10 000 ranks. Each is to take at
 * most half a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "checkpoint/ckpt_tools.h"
#include "tests/world/ckpt_world.h"

#define TENSORS     500
#define FILES       64
#define CHECKPOINTS 1000
#define RANKS       10000
/* boxes of each rank */
#define RANK_BOXES 8

static void die(const accel_error_t *err)
{
    char text[2048];

    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "bench_ckpt_many: %s\n", text);
    exit(1);
}

/* A moment: by the clock, and of this process's processor time. */
struct moment {
    int64_t ns;
    clock_t cpu;
};

static struct moment moment(void)
{
    return (struct moment){ clock_ns(), clock() };
}

/* "0.123 s (0.120 s of a core)", valid until the next call. */
static const char *since(struct moment begun)
{
    static char text[64];

    snprintf(text, sizeof(text), "%.3f s (%.3f s of a core)",
             (double)(clock_ns() - begun.ns) * 1e-9,
             (double)(clock() - begun.cpu) / CLOCKS_PER_SEC);
    return text;
}

static accel_status_t zeros(void *user, size_t i, int64_t begin, int64_t count,
                            void *data, accel_error_t *err)
{
    (void)user, (void)i, (void)begin, (void)err;
    memset(data, 0, (size_t)count * sizeof(float));
    return ACCEL_OK;
}

static void bench_index(const char *root)
{
    static accel_ckpt_box_t tensor[TENSORS];
    static char name[TENSORS][32];
    struct ckpt_copy x = { .root = root,
                           .step = 1,
                           .run_id = "many",
                           .sharding = "FLAT",
                           .shards = FILES,
                           .tensors = tensor,
                           .tensor_count = TENSORS,
                           .read = zeros };
    accel_error_t err = { 0 };
    accel_ckpt_t *c;
    char dir[400];
    struct moment begun;

    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof(name[i]), "model/t%03d", i);
        tensor[i] = (accel_ckpt_box_t){ .name = name[i],
                                        .dtype = ACCEL_F32,
                                        .ndim = 1,
                                        .global_shape = { FILES * 16 } };
    }
    snprintf(dir, sizeof(dir), "%s/step_00000001", root);
    if (ckpt_copy(&x, &err) || accel_ckpt_open(&c, dir, &err))
        die(&err);
    begun = moment();
    if (ckpt_index(c, NULL, NULL, &err))
        die(&err);
    printf("index of %d mappings: %s\n", TENSORS * FILES, since(begun));
    accel_ckpt_close(c);
}

static void no_reason(void *user, const char *name, const char *why)
{
    (void)name;
    *(size_t *)user += why[0] != '\0';
}

static void bench_list(const char *root)
{
    const accel_ckpt_rule_t rule = { .best = 10, .metric = "loss" };
    double value = 1;
    accel_ckpt_box_t box = { .name = "model/w",
                             .dtype = ACCEL_F64,
                             .ndim = 1,
                             .global_shape = { 1 },
                             .shape = { 1 },
                             .data = &value };
    accel_ckpt_saving_t *g;
    accel_ckpt_info_t *list;
    accel_error_t err = { 0 };
    size_t n, kept = 0;
    struct moment begun;

    for (int64_t step = 1; step <= CHECKPOINTS; step++) {
        accel_ckpt_save_t s = {
            sizeof(s),           .root = root,
            .step = step,        .owner = "1.0",
            .run_id = "many",    .sharding = "NO_SHARD",
            .boxes = &box,       .box_count = 1,
            .keep = CHECKPOINTS, .rule = step == CHECKPOINTS ? &rule : NULL
        };

        if (accel_ckpt_note_value(root, "many", "loss", step, (double)step, &err))
            die(&err);
        if (accel_ckpt_save_begin(&g, &s, NULL, &err) ||
            accel_ckpt_save_write(g, &err) ||
            accel_ckpt_save_publish(g, NULL, NULL, &err))
            die(&err);
        if (step == CHECKPOINTS) {
            begun = moment();
            accel_ckpt_save_retain(g);
            printf("what stays of %d checkpoints: %s\n", CHECKPOINTS, since(begun));
        }
        accel_ckpt_save_free(g);
    }
    begun = moment();
    if (accel_ckpt_list(root, &list, &n, &err) ||
        ckpt_why_kept(root, no_reason, &kept, &err))
        die(&err);
    printf("ls of %zu checkpoints: %s (%zu stay)\n", n, since(begun), kept);
    free(list);
}

/* As rank 0 has it in a save: joined, checked, formatted; and as a load reads it. */
static void bench_manifest(void)
{
    struct ckpt_manifest m = { .step = 1, .world = RANKS }, again = { 0 };
    accel_error_t err = { 0 };
    struct strbuf text = { 0 };
    accel_status_t st = ACCEL_OK;
    struct moment begun;

    strcpy(m.version, "0.1.0");
    strcpy(m.owner, "1.0");
    strcpy(m.sharding, "FLAT");
    strcpy(m.run_id, "many");
    m.file = calloc(RANKS, sizeof(*m.file));
    for (int r = 0; m.file && r < RANKS; r++) {
        ckpt_shard_name(m.file[r].name, r, RANKS);
        m.file[r].bytes = 4096 + 64 * RANK_BOXES;
    }
    begun = moment();
    for (int i = 0; i < RANK_BOXES && m.file && !st; i++) {
        struct ckpt_tensor t = { .dtype = ACCEL_F32, .ndim = 1 };
        char name[32];

        snprintf(name, sizeof(name), "model/t%d", i);
        t.name = name;
        t.shape[0] = RANKS * 16;
        st = ckpt_manifest_add_tensor(&m, &t, &err);
        for (int r = 0; r < RANKS && !st; r++) {
            struct ckpt_mbox b = { .tensor = (size_t)i,
                                   .file = r,
                                   .offset = { 16 * r },
                                   .shape = { 16 },
                                   .at = 4096 + 64 * i,
                                   .bytes = 64 };

            st = ckpt_manifest_add_box(&m, &b, &err);
        }
    }
    if (!m.file || st || ckpt_manifest_sort(&m, &err) ||
        ckpt_manifest_check(&m, A0816, &err) ||
        ckpt_manifest_format(&m, -1, &text, &err))
        die(&err);
    printf("manifest of %d ranks written: %s (%zu boxes, %.1f MB)\n", RANKS,
           since(begun), m.boxes, (double)text.len * 1e-6);
    begun = moment();
    if (ckpt_manifest_parse(&again, text.s, text.len, false, "MANIFEST", &err))
        die(&err);
    printf("and read: %s\n", since(begun));
    strbuf_free(&text);
    ckpt_manifest_free(&m);
    ckpt_manifest_free(&again);
}

int main(int argc, char **argv)
{
    char root[256], below[300];

    if (argc > 1 && setenv("TMPDIR", argv[1], 1))
        return 1;
    world_tmpdir(root, "many");
    bench_manifest();
    snprintf(below, sizeof(below), "%s/index", root);
    bench_index(below);
    snprintf(below, sizeof(below), "%s/list", root);
    bench_list(below);
    world_rmtree(root);
    return 0;
}
