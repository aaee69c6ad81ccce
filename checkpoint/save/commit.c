/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit on rank 0: a private directory, MANIFEST last, one rename, and an fsync of
 * everything that the rename relies on. A reader sees a complete checkpoint or none.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "save/ckpt_commit.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "common/path_dir.h"

#define TMP_PREFIX ".tmp-step_"
/* before a name that its directory has given up for a moment: put_in_place_plainly */
#define OLD_PREFIX ".old-"

/* The three names of a save. All ranks derive them from the same
 * words, so no path travels. */
static void names(struct ckpt_commit *c, int64_t step, const char *owner)
{
    char name[64];

    ckpt_step_name(name, step);
    snprintf(c->owner, sizeof(c->owner), "%s", owner);
    snprintf(c->tmp, sizeof(c->tmp), ".tmp-%s.%s", name, owner);
    if (c->staged)
        ckpt_staged_name(c->final, step, owner, c->id);
    else
        snprintf(c->final, sizeof(c->final), "%s", name);
}

/* Is the directory in progress that of an earlier life of this job? "JOBID.RESTART":
 * the same JOBID with a lower RESTART, which is over, or has lost the job to this life.
 * A later life may have begun while this one does not know of it yet. Without Slurm it
 * is "local.PID", which has no order: of two lives there, one waits for the other. */
static bool is_earlier(const char *tmp_name, const char *owner)
{
    const char *theirs = strchr(tmp_name + strlen(TMP_PREFIX), '.');
    const char *dot = strrchr(owner, '.');
    const size_t job = dot ? (size_t)(dot - owner) : strlen(owner);

    if (!theirs || strncmp(theirs + 1, owner, job) != 0)
        return false;
    theirs += 1 + job;
    if (*theirs != '.')
        return *theirs == '\0' && dot;
    if (strncmp(owner, "local.", 6) == 0)
        return strcmp(theirs, dot) != 0;
    return dot && strtoll(theirs + 1, NULL, 10) < strtoll(dot + 1, NULL, 10);
}

/* Where neither can be told, it stays as it is. */
void ckpt_settle_old(int rootfd)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    struct ckpt_identity id;
    size_t n = 0;

    if (ckpt_list_names(rootfd, OLD_PREFIX, &list, &n, NULL) != ACCEL_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const char *name = list[i] + strlen(OLD_PREFIX);

        ckpt_identify(&id, rootfd, name);
        if (id.status == ACCEL_OK)
            ckpt_trash(rootfd, list[i]);
        else if (faccessat(rootfd, name, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
            (void)TEMP_FAILURE_RETRY(renameat(rootfd, list[i], rootfd, name));
    }
    free(list);
}

/* Removes stale directories in progress and half-deleted checkpoints. A live writer or
 * deleter holds a lock. Where locks do not work, another job's directory in progress is
 * left alone, and the trash is deleted by the next job. Best effort: what cannot be
 * removed now is tried again by the next save. */
static void clean_stale(int rootfd, const char *owner)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    size_t n = 0;

    ckpt_settle_old(rootfd);
    if (ckpt_list_names(rootfd, TMP_PREFIX, &list, &n, NULL) == ACCEL_OK) {
        for (size_t i = 0; i < n; i++)
            if (is_earlier(list[i], owner) || !ckpt_is_locked(rootfd, list[i], true))
                ckpt_remove_dir(rootfd, list[i]);
        free(list);
    }
    if (ckpt_list_names(rootfd, ".trash-", &list, &n, NULL) == ACCEL_OK) {
        for (size_t i = 0; i < n; i++)
            if (!ckpt_is_locked(rootfd, list[i], false))
                ckpt_remove_dir(rootfd, list[i]);
        free(list);
    }
}

/* The rename to the trash decides the race: either the other writer's commit
 * came first and its checkpoint is complete, or ours did and that writer
 * finds nothing to rename. */
accel_status_t accel_ckpt_fence(const char *root, accel_error_t *err)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    int rootfd;
    accel_status_t st = path_open_dir(root, &rootfd, err);
    size_t n = 0;

    if (st)
        return st;
    if (rootfd < 0)
        return errno == ENOENT
                   ? ACCEL_OK
                   : accel_fail_at(err, A0803, root, "check accel.checkpoint.dir",
                                   "cannot open the checkpoint directory: %m");
    ckpt_settle_old(rootfd);
    st = ckpt_list_names(rootfd, TMP_PREFIX, &list, &n, err);
    for (size_t i = 0; st == ACCEL_OK && i < n; i++)
        if (ckpt_trash(rootfd, list[i]) != 0 &&
            faccessat(rootfd, list[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            st = accel_fail_at(err, A0925, list[i], "remove it manually",
                               "cannot stop a save in progress: %m");
    free(list);
    close(rootfd);
    return st;
}

/* Finds a full disk before anything is written. `bytes` are those of all ranks. */
static accel_status_t check_room(const struct ckpt_commit *c, const char *root,
                                 int64_t bytes, accel_error_t *err)
{
    char want[32], have[32];
    struct statvfs v;
    double avail;

    if (fstatvfs(c->rootfd, &v))
        return ACCEL_OK; /* not every file system says; the writes will */
    avail = (double)v.f_bavail * (double)v.f_frsize;
    if (avail >= (double)bytes)
        return ACCEL_OK;
    return accel_fail_at(err, A0802, root, "free space, or lower accel.checkpoint.keep",
                         "the checkpoint needs %s, but only %s is free",
                         format_bytes((double)bytes, want, sizeof(want)),
                         format_bytes(avail, have, sizeof(have)));
}

static accel_status_t fail_to_make(const struct ckpt_commit *c, int error,
                                   accel_error_t *err)
{
    if (ckpt_is_disk_error(error))
        return accel_fail_at(err, A0801, c->tmp, "check the disk and the quota",
                             "cannot create the in-progress directory: %s",
                             strerror(error));
    return accel_fail_at(
        err, A0804, c->tmp,
        error == EEXIST ? "remove it if no job is writing to it"
                        : "check the permissions of the checkpoint directory",
        "cannot create the in-progress directory: %s", strerror(error));
}

/* mkdirat fails if the directory exists: two writers of one step and owner would mix
 * their files. The lock on it tells other jobs that its owner is alive; the fsync makes
 * the new name durable before ranks write below it. */
accel_status_t ckpt_commit_begin(struct ckpt_commit *c, const char *root, int64_t step,
                                 const char *owner, int64_t bytes, accel_error_t *err)
{
    accel_status_t st = ckpt_make_root(root, err);

    if (st)
        return st;
    ACCEL_CHECK(st, path_open_dir(root, &c->rootfd, err));
    if (c->rootfd < 0)
        return accel_fail_at(err, ckpt_is_disk_error(errno) ? A0801 : A0803, root,
                             "check accel.checkpoint.dir",
                             "cannot open the checkpoint directory: %m");
    ACCEL_CHECK(st, c->staged ? ckpt_staging_id_make(c->rootfd, c->id, err) : ACCEL_OK);
    names(c, step, owner);
    if (c->staged && ckpt_is_recorded(c->rootfd, c->final))
        return accel_fail_at(err, A0860, c->final,
                             "save the next step, or this one to the root",
                             "an earlier save of this step is on the nodes, and is not "
                             "overwritten");
    clean_stale(c->rootfd, owner);
    ACCEL_CHECK(st, check_room(c, root, bytes, err));
    if (TEMP_FAILURE_RETRY(mkdirat(c->rootfd, c->tmp, 0777)))
        return fail_to_make(c, errno, err);
    c->made = true;
    c->tmpfd = ckpt_open_dir(c->rootfd, c->tmp);
    if (c->tmpfd < 0)
        return accel_fail_at(err, A0801, c->tmp,
                             "check the permissions of the checkpoint directory",
                             "cannot open: %m");
    /* a failure costs only the sign of life */
    flock(c->tmpfd, LOCK_EX | LOCK_NB);
    return ckpt_fsync(c->rootfd, root, err);
}

/* On storage that the nodes do not share, this is where it shows. */
accel_status_t ckpt_commit_join(struct ckpt_commit *c, const char *root, int64_t step,
                                const char *owner, accel_error_t *err)
{
    accel_status_t st;

    names(c, step, owner);
    ACCEL_CHECK(st, path_open_dir(root, &c->rootfd, err));
    if (c->rootfd >= 0)
        c->tmpfd = ckpt_open_dir(c->rootfd, c->tmp);
    if (c->tmpfd < 0)
        return accel_fail_at(err, A0805, root,
                             "use a directory on storage that all nodes share",
                             "cannot open %s, which rank 0 created: %m", c->tmp);
    return ACCEL_OK;
}

/* Writes MANIFEST under another name, fsyncs it, renames it, then fsyncs the directory.
 * A directory with a MANIFEST therefore has a whole one. */
static accel_status_t write_manifest(const struct ckpt_commit *c,
                                     const struct strbuf *text, accel_error_t *err)
{
    int fd = TEMP_FAILURE_RETRY(
        openat(c->tmpfd, "MANIFEST.part",
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    accel_status_t st = ACCEL_OK;

    if (fd < 0)
        return accel_fail_at(err, A0801, "MANIFEST", "check the disk and the quota",
                             "cannot create: %m");
    if (pwrite_all(fd, text->s, text->len, 0))
        st = accel_fail_at(err, A0801, "MANIFEST", "free space", "write: %m");
    ACCEL_TRY(st, ckpt_fsync(fd, "MANIFEST", err));
    if (close(fd) && !st)
        st = accel_fail_at(err, A0801, "MANIFEST", "check the disk", "close: %m");
    if (!st &&
        TEMP_FAILURE_RETRY(renameat(c->tmpfd, "MANIFEST.part", c->tmpfd, "MANIFEST")))
        st = accel_fail_at(err, A0801, "MANIFEST", "check the disk", "rename: %m");
    return st ? st : ckpt_fsync(c->tmpfd, c->tmp, err);
}

/* Advisory: the link `latest` points people at the newest checkpoint. The library never
 * reads it, and a failure is ignored. */
static void point_latest(const struct ckpt_commit *c)
{
    unlinkat(c->rootfd, ".latest.part", 0);
    if (symlinkat(c->final, c->rootfd, ".latest.part") == 0 &&
        TEMP_FAILURE_RETRY(renameat(c->rootfd, ".latest.part", c->rootfd, "latest")) ==
            0)
        TEMP_FAILURE_RETRY(fsync(c->rootfd));
    else
        unlinkat(c->rootfd, ".latest.part", 0);
}

/* rename within the root; -1 with errno. */
static int move(const struct ckpt_commit *c, const char *from, const char *to,
                unsigned flags)
{
    return TEMP_FAILURE_RETRY(renameat2(c->rootfd, from, c->rootfd, to, flags));
}

/* May the new one replace what has the final name now? This life wrote it, or it is the
 * one that the caller says the run resumed from. */
static bool may_replace(const struct ckpt_commit *c)
{
    struct ckpt_identity id;

    ckpt_identify(&id, c->rootfd, c->final);
    return id.step == ckpt_step_of_name(c->final) &&
           strcmp(id.run_id, c->run_id) == 0 &&
           (c->replaces || strcmp(id.owner, c->owner) == 0);
}

/* Frees the final name: a directory there that is not ours is set
 * aside, never replaced. */
static accel_status_t make_way(struct ckpt_commit *c, accel_error_t *err)
{
    if (faccessat(c->rootfd, c->final, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
        !may_replace(c))
        return ckpt_set_aside(c->rootfd, c->final, false, c->aside, err);
    return ACCEL_OK;
}

/* For a file system without RENAME_NOREPLACE and RENAME_EXCHANGE: our own earlier save
 * of this step steps aside first, and comes back if the second rename fails. For a
 * moment neither has the final name; after a kill ckpt_settle_old gives it back. */
static int put_in_place_plainly(struct ckpt_commit *c)
{
    int error;

    if (faccessat(c->rootfd, c->final, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        snprintf(c->replaced, sizeof(c->replaced), OLD_PREFIX "%.*s",
                 (int)(sizeof(c->replaced) - sizeof(OLD_PREFIX)), c->final);
        if (move(c, c->final, c->replaced, 0)) {
            c->replaced[0] = '\0';
            return -1;
        }
    }
    if (move(c, c->tmp, c->final, 0) == 0)
        return 0;
    error = errno;
    if (c->replaced[0] && move(c, c->replaced, c->final, 0) == 0)
        c->replaced[0] = '\0';
    errno = error;
    return -1;
}

/* Puts the finished directory in place. An earlier save of this step is exchanged
 * atomically, so that at every moment one of the two is there. */
static int put_in_place(struct ckpt_commit *c)
{
    if (move(c, c->tmp, c->final, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST && move(c, c->tmp, c->final, RENAME_EXCHANGE) == 0) {
        memcpy(c->replaced, c->tmp, sizeof(c->tmp));
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    return put_in_place_plainly(c);
}

/* The rename may not be durable, so it is undone: an error must mean "not there".
 * If undoing fails too, the directory with the name in progress may be the
 * earlier save, and it stays. */
static void take_back(struct ckpt_commit *c)
{
    int r;

    if (strcmp(c->replaced, c->tmp) == 0)
        r = move(c, c->final, c->tmp, RENAME_EXCHANGE);
    else
        r = move(c, c->final, c->tmp, 0) ||
            (c->replaced[0] && move(c, c->replaced, c->final, 0));
    if (r)
        c->made = false;
    c->replaced[0] = '\0';
}

/* Undoes make_way: an error leaves what was there before. */
static void bring_back(struct ckpt_commit *c)
{
    if (c->aside[0] && move(c, c->aside, c->final, RENAME_NOREPLACE) == 0)
        c->aside[0] = '\0';
}

/* Until put_in_place returns, a failure removes our own directory only. After the fsync
 * of the root the checkpoint is durable, and nothing that follows can fail the save. */
accel_status_t ckpt_commit_publish(struct ckpt_commit *c, const struct strbuf *manifest,
                                   accel_error_t *err)
{
    accel_status_t st = write_manifest(c, manifest, err);

    /* the name of a staged one has the life in it: nobody else's can be in the way */
    if (!st && !c->staged)
        st = make_way(c, err);
    if (st)
        return st;
    if (put_in_place(c)) {
        st = accel_fail_at(err, A0801, c->final, "check the checkpoint directory",
                           "cannot rename %s: %m", c->tmp);
        bring_back(c);
        return st;
    }
    st = ckpt_fsync(c->rootfd, c->final, err);
    if (st) {
        take_back(c);
        bring_back(c);
        return st;
    }
    /* nothing is in progress now: abandon has nothing to remove */
    c->made = false;
    if (!c->staged)
        point_latest(c);
    return ACCEL_OK;
}

void ckpt_commit_abandon(struct ckpt_commit *c)
{
    if (c->made)
        ckpt_remove_dir(c->rootfd, c->tmp);
}

void ckpt_commit_close(struct ckpt_commit *c)
{
    if (c->tmpfd >= 0)
        close(c->tmpfd);
    if (c->rootfd >= 0)
        close(c->rootfd);
    c->tmpfd = c->rootfd = -1;
}
