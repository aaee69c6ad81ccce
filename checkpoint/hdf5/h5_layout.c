/* SPDX-License-Identifier: Apache-2.0
 *
 * Lays out a rank's shard file through libhdf5 and reports where each dataset's bytes
 * go. Never reads an existing HDF5 file, writes no data: write.c does that with pwrite,
 * at the offsets found here.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "hdf5/ckpt_h5.h"

/* Objects that thousands of datasets share are made once: in HDF5 every
 * id costs microseconds. */
struct layout {
    /* file, and property lists: file access, dataset creation, link creation; the type
     * of accel_dtype */
    hid_t file, fapl, dcpl, lcpl, dtype_name;
    struct ckpt_h5_floats floats;
    /* attribute spaces: one value, and vectors by length */
    hid_t scalar, vector[ACCEL_CKPT_MAX_DIMS + 1];
    /* group of the last dataset; -1: not open. group_path is its name */
    hid_t group;
    char group_path[CKPT_NAME_MAX + 8];
    const struct ckpt_manifest *m;
    const struct ckpt_file *shard;
    accel_error_t *err;
};

/* The deepest entry of libhdf5's error stack, as our error. `name`: what was being
 * made, `what`: the step of it. */
static accel_status_t failed(struct layout *l, const char *what, const char *name)
{
    char cause[256];

    ckpt_h5_cause(cause, sizeof(cause));
    return accel_fail_at(
        l->err, A0806, l->shard->name,
        "check the space, quota and permissions of the checkpoint directory",
        "cannot lay out %.400s (%s): HDF5 %s", name, what, cause);
}

/* An attribute of the file itself. */
static herr_t put_int(const struct layout *l, const char *name, int64_t value)
{
    return ckpt_h5_put_attribute(l->file, name, H5T_NATIVE_INT64, l->scalar, &value);
}

/* Padded with NUL to `size` bytes, which is the same for every checkpoint. */
static herr_t put_string(const struct layout *l, const char *name, const char *text,
                         size_t size)
{
    char fixed[CKPT_RUN_ID_MAX + 1] = { 0 };
    hid_t type = H5Tcopy(H5T_C_S1);
    herr_t r = -1;

    snprintf(fixed, sizeof(fixed), "%s", text);
    if (H5Tset_size(type, size) >= 0)
        r = ckpt_h5_put_attribute(l->file, name, type, l->scalar, fixed);
    H5Tclose(type);
    return r;
}

/* Attributes of the file. They are for people and for h5_tree.c; accel itself
 * reads the MANIFEST only. */
static herr_t file_attributes(const struct layout *l, const struct ckpt_manifest *m,
                              int rank)
{
    if (put_int(l, "accel_format_version", CKPT_FORMAT) < 0 ||
        put_int(l, "step", m->step) < 0 || put_int(l, "world_size", m->world) < 0 ||
        put_int(l, "rank", rank) < 0 ||
        put_string(l, "accel_version", m->version, sizeof(m->version)) < 0 ||
        put_string(l, "owner", m->owner, sizeof(m->owner)) < 0 ||
        put_string(l, "sharding", m->sharding, sizeof(m->sharding)) < 0)
        return -1;
    return 0;
}

/* Says to readers of HDF5 which part of which tensor a dataset is, and what its bytes
 * stand for. */
static herr_t box_attributes(const struct layout *l, hid_t set,
                             const struct ckpt_tensor *t, const struct ckpt_mbox *b)
{
    if (ckpt_h5_put_dtypes(l->m, t, set, l->dtype_name, l->scalar) < 0)
        return -1;
    /* A dataset that is the whole tensor needs no offset: leaving the two attributes
     * out saves a third of the time for thousands of small tensors. */
    if (memcmp(b->shape, t->shape, sizeof(b->shape)) == 0)
        return 0;
    if (ckpt_h5_put_attribute(set, "global_shape", H5T_NATIVE_INT64, l->vector[t->ndim],
                              t->shape) < 0 ||
        ckpt_h5_put_attribute(set, "offset", H5T_NATIVE_INT64, l->vector[t->ndim],
                              b->offset) < 0)
        return -1;
    return 0;
}

/* Where to create `name`. The first dataset of a group is created from the file, which
 * makes the group; those after it start from the open group, which saves the walk
 * through the path. *leaf_out: the name from there. */
static hid_t start_of(struct layout *l, const char *name, const char **leaf_out)
{
    const char *slash = strrchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;

    *leaf_out = name;
    if (len == 0)
        return l->file;
    if (strlen(l->group_path) != len || memcmp(l->group_path, name, len) != 0) {
        if (l->group >= 0)
            H5Gclose(l->group);
        l->group = -1;
        memcpy(l->group_path, name, len);
        l->group_path[len] = '\0';
        /* creating the dataset creates the group */
        return l->file;
    }
    if (l->group < 0)
        l->group = H5Gopen2(l->file, l->group_path, H5P_DEFAULT);
    *leaf_out = slash + 1;
    return l->group;
}

/* One contiguous dataset of box b. With early allocation its place in the file
 * is fixed now: b->at. */
static accel_status_t put_box(struct layout *l, const struct ckpt_tensor *t,
                              struct ckpt_mbox *b, size_t index)
{
    char name[CKPT_H5_NAME_MAX];
    const char *leaf;
    hsize_t dims[ACCEL_CKPT_MAX_DIMS];
    hid_t space, set, start;
    haddr_t at;

    ckpt_h5_name(name, t, index);
    for (int d = 0; d < t->ndim; d++)
        dims[d] = (hsize_t)b->shape[d];
    start = start_of(l, name, &leaf);
    space = t->ndim ? H5Screate_simple(t->ndim, dims, NULL) : H5Scopy(l->scalar);
    set = H5Dcreate2(start, leaf, ckpt_h5_type(&l->floats, t->dtype), space, l->lcpl,
                     l->dcpl, H5P_DEFAULT);
    H5Sclose(space);
    if (set < 0)
        return failed(l, "create", name);
    at = H5Dget_offset(set);
    if (at == HADDR_UNDEF || box_attributes(l, set, t, b) < 0) {
        accel_status_t st = failed(l, "attributes", name);

        H5Dclose(set);
        return st;
    }
    b->at = (int64_t)at;
    if (H5Dclose(set) < 0)
        return failed(l, "close", name);
    return ACCEL_OK;
}

/* Types and dataspaces that all attributes share. */
static herr_t set_up_shared(struct layout *l)
{
    const int floats = ckpt_h5_floats_open(&l->floats);

    l->dtype_name = H5Tcopy(H5T_C_S1);
    l->scalar = H5Screate(H5S_SCALAR);
    if (floats < 0 || l->dtype_name < 0 || l->scalar < 0 ||
        H5Tset_size(l->dtype_name, CKPT_H5_DTYPE_NAME) < 0)
        return -1;
    for (int d = 1; d <= ACCEL_CKPT_MAX_DIMS; d++) {
        l->vector[d] = H5Screate_simple(1, &(hsize_t){ (hsize_t)d }, NULL);
        if (l->vector[d] < 0)
            return -1;
    }
    return 0;
}

/* Closes whatever is open; closing an invalid id fails silently while the
 * printing is held back. */
static void tear_down(struct layout *l)
{
    H5Pclose(l->fapl);
    H5Pclose(l->dcpl);
    H5Pclose(l->lcpl);
    ckpt_h5_floats_close(&l->floats);
    H5Tclose(l->dtype_name);
    H5Sclose(l->scalar);
    for (int d = 1; d <= ACCEL_CKPT_MAX_DIMS; d++)
        H5Sclose(l->vector[d]);
}

/* The file's properties. Small datasets lie side by side in one block, large ones start
 * on a page. Space is allocated at creation and never filled, since write.c overwrites
 * all of it. No times are stored. */
static accel_status_t set_up(struct layout *l, const struct ckpt_manifest *m)
{
    size_t small = 0;

    for (size_t i = 0; i < m->boxes; i++)
        if (m->box[i].bytes < CKPT_ALIGN_FROM)
            small += (size_t)m->box[i].bytes;
    l->fapl = H5Pcreate(H5P_FILE_ACCESS);
    l->dcpl = H5Pcreate(H5P_DATASET_CREATE);
    l->lcpl = H5Pcreate(H5P_LINK_CREATE);
    if (set_up_shared(l) < 0 || l->fapl < 0 || l->dcpl < 0 || l->lcpl < 0 ||
        H5Pset_libver_bounds(l->fapl, H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
        H5Pset_alignment(l->fapl, CKPT_ALIGN_FROM, CKPT_PAGE) < 0 ||
        /* one block for all small datasets (one write), one for their headers */
        H5Pset_small_data_block_size(l->fapl, small > 2048 ? small : 2048) < 0 ||
        H5Pset_meta_block_size(l->fapl, 512 * (m->boxes + 8)) < 0 ||
        H5Pset_fclose_degree(l->fapl, H5F_CLOSE_STRONG) < 0 ||
        H5Pset_layout(l->dcpl, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(l->dcpl, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(l->dcpl, H5D_FILL_TIME_NEVER) < 0 ||
        H5Pset_obj_track_times(l->dcpl, 0) < 0 ||
        H5Pset_create_intermediate_group(l->lcpl, 1) < 0)
        return failed(l, "properties", l->shard->name);
#if H5_VERSION_GE(1, 10, 7)
    /* The directory is private until the commit, and flock fails on some
     * parallel file systems. */
    if (H5Pset_file_locking(l->fapl, 0, 1) < 0)
        return failed(l, "locking", l->shard->name);
#endif
    return ACCEL_OK;
}

/* Creates the file, its attributes, and its datasets in the manifest's order. */
static accel_status_t fill_file(struct layout *l, int dirfd, struct ckpt_manifest *m,
                                int rank)
{
    accel_status_t st = ACCEL_OK;
    char path[96];

    /* Through the open directory, so that nobody can swap a parent; EXCL does not
     * follow a link in the last part. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, l->shard->name);
    l->file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, l->fapl);
    if (l->file < 0)
        return failed(l, "create", l->shard->name);
    if (file_attributes(l, m, rank) < 0)
        st = failed(l, "attributes", l->shard->name);
    for (size_t i = 0; !st && i < m->tensors; i++)
        for (size_t k = 0; !st && k < m->tensor[i].boxes; k++)
            st = put_box(l, &m->tensor[i], &m->box[m->tensor[i].box + k], k);
    if (l->group >= 0)
        H5Gclose(l->group);
    if (H5Fclose(l->file) < 0 && !st)
        st = failed(l, "close", l->shard->name);
    return st;
}

accel_status_t accel_ckpt_can_save(accel_error_t *err)
{
    (void)err;
    return ACCEL_OK;
}

/* The size is read back from the file system: HDF5 may extend the
 * file when it closes it. */
accel_status_t ckpt_layout(int dirfd, struct ckpt_manifest *m, int rank,
                           accel_error_t *err)
{
    struct layout l = { .m = m, .group = -1, .shard = &m->file[rank], .err = err };
    struct ckpt_h5_quiet quiet;
    accel_status_t st;
    struct stat sb;

    if (ckpt_h5_begin(&quiet))
        return failed(&l, "start", "the library");
    st = set_up(&l, m);
    ACCEL_TRY(st, fill_file(&l, dirfd, m, rank));
    tear_down(&l);
    ckpt_h5_end(&quiet);
    if (st)
        return st;
    if (fstatat(dirfd, l.shard->name, &sb, AT_SYMLINK_NOFOLLOW))
        return accel_fail_at(err, A0801, l.shard->name, "check the disk",
                             "cannot stat: %m");
    m->file[rank].bytes = sb.st_size;
    return ACCEL_OK;
}
