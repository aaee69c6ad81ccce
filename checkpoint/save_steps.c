/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_save: the six steps of a save over all ranks. After every step the ranks
 * agree; one rank's failure makes all of them abandon the save, with the same error
 * everywhere.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_internal.h"

/* stands in for NULL: its callbacks are never called */
static const accel_ckpt_coll_t alone = { .rank = 0, .size = 1 };

/* Collective. The error of the lowest failing rank becomes everyone's. The vote is
 * size - rank, so that one maximum finds that rank; 0 means that all are well.
 * `err` may not be NULL. */
static accel_status_t save_agree(const accel_ckpt_coll_t *c, accel_status_t mine,
                                 accel_error_t *err)
{
    int64_t vote = mine ? c->size - c->rank : 0;
    accel_error_t shared = { 0 };
    accel_status_t st;
    int rank;

    if (c->size == 1)
        return mine;
    st = c->max_i64(c->user, &vote, err);
    if (st || vote == 0)
        return st;
    rank = c->size - (int)vote;
    if (rank == c->rank) {
        shared = *err;
        shared.code = mine;
    }
    st = c->broadcast(c->user, &shared, sizeof(shared), rank, err);
    if (st)
        return st;
    return accel_fail_from(err, &shared, "rank %d: %.700s", rank, shared.text);
}

/* What a rank can check alone; a failure is agreed on before anything is made. */
static accel_status_t check_args(const accel_ckpt_save_t *s, const accel_ckpt_coll_t *c,
                                 accel_error_t *err)
{
    size_t run = s->run_id ? strlen(s->run_id) : SIZE_MAX;

    if (!s->root || !s->root[0] || s->step < 0 || s->step > CKPT_STEP_MAX ||
        s->keep < 1 || c->size < 1 || c->size > CKPT_WORLD_MAX ||
        (s->box_count && !s->boxes) || (s->blob_count && !s->blobs))
        return accel_fail(err, A0815, "see accel_ckpt.h",
                          "accel_ckpt_save: root, step, keep or world out of range");
    if (!ckpt_word_ok(s->owner, 64) || !ckpt_word_ok(s->sharding, 64) ||
        run > CKPT_RUN_ID_MAX || run == 0)
        return accel_fail(err, A0815, "use printable text without blanks",
                          "accel_ckpt_save: invalid owner, sharding or run id");
    for (size_t i = 0; i < run; i++)
        if (s->run_id[i] < 0x20 || s->run_id[i] > 0x7e)
            return accel_fail(err, A0815, "use printable ASCII",
                              "accel_ckpt_save: the run id contains byte 0x%02x",
                              (unsigned char)s->run_id[i]);
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
    int64_t elem = (int64_t)accel_dtype_stored_bytes(x->dtype), volume;
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

/* The header of the manifest, from the arguments. */
static accel_status_t start_manifest(struct ckpt_manifest *m,
                                     const accel_ckpt_save_t *s,
                                     const accel_ckpt_coll_t *c, accel_error_t *err)
{
    m->step = s->step;
    m->world = c->size;
    snprintf(m->version, sizeof(m->version), "%s", PACKAGE_VERSION);
    snprintf(m->owner, sizeof(m->owner), "%s", s->owner);
    snprintf(m->sharding, sizeof(m->sharding), "%s", s->sharding);
    snprintf(m->run_id, sizeof(m->run_id), "%s", s->run_id);
    m->file = calloc((size_t)m->world, sizeof(*m->file));
    if (!m->file)
        return accel_fail_nomem(err, "the file list",
                                (size_t)m->world * sizeof(*m->file));
    return ACCEL_OK;
}

/* This rank's part of the manifest: its boxes and, on rank 0, the blobs. */
static accel_status_t save_describe(struct ckpt_manifest *m, const accel_ckpt_save_t *s,
                                    const accel_ckpt_coll_t *c, accel_error_t *err)
{
    accel_status_t st = check_args(s, c, err);

    if (!st)
        st = start_manifest(m, s, c, err);
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

/* Rank 0: parses and joins the fragments, checks that they tile, prints the
 * MANIFEST into text_out. Fragments come from other processes and are parsed
 * as strictly as a file. */
static accel_status_t join_fragments(const struct ckpt_manifest *mine, const char *all,
                                     const size_t *sizes, struct strbuf *text_out,
                                     accel_error_t *err)
{
    struct ckpt_manifest m = { .step = mine->step, .world = mine->world };
    accel_status_t st = ACCEL_OK;

    memcpy(m.version, mine->version, sizeof(m.version));
    memcpy(m.owner, mine->owner, sizeof(m.owner));
    memcpy(m.sharding, mine->sharding, sizeof(m.sharding));
    memcpy(m.run_id, mine->run_id, sizeof(m.run_id));
    m.file = calloc((size_t)m.world, sizeof(*m.file));
    if (!m.file)
        return accel_fail_nomem(err, "the file list",
                                (size_t)m.world * sizeof(*m.file));
    for (int r = 0; r < m.world && !st; all += sizes[r], r++) {
        struct ckpt_manifest part = { 0 };
        char where[48];

        snprintf(where, sizeof(where), "records of rank %d", r);
        st = ckpt_manifest_parse(&part, all, sizes[r], true, where, err);
        if (!st && (part.world != m.world || strcmp(part.run_id, m.run_id) != 0 ||
                    !part.file[r].name[0]))
            st = accel_fail(err, A0816, "save the same run on all ranks",
                            "rank %d of %d saves run '%s', but rank 0 of %d saves '%s'",
                            r, part.world, part.run_id, m.world, m.run_id);
        if (!st)
            st = ckpt_manifest_merge(&m, &part, r, err);
        ckpt_manifest_free(&part);
    }
    if (!st)
        st = ckpt_manifest_sort(&m, err);
    if (!st)
        st = ckpt_manifest_check(&m, A0816, err);
    if (!st)
        st = ckpt_manifest_format(&m, -1, text_out, err);
    ckpt_manifest_free(&m);
    return st;
}

/* Step 3: the fragments' texts to rank 0 over the caller's collectives.
 * Alone, a copy of our own. */
static accel_status_t gather_fragments(const accel_ckpt_coll_t *c,
                                       const struct strbuf *mine, void **all_out,
                                       size_t *sizes_out, accel_error_t *err)
{
    if (c->size > 1)
        return c->gather(c->user, mine->s, mine->len, 0, all_out, sizes_out, err);
    *all_out = malloc(mine->len);
    if (!*all_out)
        return accel_fail_nomem(err, "the manifest", mine->len);
    memcpy(*all_out, mine->s, mine->len);
    sizes_out[0] = mine->len;
    return ACCEL_OK;
}

/* Steps 3 to 5, once every rank has its text. Rank 0 asks may_commit last, right before
 * the rename: a run that lost its lease must not publish. */
static accel_status_t join_and_commit(struct ckpt_commit *commit,
                                      const accel_ckpt_save_t *save,
                                      const struct ckpt_manifest *m,
                                      const struct strbuf *mine, size_t *sizes,
                                      const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct strbuf text = { 0 };
    void *all = NULL;
    accel_status_t st = gather_fragments(c, mine, &all, sizes, err);

    if (!st && c->rank == 0) {
        st = join_fragments(m, all, sizes, &text, err);
        if (!st && save->may_commit)
            st = save->may_commit(save->may_commit_user, err);
        if (!st)
            st = ckpt_commit_publish(commit, &text, err);
    }
    if (c->rank == 0)
        free(all);
    strbuf_free(&text);
    return save_agree(c, st, err);
}

/* After an error that the ranks agreed on, or a collective that failed, no other one is
 * begun: a peer may still be in the one before. */
static accel_status_t publish(struct ckpt_commit *commit, const accel_ckpt_save_t *save,
                              const struct ckpt_manifest *m, size_t *sizes,
                              const accel_ckpt_coll_t *c, accel_error_t *err)
{
    struct strbuf mine = { 0 };
    accel_status_t st =
        save_agree(c, ckpt_manifest_format(m, c->rank, &mine, err), err);

    if (!st)
        st = join_and_commit(commit, save, m, &mine, sizes, c, err);
    strbuf_free(&mine);
    return st;
}

/* Step 2: layout and data of this rank's file. The ranks work side by side
 * and meet in save_agree. */
static accel_status_t write_rank(struct ckpt_commit *commit, struct ckpt_manifest *m,
                                 const accel_ckpt_save_t *s, const accel_ckpt_coll_t *c,
                                 int *direct_out, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (c->rank != 0)
        st = ckpt_commit_join(commit, s->root, s->step, s->owner, err);
    if (!st)
        st = ckpt_layout(commit->tmpfd, m, c->rank, err);
    if (!st)
        st = ckpt_write_shard(commit->tmpfd, m, c->rank, direct_out, err);
    return save_agree(c, st, err);
}

/* The steps in order. Between file_limit_hold and file_limit_release a write beyond
 * RLIMIT_FSIZE is an error instead of a signal. Rank 0 deletes older checkpoints only
 * after the commit is durable. */
accel_status_t accel_ckpt_save(const accel_ckpt_save_t *s,
                               const accel_ckpt_coll_t *coll,
                               accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = coll ? coll : &alone;
    struct ckpt_commit commit = { .rootfd = -1, .tmpfd = -1, .run_id = s->run_id };
    struct ckpt_manifest m = { 0 };
    int64_t begun = clock_ns(), total = 0;
    /* save_agree needs one to pass on, even if the caller wants none */
    accel_error_t own = { 0 }, *e = err ? err : &own;
    size_t *sizes = NULL;
    sigset_t before;
    int direct = 0;
    accel_status_t st = save_agree(c, save_prepare(&m, s, c, &sizes, e), e);

    if (!st) {
        st = total_bytes(c, &m, sizes, &total, e);
        if (!st && c->rank == 0)
            st = ckpt_commit_begin(&commit, s->root, s->step, s->owner, total, e);
        st = save_agree(c, st, e);
    }
    file_limit_hold(&before);
    if (!st)
        st = write_rank(&commit, &m, s, c, &direct, e);
    if (!st)
        st = publish(&commit, s, &m, sizes, c, e);
    file_limit_release(&before);
    if (c->rank == 0 && st)
        ckpt_commit_abandon(&commit);
    if (!st && stats_out) {
        *stats_out =
            (accel_ckpt_stats_t){ .bytes = data_bytes(&m),
                                  .seconds = (double)(clock_ns() - begun) * 1e-9,
                                  .direct_io = direct };
        memcpy(stats_out->aside, commit.aside, sizeof(stats_out->aside));
    }
    if (c->rank == 0 && !st)
        ckpt_retain(commit.rootfd, s->step, s->run_id, s->keep);
    ckpt_commit_close(&commit);
    ckpt_manifest_free(&m);
    free(sizes);
    return st;
}
