/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies a checkpoint that is staged on nodes into the root. In: its record, which is
 * the MANIFEST, and the parts that these nodes have. Out: the checkpoint, committed as
 * every save is. All that is copied has the hashes that the record names; the part
 * itself is not changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_saving.h"

/* Written between two fdatasync: a thread that is told to leave does not first wait for
 * gigabytes in the page cache. */
#define SYNC_BYTES (8 << 20)

struct ckpt_drain {
    /* the record, and what its MANIFEST says */
    char name[CKPT_DIR_MAX];
    char *text;
    size_t len;
    /* the manifest, and this node's part as its directory (-1: there is none) */
    accel_ckpt_t part;
    /* [world]: the rank that copies the file of rank f */
    int32_t *who;
};

/* ---- the record ------------------------------------------------------------------ */

/* Rank 0. */
static accel_status_t read_record(const struct accel_ckpt_saving *g, accel_error_t *err)
{
    int root = TEMP_FAILURE_RETRY(open(g->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int dir = root >= 0 ? ckpt_open_dir(root, g->drain->name) : -1;
    int fd = dir >= 0 ? ckpt_open_plain(dir, "MANIFEST") : -1;
    struct ckpt_drain *d = g->drain;
    accel_status_t st = ACCEL_OK;
    struct stat sb;

    if (fd < 0 || fstat(fd, &sb))
        st = ckpt_fail_access(err, d->name, "cannot open", errno);
    else if (sb.st_size <= 0 || sb.st_size > CKPT_MANIFEST_MAX)
        st = ckpt_fail_access(err, d->name, "not a manifest", EINVAL);
    if (!st) {
        d->len = (size_t)sb.st_size;
        d->text = malloc(d->len);
        if (!d->text)
            st = accel_fail_nomem(err, "the manifest", d->len);
        else if (ckpt_pread_all(fd, d->text, d->len, 0) != sb.st_size)
            st = ckpt_fail_access(err, d->name, "cannot read", errno);
    }
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    if (root >= 0)
        close(root);
    return st;
}

/* Collective. Rank 0's text on all ranks. */
static accel_status_t share_record(const struct accel_ckpt_saving *g,
                                   const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    accel_status_t st = g->rank == 0 ? read_record(g, err) : ACCEL_OK;
    uint64_t len;

    st = ckpt_agree(c, st, err);
    if (st || c->size == 1)
        return st;
    len = d->len;
    st = c->broadcast(c->user, &len, sizeof(len), 0, err);
    if (st)
        return st;
    d->len = len;
    if (g->rank != 0)
        d->text = malloc(d->len);
    st = ckpt_agree(
        c, d->text ? ACCEL_OK : accel_fail_nomem(err, "the manifest", d->len), err);
    return st ? st : c->broadcast(c->user, d->text, d->len, 0, err);
}

/* The part of this node, where it has one. */
static accel_status_t open_part(struct accel_ckpt_saving *g, accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    accel_ckpt_t *part = &d->part;
    accel_status_t st =
        ckpt_manifest_parse(&part->m, d->text, d->len, false, d->name, err);

    if (!st)
        st = ckpt_index_places(part, err);
    if (st)
        return st;
    g->m.step = part->m.step;
    memcpy(g->m.run_id, part->m.run_id, sizeof(g->m.run_id));
    part->dir = strdup(g->local);
    d->who = calloc((size_t)part->m.world, sizeof(*d->who));
    if (!part->dir || !d->who)
        return accel_fail_nomem(err, "a list of files", sizeof(*d->who));
    part->dirfd = ckpt_local_open(g, d->name);
    return ACCEL_OK;
}

/* ---- who copies what ------------------------------------------------------------- */

/* What this node has: a byte for each file. */
static void look_around(const struct ckpt_drain *d, unsigned char *has)
{
    for (int f = 0; f < d->part.m.world && d->part.dirfd >= 0; f++) {
        int fd;

        if (ckpt_open_shard(&d->part, f, &fd, NULL) == ACCEL_OK) {
            has[f] = 1;
            close(fd);
        }
    }
}

/* Rank 0. all[ranks][world]. Of the ranks that have a file, the one with the fewest
 * bytes so far copies it. */
static accel_status_t give_out(const struct ckpt_drain *d, const unsigned char *all,
                               int ranks, accel_error_t *err)
{
    const int world = d->part.m.world;
    int64_t *bytes = calloc((size_t)ranks, sizeof(*bytes));
    int missing = 0, first = -1;

    if (!bytes)
        return accel_fail_nomem(err, "a list of ranks", (size_t)ranks * sizeof(*bytes));
    for (int f = 0; f < world; f++) {
        d->who[f] = -1;
        for (int r = 0; r < ranks; r++)
            if (all[(size_t)r * (size_t)world + (size_t)f] &&
                (d->who[f] < 0 || bytes[r] < bytes[d->who[f]]))
                d->who[f] = r;
        if (d->who[f] >= 0)
            bytes[d->who[f]] += d->part.m.file[f].bytes;
        else if (missing++ == 0)
            first = f;
    }
    free(bytes);
    if (missing == 0)
        return ACCEL_OK;
    return accel_fail_at(err, A0861, d->part.dir,
                         "run on the nodes that it was saved on, before their disks "
                         "are cleaned",
                         "%d of its %d files (the first: %s) %s on these nodes",
                         missing, world, d->part.m.file[first].name,
                         missing == 1 ? "is not" : "are not");
}

/* Collective. */
static accel_status_t share_out(const struct accel_ckpt_saving *g, size_t *sizes,
                                const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    const size_t world = (size_t)d->part.m.world;
    unsigned char *has = calloc(world, 1);
    void *all = NULL;
    accel_status_t st =
        ckpt_agree(c, has ? ACCEL_OK : accel_fail_nomem(err, "files", world), err);

    if (!st)
        look_around(d, has);
    if (!st && c->size > 1)
        st = c->gather(c->user, has, world, 0, &all, sizes, err);
    if (!st) {
        if (c->rank == 0)
            st = give_out(d, all ? all : has, c->size, err);
        st = ckpt_agree(c, st, err);
    }
    if (!st && c->size > 1)
        st = c->broadcast(c->user, d->who, world * sizeof(*d->who), 0, err);
    free(all);
    free(has);
    return st;
}

/* ---- the copy -------------------------------------------------------------------- */

/* A look at a part before it is copied. */
struct part_check {
    const struct accel_ckpt_saving *g;
    accel_error_t first; /* the first finding */
};

static void keep_first(void *user, const accel_error_t *e)
{
    struct part_check *check = user;

    if (!check->first.code)
        check->first = *e;
}

static bool is_wanted(void *user, int64_t bytes)
{
    const struct part_check *check = user;

    (void)bytes;
    return !atomic_load(&check->g->pace.cancelled);
}

/* Damage in a part is no damage of the root's checkpoints. */
static accel_status_t fail_part(const struct ckpt_drain *d, int file, const char *why,
                                accel_error_t *err)
{
    char where[300];

    snprintf(where, sizeof(where), "%.200s/%s", d->part.dir, d->part.m.file[file].name);
    return accel_fail_at(err, A0861, where, "check the node's disk",
                         "the part of the staged checkpoint cannot be used: %.400s",
                         why);
}

static accel_status_t fail_write(const char *name, accel_error_t *err)
{
    const bool full = errno == ENOSPC || errno == EDQUOT;

    return accel_fail_at(err, full ? A0802 : A0801, name,
                         full ? "free space, or lower accel.checkpoint.keep"
                              : "check the disk and the quota",
                         "write: %m");
}

/* All bytes of `from`, the part's file, to `to`. */
static accel_status_t copy_bytes(struct accel_ckpt_saving *g, int file, int from,
                                 int to, char *buf, accel_error_t *err)
{
    const struct ckpt_drain *d = g->drain;
    const struct ckpt_file *f = &d->part.m.file[file];
    int64_t synced = 0;

    for (int64_t at = 0; at < f->bytes;) {
        const int64_t rest = f->bytes - at;
        const size_t n = rest < CKPT_IO_BYTES ? (size_t)rest : CKPT_IO_BYTES;

        if (atomic_load(&g->pace.cancelled)) {
            errno = ECANCELED;
            return fail_write(f->name, err);
        }
        errno = ENODATA;
        if (ckpt_pread_all(from, buf, n, at) != (ssize_t)n)
            return fail_part(d, file, strerror(errno), err);
        if (ckpt_pwrite_all(to, buf, n, at))
            return fail_write(f->name, err);
        at += (int64_t)n;
        if (at - synced >= SYNC_BYTES) {
            if (TEMP_FAILURE_RETRY(fdatasync(to)))
                return fail_write(f->name, err);
            synced = at;
        }
    }
    return ckpt_fsync(to, f->name, err);
}

static accel_status_t copy_file(struct accel_ckpt_saving *g, int file, char *buf,
                                accel_error_t *err)
{
    const char *name = g->drain->part.m.file[file].name;
    struct part_check check = { .g = g };
    accel_status_t st;
    int from, to;

    ckpt_check_file(&g->drain->part, file, keep_first, is_wanted, &check);
    if (check.first.code)
        return fail_part(g->drain, file, check.first.text, err);
    if (ckpt_open_shard(&g->drain->part, file, &from, &check.first))
        return fail_part(g->drain, file, check.first.text, err);
    to = TEMP_FAILURE_RETRY(openat(g->commit.tmpfd, name,
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   0666));
    if (to < 0)
        st = fail_write(name, err);
    else
        st = copy_bytes(g, file, from, to, buf, err);
    close(from);
    if (to >= 0 && close(to) && !st)
        st = fail_write(name, err);
    return st;
}

static accel_status_t write_files(struct accel_ckpt_saving *g, accel_error_t *err)
{
    const struct ckpt_drain *d = g->drain;
    char *buf = ckpt_stage_map(CKPT_IO_BYTES);
    accel_status_t st =
        buf ? ACCEL_OK : accel_fail_nomem(err, "a buffer", CKPT_IO_BYTES);

    if (!st && g->rank != 0)
        st = ckpt_commit_join(&g->commit, g->root, g->m.step, g->m.owner, err);
    for (int f = 0; f < d->part.m.world && !st; f++)
        if (d->who[f] == g->rank)
            st = copy_file(g, f, buf, err);
    ckpt_stage_unmap(buf, CKPT_IO_BYTES);
    return st;
}

static accel_status_t publish_copy(struct accel_ckpt_saving *g,
                                   const accel_ckpt_coll_t *c, accel_error_t *err)
{
    const struct strbuf text = { .s = g->drain->text, .len = g->drain->len };
    accel_status_t st = ACCEL_OK;

    if (c->rank == 0) {
        if (g->may_commit)
            st = g->may_commit(g->may_commit_user, err);
        if (!st)
            st = ckpt_commit_publish(&g->commit, &text, err);
    }
    return ckpt_agree(c, st, err);
}

static void free_drain(struct accel_ckpt_saving *g)
{
    struct ckpt_drain *d = g->drain;

    if (d->part.dirfd >= 0)
        close(d->part.dirfd);
    ckpt_manifest_free(&d->part.m);
    free(d->part.by_place);
    free(d->part.file_first);
    free(d->part.dir);
    free(d->text);
    free(d->who);
    free(d);
}

static const struct ckpt_steps drain_steps = { write_files, publish_copy, free_drain };

/* ---- the begin ------------------------------------------------------------------- */

static int64_t all_bytes(const struct ckpt_manifest *m)
{
    int64_t sum = 0;

    for (int f = 0; f < m->world; f++)
        sum += m->file[f].bytes;
    return sum;
}

static accel_status_t begin_drain(struct accel_ckpt_saving *g,
                                  const accel_ckpt_save_t *s,
                                  const accel_ckpt_coll_t *c, accel_error_t *err)
{
    accel_status_t st = ckpt_saving_paths(g, s, err);

    if (!st) {
        g->sizes = calloc((size_t)c->size, sizeof(*g->sizes));
        if (!g->sizes)
            st = accel_fail_nomem(err, "sizes", sizeof(*g->sizes));
    }
    st = ckpt_agree(c, st, err);
    if (!st)
        st = share_record(g, c, err);
    if (!st)
        st = ckpt_agree(c, open_part(g, err), err);
    if (!st)
        st = share_out(g, g->sizes, c, err);
    if (st)
        return st;
    snprintf(g->m.owner, sizeof(g->m.owner), "%s", s->owner);
    if (c->rank == 0)
        st = ckpt_commit_begin(&g->commit, s->root, g->m.step, s->owner,
                               all_bytes(&g->drain->part.m), err);
    return ckpt_agree(c, st, err);
}

/* What is wrong with the arguments, or memory for the drain. */
static accel_status_t prepare(struct accel_ckpt_saving *g, const char *name,
                              const accel_ckpt_save_t *s, accel_error_t *err)
{
    const size_t prefix = strlen(CKPT_STAGED_PREFIX);

    if (!s->root || !s->root[0] || !s->local || s->local[0] != '/' || s->keep < 1 ||
        !ckpt_word_ok(s->owner, 64) || strncmp(name, CKPT_STAGED_PREFIX, prefix) != 0 ||
        strlen(name) >= CKPT_DIR_MAX || strchr(name, '/'))
        return accel_fail(
            err, A0815, "see accel_ckpt.h",
            "accel_ckpt_drain_begin: root, local, owner, keep or name out "
            "of range");
    g->drain = calloc(1, sizeof(*g->drain));
    if (!g->drain)
        return accel_fail_nomem(err, "a copy", sizeof(*g->drain));
    g->drain->part.dirfd = -1;
    g->steps = &drain_steps;
    snprintf(g->drain->name, sizeof(g->drain->name), "%s", name);
    return ACCEL_OK;
}

accel_status_t accel_ckpt_drain_begin(accel_ckpt_saving_t **saving_out,
                                      const char *name, const accel_ckpt_save_t *s,
                                      const accel_ckpt_coll_t *coll, accel_error_t *err)
{
    const accel_ckpt_coll_t alone = { .rank = 0, .size = 1 }, *c = coll ? coll : &alone;
    struct accel_ckpt_saving *g = ckpt_saving_new(s, c);
    accel_error_t own = { 0 }, *e = err ? err : &own;
    accel_status_t st =
        g ? prepare(g, name, s, e) : accel_fail_nomem(e, "a save", sizeof(*g));

    st = ckpt_agree(c, st, e);
    if (!st)
        st = begin_drain(g, s, c, e);
    if (st)
        accel_ckpt_save_free(g);
    else
        *saving_out = g;
    return st;
}
