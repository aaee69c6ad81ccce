/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies a checkpoint that is staged on nodes into the root. In: its record, which is
 * the MANIFEST, and the parts that these nodes have. Out: the checkpoint, committed as
 * every save is. All that is copied has the hashes that the record names; the part
 * itself is not changed. What cannot be read now is told from what is damaged, and from
 * what is on nodes that these ranks do not have.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "load/ckpt_load.h"
#include "save/ckpt_saving.h"

/* Written between two fdatasync: a thread that is told to leave does not first wait for
 * gigabytes in the page cache. */
#define SYNC_BYTES (8 << 20)

struct ckpt_drain {
    /* the record: its MANIFEST, and where the files are */
    char name[CKPT_DIR_MAX];
    char *text, *where;
    size_t len, where_len;
    struct ckpt_places places;
    /* the manifest, and this node's part as its directory (-1: `error` says why not) */
    accel_ckpt_t part;
    int error;
    char node[CKPT_NODE_MAX];
    /* [world]: the rank that copies the file of rank f */
    int32_t *who;
};

/* ---- the record ------------------------------------------------------------------ */

/* Collective. Rank 0's text on all ranks, with a NUL after it. */
static accel_status_t share_text(const accel_ckpt_coll_t *c, char **text, size_t *bytes,
                                 accel_error_t *err)
{
    uint64_t len = *bytes;
    accel_status_t st = c->broadcast(c->user, &len, sizeof(len), 0, err);

    if (st)
        return st;
    *bytes = len;
    if (c->rank != 0)
        *text = calloc(1, len + 1);
    st = ckpt_agree(c, *text ? ACCEL_OK : accel_fail_nomem(err, "the manifest", *bytes),
                    err);
    return st || len == 0 ? st : c->broadcast(c->user, *text, len, 0, err);
}

/* Collective. */
static accel_status_t share_record(const struct accel_ckpt_saving *g,
                                   const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    accel_status_t st = ACCEL_OK;

    if (g->rank == 0)
        st = ckpt_record_read(g->root, d->name, &d->text, &d->len, err);
    if (!st && g->rank == 0)
        st = ckpt_places_read(g->root, d->name, &d->where, &d->where_len, err);
    st = ckpt_agree(c, st, err);
    if (st || c->size == 1)
        return st;
    st = share_text(c, &d->text, &d->len, err);
    return st ? st : share_text(c, &d->where, &d->where_len, err);
}

/* The part of this node, where it has one. */
static accel_status_t open_part(struct accel_ckpt_saving *g, accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    accel_ckpt_t *part = &d->part;
    char where[sizeof(err->where)], path[PATH_MAX];
    accel_status_t st;

    snprintf(where, sizeof(where), "%.120s/%.100s/MANIFEST", g->root, d->name);
    st = ckpt_manifest_parse(&part->m, d->text, d->len, false, where, err);
    ACCEL_TRY(st, ckpt_index_places(part, err));
    if (st)
        return st;
    g->m.step = part->m.step;
    memcpy(g->m.run_id, part->m.run_id, sizeof(g->m.run_id));
    if (!ckpt_places_parse(&d->places, d->where, part->m.world))
        return accel_fail_nomem(err, "a list of nodes", d->where_len);
    if (!g->local)
        return accel_fail_at(err, A0863, d->places.local,
                             "set accel.checkpoint.local_dir as the run that saved it "
                             "had it",
                             "accel.checkpoint.local_dir is not set");
    part->dirfd = ckpt_local_open(g, d->name, path);
    d->error = part->dirfd < 0 ? errno : 0;
    part->dir = strdup(path);
    d->who = calloc((size_t)part->m.world, sizeof(*d->who));
    if (!part->dir || !d->who)
        return accel_fail_nomem(err, "a list of files", sizeof(*d->who));
    ckpt_node_name(d->node);
    return ACCEL_OK;
}

/* ---- who copies what ------------------------------------------------------------- */

/* The error for what this node cannot show now: no proof of anything. */
static accel_status_t fail_unseen(const struct ckpt_drain *d, const char *where,
                                  int error, accel_error_t *err)
{
    char cure[sizeof(err->hint)];

    snprintf(cure, sizeof(cure),
             "mount the disk, or set accel.checkpoint.local_dir, as for the run that "
             "saved it%s%.120s",
             d->places.local[0] ? " in " : "", d->places.local);
    if (error == EACCES || error == EPERM)
        return accel_fail_at(err, A0864, where, "run as the user that saved it",
                             "the staged checkpoint cannot be opened: %s",
                             error == EPERM ? "it belongs to another user"
                                            : strerror(error));
    return accel_fail_at(err, A0863, where, cure,
                         "the staged checkpoint cannot be opened: %s", strerror(error));
}

/* Damage in a part is no damage of the root's checkpoints. */
static accel_status_t fail_part(const struct ckpt_drain *d, int file,
                                const accel_error_t *why, accel_error_t *err)
{
    char where[sizeof(err->where)];

    snprintf(where, sizeof(where), "%.200s/%s", d->part.dir, d->part.m.file[file].name);
    if (why->code == ACCEL_EPERM)
        return accel_fail_at(err, A0864, where, "make it readable for you",
                             "the part of the staged checkpoint: %.400s", why->text);
    if (ckpt_may_pass(why->code))
        return accel_fail_at(err, A0863, where, "check the node's disk",
                             "the part of the staged checkpoint: %.400s", why->text);
    return accel_fail_at(err, A0865, where, "check the node's disk",
                         "the part of the staged checkpoint: %.400s", why->text);
}

/* Does the record say which node has a file? */
static bool knows_node(const struct ckpt_drain *d, int f)
{
    const char *node = d->places.node ? d->places.node[f] : "";

    return node[0] && strcmp(node, "?") != 0;
}

/* This rank's view of a file. ACCEL_ENOENT: it is not here, and need not be. A part
 * that is here has all files of its node, as it was fsynced with them. */
static accel_status_t look_at_file(const struct ckpt_drain *d, int f,
                                   accel_error_t *err)
{
    const bool ours = knows_node(d, f) && strcmp(d->places.node[f], d->node) == 0;
    accel_error_t why = { 0 };
    struct stat sb;
    int fd;

    if (d->part.dirfd < 0)
        return !ours && d->error == ENOENT ? ACCEL_ENOENT
                                           : fail_unseen(d, d->part.dir, d->error, err);
    if (ckpt_open_shard(&d->part, f, &fd, &why) == ACCEL_OK) {
        close(fd);
        return ACCEL_OK;
    }
    if (!ours && why.code == ACCEL_ECORRUPT &&
        fstatat(d->part.dirfd, d->part.m.file[f].name, &sb, AT_SYMLINK_NOFOLLOW) &&
        errno == ENOENT)
        return ACCEL_ENOENT;
    return fail_part(d, f, &why, err);
}

/* Rank 0. all[ranks][world]: what each sees. Of the ranks that have a file, the one
 * with the fewest bytes so far copies it; -1: none has it. */
static accel_status_t give_out(const struct ckpt_drain *d, const unsigned char *all,
                               int ranks, accel_error_t *err)
{
    const int world = d->part.m.world;
    int64_t *bytes = calloc((size_t)ranks, sizeof(*bytes));

    if (!bytes)
        return accel_fail_nomem(err, "a list of ranks", (size_t)ranks * sizeof(*bytes));
    for (int f = 0; f < world; f++) {
        d->who[f] = -1;
        for (int r = 0; r < ranks; r++)
            if (all[(size_t)r * (size_t)world + (size_t)f] == ACCEL_OK &&
                (d->who[f] < 0 || bytes[r] < bytes[d->who[f]]))
                d->who[f] = r;
        if (d->who[f] >= 0)
            bytes[d->who[f]] += d->part.m.file[f].bytes;
    }
    free(bytes);
    return ACCEL_OK;
}

/* Collective. Rank 0 tells who copies what. */
static accel_status_t share_out(const struct accel_ckpt_saving *g, unsigned char *sees,
                                size_t *sizes, const accel_ckpt_coll_t *c,
                                accel_error_t *err)
{
    struct ckpt_drain *d = g->drain;
    const size_t world = (size_t)d->part.m.world;
    void *all = NULL;
    accel_status_t st = ACCEL_OK;

    if (c->size > 1)
        st = c->gather(c->user, sees, world, 0, &all, sizes, err);
    if (!st) {
        if (c->rank == 0)
            st = give_out(d, all ? all : sees, c->size, err);
        st = ckpt_agree(c, st, err);
    }
    if (!st && c->size > 1)
        st = c->broadcast(c->user, d->who, world * sizeof(*d->who), 0, err);
    free(all);
    return st;
}

/* What this rank knows of files that no rank can copy: the first for which `counts`. */
static accel_status_t say_missing(const struct ckpt_drain *d, const unsigned char *sees,
                                  bool (*counts)(accel_status_t st), accel_error_t *err)
{
    for (int f = 0; f < d->part.m.world; f++) {
        const accel_status_t saw = (accel_status_t)sees[f];

        if (d->who[f] < 0 && counts(saw))
            return look_at_file(d, f, err) == saw
                       ? saw
                       : fail_unseen(d, d->part.dir, EAGAIN, err);
    }
    return ACCEL_OK;
}

static bool is_damage(accel_status_t st)
{
    return st == ACCEL_ECORRUPT;
}

/* Rank 0: what is left is on other nodes, or on none that is known. */
static accel_status_t say_elsewhere(const struct ckpt_drain *d, accel_error_t *err)
{
    int missing = 0, first = -1;

    for (int f = d->part.m.world - 1; f >= 0; f--)
        if (d->who[f] < 0) {
            missing++;
            first = f;
        }
    if (!missing)
        return ACCEL_OK;
    if (!knows_node(d, first))
        return fail_unseen(d, d->part.dir, ENOENT, err);
    return accel_fail_at(err, A0861, d->places.local,
                         "run on the nodes that it was saved on, before their disks "
                         "are cleaned",
                         "%d of its %d files (the first: %s, on %s) %s on these nodes",
                         missing, d->part.m.world, d->part.m.file[first].name,
                         d->places.node[first], missing == 1 ? "is not" : "are not");
}

/* Collective. Trouble of any rank comes first, as it proves nothing; then damage. */
static accel_status_t find_files(const struct accel_ckpt_saving *g, size_t *sizes,
                                 const accel_ckpt_coll_t *c, accel_error_t *err)
{
    const struct ckpt_drain *d = g->drain;
    const size_t world = (size_t)d->part.m.world;
    unsigned char *sees = calloc(world, 1);
    accel_status_t st =
        ckpt_agree(c, sees ? ACCEL_OK : accel_fail_nomem(err, "files", world), err);

    for (size_t f = 0; !st && f < world; f++)
        sees[f] = (unsigned char)look_at_file(d, (int)f, NULL);
    ACCEL_TRY(st, share_out(g, sees, sizes, c, err));
    ACCEL_TRY(st, ckpt_agree(c, say_missing(d, sees, ckpt_may_pass, err), err));
    ACCEL_TRY(st, ckpt_agree(c, say_missing(d, sees, is_damage, err), err));
    ACCEL_TRY(st, ckpt_agree(c, c->rank == 0 ? say_elsewhere(d, err) : ACCEL_OK, err));
    free(sees);
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
        if (pread_all(from, buf, n, at) != (ssize_t)n) {
            accel_error_t why = { 0 };

            ckpt_fail_access(&why, f->name, "cannot read", errno);
            return fail_part(d, file, &why, err);
        }
        if (pwrite_all(to, buf, n, at))
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
    if (check.first.code || ckpt_open_shard(&g->drain->part, file, &from, &check.first))
        return fail_part(g->drain, file, &check.first, err);
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
        ACCEL_TRY(st, ckpt_commit_publish(&g->commit, &text, err));
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
    free(d->where);
    free(d->places.node);
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
    ACCEL_TRY(st, share_record(g, c, err));
    ACCEL_TRY(st, ckpt_agree(c, open_part(g, err), err));
    ACCEL_TRY(st, find_files(g, g->sizes, c, err));
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

    if (!s->root || !s->root[0] || (s->local && s->local[0] != '/') || s->keep < 1 ||
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
    accel_error_t own = { 0 }, *e = err ? err : &own;
    struct accel_ckpt_saving *g = NULL;
    accel_ckpt_save_t settings;
    accel_status_t st = ckpt_saving_new(&g, &settings, s, c, e);

    ACCEL_TRY(st, prepare(g, name, &settings, e));
    st = ckpt_agree(c, st, e);
    ACCEL_TRY(st, begin_drain(g, &settings, c, e));
    if (st)
        accel_ckpt_save_free(g);
    else
        *saving_out = g;
    return st;
}
