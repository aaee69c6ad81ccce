/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_save: the six steps of a save over all ranks, in three calls: begin, which
 * names what is saved; write, for which a rank needs no other; publish. After every
 * step the ranks agree; one rank's failure makes all of them abandon the save, with the
 * same error everywhere.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sized.h"
#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "save/ckpt_commit.h"
#include "retention/ckpt_retention.h"
#include "ckpt_internal.h"
#include "save/ckpt_saving.h"

/* stands in for NULL: its callbacks are never called */
static const accel_ckpt_coll_t alone = { .rank = 0, .size = 1 };

/* What a rank can check alone; a failure is agreed on before anything is made. */
static accel_status_t check_args(const accel_ckpt_save_t *s, const accel_ckpt_coll_t *c,
                                 accel_error_t *err)
{
    size_t run = s->run_id ? strlen(s->run_id) : SIZE_MAX;

    if (!s->root || !s->root[0] || s->step < 0 || s->step > CKPT_STEP_MAX ||
        s->keep < 1 || c->size < 1 || c->size > CKPT_WORLD_MAX ||
        (s->box_count && !s->boxes) || (s->blob_count && !s->blobs) ||
        !(s->spread_seconds >= 0 && s->spread_seconds <= CKPT_SPREAD_MAX))
        return accel_fail(err, A0815, "see accel_ckpt.h",
                          "accel_ckpt_save: root, step, keep, world or spread_seconds "
                          "out of range");
    if (!ckpt_word_ok(s->owner, 64) || !ckpt_word_ok(s->sharding, 64) ||
        run > CKPT_RUN_ID_MAX || run == 0)
        return accel_fail(err, A0815, "use printable text without blanks",
                          "accel_ckpt_save: invalid owner, sharding or run id");
    for (size_t i = 0; i < run; i++)
        if (s->run_id[i] < 0x20 || s->run_id[i] > 0x7e)
            return accel_fail(err, A0815, "use printable ASCII",
                              "accel_ckpt_save: the run id contains byte 0x%02x",
                              (unsigned char)s->run_id[i]);
    if (s->local && s->local[0] != '/')
        return accel_fail_at(err, A0815, s->local, "give an absolute path",
                             "accel_ckpt_save: the local directory is not absolute");
    if (s->local && s->one_file)
        return accel_fail(err, A0815, "leave one of the two out",
                          "accel_ckpt_save: one_file cannot be staged in `local`");
    /* The rule that is noted has to be read again. */
    if (s->rule && ckpt_rule_problem(s->rule))
        return accel_fail(err, A0815, "see accel_ckpt_rule_t in accel_ckpt.h",
                          "accel_ckpt_save: %s", ckpt_rule_problem(s->rule));
    return ACCEL_OK;
}

/* Checks one of the caller's boxes and adds it to the fragment. Boxes of a tensor that
 * lie side by side make one entry each; ckpt_manifest_sort joins them. */
static accel_status_t add_box(struct ckpt_manifest *m, const accel_ckpt_box_t *x,
                              bool blob, int rank, accel_error_t *err)
{
    struct ckpt_tensor t = {
        .name = (char *)x->name, .dtype = x->dtype, .blob = blob, .ndim = x->ndim
    };
    struct ckpt_mbox b = { .tensor = m->tensors, .file = rank, .data = x->data };
    const char *problem = ckpt_name_problem(x->name);
    int64_t elem = (int64_t)accel_dtype_bytes(x->dtype), volume;
    accel_status_t st;

    if (problem)
        return accel_fail_at(err, A0607, x->name, "rename the module",
                             "invalid name: %s", problem);
    if (elem == 0 || x->ndim < 0 || x->ndim > ACCEL_CKPT_MAX_DIMS ||
        !ckpt_box_inside(x->ndim, x->offset, x->shape, x->global_shape) ||
        (volume = ckpt_volume(x->ndim, x->shape)) < 0 ||
        __builtin_mul_overflow(volume, elem, &b.bytes) || (volume && !x->data))
        return accel_fail_at(err, A0815, x->name,
                             "see accel_ckpt_box_t in accel_ckpt.h",
                             "invalid dtype, shape, offset or data");
    memcpy(t.shape, x->global_shape, (size_t)x->ndim * sizeof(int64_t));
    memcpy(b.offset, x->offset, (size_t)x->ndim * sizeof(int64_t));
    memcpy(b.shape, x->shape, (size_t)x->ndim * sizeof(int64_t));
    st = ckpt_manifest_add_tensor(m, &t, err);
    /* An empty box adds nothing, but its tensor exists. */
    return st || volume == 0 ? st : ckpt_manifest_add_box(m, &b, err);
}

/* This rank's part of the manifest: its boxes and, on rank 0, the blobs. */
static accel_status_t save_describe(struct ckpt_manifest *m, const accel_ckpt_save_t *s,
                                    const accel_ckpt_coll_t *c, accel_error_t *err)
{
    accel_status_t st = check_args(s, c, err);

    ACCEL_TRY(st, ckpt_manifest_start(m, s->step, c->size, s->owner, s->sharding,
                                      s->run_id, err));
    if (st)
        return st;
    ckpt_shard_name(m->file[c->rank].name, c->rank, c->size);
    for (size_t i = 0; i < s->box_count && !st; i++)
        st = add_box(m, &s->boxes[i], false, c->rank, err);
    for (size_t i = 0; c->rank == 0 && i < s->blob_count && !st; i++) {
        const accel_ckpt_blob_t *b = &s->blobs[i];
        accel_ckpt_box_t x = {
            .name = b->name, .dtype = ACCEL_U8, .ndim = 1, .data = (void *)b->data
        };

        x.global_shape[0] = x.shape[0] = (int64_t)b->bytes;
        st = add_box(m, &x, true, 0, err);
    }
    return st ? st : ckpt_manifest_sort(m, err);
}

/* Everything that a rank can do without the others. *sizes_out has an entry per rank,
 * for the gathers; the caller frees it. */
static accel_status_t save_prepare(struct ckpt_manifest *m, const accel_ckpt_save_t *s,
                                   const accel_ckpt_coll_t *c, size_t **sizes_out,
                                   accel_error_t *err)
{
    accel_status_t st = save_describe(m, s, c, err);

    if (st)
        return st;
    *sizes_out = calloc((size_t)c->size, sizeof(**sizes_out));
    return *sizes_out ? ACCEL_OK : accel_fail_nomem(err, "sizes", sizeof(**sizes_out));
}

/* Tensor data of a fragment. */
static int64_t data_bytes(const struct ckpt_manifest *m)
{
    int64_t sum = 0;

    for (size_t i = 0; i < m->boxes; i++)
        sum += m->box[i].bytes;
    return sum;
}

/* What each rank tells rank 0 before anything is made on disk. */
struct intent {
    int64_t step, bytes;
};

/* Collective. Rank 0 gets the bytes of all ranks, with a page of overhead per
 * dataset. A rank that saves another step is found here: it would look for a
 * directory that nobody makes. */
static accel_status_t total_bytes(const accel_ckpt_coll_t *c,
                                  const struct ckpt_manifest *m, size_t *sizes,
                                  int64_t *total_out, accel_error_t *err)
{
    const struct intent mine = { m->step,
                                 data_bytes(m) + (int64_t)(m->boxes + 16) * CKPT_PAGE };
    struct intent *of = NULL;
    accel_status_t st;
    void *all = NULL;

    *total_out = mine.bytes;
    if (c->size == 1)
        return ACCEL_OK;
    st = c->gather(c->user, &mine, sizeof(mine), 0, &all, sizes, err);
    of = all;
    for (int r = 1; !st && c->rank == 0 && r < c->size; r++) {
        *total_out += of[r].bytes;
        if (of[r].step != mine.step)
            st = accel_fail(err, A0816, "save the same step on all ranks",
                            "rank %d saves step %" PRId64
                            ", but rank 0 saves step %" PRId64,
                            r, of[r].step, mine.step);
    }
    if (c->rank == 0)
        free(all);
    return st;
}

/* Collective. mine[bytes] of all ranks to rank 0 over the caller's collectives, and
 * `what` it is. Alone, a copy of our own. */
static accel_status_t gather_to_first(const accel_ckpt_coll_t *c, const void *mine,
                                      size_t bytes, const char *what, void **all_out,
                                      size_t *sizes_out, accel_error_t *err)
{
    if (c->size > 1)
        return c->gather(c->user, mine, bytes, 0, all_out, sizes_out, err);
    *all_out = malloc(bytes);
    if (!*all_out)
        return accel_fail_nomem(err, what, bytes);
    memcpy(*all_out, mine, bytes);
    sizes_out[0] = bytes;
    return ACCEL_OK;
}

/* Collective. The nodes of all files to rank 0; *nodes_out is freed by the caller. */
static accel_status_t gather_nodes(struct accel_ckpt_saving *g,
                                   const accel_ckpt_coll_t *c, void **nodes_out,
                                   accel_error_t *err)
{
    char name[CKPT_NODE_MAX];

    ckpt_node_name(name);
    return gather_to_first(c, name, sizeof(name), "a list of nodes", nodes_out,
                           g->sizes, err);
}

/* Steps 4 and 5. Rank 0 asks may_commit last, right before the rename: a run that lost
 * its lease must not publish. nodes: of the files of a staged one, else NULL. */
static accel_status_t commit(struct accel_ckpt_saving *g, const struct ckpt_manifest *m,
                             const char *nodes, accel_error_t *err)
{
    struct strbuf text = { 0 };
    accel_status_t st = ckpt_manifest_format(m, -1, &text, err);

    if (!st && nodes)
        st = ckpt_places_write(g, nodes, err);
    if (!st && g->may_commit)
        st = g->may_commit(g->may_commit_user, err);
    ACCEL_TRY(st, ckpt_commit_publish(&g->commit, &text, err));
    strbuf_free(&text);
    return st;
}

/* Steps 3 to 5, once every rank has its text. */
static accel_status_t join_and_commit(struct accel_ckpt_saving *g,
                                      const struct strbuf *mine,
                                      const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct ckpt_manifest m = { 0 };
    void *all = NULL, *nodes = NULL;
    accel_status_t st = g->local ? gather_nodes(g, c, &nodes, err) : ACCEL_OK;
    int failed;

    ACCEL_TRY(st, gather_to_first(c, mine->s, mine->len, "the manifest", &all, g->sizes,
                                  err));
    if (!st && c->rank == 0)
        st = ckpt_join_fragments(&g->m, all, g->sizes, &m, err);
    if (!st && c->rank == 0)
        st = commit(g, &m, nodes, err);
    if (c->rank == 0) {
        free(all);
        free(nodes);
    }
    ckpt_manifest_free(&m);
    st = ckpt_agree_whose(c, st, &failed, err);
    g->may_stand = failed != 0;
    return st;
}

/* Rank 0 wrote the only file, and knows all of it. */
static accel_status_t check_and_commit(struct accel_ckpt_saving *g,
                                       const accel_ckpt_coll_t *c, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (c->rank == 0)
        st = ckpt_manifest_check(&g->m, A0816, err);
    if (!st && c->rank == 0)
        st = commit(g, &g->m, NULL, err);
    return ckpt_agree(c, st, err);
}

/* After an error that the ranks agreed on, or a collective that failed, no other one is
 * begun: a peer may still be in the one before. */
static accel_status_t publish(struct accel_ckpt_saving *g, const accel_ckpt_coll_t *c,
                              accel_error_t *err)
{
    struct strbuf mine = { 0 };
    accel_status_t st;

    if (g->one)
        return check_and_commit(g, c, err);
    st = ckpt_agree(c, ckpt_manifest_format(&g->m, c->rank, &mine, err), err);
    ACCEL_TRY(st, join_and_commit(g, &mine, c, err));
    strbuf_free(&mine);
    return st;
}

/* Step 1: what is to be saved, and a directory for it. */
static accel_status_t begin(struct accel_ckpt_saving *g, const accel_ckpt_save_t *s,
                            const accel_ckpt_coll_t *c, accel_error_t *err)
{
    int64_t total = 0;
    accel_status_t st = save_prepare(&g->m, s, c, &g->sizes, err);

    ACCEL_TRY(st, ckpt_saving_paths(g, s, err));
    ACCEL_CHECK(st, ckpt_agree(c, st, err));
    st = total_bytes(c, &g->m, g->sizes, &total, err);
    if (s->one_file && c->size > 1) {
        st = ckpt_agree(c, st, err);
        ACCEL_TRY(st, ckpt_one_file_begin(&g->one, &g->m, c, err));
        if (st)
            return st;
    }
    g->commit.staged = s->local != NULL;
    if (!st && c->rank == 0)
        st = ckpt_commit_begin(&g->commit, s->root, s->step, s->owner,
                               s->local ? 0 : total, err);
    st = ckpt_agree(c, st, err);
    if (st || !s->local || c->size == 1)
        return st;
    return c->broadcast(c->user, g->commit.id, sizeof(g->commit.id), 0, err);
}

/* A save that nothing is known of but what the caller says about its end. */
accel_status_t ckpt_saving_new(struct accel_ckpt_saving **saving_out,
                               accel_ckpt_save_t *settings_out,
                               const accel_ckpt_save_t *theirs,
                               const accel_ckpt_coll_t *c, accel_error_t *err)
{
    const accel_ckpt_save_t *s = settings_out;
    struct accel_ckpt_saving *g;
    accel_status_t st;

    ACCEL_CHECK(
        st, sized_read(SIZED(accel_ckpt_save_t, replaces), settings_out, theirs, err));
    g = calloc(1, sizeof(*g));
    if (!g)
        return accel_fail_nomem(err, "a save", sizeof(*g));
    *g = (struct accel_ckpt_saving){ .commit = { .rootfd = -1, .tmpfd = -1 },
                                     .rank = c->rank,
                                     .may_commit = s->may_commit,
                                     .may_commit_user = s->may_commit_user,
                                     .may_delete = s->may_delete,
                                     .rule = { .keep = s->keep },
                                     .noted = s->rule != NULL,
                                     .pace = { .spread =
                                                   (int64_t)(s->spread_seconds * 1e9),
                                               .has_time = s->may_delete },
                                     .begun = clock_ns() };
    g->commit.run_id = g->m.run_id;
    g->commit.replaces = s->replaces;
    if (s->rule)
        g->rule.also = *s->rule;
    *saving_out = g;
    return ACCEL_OK;
}

accel_status_t ckpt_saving_paths(struct accel_ckpt_saving *g,
                                 const accel_ckpt_save_t *s, accel_error_t *err)
{
    g->root = strdup(s->root);
    if (s->local)
        g->local = strdup(s->local);
    return g->root && (g->local || !s->local)
               ? ACCEL_OK
               : accel_fail_nomem(err, "a path", strlen(s->root) + 1);
}

accel_status_t accel_ckpt_save_begin(accel_ckpt_saving_t **saving_out,
                                     const accel_ckpt_save_t *s,
                                     const accel_ckpt_coll_t *coll, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = coll ? coll : &alone;
    /* save_agree needs one to pass on, even if the caller wants none */
    accel_error_t own = { 0 }, *e = err ? err : &own;
    struct accel_ckpt_saving *g = NULL;
    accel_ckpt_save_t settings;
    accel_status_t st = ckpt_saving_new(&g, &settings, s, c, e);

    st = ckpt_agree(c, st, e);
    ACCEL_TRY(st, begin(g, &settings, c, e));
    if (st)
        accel_ckpt_save_free(g);
    else
        *saving_out = g;
    return st;
}

/* This rank's file, in the directory dirfd. */
static accel_status_t write_file(struct accel_ckpt_saving *g, int dirfd,
                                 accel_error_t *err)
{
    accel_status_t st = ckpt_layout(dirfd, &g->m, g->rank, err);

    return st ? st : ckpt_write_shard(dirfd, &g->m, g->rank, &g->pace, &g->direct, err);
}

/* The same on the node's own disk, durably: the commit says that it is there. */
static accel_status_t write_local(struct accel_ckpt_saving *g, accel_error_t *err)
{
    int dirfd = -1;
    accel_status_t st;

    g->local_begun = true;
    st = ckpt_local_make(g, &dirfd, err);
    ACCEL_TRY(st, write_file(g, dirfd, err));
    ACCEL_TRY(st, ckpt_fsync(dirfd, g->local, err));
    if (dirfd >= 0)
        close(dirfd);
    return st;
}

/* Step 2: layout and data of this rank's file. The ranks work side by side, or rank 0
 * for all of them. Between
 * file_limit_hold and file_limit_release a write beyond RLIMIT_FSIZE is an error
 * instead of a signal. */
accel_status_t accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err)
{
    accel_error_t *e = &g->why;
    accel_status_t st = ACCEL_OK;
    sigset_t before;

    file_limit_hold(&before);
    if (g->steps) {
        st = g->steps->write(g, e);
    } else if (g->local) {
        st = write_local(g, e);
    } else if (g->one) {
        st = ckpt_one_file_write(g->one, g->commit.tmpfd, &g->m, &g->pace, &g->direct,
                                 e);
    } else {
        if (g->rank != 0)
            st = ckpt_commit_join(&g->commit, g->root, g->m.step, g->m.owner, e);
        ACCEL_TRY(st, write_file(g, g->commit.tmpfd, e));
    }
    file_limit_release(&before);
    g->written = st;
    if (st && err)
        *err = *e;
    return st;
}

void accel_ckpt_save_cancel(accel_ckpt_saving_t *g)
{
    atomic_store(&g->pace.cancelled, true);
}

void accel_ckpt_save_hurry(accel_ckpt_saving_t *g)
{
    atomic_store(&g->pace.hurried, true);
}

/* Steps 3 to 5. */
accel_status_t accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                       const accel_ckpt_coll_t *coll,
                                       accel_ckpt_stats_t *stats_out,
                                       accel_error_t *err)
{
    const accel_ckpt_coll_t *c = coll ? coll : &alone;
    accel_error_t own = { 0 }, *e = err ? err : &own;
    sigset_t before;
    accel_status_t st;

    if (g->written)
        *e = g->why;
    st = ckpt_agree(c, g->written, e);
    file_limit_hold(&before);
    ACCEL_TRY(st, g->steps ? g->steps->publish(g, c, e) : publish(g, c, e));
    file_limit_release(&before);
    if (st)
        return st;
    g->published = true;
    if (stats_out) {
        *stats_out =
            (accel_ckpt_stats_t){ .bytes = data_bytes(&g->m),
                                  .seconds = (double)(clock_ns() - g->begun) * 1e-9,
                                  .spread_seconds = (double)g->pace.waited * 1e-9,
                                  .direct_io = g->direct };
        memcpy(stats_out->aside, g->commit.aside, sizeof(stats_out->aside));
        if (g->local && !g->steps)
            ckpt_staged_name(stats_out->staged, g->m.step, g->m.owner, g->commit.id);
    }
    return ACCEL_OK;
}

/* Deletes what the rule does not keep, while there is time: by rename first, and the
 * oldest first, so that a stop in the middle leaves the newest. Never touches the one
 * just saved, newer ones, what cannot be read, and what nothing proves to be a
 * checkpoint of this run: a copy under another name, another run's, a directory that
 * somebody made. What fails, or is not allowed now, is left to the next save. */
static void retain(const struct accel_ckpt_saving *g)
{
    const int rootfd = g->commit.rootfd;
    struct ckpt_survey s;

    if (ckpt_survey(&s, rootfd, g->m.run_id, &g->rule, g->m.step, NULL) != ACCEL_OK)
        return;
    for (size_t i = s.count; i-- > 0 && (!g->may_delete || g->may_delete());)
        if (s.list[i].goes)
            ckpt_trash(rootfd, s.list[i].name);
    ckpt_survey_free(&s);
}

void accel_ckpt_save_retain(accel_ckpt_saving_t *g)
{
    if (!g->published || g->rank != 0)
        return;
    if (g->commit.replaced[0] && (!g->may_delete || g->may_delete()))
        ckpt_trash(g->commit.rootfd, g->commit.replaced);
    if (g->commit.staged)
        return;
    if (g->noted)
        ckpt_keep_note(g->commit.rootfd, g->m.run_id, &g->rule);
    retain(g);
}

/* What a failed save has put on this node's disk is of no use, unless rank 0 may have
 * committed it: after a collective that failed nobody knows. After the notice of a stop
 * there is no time to delete: the next life does. */
static void drop_local(const struct accel_ckpt_saving *g)
{
    char name[CKPT_DIR_MAX];

    if (!g->local_begun || g->may_stand || (g->may_delete && !g->may_delete()))
        return;
    ckpt_staged_name(name, g->m.step, g->m.owner, g->commit.id);
    (void)accel_ckpt_local_remove(g->root, g->local, name);
}

void accel_ckpt_save_free(accel_ckpt_saving_t *g)
{
    if (!g)
        return;
    if (g->rank == 0 && !g->published)
        ckpt_commit_abandon(&g->commit);
    drop_local(g);
    ckpt_commit_close(&g->commit);
    ckpt_manifest_free(&g->m);
    ckpt_one_file_free(g->one);
    if (g->steps)
        g->steps->free(g);
    free(g->sizes);
    free(g->root);
    free(g->local);
    free(g);
}

/* All of it, one step after the other. A write that failed is published, too: that is
 * where the ranks agree. */
accel_status_t accel_ckpt_save(const accel_ckpt_save_t *s,
                               const accel_ckpt_coll_t *coll,
                               accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    accel_ckpt_saving_t *g;
    accel_status_t st = accel_ckpt_save_begin(&g, s, coll, err);

    if (st)
        return st;
    (void)accel_ckpt_save_write(g, NULL);
    st = accel_ckpt_save_publish(g, coll, stats_out, err);
    accel_ckpt_save_retain(g);
    accel_ckpt_save_free(g);
    return st;
}
