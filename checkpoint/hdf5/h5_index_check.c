/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares index.h5 with the manifest: a virtual dataset per tensor whose mappings are
 * its boxes and nothing else. libhdf5 reads the index and may crash or hang on a forged
 * one, so this runs where ckpt_h5_compare does. No shard file is opened.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "hdf5/ckpt_h5.h"
#include "ckpt_tools.h"

struct check {
    const accel_ckpt_t *c;
    hid_t file;
    struct ckpt_h5_floats floats;
    ckpt_report_f *report;
    void *user;
    accel_status_t found;
    accel_error_t *err;
};

/* One finding; the first is the error. */
static void note(struct check *k, const accel_error_t *e)
{
    char line[1100];

    snprintf(line, sizeof(line), "%s: %s", e->where, e->text);
    if (k->report)
        k->report(k->user, e->code, line);
    if (!k->found && k->err)
        *k->err = *e;
    k->found = k->found ? k->found : e->code;
}

static void found(struct check *k, const char *name, const char *what)
{
    accel_error_t e = { 0 };

    H5Eclear2(H5E_DEFAULT);
    accel_fail_at(&e, A0840, k->c->dir,
                  "remove index.h5 and make it again: accel ckpt index DIR",
                  CKPT_INDEX ": %.500s: %s", name, what);
    note(k, &e);
}

/* Is the selection of `space`, in a tensor of n dimensions, exactly this box? */
static bool selects(hid_t space, int n, const int64_t *offset, const int64_t *shape)
{
    hsize_t low[ACCEL_CKPT_MAX_DIMS], high[ACCEL_CKPT_MAX_DIMS];
    int64_t volume = ckpt_volume(n, shape);

    if (space < 0 || H5Sget_simple_extent_ndims(space) != n ||
        H5Sget_select_npoints(space) != volume ||
        H5Sget_select_bounds(space, low, high) < 0)
        return false;
    for (int d = 0; d < n; d++)
        if (low[d] != (hsize_t)offset[d] ||
            high[d] != (hsize_t)(offset[d] + shape[d] - 1))
            return false;
    return true;
}

/* Is mapping k the box b, which is number `index` of its tensor in its file? */
static bool is_mapping(const struct check *k, hid_t plist, size_t i,
                       const struct ckpt_tensor *t, const struct ckpt_mbox *b,
                       size_t index)
{
    static const int64_t zero[ACCEL_CKPT_MAX_DIMS];
    char want[CKPT_SOURCE_MAX], got[CKPT_SOURCE_MAX] = "";
    hid_t to, from;
    bool same;

    if (H5Pget_virtual_filename(plist, i, got, sizeof(got)) < 0 ||
        strcmp(got, k->c->m.file[b->file].name) != 0)
        return false;
    ckpt_index_source(want, t, index);
    if (H5Pget_virtual_dsetname(plist, i, got, sizeof(got)) < 0 ||
        strcmp(got, want) != 0)
        return false;
    to = H5Pget_virtual_vspace(plist, i);
    from = H5Pget_virtual_srcspace(plist, i);
    same = selects(to, t->ndim, b->offset, b->shape) &&
           selects(from, t->ndim, zero, b->shape);
    H5Sclose(to);
    H5Sclose(from);
    return same;
}

/* NULL, or what is wrong with the mappings. */
static const char *mappings_problem(const struct check *k, hid_t plist,
                                    const struct ckpt_tensor *t)
{
    size_t *seen, count = 0;
    const char *problem = NULL;

    if (t->boxes == 0)
        return H5Pget_layout(plist) == H5D_VIRTUAL ? "is empty, but has mappings"
                                                   : NULL;
    if (H5Pget_layout(plist) != H5D_VIRTUAL ||
        H5Pget_virtual_count(plist, &count) < 0 || count != t->boxes)
        return "does not have a mapping for each box";
    seen = calloc((size_t)k->c->m.world, sizeof(*seen));
    if (!seen)
        return "not enough memory to compare the mappings";
    for (size_t i = 0; i < t->boxes && !problem; i++) {
        const struct ckpt_mbox *b = &k->c->m.box[t->box + i];

        if (!is_mapping(k, plist, i, t, b, seen[b->file]++))
            problem = "a mapping differs from the manifest";
    }
    free(seen);
    return problem;
}

/* A scalar is copied: its value is that of the checkpoint. */
static const char *scalar_problem(const struct check *k, hid_t set, hid_t plist,
                                  hid_t type, const struct ckpt_tensor *t)
{
    char want[8] = { 0 }, got[8] = { 0 };
    accel_ckpt_box_t box = { .name = t->name, .dtype = t->dtype, .data = want };

    if (H5Pget_layout(plist) != H5D_CONTIGUOUS || H5Pget_external_count(plist) != 0)
        return "is not a plain scalar";
    if (accel_ckpt_read((accel_ckpt_t *)k->c, &box, 1, NULL))
        return "cannot be compared: the checkpoint's value cannot be read";
    return H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) < 0 ||
                   memcmp(want, got, sizeof(got)) != 0
               ? "has another value"
               : NULL;
}

static const char *fill_problem(hid_t plist, hid_t type, const struct ckpt_tensor *t)
{
    const void *want = ckpt_index_fill(t->dtype);
    char got[8] = { 0 };

    return want && (H5Pget_fill_value(plist, type, got) < 0 ||
                    memcmp(got, want, accel_dtype_bytes(t->dtype)) != 0)
               ? "missing parts would not read as NaN"
               : NULL;
}

/* As h5_index.c writes them. An index of before it lacks that of codes. */
static const char *attributes_problem(const struct check *k, hid_t set,
                                      const struct ckpt_tensor *t)
{
    const accel_dtype_t codes = ckpt_manifest_codes(&k->c->m, t);
    const bool more = codes != t->dtype && ckpt_h5_has_dtype(set, CKPT_H5_CODES, codes);

    if (!ckpt_h5_has_dtype(set, "accel_dtype", t->dtype))
        return "the attribute accel_dtype differs from the manifest";
    return ckpt_h5_attribute_count(set) == (hsize_t)1 + more
               ? NULL
               : "has other attributes than those accel writes";
}

static const char *set_problem(const struct check *k, hid_t set,
                               const struct ckpt_tensor *t)
{
    hid_t type = ckpt_h5_type(&k->floats, t->dtype), its = H5Dget_type(set),
          space = H5Dget_space(set), plist = H5Dget_create_plist(set);
    hsize_t dims[ACCEL_CKPT_MAX_DIMS] = { 0 };
    const char *problem = NULL;

    if (its < 0 || H5Tequal(its, type) <= 0)
        problem = "the type differs from the manifest";
    else if (H5Sget_simple_extent_ndims(space) != t->ndim ||
             H5Sget_simple_extent_dims(space, dims, NULL) != t->ndim)
        problem = "the number of dimensions differs from the manifest";
    for (int d = 0; d < t->ndim && !problem; d++)
        if (dims[d] != (hsize_t)t->shape[d])
            problem = "the shape differs from the manifest";
    if (!problem && H5Pget_nfilters(plist) != 0)
        problem = "has filters";
    if (!problem && t->ndim == 0)
        problem = scalar_problem(k, set, plist, type, t);
    else if (!problem)
        problem = mappings_problem(k, plist, t);
    if (!problem && t->ndim && t->boxes)
        problem = fill_problem(plist, type, t);
    if (!problem)
        problem = attributes_problem(k, set, t);
    H5Pclose(plist);
    H5Sclose(space);
    H5Tclose(its);
    return problem;
}

/* Opens through a hard link only, as the shard files are. */
static void check_tensor(struct check *k, const struct ckpt_tensor *t)
{
    char name[CKPT_H5_NAME_MAX];
    const char *problem;
    H5L_info_t link;
    hid_t set;

    ckpt_h5_name(name, t, 0);
    if (H5Lget_info(k->file, name, &link, H5P_DEFAULT) < 0 ||
        link.type != H5L_TYPE_HARD) {
        found(k, name, "missing, or a link");
        return;
    }
    set = H5Dopen2(k->file, name, H5P_DEFAULT);
    problem = set < 0 ? "cannot be opened" : set_problem(k, set, t);
    H5Dclose(set);
    if (problem)
        found(k, name, problem);
}

/* An H5L_iterate_t: counts. */
static herr_t count_link(hid_t group, const char *name, const H5L_info_t *info,
                         void *user)
{
    (void)group, (void)name, (void)info;
    ++*(size_t *)user;
    return 0;
}

/* Groups that `name` needs and the name before it in order did not. */
static size_t new_groups(const char *before, const char *name)
{
    size_t n = 0;

    for (const char *s = strchr(name, '/'); s; s = strchr(s + 1, '/'))
        n += strncmp(before, name, (size_t)(s - name) + 1) != 0;
    return n;
}

/* Nothing else is in the index. Names below state/ are of blobs and may be of tensors:
 * such an odd index is not counted. */
static void check_count(struct check *k)
{
    char before[CKPT_H5_NAME_MAX] = "", name[CKPT_H5_NAME_MAX];
    size_t want = 0, links = 0;

    for (size_t i = 0; i < k->c->m.tensors; i++) {
        const struct ckpt_tensor *t = &k->c->m.tensor[i];

        if (!t->blob && strncmp(t->name, "state/", 6) == 0)
            return;
        ckpt_h5_name(name, t, 0);
        want += 1 + new_groups(before, name);
        memcpy(before, name, sizeof(before));
    }
    if (H5Lvisit(k->file, H5_INDEX_NAME, H5_ITER_NATIVE, count_link, &links) < 0 ||
        links != want)
        found(k, "/", "has other entries than the manifest");
}

/* What cannot be opened now is not wrong. */
static void open_index(struct check *k, int fd)
{
    char cause[256], text[300];
    accel_error_t e = { 0 };
    int error;

    k->file = ckpt_h5_open(fd, cause, sizeof(cause), &error);
    if (k->file < 0 && error) {
        ckpt_fail_access(&e, k->c->dir, "cannot open " CKPT_INDEX, error);
        note(k, &e);
    } else if (k->file < 0) {
        snprintf(text, sizeof(text), "HDF5 cannot open it: %s", cause);
        found(k, "/", text);
    }
}

static void check_index(struct check *k, int fd)
{
    unsigned plugins = 0;

    H5PLget_loading_state(&plugins);
    H5PLset_loading_state(0); /* a forged file may name a filter */
    open_index(k, fd);
    for (size_t i = 0; k->file >= 0 && i < k->c->m.tensors; i++)
        check_tensor(k, &k->c->m.tensor[i]);
    if (k->file >= 0 && !k->found)
        check_count(k);
    if (k->file >= 0)
        H5Fclose(k->file);
    H5PLset_loading_state(plugins);
}

accel_status_t ckpt_index_check(const accel_ckpt_t *c, ckpt_report_f *report,
                                void *user, accel_error_t *err)
{
    struct check k = { .c = c, .report = report, .user = user, .err = err };
    struct ckpt_h5_quiet quiet;
    int fd = ckpt_open_plain(c->dirfd, CKPT_INDEX);

    if (fd < 0 && errno == ENOENT)
        return ACCEL_OK;
    if (fd < 0 && errno != ELOOP)
        return ckpt_fail_access(err, c->dir, "cannot open " CKPT_INDEX, errno);
    if (fd < 0) {
        found(&k, "/", "is a symbolic link");
        return k.found;
    }
    if (ckpt_h5_begin(&quiet)) {
        close(fd);
        return accel_fail_at(err, A0810, c->dir,
                             "check the installation of the HDF5 library",
                             "cannot initialise the HDF5 library");
    }
    ckpt_h5_floats_open(&k.floats);
    check_index(&k, fd);
    ckpt_h5_floats_close(&k.floats);
    ckpt_h5_end(&quiet);
    close(fd);
    return k.found;
}
