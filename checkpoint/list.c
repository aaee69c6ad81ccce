/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and opening checkpoints: manifest, self hash, file sizes, blobs.
 * Cheap enough to look at every directory; the data are checked while they are read.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_internal.h"

/* O_NONBLOCK: a pipe put in a file's place must not hold up the resume. */
static int open_plain(int dirfd, const char *name)
{
    return TEMP_FAILURE_RETRY(
        openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

/* A missing file or a link is damage to the checkpoint; the rest is the system's. */
static enum message open_failure(int error)
{
    return error == ENOENT || error == ELOOP ? A0807 : A0810;
}

static const char *why_not(int error)
{
    return error == ELOOP ? "it is a symbolic link" : strerror(error);
}

static accel_status_t read_manifest(accel_ckpt_t *c, const char *shown,
                                    accel_error_t *err)
{
    int fd = open_plain(c->dirfd, "MANIFEST");
    accel_status_t s = ACCEL_OK;
    char where[300];
    char *text = NULL;
    struct stat st;

    snprintf(where, sizeof(where), "%.280s/MANIFEST", shown);
    if (fd < 0)
        return accel_fail_at(err, open_failure(errno), where, "use another checkpoint",
                             "cannot open: %s%s", why_not(errno),
                             errno == ENOENT ? " (the save never finished)" : "");
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > CKPT_MANIFEST_MAX) {
        s = accel_fail_at(err, A0808, where, "use another checkpoint",
                          "not a plain file of at most %d bytes", CKPT_MANIFEST_MAX);
        goto out;
    }
    text = malloc((size_t)st.st_size + 1);
    if (!text) {
        s = accel_fail_nomem(err, "the manifest", (size_t)st.st_size);
        goto out;
    }
    if (ckpt_pread_all(fd, text, (size_t)st.st_size, 0) != st.st_size)
        s = accel_fail_at(err, A0810, where, "check the disk", "cannot read: %m");
    if (!s)
        s = ckpt_manifest_parse(&c->m, text, (size_t)st.st_size, false, where, err);
out:
    free(text);
    close(fd);
    return s;
}

static accel_status_t open_shards(accel_ckpt_t *c, accel_error_t *err)
{
    for (int f = 0; f < c->m.world; f++) {
        const struct ckpt_file *file = &c->m.file[f];
        char where[300];
        struct stat st;

        snprintf(where, sizeof(where), "%.200s/%s", c->dir, file->name);
        c->fd[f] = open_plain(c->dirfd, file->name);
        if (c->fd[f] < 0)
            return accel_fail_at(err, open_failure(errno), where,
                                 "use another checkpoint", "cannot open: %s",
                                 why_not(errno));
        if (fstat(c->fd[f], &st))
            return accel_fail_at(err, A0810, where, "check the disk",
                                 "cannot stat: %m");
        if (!S_ISREG(st.st_mode))
            return accel_fail_at(err, A0807, where, "use another checkpoint",
                                 "not a plain file");
        if (st.st_size != file->bytes)
            return accel_fail_at(err, A0807, where, "use another checkpoint",
                                 "it has %lld bytes, the manifest says %" PRId64,
                                 (long long)st.st_size, file->bytes);
    }
    return ACCEL_OK;
}

static accel_status_t index_places(accel_ckpt_t *c, accel_error_t *err)
{
    size_t world = (size_t)c->m.world;
    accel_status_t s = ckpt_boxes_by_place(&c->m, &c->by_place, err);

    if (s)
        return s;
    c->file_first = calloc(world + 1, sizeof(*c->file_first));
    c->fd = malloc(world * sizeof(*c->fd));
    if (!c->file_first || !c->fd)
        return accel_fail_nomem(err, "the file index", world * sizeof(size_t));
    for (size_t f = 0; f < world; f++)
        c->fd[f] = -1;
    for (size_t i = 0; i < c->m.boxes; i++)
        c->file_first[c->m.box[i].file + 1]++;
    for (size_t f = 0; f < world; f++)
        c->file_first[f + 1] += c->file_first[f];
    return ACCEL_OK;
}

accel_status_t ckpt_open_at(accel_ckpt_t **out, int at, const char *name,
                            const char *shown, accel_error_t *err)
{
    accel_ckpt_t *c = calloc(1, sizeof(*c));
    accel_status_t s;

    if (!c)
        return accel_fail_nomem(err, "a checkpoint", sizeof(*c));
    c->dir = strdup(shown);
    c->dirfd = at == AT_FDCWD
                   ? TEMP_FAILURE_RETRY(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
                   : ckpt_open_dir(at, name);
    if (c->dirfd < 0)
        s = accel_fail_at(err, errno == ENOENT ? A0811 : A0812, shown,
                          "give the directory of one checkpoint", "cannot open: %m");
    else if (!c->dir)
        s = accel_fail_nomem(err, "a path", strlen(shown) + 1);
    else
        s = read_manifest(c, shown, err);
    if (!s)
        s = index_places(c, err);
    if (!s)
        s = open_shards(c, err);
    if (s) {
        accel_ckpt_close(c);
        return s;
    }
    *out = c;
    return ACCEL_OK;
}

static accel_status_t load_blobs(accel_ckpt_t *c, accel_error_t *err)
{
    const struct ckpt_manifest *m = &c->m;
    accel_status_t s = ACCEL_OK;
    size_t total = 0;

    c->blob_at = calloc(m->tensors + 1, sizeof(*c->blob_at));
    if (!c->blob_at)
        return accel_fail_nomem(err, "blobs", m->tensors * sizeof(*c->blob_at));
    for (size_t i = 0; i < m->tensors; i++) {
        c->blob_at[i] = total;
        if (m->tensor[i].blob)
            total += (size_t)m->tensor[i].shape[0];
    }
    c->blob = malloc(total + 1);
    if (!c->blob)
        return accel_fail_nomem(err, "blobs", total);
    for (size_t i = 0; i < m->tensors && !s; i++) {
        const struct ckpt_tensor *t = &m->tensor[i];
        accel_ckpt_box_t x = { .name = t->name,
                               .dtype = t->dtype,
                               .ndim = t->ndim,
                               .data = c->blob + c->blob_at[i] };

        x.global_shape[0] = x.shape[0] = t->shape[0];
        if (t->blob && t->shape[0])
            s = ckpt_read_boxes(c, &x, 1, true, err);
    }
    return s;
}

accel_status_t accel_ckpt_open(accel_ckpt_t **out, const char *dir, accel_error_t *err)
{
    accel_ckpt_t *c = NULL;
    accel_status_t s = ckpt_open_at(&c, AT_FDCWD, dir, dir, err);

    if (!s)
        s = load_blobs(c, err);
    if (s) {
        accel_ckpt_close(c);
        return s;
    }
    *out = c;
    return ACCEL_OK;
}

void accel_ckpt_close(accel_ckpt_t *c)
{
    if (!c)
        return;
    for (int f = 0; c->fd && f < c->m.world; f++)
        if (c->fd[f] >= 0)
            close(c->fd[f]);
    if (c->dirfd >= 0)
        close(c->dirfd);
    ckpt_manifest_free(&c->m);
    free(c->dir);
    free(c->fd);
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

/* Blobs sort behind all tensors. */
size_t accel_ckpt_tensor_count(const accel_ckpt_t *c)
{
    size_t n = c->m.tensors;

    while (n > 0 && c->m.tensor[n - 1].blob)
        n--;
    return n;
}

accel_status_t accel_ckpt_tensor(const accel_ckpt_t *c, size_t i, const char **name,
                                 accel_dtype_t *dtype, int *ndim, const int64_t **shape)
{
    if (i >= c->m.tensors || c->m.tensor[i].blob)
        return ACCEL_EINVAL;
    *name = c->m.tensor[i].name;
    *dtype = c->m.tensor[i].dtype;
    *ndim = c->m.tensor[i].ndim;
    *shape = c->m.tensor[i].shape;
    return ACCEL_OK;
}

static void describe(int rootfd, const char *name, accel_ckpt_info_t *info)
{
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;

    snprintf(info->name, sizeof(info->name), "%.63s", name);
    info->step = ckpt_step_of_name(name);
    if (ckpt_open_at(&c, rootfd, name, name, &err)) {
        snprintf(info->problem, sizeof(info->problem), "%.96s%s%.150s", err.where,
                 err.where[0] ? ": " : "", err.text);
        return;
    }
    if (c->m.step == info->step)
        info->complete = 1;
    else
        snprintf(info->problem, sizeof(info->problem),
                 "its manifest is of step %" PRId64 ": the directory was renamed",
                 c->m.step);
    info->world_size = c->m.world;
    for (int f = 0; f < c->m.world; f++)
        info->bytes += c->m.file[f].bytes;
    accel_ckpt_close(c);
}

static int newest_first(const void *pa, const void *pb)
{
    const accel_ckpt_info_t *a = pa, *b = pb;

    return (a->step < b->step) - (a->step > b->step);
}

accel_status_t accel_ckpt_list(const char *root, accel_ckpt_info_t **out, size_t *count,
                               accel_error_t *err)
{
    int rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    char(*names)[CKPT_DIR_MAX] = NULL;
    accel_ckpt_info_t *list;
    size_t n = 0, used = 0;
    accel_status_t s;

    if (rootfd < 0 && errno == ENOENT) {
        *out = NULL;
        *count = 0;
        return ACCEL_OK;
    }
    if (rootfd < 0)
        return accel_fail_at(err, A0812, root, "check accel.checkpoint.dir",
                             "cannot open: %m");
    s = ckpt_list_names(rootfd, "step_", &names, &n, err);
    if (s)
        goto out;
    list = calloc(n + 1, sizeof(*list));
    if (!list) {
        s = accel_fail_nomem(err, "the list", (n + 1) * sizeof(*list));
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        if (ckpt_step_of_name(names[i]) >= 0)
            describe(rootfd, names[i], &list[used++]);
    if (used)
        qsort(list, used, sizeof(*list), newest_first);
    *out = list;
    *count = used;
out:
    free(names);
    close(rootfd);
    return s;
}
