/* SPDX-License-Identifier: Apache-2.0
 *
 * What an open checkpoint's manifest says, for the tools that show it. Reads nothing
 * but the time of MANIFEST; changes nothing.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "load/ckpt_load.h"
#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"

void ckpt_header(const accel_ckpt_t *c, struct ckpt_header *header_out)
{
    struct stat sb;
    bool known = fstatat(c->dirfd, "MANIFEST", &sb, AT_SYMLINK_NOFOLLOW) == 0;

    *header_out = (struct ckpt_header){ .library = c->m.version,
                                        .owner = c->m.owner,
                                        .sharding = c->m.sharding,
                                        .saved = known ? sb.st_mtime : -1 };
}

const char *ckpt_path(const accel_ckpt_t *c)
{
    return c->dir;
}

const char *ckpt_file_at(const accel_ckpt_t *c, int file, int64_t *bytes_out)
{
    *bytes_out = c->m.file[file].bytes;
    return c->m.file[file].name;
}

size_t ckpt_boxes_of(const accel_ckpt_t *c, size_t i, int *first_out, int *last_out)
{
    const struct ckpt_tensor *t = &c->m.tensor[i];

    *first_out = *last_out = -1;
    for (size_t k = t->box; k < t->box + t->boxes; k++) {
        int file = c->m.box[k].file;

        *first_out = *first_out < 0 || file < *first_out ? file : *first_out;
        *last_out = file > *last_out ? file : *last_out;
    }
    return t->boxes;
}

/* Blobs sort after all tensors. */
const char *ckpt_blob_at(const accel_ckpt_t *c, size_t i, const void **data_out,
                         size_t *bytes_out)
{
    size_t at = accel_ckpt_tensor_count(c) + i;

    if (at >= c->m.tensors)
        return NULL;
    *data_out = accel_ckpt_blob(c, c->m.tensor[at].name, bytes_out);
    return c->m.tensor[at].name;
}

int64_t ckpt_tensor_find(const accel_ckpt_t *c, const char *name)
{
    const struct ckpt_tensor *t = ckpt_manifest_find(&c->m, false, name);

    return t ? t - c->m.tensor : -1;
}
