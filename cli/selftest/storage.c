/* SPDX-License-Identifier: Apache-2.0
 *
 * The storage part of the self-test: one directory that all ranks see, and one
 * checkpoint that is committed, verified and read back bit for bit by every
 * rank. In: the run after its steps. The directory is removed again, by a later
 * test if this one is killed.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state/run_boxes.h"
#include "cli/selftest/selftest.h"

static const char prefix[] = "accel-selftest.";
/* Characters that mkdtemp fills in; age from which a directory is a leftover. */
enum { RANDOM = 6, OLD_SECONDS = 24 * 3600 };

/* For nftw. A file that is gone already is no failure: another
 * test may clean up, too. */
static int remove_one(const char *path, const struct stat *sb, int type,
                      struct FTW *where)
{
    (void)sb;
    (void)type;
    (void)where;
    return remove(path) && errno != ENOENT;
}

void workdir_remove(const char *dir)
{
    if (dir[0])
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Removes this user's leftovers of killed tests in `parent`. No test takes a day, so
 * age alone tells a leftover on every node, whichever one made it. */
static void remove_leftovers(const char *parent)
{
    DIR *list = opendir(parent);
    time_t now = time(NULL);
    char path[PATH_MAX];
    struct dirent *e;
    struct stat st;

    while (list && (e = readdir(list))) {
        if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0 ||
            strlen(e->d_name) != sizeof(prefix) - 1 + RANDOM ||
            snprintf(path, sizeof(path), "%s/%s", parent, e->d_name) >=
                (int)sizeof(path))
            continue;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
            now - st.st_mtime > OLD_SECONDS)
            workdir_remove(path);
    }
    if (list)
        closedir(list);
}

/* mkdtemp makes it private (0700) under a name that nobody can
 * foresee, as /tmp needs. */
static accel_status_t workdir_make(const char *parent, char *dir, size_t len,
                                   accel_error_t *err)
{
    char *full = realpath(parent, NULL);
    int n = full ? snprintf(dir, len, "%s/%sXXXXXX", full, prefix) : -1;

    if (full)
        remove_leftovers(full);
    free(full);
    if (n < 0 || (size_t)n >= len || !mkdtemp(dir)) {
        int failed = n >= 0 && (size_t)n >= len ? ENAMETOOLONG : errno;

        dir[0] = '\0';
        return accel_fail_at(err, A0065, parent, "name a writable directory: --dir DIR",
                             "cannot create a directory for the test: %s",
                             strerror(failed));
    }
    return ACCEL_OK;
}

/* Rank 0 makes the directory, all ranks look for it. A path that only rank 0 can see is
 * the usual mistake: a local /tmp on several nodes. */
accel_status_t check_dir(struct selftest *t, struct check *c, accel_error_t *err)
{
    struct comm *comm = t->run->comm;
    accel_error_t bad = { 0 };
    accel_status_t st = ACCEL_OK, own = ACCEL_OK;

    if (comm_rank(comm) == 0)
        own = workdir_make(t->parent, t->dir, sizeof(t->dir), &bad);
    /* "" where rank 0 failed: the others then look for nothing. */
    st = comm_broadcast(comm, t->dir, sizeof(t->dir), 0, err);
    if (st == ACCEL_OK && t->dir[0] && access(t->dir, W_OK | X_OK) != 0)
        own = accel_fail_at(
            &bad, A0066, t->parent,
            "name a directory on a file system that all nodes share: --dir DIR",
            "rank 0 created %.300s, which is not visible here: %s", t->dir,
            strerror(errno));
    snprintf(c->found, sizeof(c->found), "%.200s, visible to all ranks", t->parent);
    if (st != ACCEL_OK || own == ACCEL_OK)
        return st;
    *err = bad;
    return own;
}

/* ---- the checkpoint -------------------------------------------------------------- */

/* Bytes of the part of a tensor that a box describes. */
static size_t box_bytes(const accel_ckpt_box_t *b)
{
    size_t n = accel_dtype_bytes(b->dtype);

    for (int d = 0; d < b->ndim; d++)
        n *= (size_t)b->shape[d];
    return n;
}

/* Reads this rank's pieces into memory of their own and compares all bits with the live
 * values, which have not changed since the save. */
static accel_status_t read_back(accel_t *run, const char *dir, int64_t *bytes_out,
                                accel_error_t *err)
{
    struct run_boxes boxes;
    accel_ckpt_box_t *copy = NULL;
    const accel_ckpt_box_t *live;
    accel_ckpt_t *ckpt = NULL;
    accel_status_t st = run_boxes(run, &boxes, err);
    size_t n = boxes.count;

    live = boxes.all;
    ACCEL_TRY(st, accel_ckpt_open(&ckpt, dir, err));
    if (st == ACCEL_OK && !(copy = calloc(n + 1, sizeof(*copy))))
        st = accel_fail_nomem(err, "reading back", n * sizeof(*copy));
    for (size_t i = 0; st == ACCEL_OK && i < n; i++) {
        copy[i] = live[i];
        copy[i].data = malloc(box_bytes(&live[i]) + 1);
        if (!copy[i].data)
            st = accel_fail_nomem(err, "reading back", box_bytes(&live[i]));
    }
    ACCEL_TRY(st, accel_ckpt_read(ckpt, copy, n, err));
    for (size_t i = 0; st == ACCEL_OK && i < n; i++) {
        *bytes_out += (int64_t)box_bytes(&live[i]);
        if (memcmp(live[i].data, copy[i].data, box_bytes(&live[i])) != 0)
            st = accel_fail_at(
                err, A0067, dir, "test this file system and the memory of this node",
                "%s reads back with other bits than were written", live[i].name);
    }
    /* Boxes that were not reached have NULL (calloc). */
    for (size_t i = 0; copy && i < n; i++)
        free(copy[i].data);
    free(copy);
    run_boxes_free(&boxes);
    accel_ckpt_close(ckpt);
    return st;
}

/* Hashes are verified by rank 0 alone, since they cover the files of all ranks; each
 * rank then reads its own pieces back. The sum of bytes is collective and comes
 * whatever a rank found. */
accel_status_t check_checkpoint(struct selftest *t, struct check *c, accel_error_t *err)
{
    accel_t *run = t->run;
    char dir[sizeof(run->ckpt_dir) + 32], size[32];
    int64_t bytes = 0, start = clock_ns();
    accel_error_t bad = { 0 };
    accel_status_t own = ACCEL_OK, st = accel_save(run, err);

    c->ms = (double)(clock_ns() - start) / 1e6;
    if (st != ACCEL_OK)
        return st;
    snprintf(dir, sizeof(dir), "%s/step_%08lld", run->ckpt_dir,
             (long long)accel_steps_done(run));
    if (run->boot.rank == 0)
        own = accel_ckpt_verify(dir, NULL, NULL, &bad);
    /* Not collective: each rank opens the checkpoint for itself. */
    if (own == ACCEL_OK)
        own = read_back(run, dir, &bytes, &bad);
    st = comm_all_reduce(run->comm, &bytes, 1, ACCEL_I64, COMM_SUM, err);
    snprintf(c->found, sizeof(c->found),
             "%s committed, verified, read back by every rank",
             format_bytes((double)bytes, size, sizeof(size)));
    if (st != ACCEL_OK || own == ACCEL_OK)
        return st;
    *err = bad;
    return own;
}
