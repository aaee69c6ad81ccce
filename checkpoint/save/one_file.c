/* SPDX-License-Identifier: Apache-2.0
 *
 * A save of all ranks into one file. In: each rank's fragment of the manifest. Out, on
 * rank 0: a manifest of one file in which every tensor is one box, and that file. The
 * tensors go to rank 0 in rounds, in the order of their names, and are written as they
 * come: nobody ever holds more than a round of them.
 */
#include <stdlib.h>
#include <string.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "save/ckpt_commit.h"
#include "ckpt_internal.h"

/* Rank 0 says what comes next: the tensors after those that it has, up to `last`. */
struct turn {
    enum { TURN_END, TURN_SEND } what;
    bool blob;
    char last[CKPT_NAME_MAX + 1];
};

struct ckpt_one_file {
    accel_ckpt_coll_t coll;
    /* this rank's boxes, with their data; and how many of its tensors are sent */
    struct ckpt_manifest mine;
    size_t sent;
    /* rank 0: those of all ranks, by tensor and offset */
    struct ckpt_manifest all;
    /* room for what this rank sends in a round */
    char *send;
    size_t send_bytes;
    /* rank 0: of a gather, by rank; and where the next box of each lies in it */
    size_t *sizes, *next;
};

/* ---- what is saved --------------------------------------------------------------- */

static int64_t tensor_bytes(const struct ckpt_manifest *m, const struct ckpt_tensor *t)
{
    int64_t sum = 0;

    for (size_t i = t->box; i < t->box + t->boxes; i++)
        sum += m->box[i].bytes;
    return sum;
}

/* Places side by side, so that the fragment is one of a file that might be. */
static void pack(struct ckpt_manifest *m, int rank)
{
    int64_t at = 0;

    for (size_t i = 0; i < m->boxes; i++) {
        m->box[i].at = at;
        at += m->box[i].bytes;
    }
    m->file[rank].bytes = at;
}

/* Rank 0: the manifest that is written. Every tensor is whole. */
static accel_status_t plan_file(const struct ckpt_one_file *o, struct ckpt_manifest *m,
                                accel_error_t *err)
{
    const struct ckpt_manifest *all = &o->all;
    accel_status_t st;

    ACCEL_CHECK(st, ckpt_manifest_start(m, all->step, 1, all->owner, all->sharding,
                                        all->run_id, err));
    ckpt_shard_name(m->file[0].name, 0, 1);
    for (size_t i = 0; i < all->tensors && !st; i++) {
        const struct ckpt_tensor *t = &all->tensor[i];
        struct ckpt_mbox b = { .tensor = i, .bytes = tensor_bytes(all, t) };

        memcpy(b.shape, t->shape, sizeof(b.shape));
        st = ckpt_manifest_add_tensor(m, t, err);
        if (!st && b.bytes > 0)
            st = ckpt_manifest_add_box(m, &b, err);
    }
    return st ? st : ckpt_manifest_sort(m, err);
}

/* Room for the largest round, from the start on: later no rank may fail alone. */
static accel_status_t make_room(struct ckpt_one_file *o, accel_error_t *err)
{
    const size_t size = (size_t)o->coll.size;

    o->send_bytes = CKPT_ROUND_BYTES;
    for (size_t i = 0; i < o->mine.tensors; i++) {
        size_t bytes = (size_t)tensor_bytes(&o->mine, &o->mine.tensor[i]);

        o->send_bytes = bytes > o->send_bytes ? bytes : o->send_bytes;
    }
    o->send = malloc(o->send_bytes);
    o->sizes = calloc(2 * size, sizeof(*o->sizes));
    if (!o->send || !o->sizes)
        return accel_fail_nomem(err, "what goes to rank 0", o->send_bytes);
    o->next = o->sizes + size;
    return ACCEL_OK;
}

/* Collective: every rank gets the same status. What all ranks have, to rank 0. */
static accel_status_t take_fragments(struct ckpt_one_file *o, struct ckpt_manifest *m,
                                     const struct strbuf *text, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = &o->coll;
    void *all = NULL;
    accel_status_t st = c->gather(c->user, text->s, text->len, 0, &all, o->sizes, err);

    if (!st && c->rank == 0)
        st = ckpt_join_fragments(&o->mine, all, o->sizes, &o->all, err);
    if (!st && c->rank == 0)
        st = plan_file(o, m, err);
    if (c->rank == 0)
        free(all);
    return ckpt_agree(c, st, err);
}

accel_status_t ckpt_one_file_begin(struct ckpt_one_file **one_out,
                                   struct ckpt_manifest *m,
                                   const accel_ckpt_coll_t *coll, accel_error_t *err)
{
    struct ckpt_one_file *o = calloc(1, sizeof(*o));
    struct strbuf text = { 0 };
    accel_status_t st = o ? ACCEL_OK : accel_fail_nomem(err, "a save", sizeof(*o));

    if (!st) {
        o->coll = *coll;
        o->mine = *m;
        *m = (struct ckpt_manifest){ 0 };
        pack(&o->mine, coll->rank);
        st = make_room(o, err);
    }
    ACCEL_TRY(st, ckpt_manifest_format(&o->mine, coll->rank, &text, err));
    *one_out = o;
    st = ckpt_agree(coll, st, err);
    ACCEL_TRY(st, take_fragments(o, m, &text, err));
    strbuf_free(&text);
    return st;
}

void ckpt_one_file_free(struct ckpt_one_file *o)
{
    if (!o)
        return;
    ckpt_manifest_free(&o->mine);
    ckpt_manifest_free(&o->all);
    free(o->send);
    free(o->sizes);
    free(o);
}

/* ---- a round --------------------------------------------------------------------- */

/* Is the tensor among those that the turn asks for? */
static bool is_asked_for(const struct turn *t, const struct ckpt_tensor *x)
{
    return x->blob == t->blob ? strcmp(x->name, t->last) <= 0 : t->blob;
}

/* This rank's part of the round, into `send`. Returns its bytes. */
static size_t send_part(struct ckpt_one_file *o, const struct turn *t)
{
    size_t used = 0;

    while (o->sent < o->mine.tensors && is_asked_for(t, &o->mine.tensor[o->sent])) {
        const struct ckpt_tensor *x = &o->mine.tensor[o->sent++];

        for (size_t i = x->box; i < x->box + x->boxes; i++) {
            const struct ckpt_mbox *b = &o->mine.box[i];

            memcpy(o->send + used, b->data, (size_t)b->bytes);
            used += (size_t)b->bytes;
        }
    }
    return used;
}

/* Rank 0: tensors from number `first` on that make a round; returns the one after. */
static size_t choose(const struct ckpt_one_file *o, size_t first, struct turn *t_out)
{
    int64_t sum = tensor_bytes(&o->all, &o->all.tensor[first]);
    size_t end = first + 1;

    while (end < o->all.tensors) {
        int64_t bytes = tensor_bytes(&o->all, &o->all.tensor[end]);

        if (bytes > CKPT_ROUND_BYTES - sum)
            break;
        sum += bytes;
        end++;
    }
    *t_out = (struct turn){ .what = TURN_SEND, .blob = o->all.tensor[end - 1].blob };
    strcpy(t_out->last, o->all.tensor[end - 1].name);
    return end;
}

/* Rank 0: did every rank send what it said it has of the tensors [first, end)? */
static accel_status_t check_sizes(struct ckpt_one_file *o, size_t first, size_t end,
                                  accel_error_t *err)
{
    size_t at = 0;

    memset(o->next, 0, (size_t)o->coll.size * sizeof(*o->next));
    for (size_t i = first; i < end; i++) {
        const struct ckpt_tensor *t = &o->all.tensor[i];

        for (size_t k = t->box; k < t->box + t->boxes; k++)
            o->next[o->all.box[k].file] += (size_t)o->all.box[k].bytes;
    }
    for (int r = 0; r < o->coll.size; r++) {
        if (o->sizes[r] != o->next[r])
            return accel_fail(err, A0816, "save the same run on all ranks",
                              "rank %d sent %zu bytes of its tensors, not %zu", r,
                              o->sizes[r], o->next[r]);
        o->next[r] = at;
        at += o->sizes[r];
    }
    return ACCEL_OK;
}

/* Rank 0: tensor t, whole, into `to`. A box comes as it lies in its rank's memory. */
static void assemble(struct ckpt_one_file *o, const struct ckpt_tensor *t,
                     const char *gathered, char *to)
{
    static const int64_t origin[ACCEL_CKPT_MAX_DIMS];

    for (size_t k = t->box; k < t->box + t->boxes; k++) {
        const struct ckpt_mbox *b = &o->all.box[k];
        const char *from = gathered + o->next[b->file];
        struct ckpt_runs runs;

        ckpt_runs_start(&runs, t->ndim, accel_dtype_bytes(t->dtype), b->offset,
                        b->shape, origin, t->shape, b->offset, b->shape);
        for (; !runs.done; ckpt_runs_next(&runs))
            memcpy(to + runs.dst, from + runs.src, (size_t)runs.run_bytes);
        o->next[b->file] += (size_t)b->bytes;
    }
}

/* Rank 0: writes the tensors [first, end) of a round. m has the same ones, whole. */
static accel_status_t write_round(struct ckpt_one_file *o, size_t first, size_t end,
                                  const char *gathered, const struct ckpt_manifest *m,
                                  struct ckpt_writer *w, bool *good_out,
                                  accel_error_t *err)
{
    accel_status_t st = check_sizes(o, first, end, err);

    for (size_t i = first; i < end && !st && *good_out; i++) {
        const struct ckpt_tensor *t = &m->tensor[i];
        char *whole;

        if (t->boxes == 0)
            continue;
        whole = malloc((size_t)m->box[t->box].bytes);
        if (!whole)
            return accel_fail_nomem(err, "a whole tensor",
                                    (size_t)m->box[t->box].bytes);
        assemble(o, &o->all.tensor[i], gathered, whole);
        *good_out = ckpt_writer_put(w, t->box, whole, false);
        free(whole);
    }
    return st;
}

/* ---- all rounds ------------------------------------------------------------------ */

/* Collective. One turn of every rank but 0, whose last one has been said. */
static accel_status_t send_rounds(struct ckpt_one_file *o, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = &o->coll;
    struct turn t;
    accel_status_t st;

    for (;;) {
        void *none = NULL;

        st = c->broadcast(c->user, &t, sizeof(t), 0, err);
        if (st || t.what == TURN_END)
            return st;
        ACCEL_CHECK(st,
                    c->gather(c->user, o->send, send_part(o, &t), 0, &none, NULL, err));
    }
}

/* Collective. *lost_out: a collective failed, and nobody waits for an end. */
static accel_status_t take_rounds(struct ckpt_one_file *o,
                                  const struct ckpt_manifest *m, struct ckpt_writer *w,
                                  bool *lost_out, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = &o->coll;
    accel_status_t st = ACCEL_OK;
    bool good = true;
    struct turn t;

    for (size_t first = 0, end; first < o->all.tensors && !st && good; first = end) {
        void *gathered = NULL;

        end = choose(o, first, &t);
        st = c->broadcast(c->user, &t, sizeof(t), 0, err);
        ACCEL_TRY(st, c->gather(c->user, o->send, send_part(o, &t), 0, &gathered,
                                o->sizes, err));
        *lost_out = st != ACCEL_OK;
        ACCEL_TRY(st, write_round(o, first, end, gathered, m, w, &good, err));
        free(gathered);
    }
    return st;
}

/* Rank 0's part. Whatever fails, the others hear that no round follows. */
static accel_status_t write_file(struct ckpt_one_file *o, int dirfd,
                                 struct ckpt_manifest *m, struct ckpt_pace *pace,
                                 int *direct_out, accel_error_t *err)
{
    const accel_ckpt_coll_t *c = &o->coll;
    struct turn end = { .what = TURN_END };
    struct ckpt_writer *w = NULL;
    accel_error_t e = { 0 };
    bool lost = false;
    accel_status_t st = ckpt_layout(dirfd, m, 0, err), closed = ACCEL_OK;

    ACCEL_TRY(st, ckpt_writer_open(&w, dirfd, m, 0, pace, err));
    ACCEL_TRY(st, take_rounds(o, m, w, &lost, err));
    if (w)
        closed = ckpt_writer_close(w, !st, direct_out, &e);
    if (!st && closed) {
        *err = e;
        st = closed;
    }
    if (lost)
        return st;
    closed = c->broadcast(c->user, &end, sizeof(end), 0, &e);
    if (!st && closed)
        *err = e;
    return st ? st : closed;
}

accel_status_t ckpt_one_file_write(struct ckpt_one_file *o, int dirfd,
                                   struct ckpt_manifest *m, struct ckpt_pace *pace,
                                   int *direct_out, accel_error_t *err)
{
    return o->coll.rank == 0 ? write_file(o, dirfd, m, pace, direct_out, err)
                             : send_rounds(o, err);
}
