/* SPDX-License-Identifier: Apache-2.0
 *
 * Save and load through the real format with forked ranks: every n -> m up to 4
 * bit-equal, retention, the same step twice, agreement on errors, 1000 flipped bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

static char root[256];

static int save_with(int ranks, int64_t step, int keep)
{
    struct world w;
    accel_error_t err = { 0 };
    accel_status_t s;

    world_start(&w, ranks);
    s = world_save(&w, root, step, keep, &err);
    if (s && w.rank == 0)
        tap_diag("save: %s: %s (%s)", err.where, err.text, err.hint);
    return world_end(&w, s != ACCEL_OK);
}

static void test_reshard(void)
{
    for (int n = 1; n <= 4; n++) {
        tap_is_int(save_with(n, n, 9), 0, "%d ranks save", n);
        for (int m = 1; m <= 4; m++) {
            int bad = 0;

            for (int r = 0; r < m; r++) {
                accel_error_t err = { 0 };

                if (world_load_newest(root, r, m, &err) != n) {
                    tap_diag("%s: %s", err.where, err.text);
                    bad++;
                }
            }
            tap_is_int(bad, 0, "%d -> %d ranks: bit-equal", n, m);
        }
    }
}

static void test_retention(void)
{
    accel_error_t err = { 0 };
    char link[300], to[100] = { 0 };

    for (int64_t step = 10; step <= 14; step++)
        save_with(2, step, 2);
    tap_is_int(world_names_in(root, "^step_"), 2, "keep=2 leaves two");
    tap_is_int(world_names_in(root, "^\\."), 0,
               "no temporary or trash directory is left");
    tap_is_int(world_load_newest(root, 0, 1, &err), 14, "the newest is there");
    snprintf(link, sizeof(link), "%s/latest", root);
    tap_ok(readlink(link, to, sizeof(to) - 1) > 0 && strcmp(to, "step_00000014") == 0,
           "latest points at it");
    tap_is_int(save_with(3, 14, 2), 0, "the same step again, by other ranks");
    tap_is_int(world_load_newest(root, 0, 1, &err), 14, "it replaces the first");
    tap_is_int(world_names_in(root, "^\\."), 0, "the first one is gone");
    tap_is_int(save_with(1, 12, 1), 0, "an older step, keep=1");
    tap_is_int(world_load_newest(root, 0, 1, &err), 14, "what is newer stays");
}

static void test_errors(void)
{
    accel_error_t err = { 0 };
    struct world w;
    struct state state;
    accel_status_t s;

    world_start(&w, 3);
    state_make(&state, w.rank, w.size, 1);
    {
        accel_ckpt_save_t a = {
            sizeof(a),          .root = root,
            .step = 99,         .owner = "17.0",
            .run_id = "r",      .sharding = "X",
            .boxes = state.box, .box_count = state.boxes - (w.rank == 0),
            .keep = 1
        };

        s = accel_ckpt_save(&a, &w.coll, NULL, &err);
    }
    state_free(&state);
    if (w.rank == 0)
        tap_diag("%s: %s", err.where, err.text);
    tap_is_int(world_end(&w, s != ACCEL_EMISMATCH ||
                                 strcmp(err.where, "optim/wte.weight/step") != 0),
               0, "a missing box: all ranks get the same error with the tensor's name");
    tap_is_int(world_load_newest(root, 0, 1, &err), 14, "and nothing visible changed");
    tap_is_int(world_names_in(root, "^\\."), 0, "and nothing is left behind");

    world_start(&w, 2);
    s = world_save(&w, root, w.rank == 1 ? -5 : 99, 1, &err);
    tap_is_int(world_end(&w, s != ACCEL_EINVAL || !strstr(err.text, "rank 1")), 0,
               "one rank's bad argument is every rank's error");
    tap_is_int(accel_ckpt_open(&(accel_ckpt_t *){ NULL }, "no/such/dir", &err),
               ACCEL_ENOENT, "opening what is not there");
}

struct found {
    int lines;
    char text[1200];
};

static void note(void *user, accel_status_t what, const char *line)
{
    struct found *f = user;

    (void)what;
    f->lines++;
    snprintf(f->text, sizeof(f->text), "%s", line);
}

/* The name that a finding about byte `at` of the file must hold: the tensor or blob
 * that lies there, or the file's structures. Found without the code under test. */
static void expected(const accel_ckpt_t *c, const char *file, int64_t at, char out[600])
{
    snprintf(out, 600, strcmp(file, "MANIFEST") == 0 ? "MANIFEST" : "HDF5 structures");
    for (size_t i = 0; i < c->m.boxes; i++) {
        const struct ckpt_mbox *b = &c->m.box[i];
        const struct ckpt_tensor *t = &c->m.tensor[b->tensor];

        if (strcmp(c->m.file[b->file].name, file) == 0 && at >= b->at &&
            at < b->at + b->bytes)
            snprintf(out, 600, "%s %s:", t->blob ? "blob" : "tensor", t->name);
    }
}

/* Loads everything from the damaged directory: 1 refused, 0 right, -1 wrong data. A
 * refusal must name the tensor as well. */
static int load_damaged(const char *dir, const char *name, int *unnamed)
{
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    struct state state;
    int r = 1;

    state_make_empty(&state, 0, 1);
    if (accel_ckpt_open(&c, dir, &err) == ACCEL_OK &&
        accel_ckpt_read(c, state.box, state.boxes, &err) == ACCEL_OK)
        r = state_wrong(&state, 50) ? -1 : 0;
    else if (!strstr(err.text, name) && !strstr(err.where, name))
        *unnamed += 1;
    accel_ckpt_close(c);
    state_free(&state);
    return r;
}

/* Every flip is found by verify, once, with the names of the file and of the tensor;
 * what a load gives despite the flip is right. */
static void test_flips(void)
{
    static const char *const files[] = { "rank_00000-of-00002.h5",
                                         "rank_00001-of-00002.h5", "MANIFEST" };
    int silent = 0, twice = 0, unnamed = 0, in_tensors = 0, wrong = 0, refused = 0;
    const int flips = 1000;
    char dir[300], path[400], want[600];
    accel_ckpt_t *whole = NULL;
    accel_error_t err = { 0 };

    save_with(2, 50, 1);
    snprintf(dir, sizeof(dir), "%s/step_00000050", root);
    if (accel_ckpt_open(&whole, dir, &err))
        abort();
    srand(7);
    for (int i = 0; i < flips; i++) {
        const char *file = files[i % 10 < 4 ? 0 : i % 10 < 8 ? 1 : 2];
        struct found f = { 0 };
        struct stat st;
        int bit = rand() % 8;
        long at;

        snprintf(path, sizeof(path), "%s/%s", dir, file);
        if (stat(path, &st))
            abort();
        /* every fourth one at the front, where the HDF5 structures are */
        at = rand() % (i % 4 == 0 && st.st_size > 16384 ? 16384 : st.st_size);
        expected(whole, file, at, want);
        in_tensors += strncmp(want, "tensor", 6) == 0;
        world_flip(path, at, bit);
        silent += accel_ckpt_verify(dir, note, &f, NULL) == ACCEL_OK || f.lines == 0;
        twice += f.lines > 1;
        if (!strstr(f.text, file) || !strstr(f.text, want)) {
            unnamed++;
            tap_diag("byte %ld of %s: want '%s', got '%s'", at, file, want, f.text);
        }
        if (i % 10 == 3) {
            int r = load_damaged(dir, want, &unnamed);

            wrong += r < 0;
            refused += r > 0;
        }
        world_flip(path, at, bit);
    }
    accel_ckpt_close(whole);
    tap_is_int(silent, 0, "%d flipped bits: every one found by verify", flips);
    tap_is_int(twice, 0, "each reported once");
    tap_is_int(unnamed, 0, "file and tensor are named (%d in tensors)", in_tensors);
    tap_ok(in_tensors > 500, "most of them lie in tensors");
    tap_is_int(wrong, 0, "no load gave wrong data");
    tap_ok(refused > 50, "damaged data are refused by the load (%d of 100)", refused);
    tap_is_int(accel_ckpt_verify(dir, NULL, NULL, NULL), ACCEL_OK,
               "flipped back: whole");
}

int main(void)
{
    world_tmpdir(root, "ckpt-save");
    test_reshard();
    test_retention();
    test_errors();
    test_flips();
    world_rmtree(root);
    return tap_done();
}
