/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and opens checkpoints: manifest, its hash, file sizes, blobs. Cheap enough to
 * look at every directory; tensor data is checked when it is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"

/* Reads MANIFEST into c->m. A directory without one is a save that never finished. */
static accel_status_t read_manifest(accel_ckpt_t *c, const char *shown,
                                    accel_error_t *err)
{
    char where[300], *text = NULL;
    size_t len = 0;
    accel_status_t st;

    snprintf(where, sizeof(where), "%.280s/MANIFEST", shown);
    st = ckpt_read_file(c->dirfd, "MANIFEST", where, "the save never finished",
                        CKPT_MANIFEST_MAX, &text, &len, err);
    ACCEL_TRY(st, ckpt_manifest_parse(&c->m, text, len, false, where, err));
    free(text);
    return st;
}

/* Every shard file can be opened and has its size. One descriptor at a time: a
 * checkpoint may have more files than a process may have open. */
static accel_status_t check_shards(accel_ckpt_t *c, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int f = 0; f < c->m.world && !st; f++) {
        int fd;

        st = ckpt_open_shard(c, f, &fd, err);
        if (!st)
            close(fd);
    }
    return st;
}

/* Counts the boxes per file, then sums up. */
accel_status_t ckpt_index_places(accel_ckpt_t *c, accel_error_t *err)
{
    size_t world = (size_t)c->m.world;
    accel_status_t st = ckpt_boxes_by_place(&c->m, &c->by_place, err);

    if (st)
        return st;
    c->file_first = calloc(world + 1, sizeof(*c->file_first));
    if (!c->file_first)
        return accel_fail_nomem(err, "the file index", world * sizeof(size_t));
    for (size_t i = 0; i < c->m.boxes; i++)
        c->file_first[c->m.box[i].file + 1]++;
    for (size_t f = 0; f < world; f++)
        c->file_first[f + 1] += c->file_first[f];
    return ACCEL_OK;
}

/* A directory that a person named (AT_FDCWD) and that is not there, or one that was
 * listed and is gone: not damage. */
static accel_status_t fail_open_dir(int at, const char *shown, accel_error_t *err)
{
    if (errno == ENOENT || (at == AT_FDCWD && (errno == ENOTDIR || errno == ELOOP)))
        return accel_fail_at(err, A0811, shown, "give the directory of one checkpoint",
                             "cannot open: %m");
    return ckpt_fail_access(err, shown, "cannot open", errno);
}

/* One look. *ckpt_out is set as soon as there is memory for it, also on failure;
 * the caller closes it. */
static accel_status_t open_once(accel_ckpt_t **ckpt_out, int at, const char *name,
                                const char *shown, accel_error_t *err)
{
    accel_ckpt_t *c = calloc(1, sizeof(*c));
    accel_status_t st;

    *ckpt_out = c;
    if (!c)
        return accel_fail_nomem(err, "a checkpoint", sizeof(*c));
    c->dirfd = -1;
    c->dir = strdup(shown);
    if (!c->dir)
        return accel_fail_nomem(err, "a path", strlen(shown) + 1);
    c->dirfd = at == AT_FDCWD
                   ? TEMP_FAILURE_RETRY(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
                   : ckpt_open_dir(at, name);
    if (c->dirfd < 0)
        return fail_open_dir(at, shown, err);
    st = read_manifest(c, shown, err);
    ACCEL_TRY(st, ckpt_index_places(c, err));
    return st ? st : check_shards(c, err);
}

/* The contents, and whether the directory's name fits them. */
static accel_status_t open_named(accel_ckpt_t **ckpt_out, int at, const char *name,
                                 const char *shown, accel_error_t *err)
{
    accel_status_t st = open_once(ckpt_out, at, name, shown, err);

    return st ? st
              : ckpt_check_name((*ckpt_out)->dirfd, (*ckpt_out)->m.step, shown, err);
}

/* Each try starts from scratch: on a network file system an old
 * descriptor may be what fails. */
static accel_status_t open_patiently(accel_ckpt_t **ckpt_out, int at, const char *name,
                                     const char *shown, struct ckpt_tries *tries,
                                     accel_error_t *err)
{
    accel_ckpt_t *c;
    accel_status_t st;

    for (;;) {
        st = open_named(&c, at, name, shown, err);
        if (!st)
            break;
        accel_ckpt_close(c);
        if (!ckpt_may_pass(st) || !ckpt_try_again(tries))
            return st;
    }
    *ckpt_out = c;
    return ACCEL_OK;
}

accel_status_t ckpt_open_at(accel_ckpt_t **ckpt_out, int at, const char *name,
                            const char *shown, accel_error_t *err)
{
    struct ckpt_tries tries = { .left = CKPT_TRIES };

    return open_patiently(ckpt_out, at, name, shown, &tries, err);
}

/* No second try: the callers are about to delete or rename, and leave alone what they
 * cannot read. The manifest counts even if a shard file is missing. */
void ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name)
{
    accel_ckpt_t *c;

    *id_out = (struct ckpt_identity){ .step = -1 };
    id_out->status = open_once(&c, rootfd, name, name, NULL);
    if (c && c->m.world > 0) {
        id_out->step = c->m.step;
        memcpy(id_out->owner, c->m.owner, sizeof(id_out->owner));
        memcpy(id_out->run_id, c->m.run_id, sizeof(id_out->run_id));
    }
    accel_ckpt_close(c);
}

/* Room for all blobs in one block, at the offsets blob_at[]. Their total is bounded by
 * ckpt_manifest_check. boxes_out[n] get what is to be read. */
static accel_status_t plan_blobs(accel_ckpt_t *c, accel_ckpt_box_t **boxes_out,
                                 size_t *n_out, accel_error_t *err)
{
    const struct ckpt_manifest *m = &c->m;
    accel_ckpt_box_t *box = calloc(m->tensors + 1, sizeof(*box));
    size_t total = 0, n = 0;

    c->blob_at = calloc(m->tensors + 1, sizeof(*c->blob_at));
    for (size_t i = 0; c->blob_at && i < m->tensors; i++) {
        c->blob_at[i] = total;
        if (m->tensor[i].blob)
            total += (size_t)m->tensor[i].shape[0];
    }
    c->blob = malloc(total + 1);
    if (!box || !c->blob_at || !c->blob) {
        free(box);
        return accel_fail_nomem(err, "blobs", total + m->tensors * sizeof(*box));
    }
    for (size_t i = 0; i < m->tensors; i++) {
        const struct ckpt_tensor *t = &m->tensor[i];

        if (!t->blob || t->shape[0] == 0)
            continue;
        box[n] = (accel_ckpt_box_t){ .name = t->name,
                                     .dtype = t->dtype,
                                     .ndim = t->ndim,
                                     .data = c->blob + c->blob_at[i] };
        box[n].global_shape[0] = box[n].shape[0] = t->shape[0];
        n++;
    }
    *boxes_out = box;
    *n_out = n;
    return ACCEL_OK;
}

/* A rank without the checkpoint has its error, and the others read alone: together they
 * would wait for it. */
accel_status_t accel_ckpt_open_together(accel_ckpt_t **ckpt_out, const char *dir,
                                        const accel_ckpt_coll_t *coll,
                                        accel_error_t *err)
{
    accel_ckpt_box_t *box = NULL;
    accel_ckpt_t *c = NULL;
    accel_error_t e = { 0 };
    size_t n = 0;
    accel_status_t st = ckpt_open_at(&c, AT_FDCWD, dir, dir, &e), all = ACCEL_OK;
    int64_t vote;

    ACCEL_TRY(st, plan_blobs(c, &box, &n, &e));
    vote = st != ACCEL_OK;
    if (coll && coll->size > 1)
        all = coll->max_i64(coll->user, &vote, st ? NULL : &e);
    ACCEL_TRY(st, all);
    ACCEL_TRY(st, ckpt_read_together(c, box, n, true, vote ? NULL : coll, &e));
    free(box);
    if (st) {
        accel_ckpt_close(c);
        if (err)
            *err = e;
        return st;
    }
    *ckpt_out = c;
    return ACCEL_OK;
}

accel_status_t accel_ckpt_open(accel_ckpt_t **ckpt_out, const char *dir,
                               accel_error_t *err)
{
    return accel_ckpt_open_together(ckpt_out, dir, NULL, err);
}

void accel_ckpt_close(accel_ckpt_t *c)
{
    if (!c)
        return;
    if (c->dirfd >= 0)
        close(c->dirfd);
    ckpt_manifest_free(&c->m);
    free(c->dir);
    free(c->by_place);
    free(c->file_first);
    free(c->blob);
    free(c->blob_at);
    free(c);
}

int64_t accel_ckpt_step(const accel_ckpt_t *c)
{
    return c->m.step;
}

int accel_ckpt_world_size(const accel_ckpt_t *c)
{
    return c->m.world;
}

const char *accel_ckpt_run_id(const accel_ckpt_t *c)
{
    return c->m.run_id;
}

const void *accel_ckpt_blob(const accel_ckpt_t *c, const char *name, size_t *bytes_out)
{
    const struct ckpt_tensor *t = ckpt_manifest_find(&c->m, true, name);

    if (!t)
        return NULL;
    *bytes_out = (size_t)t->shape[0];
    return c->blob + c->blob_at[t - c->m.tensor];
}

/* Blobs sort after all tensors, so that the tensors are the first entries. */
size_t accel_ckpt_tensor_count(const accel_ckpt_t *c)
{
    size_t n = c->m.tensors;

    while (n > 0 && c->m.tensor[n - 1].blob)
        n--;
    return n;
}

accel_status_t accel_ckpt_tensor(const accel_ckpt_t *c, size_t i, const char **name_out,
                                 accel_dtype_t *dtype_out, int *ndim_out,
                                 const int64_t **shape_out)
{
    if (i >= c->m.tensors || c->m.tensor[i].blob)
        return ACCEL_EINVAL;
    *name_out = c->m.tensor[i].name;
    *dtype_out = c->m.tensor[i].dtype;
    *ndim_out = c->m.tensor[i].ndim;
    *shape_out = c->m.tensor[i].shape;
    return ACCEL_OK;
}

/* How a failure to open looks in a list. */
static accel_ckpt_state_t state_of(accel_status_t st)
{
    return st == ACCEL_ECORRUPT       ? ACCEL_CKPT_DAMAGED
           : st == ACCEL_EUNSUPPORTED ? ACCEL_CKPT_OTHER_FORMAT
                                      : ACCEL_CKPT_UNREADABLE;
}

/* Fills one entry of the list. False: it is gone since the directory was read, as when
 * retention removes it at the same time. */
static bool describe_step(int rootfd, const char *name, struct ckpt_tries *tries,
                          accel_ckpt_info_t *info_out)
{
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    accel_status_t st;

    snprintf(info_out->name, sizeof(info_out->name), "%.63s", name);
    info_out->step = ckpt_step_of_name(name);
    tries->used = 0;
    st = open_patiently(&c, rootfd, name, name, tries, &err);
    if (st) {
        snprintf(info_out->problem, sizeof(info_out->problem), "%.96s%s%.150s",
                 err.where, err.where[0] ? ": " : "", err.text);
        info_out->state = state_of(st);
        return faccessat(rootfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
               errno != ENOENT;
    }
    info_out->complete = info_out->state == ACCEL_CKPT_COMPLETE;
    info_out->world_size = c->m.world;
    for (int f = 0; f < c->m.world; f++)
        info_out->bytes += c->m.file[f].bytes;
    accel_ckpt_close(c);
    return true;
}

/* for qsort */
static int newest_first(const void *pa, const void *pb)
{
    const accel_ckpt_info_t *a = pa, *b = pb;

    return (a->step < b->step) - (a->step > b->step);
}

/* One pass over the root. Names that only begin with step_ are not steps: moved
 * aside, or a person's. */
static accel_status_t list_once(int rootfd, struct ckpt_tries *tries,
                                accel_ckpt_info_t **list_out, size_t *count_out,
                                accel_error_t *err)
{
    char(*names)[CKPT_DIR_MAX] = NULL;
    accel_ckpt_info_t *list;
    size_t n = 0, used = 0;
    accel_status_t st = ckpt_list_names(rootfd, "step_", &names, &n, err);

    if (st)
        return st;
    list = calloc(n + 1, sizeof(*list));
    if (!list) {
        free(names);
        return accel_fail_nomem(err, "the list", (n + 1) * sizeof(*list));
    }
    for (size_t i = 0; i < n; i++)
        if (ckpt_step_of_name(names[i]) >= 0) {
            list[used] = (accel_ckpt_info_t){ 0 };
            used += describe_step(rootfd, names[i], tries, &list[used]);
        }
    if (used)
        qsort(list, used, sizeof(*list), newest_first);
    free(names);
    *list_out = list;
    *count_out = used;
    return ACCEL_OK;
}

/* All entries share one allowance of tries: a root with fifty unreadable directories
 * must not take a minute. */
accel_status_t accel_ckpt_list(const char *root, accel_ckpt_info_t **list_out,
                               size_t *count_out, accel_error_t *err)
{
    struct ckpt_tries tries = { .left = 2 * CKPT_TRIES };
    accel_status_t st;

    for (;;) {
        int rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

        if (rootfd >= 0) {
            st = list_once(rootfd, &tries, list_out, count_out, err);
            close(rootfd);
        } else if (errno == ENOENT) {
            *list_out = NULL;
            *count_out = 0;
            st = ACCEL_OK;
        } else {
            st = ckpt_fail_root(err, root, "cannot open", errno);
        }
        if (!st || !ckpt_may_pass(st) || !ckpt_try_again(&tries))
            return st;
    }
}
