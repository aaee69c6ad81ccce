/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens what a path of `accel ckpt` names and reads tensors in parts, so that no verb
 * needs more memory than a part.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/data/ckpt_cmd.h"

/* Bytes of a tensor in memory at a time. */
#define PART_BYTES (32 << 20)

/* Does the directory hold a checkpoint, or is it one? */
static bool holds_checkpoint(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    bool found = !dir;

    while (!found && (e = readdir(dir)))
        found = !strcmp(e->d_name, "MANIFEST") || !strncmp(e->d_name, "step_", 5);
    if (dir)
        closedir(dir);
    return found;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

accel_status_t ckpt_find(char **path, char *buf, size_t len, accel_error_t *err)
{
    size_t n = strlen(*path);

    if (!is_directory(*path))
        return accel_fail_at(err, A0811, *path, "give a checkpoint directory",
                             "no such directory");
    while (n > 1 && (*path)[n - 1] == '/')
        n--;
    if ((size_t)snprintf(buf, len, "%.*s/checkpoints", (int)n, *path) >= len ||
        !is_directory(buf) || holds_checkpoint(*path))
        snprintf(buf, len, "%s", *path);
    *path = buf;
    return ACCEL_OK;
}

/* The newest complete checkpoint below root, as a path in buf[len]; a newer one that
 * cannot be read now may be it, and to open it says why not. */
static accel_status_t newest_of(const char *root, char *buf, size_t len,
                                accel_error_t *err)
{
    accel_ckpt_info_t *info = NULL;
    size_t n = 0, i = 0;
    accel_status_t st = accel_ckpt_list(root, &info, &n, err);

    if (st)
        return st;
    while (i < n && !info[i].complete && info[i].state != ACCEL_CKPT_UNREADABLE)
        i++;
    if (i < n && (size_t)snprintf(buf, len, "%s/%s", root, info[i].name) >= len)
        i = n; /* too long to be a path */
    free(info);
    return i < n ? ACCEL_OK
                 : accel_fail_at(err, A0811, root,
                                 "give accel.checkpoint.dir or one step_... directory",
                                 "there is no complete checkpoint");
}

accel_status_t ckpt_open_path(accel_ckpt_t **ckpt_out, const char *path,
                              accel_error_t *err)
{
    char manifest[4200], newest[4200];
    accel_status_t st = ACCEL_OK;

    snprintf(manifest, sizeof(manifest), "%s/MANIFEST", path);
    if (access(manifest, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        st = newest_of(path, newest, sizeof(newest), err);
        path = newest;
    }
    return st ? st : accel_ckpt_open(ckpt_out, path, err);
}

/* The manifest's check bounds the product of the extents. */
void ckpt_view(const accel_ckpt_t *c, size_t i, struct ckpt_view *view_out)
{
    struct ckpt_view v = { .elems = 1 };

    accel_ckpt_tensor(c, i, &v.name, &v.dtype, &v.ndim, &v.shape);
    for (int d = 0; d < v.ndim; d++)
        if (v.shape[d] == 0)
            v.elems = 0;
    for (int d = 0; d < v.ndim && v.elems; d++)
        v.elems *= v.shape[d];
    *view_out = v;
}

int64_t ckpt_part_elems(accel_dtype_t dtype)
{
    return PART_BYTES / (int64_t)accel_dtype_bytes(dtype);
}

/* A range is a few boxes, which lie one after the other in memory. */
accel_status_t ckpt_read_part(accel_ckpt_t *c, const struct ckpt_view *v, int64_t begin,
                              int64_t count, void *data, accel_error_t *err)
{
    accel_ckpt_box_t box[2 * ACCEL_CKPT_MAX_DIMS] = { 0 };
    char *at = data;
    int n = accel_ckpt_boxes_of_range(v->ndim, v->shape, begin, begin + count, box);

    for (int k = 0; k < n; k++) {
        int64_t elems = 1;

        box[k].name = v->name;
        box[k].dtype = v->dtype;
        box[k].ndim = v->ndim;
        box[k].data = at;
        for (int d = 0; d < v->ndim; d++) {
            box[k].global_shape[d] = v->shape[d];
            elems *= box[k].shape[d];
        }
        at += (size_t)elems * accel_dtype_bytes(v->dtype);
    }
    return accel_ckpt_read(c, box, (size_t)n, err);
}

const char *ckpt_dims(int ndim, const int64_t *shape, char *buf, size_t len)
{
    size_t used = (size_t)snprintf(buf, len, "%s", ndim ? "" : "-");

    for (int d = 0; d < ndim && used < len; d++)
        used += (size_t)snprintf(buf + used, len - used, "%s%" PRId64, d ? "x" : "",
                                 shape[d]);
    return buf;
}
