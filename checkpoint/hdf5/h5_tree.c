/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what libhdf5 finds in a shard file with the manifest: the same datasets, of
 * the same types and shapes, at the same bytes, and nothing else. In: an open
 * checkpoint. Out: findings. Names come from the manifest; links are counted, never
 * listed. Only attributes are read, after a look at their type; the file is not
 * changed. libhdf5 may crash or hang on a forged file: see accel_ckpt_verify_hdf5.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "load/ckpt_load.h"
#include "hdf5/ckpt_h5.h"

/* A name that the file should have: a dataset, or a group that leads to one. */
struct node {
    char *path;
    /* NULL: a group */
    const struct ckpt_mbox *box;
    /* entries that a group should have */
    size_t links;
    /* already a finding: nothing below it is looked at */
    bool bad;
};

/* All names of one file, and where findings go. */
struct tree {
    const accel_ckpt_t *c;
    int file;
    hid_t h5;
    struct ckpt_h5_floats floats;
    /* sorted by path; [0] is the root, "" */
    struct node *node;
    size_t nodes, cap;
    ckpt_finding_fn *finding;
    void *user;
    accel_error_t *err;
};

static void differs(const struct tree *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Reports one finding, and clears the error stack for the next call. */
static void differs(const struct tree *t, const char *fmt, ...)
{
    char where[256], text[700];
    accel_error_t e = { 0 };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    H5Eclear2(H5E_DEFAULT);
    snprintf(where, sizeof(where), "%.180s/%s", t->c->dir, t->c->m.file[t->file].name);
    accel_fail_at(&e, A0840, where,
                  "read it with accel, which finds the right data where HDF5 tools do "
                  "not, or use another checkpoint",
                  "%s", text);
    t->finding(t->user, &e);
}

/* ---- what there should be -------------------------------------------------------- */

/* Appends path[len]; it may be there twice until expect_all removes doubles. */
static accel_status_t add_node(struct tree *t, const char *path, size_t len,
                               const struct ckpt_mbox *box)
{
    if (t->nodes == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        struct node *grown = realloc(t->node, cap * sizeof(*grown));

        if (!grown)
            return accel_fail_nomem(t->err, "the HDF5 tree", cap * sizeof(*grown));
        t->node = grown;
        t->cap = cap;
    }
    t->node[t->nodes] = (struct node){ .path = strndup(path, len), .box = box };
    if (!t->node[t->nodes].path)
        return accel_fail_nomem(t->err, "the HDF5 tree", len + 1);
    t->nodes++;
    return ACCEL_OK;
}

/* Sorts by path. Where a dataset has the name of a group, the group comes first and
 * wins: the dataset's place is then a finding. */
static int by_path(const void *pa, const void *pb)
{
    const struct node *a = pa, *b = pb;
    int r = strcmp(a->path, b->path);

    return r ? r : (a->box != NULL) - (b->box != NULL);
}

/* Binary search for path[len], or NULL. */
static struct node *find_node(const struct tree *t, const char *path, size_t len)
{
    size_t lo = 0, hi = t->nodes;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int r = strncmp(t->node[mid].path, path, len);

        if (r == 0)
            r = t->node[mid].path[len] != '\0';
        if (r == 0)
            return &t->node[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* The group that a node lies in; NULL for the root. */
static struct node *above(const struct tree *t, const struct node *n)
{
    const char *slash = strrchr(n->path, '/');

    if (n == t->node)
        return NULL;
    return slash ? find_node(t, n->path, (size_t)(slash - n->path)) : t->node;
}

/* Notes a dataset and all groups above it. */
static accel_status_t expect(struct tree *t, const char *name,
                             const struct ckpt_mbox *box)
{
    accel_status_t st = add_node(t, name, strlen(name), box);

    for (const char *p = name; !st && (p = strchr(p, '/')) != NULL; p++)
        st = add_node(t, name, (size_t)(p - name), NULL);
    return st;
}

/* Builds the tree from the manifest: all datasets of this file and their groups, each
 * name once, with the number of entries of each group. */
static accel_status_t expect_all(struct tree *t)
{
    const struct ckpt_manifest *m = &t->c->m;
    accel_status_t st = add_node(t, "", 0, NULL);
    char name[CKPT_H5_NAME_MAX];
    size_t kept = 0;

    for (size_t i = 0; i < m->tensors && !st; i++) {
        size_t index = 0;

        for (size_t k = 0; k < m->tensor[i].boxes && !st; k++) {
            const struct ckpt_mbox *b = &m->box[m->tensor[i].box + k];

            if (b->file != t->file)
                continue;
            ckpt_h5_name(name, &m->tensor[i], index++);
            st = expect(t, name, b);
        }
    }
    if (st)
        return st;
    qsort(t->node, t->nodes, sizeof(*t->node), by_path);
    for (size_t i = 0; i < t->nodes; i++)
        if (kept && strcmp(t->node[kept - 1].path, t->node[i].path) == 0)
            free(t->node[i].path);
        else
            t->node[kept++] = t->node[i];
    t->nodes = kept;
    for (size_t i = 1; i < kept; i++)
        above(t, &t->node[i])->links++;
    return ACCEL_OK;
}

/* ---- what there is --------------------------------------------------------------- */

/* The attributes that say where in its tensor a dataset lies, exactly as h5_layout.c
 * writes them. Files of before it lack that of codes. NULL: nothing is wrong. */
static const char *attributes_problem(const struct tree *t, hid_t set,
                                      const struct ckpt_mbox *b)
{
    const struct ckpt_tensor *x = &t->c->m.tensor[b->tensor];
    const accel_dtype_t codes = ckpt_manifest_codes(&t->c->m, x);
    size_t bytes = (size_t)x->ndim * sizeof(int64_t);
    bool whole = memcmp(b->shape, x->shape, sizeof(b->shape)) == 0;
    unsigned more = codes != x->dtype && ckpt_h5_has_dtype(set, CKPT_H5_CODES, codes);

    if (!ckpt_h5_has_dtype(set, "accel_dtype", x->dtype))
        return "the attribute accel_dtype differs from the manifest";
    if (!whole && (!ckpt_h5_has_attribute(set, "global_shape", H5T_STD_I64LE, x->ndim,
                                          x->shape, bytes) ||
                   !ckpt_h5_has_attribute(set, "offset", H5T_STD_I64LE, x->ndim,
                                          b->offset, bytes)))
        return "the attribute global_shape or offset differs from the manifest";
    return ckpt_h5_attribute_count(set) == (whole ? 1 : 3) + more
               ? NULL
               : "has other attributes than those accel writes";
}

/* One piece, in this file, without filters: only then do HDF5 tools read the
 * bytes that accel reads. */
static const char *storage_problem(hid_t plist)
{
    if (plist < 0 || H5Pget_layout(plist) != H5D_CONTIGUOUS)
        return "the bytes are not contiguous";
    if (H5Pget_external_count(plist) != 0)
        return "the bytes are in another file";
    return H5Pget_nfilters(plist) == 0 ? NULL : "has filters";
}

/* The dataset's extent; it may not be extendible either. */
static const char *shape_problem(hid_t space, const struct ckpt_tensor *x,
                                 const struct ckpt_mbox *b)
{
    hsize_t dims[ACCEL_CKPT_MAX_DIMS], most[ACCEL_CKPT_MAX_DIMS];

    if (H5Sget_simple_extent_type(space) != (x->ndim ? H5S_SIMPLE : H5S_SCALAR) ||
        H5Sget_simple_extent_ndims(space) != x->ndim ||
        H5Sget_simple_extent_dims(space, dims, most) != x->ndim)
        return "the number of dimensions differs from the manifest";
    for (int d = 0; d < x->ndim; d++)
        if (dims[d] != (hsize_t)b->shape[d] || most[d] != dims[d])
            return "the shape differs from the manifest";
    return NULL;
}

/* The first difference of a dataset from box b, or NULL. Ids that failed to open are
 * -1; closing those does no harm. */
static const char *dataset_problem(const struct tree *t, hid_t set,
                                   const struct ckpt_mbox *b)
{
    const struct ckpt_tensor *x = &t->c->m.tensor[b->tensor];
    hid_t plist = H5Dget_create_plist(set), type = H5Dget_type(set),
          space = H5Dget_space(set);
    const char *p = storage_problem(plist);

    if (!p && (type < 0 || H5Tequal(type, ckpt_h5_type(&t->floats, x->dtype)) <= 0))
        p = "the type differs from the manifest";
    if (!p)
        p = shape_problem(space, x, b);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(plist);
    if (!p && H5Dget_storage_size(set) != (hsize_t)b->bytes)
        p = "the size in the file differs from the manifest";
    if (!p && H5Dget_offset(set) != (haddr_t)b->at)
        p = "the bytes are not where the manifest says";
    return p ? p : attributes_problem(t, set, b);
}

/* A group needs the right number of entries: each expected one is looked for by name,
 * so one too many is a stranger. */
static void compare_group(const struct tree *t, const struct node *n, hid_t group)
{
    H5G_info_t info;

    if (H5Gget_info(group, &info) < 0)
        differs(t, "group /%s: cannot count its entries", n->path);
    else if (info.nlinks != n->links)
        differs(t, "group /%s has %llu entries, but the manifest names %zu", n->path,
                (unsigned long long)info.nlinks, n->links);
}

/* Opens a node through hard links only: soft and external links lead wherever their
 * text says. -1 with the reason in *problem_out. */
static hid_t open_node(const struct tree *t, const struct node *n,
                       const char **problem_out)
{
    H5L_info_t link;
    hid_t h;

    *problem_out = "missing";
    if (n == t->node)
        return H5Gopen2(t->h5, "/", H5P_DEFAULT);
    if (H5Lexists(t->h5, n->path, H5P_DEFAULT) <= 0)
        return -1;
    *problem_out = "is a link";
    if (H5Lget_info(t->h5, n->path, &link, H5P_DEFAULT) < 0 ||
        link.type != H5L_TYPE_HARD)
        return -1;
    *problem_out = "cannot be opened";
    h = H5Oopen(t->h5, n->path, H5P_DEFAULT);
    if (h >= 0 && H5Iget_type(h) != (n->box ? H5I_DATASET : H5I_GROUP)) {
        *problem_out = "is another kind of object";
        H5Oclose(h);
        return -1;
    }
    return h;
}

/* One node. Below a bad group everything would differ: that is said once. */
static void compare_node(struct tree *t, struct node *n)
{
    const struct node *group = above(t, n);
    const char *problem;
    char cause[256];
    hid_t h;

    if (group && group->bad) {
        n->bad = true; /* said once */
        return;
    }
    h = open_node(t, n, &problem);
    if (h < 0) {
        n->bad = true;
        ckpt_h5_cause(cause, sizeof(cause));
        differs(t, "%s %s: %s (HDF5: %s)", n->box ? "dataset" : "group", n->path,
                problem, cause);
        return;
    }
    if (!n->box) {
        compare_group(t, n, h);
    } else {
        problem = dataset_problem(t, h, n->box);
        if (problem)
            differs(t, "dataset %s: %s", n->path, problem);
    }
    H5Oclose(h);
}

/* The file's own attributes and its first byte. The other three attributes
 * are words for people. */
static void compare_file(const struct tree *t)
{
    const struct ckpt_manifest *m = &t->c->m;
    const struct {
        const char *name;
        int64_t value;
    } want[] = { { "accel_format_version", CKPT_FORMAT },
                 { "step", m->step },
                 { "world_size", m->world },
                 { "rank", t->file } };
    hid_t plist = H5Fget_create_plist(t->h5);
    hsize_t block = 1;

    if (plist < 0 || H5Pget_userblock(plist, &block) < 0 || block != 0)
        differs(t, "the HDF5 data does not begin at the first byte");
    H5Pclose(plist);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(want); i++)
        if (!ckpt_h5_has_attribute(t->h5, want[i].name, H5T_STD_I64LE, 0,
                                   &want[i].value, sizeof(want[i].value)))
            differs(t, "the file's attribute %s is not %" PRId64, want[i].name,
                    want[i].value);
    if (ckpt_h5_attribute_count(t->h5) != 7)
        differs(t, "the file has other attributes than those accel writes");
}

/* What cannot be opened now is no damage. */
static hid_t open_file(const struct tree *t, int fd)
{
    char cause[256];
    int error;
    hid_t h5 = ckpt_h5_open(fd, cause, sizeof(cause), &error);

    if (h5 < 0 && error) {
        accel_error_t e = { 0 };

        ckpt_fail_access(&e, t->c->m.file[t->file].name, "cannot open", error);
        t->finding(t->user, &e);
    } else if (h5 < 0) {
        differs(t, "HDF5 cannot open the file: %s", cause);
    }
    return h5;
}

/* Everything that runs libhdf5 on the file. */
static void compare_shard(struct tree *t, int fd)
{
    unsigned plugins = 0;

    H5PLget_loading_state(&plugins);
    /* a forged file may name a filter: no plugin's code is loaded for it */
    H5PLset_loading_state(0);
    t->h5 = open_file(t, fd);
    if (t->h5 >= 0) {
        compare_file(t);
        for (size_t i = 0; i < t->nodes; i++)
            compare_node(t, &t->node[i]);
        H5Fclose(t->h5);
    }
    H5PLset_loading_state(plugins);
}

accel_status_t ckpt_h5_compare(const accel_ckpt_t *c, int file,
                               ckpt_finding_fn *finding, void *user, accel_error_t *err)
{
    struct tree t = {
        .c = c, .file = file, .finding = finding, .user = user, .err = err
    };
    const char *name = c->m.file[file].name;
    struct ckpt_h5_quiet quiet;
    int fd = ckpt_open_plain(c->dirfd, name);
    accel_status_t st;

    if (fd < 0)
        return ckpt_fail_access(err, name, "cannot open", errno);
    st = expect_all(&t);
    if (!st && ckpt_h5_begin(&quiet))
        st = accel_fail_at(err, A0810, name,
                           "check the installation of the HDF5 library",
                           "cannot initialise the HDF5 library");
    if (!st) {
        ckpt_h5_floats_open(&t.floats);
        compare_shard(&t, fd);
        ckpt_h5_floats_close(&t.floats);
        ckpt_h5_end(&quiet);
    }
    for (size_t i = 0; i < t.nodes; i++)
        free(t.node[i].path);
    free(t.node);
    close(fd);
    return st;
}
