/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves of all ranks into one file: read by any number of ranks, whole and verified,
 * sent in rounds of bounded size; a failure on any rank leaves nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

static char root[256];

/* fsyncs of files with more than a manifest in them. */
static int synced;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat sb;

    synced += fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size > 1 << 20;
    return __real_fsync(fd);
}

/* Writes from the so-manieth on fail; 0: none does. */
static int write_fails;

ssize_t __real_pwrite(int fd, const void *buf, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *buf, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    if (write_fails == 1) {
        errno = EIO;
        return -1;
    }
    write_fails -= write_fails > 0;
    return __real_pwrite(fd, buf, n, at);
}

/* Of the next save: gathers of rank 0, and the most bytes of one; the gather that
 * fails, from 1 on. */
static struct {
    accel_status_t (*next)(void *user, const void *mine, size_t bytes, int root,
                           void **all, size_t *sizes, accel_error_t *err);
    int gathers, fails_at;
    size_t most;
    /* this rank sends so many bytes less than it has, in gather `short_at` */
    int short_at;
} watch;

static accel_status_t watched_gather(void *user, const void *mine, size_t bytes, int to,
                                     void **all, size_t *sizes, accel_error_t *err)
{
    const struct world *w = user;
    accel_status_t st;

    watch.gathers++;
    if (watch.gathers == watch.fails_at)
        return accel_fail(err, A0502, NULL, "a rank is gone");
    st = watch.next(user, mine, bytes - (watch.gathers == watch.short_at), to, all,
                    sizes, err);
    if (!st && w->rank == 0) {
        size_t sum = 0;

        for (int r = 0; r < w->size; r++)
            sum += sizes[r];
        watch.most = sum > watch.most ? sum : watch.most;
    }
    return st;
}

static accel_status_t save(struct world *w, const struct state *s, int64_t step,
                           accel_ckpt_stats_t *stats, accel_error_t *err)
{
    char text[64];
    accel_ckpt_blob_t blobs[2] = { { "trainer", text, 0 }, { "rng", "\0\1\2", 3 } };
    accel_ckpt_save_t a = {
        sizeof(a),       .root = root,          .step = step,
        .owner = "17.0", .run_id = "test run",  .sharding = "FULL_SHARD",
        .boxes = s->box, .box_count = s->boxes, .one_file = 1,
        .blobs = blobs,  .blob_count = 2,       .keep = 9
    };

    snprintf(text, sizeof(text), "step %lld", (long long)step);
    blobs[0].bytes = strlen(text) + 1;
    watch.gathers = 0;
    watch.most = 0;
    watch.next = w->coll.gather;
    w->coll.gather = watched_gather;
    return accel_ckpt_save(&a, &w->coll, stats, err);
}

/* Saves the known state of `step` from that many ranks; how many of them failed. */
static int save_with(int ranks, int64_t step)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t err = { 0 };
    struct world w;
    struct state s;
    accel_status_t st;

    synced = 0;
    world_start(&w, ranks);
    state_make(&s, w.rank, w.size, step);
    st = save(&w, &s, step, &stats, &err);
    state_free(&s);
    if (st && w.rank == 0)
        tap_diag("%s: %s", err.where, err.text);
    return world_end(&w, st != ACCEL_OK || (w.rank && stats.bytes != 0) ||
                             synced != (w.rank == 0));
}

static void note(void *user, accel_status_t what, const char *line)
{
    (void)user;
    (void)what;
    tap_diag("%s", line);
}

/* Every tensor is one box of the one file. */
static void check_whole(const char *dir, int ranks)
{
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    int cut = 0;

    tap_is_int(accel_ckpt_open(&c, dir, &err), ACCEL_OK, "%d ranks: opens", ranks);
    if (!c)
        return;
    tap_is_int(accel_ckpt_world_size(c), 1, "%d ranks: one file", ranks);
    for (size_t i = 0; i < c->m.tensors; i++)
        cut += c->m.tensor[i].boxes != 1;
    tap_is_int(cut, 0, "%d ranks: every tensor is one box", ranks);
    tap_is_int(accel_ckpt_verify_hdf5(c, 0, NULL, NULL, &err), ACCEL_OK,
               "%d ranks: the structures of the file are right", ranks);
    accel_ckpt_close(c);
}

static void test_reshard(void)
{
    for (int n = 2; n <= 5; n++) {
        accel_error_t err = { 0 };
        char dir[300];
        int bad = 0;

        snprintf(dir, sizeof(dir), "%s/step_%08d", root, n);
        tap_is_int(save_with(n, n), 0, "%d ranks save into one file", n);
        tap_is_int(accel_ckpt_verify(dir, note, NULL, &err), ACCEL_OK,
                   "%d ranks: every byte is right", n);
        check_whole(dir, n);
        for (int m = 1; m <= 4; m++)
            for (int r = 0; r < m; r++)
                bad += world_load_newest(root, r, m, &err) != n;
        tap_is_int(bad, 0, "%d ranks: bit-equal on 1 to 4", n);
    }
}

/* 72 tensors of 1 MiB and one of 48 MiB, over two ranks, cut in the second dimension,
 * so that what a rank has is no range of the tensor. */
#define MANY 72

static void many_make(struct state *s, int rank, int size)
{
    const int64_t most = (int64_t)48 << 20;
    char *name;

    *s = (struct state){ .boxes = MANY + 1, .bytes = 0 };
    s->box = calloc(MANY + 1, sizeof(*s->box) + 32);
    s->memory = malloc((size_t)most / (size_t)size + 1);
    memset(s->memory, 'a' + rank, (size_t)most / (size_t)size);
    name = (char *)(s->box + MANY + 1);
    for (int i = 0; i <= MANY; i++, name += 32) {
        const int64_t rows = i < MANY ? 1024 : 48 * 1024;

        snprintf(name, 32, "t%03d", i);
        s->box[i] = (accel_ckpt_box_t){ .name = name,
                                        .dtype = ACCEL_U8,
                                        .ndim = 2,
                                        .global_shape = { rows, 1024 },
                                        .offset = { 0, 1024 / size * rank },
                                        .shape = { rows, 1024 / size },
                                        .data = s->memory };
    }
}

static void test_rounds(void)
{
    accel_error_t err = { 0 };
    struct world w;
    struct state s;
    accel_status_t st;
    char dir[300];
    accel_ckpt_t *c = NULL;
    int wrong = 0;

    world_start(&w, 2);
    many_make(&s, w.rank, w.size);
    st = save(&w, &s, 50, NULL, &err);
    state_free(&s);
    if (w.rank == 0) {
        tap_is_int(st, ACCEL_OK, "120 MiB in tensors of 1 and of 48 MiB: saved");
        /* the first two are of sizes and texts, the last one of the blobs */
        tap_is_int(watch.gathers, 2 + 4 + 1, "in rounds of 32, 32, 8 and 48 MiB");
        tap_is_int((int64_t)watch.most, 48 << 20, "no round is larger than a tensor");
    }
    tap_is_int(world_end(&w, st != ACCEL_OK), 0, "on both ranks");
    snprintf(dir, sizeof(dir), "%s/step_00000050", root);
    tap_is_int(accel_ckpt_open(&c, dir, &err), ACCEL_OK, "it opens");
    for (int i = 0; c && i <= MANY; i += MANY / 2) {
        accel_ckpt_box_t box = { .dtype = ACCEL_U8, .ndim = 2 };
        const int64_t *shape;
        char *data;

        accel_ckpt_tensor(c, (size_t)i, &box.name, &box.dtype, &box.ndim, &shape);
        memcpy(box.global_shape, shape, sizeof(*shape) * 2);
        memcpy(box.shape, shape, sizeof(*shape) * 2);
        box.data = data = malloc((size_t)(shape[0] * shape[1]));
        wrong += accel_ckpt_read(c, &box, 1, &err) != ACCEL_OK;
        for (int64_t k = 0; k < shape[0] * shape[1]; k++)
            wrong += data[k] != (k % 1024 < 512 ? 'a' : 'b');
        free(data);
    }
    tap_is_int(wrong, 0, "columns of two ranks are where they belong");
    accel_ckpt_close(c);
}

/* What is wrong with a save of step 99 on three ranks. */
enum wrong { WRONG_BOX, WRONG_STEP, WRONG_LIMIT, WRONG_SHORT, WRONG_WRITE, WRONG_LOST };

static const struct flaw {
    const char *name;
    enum wrong what;
    int gather; /* that is lost, or in which a rank sends less */
    accel_status_t want;
    const char *says; /* in the error of every rank */
} flaws[] = {
    { "a missing box", WRONG_BOX, 0, ACCEL_EMISMATCH, "some are missing" },
    { "another step", WRONG_STEP, 0, ACCEL_EMISMATCH, "rank 0 saves step 99" },
    { "a full disk", WRONG_LIMIT, 0, ACCEL_EIO, "rank 0" },
    { "a disk that fails", WRONG_WRITE, 0, ACCEL_EIO, "rank 0: write:" },
    { "a rank that sends less", WRONG_SHORT, 3, ACCEL_EMISMATCH, "rank 1 sent" },
    { "gather 1 is lost", WRONG_LOST, 1, ACCEL_EPEER, "" },
    { "gather 2 is lost", WRONG_LOST, 2, ACCEL_EPEER, "" },
    { "gather 3 is lost", WRONG_LOST, 3, ACCEL_EPEER, "" },
};

/* No rank waits for another. */
static void test_flaw(const struct flaw *f)
{
    accel_error_t err = { 0 };
    struct world w;
    struct state s;
    accel_status_t st;

    alarm(HANG_S);
    world_start(&w, 3);
    state_make(&s, w.rank, w.size, 99);
    if (f->what == WRONG_BOX && w.rank == 2)
        s.boxes--;
    if (f->what == WRONG_LIMIT && w.rank == 0)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4 << 20, RLIM_INFINITY });
    write_fails = f->what == WRONG_WRITE && w.rank == 0;
    watch.short_at = f->what == WRONG_SHORT && w.rank == 1 ? f->gather : 0;
    watch.fails_at = f->what == WRONG_LOST ? f->gather : 0;
    st = save(&w, &s, f->what == WRONG_STEP ? 99 + w.rank : 99, NULL, &err);
    watch.short_at = watch.fails_at = write_fails = 0;
    if (f->what == WRONG_LIMIT && w.rank == 0)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
    state_free(&s);
    if (w.rank == 0)
        tap_diag("%s: %s", err.where, err.text);
    tap_is_int(world_end(&w, st != f->want || !strstr(err.text, f->says)), 0,
               "%s: the same error on all ranks", f->name);
    tap_is_int(world_names_in(root, "^step_00000099$") + world_names_in(root, "^\\."),
               0, "%s: nothing is left behind", f->name);
    alarm(0);
}

int main(void)
{
    world_tmpdir(root, "one_file");
    if (accel_ckpt_can_save(NULL) != ACCEL_OK)
        tap_skip_all("built without HDF5");
    test_reshard();
    test_rounds();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(flaws); i++)
        test_flaw(&flaws[i]);
    world_rmtree(root);
    return tap_done();
}
