/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h5 of a checkpoint: a virtual dataset per tensor, which shows HDF5 tools the
 * whole tensor out of the shard files beside it. Made from the manifest alone: no shard
 * is opened. Every mapping names its file; what is missing reads as NaN.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "hdf5/ckpt_h5.h"
#include "ckpt_tools.h"

/* One index in progress. */
struct index {
    const accel_ckpt_t *c;
    hid_t file, lcpl, dtype_name, scalar;
    struct ckpt_h5_floats floats;
    /* [world]: boxes of the tensor so far in each file, and of which tensor */
    struct {
        size_t boxes, tensor;
    } * seen;
    accel_error_t *err;
    /* how many tensors are in it; NULL: nobody asks */
    ckpt_progress_f *progress;
    void *user;
};

static accel_status_t failed(const struct index *x, const char *name, const char *what)
{
    char cause[256];

    ckpt_h5_cause(cause, sizeof(cause));
    return accel_fail_at(x->err, A0806, x->c->dir,
                         "check the space, quota and permissions of the directory",
                         "cannot index %.400s (%s): HDF5 %s", name, what, cause);
}

const void *ckpt_index_fill(accel_dtype_t t)
{
    /* quiet NaNs; the machine is little-endian, as the files are */
    static const uint32_t f32 = 0x7fc00000;
    static const uint64_t f64 = UINT64_C(0x7ff8000000000000);
    static const uint16_t bf16 = 0x7fc0, f16 = 0x7e00;
    static const uint8_t e4m3 = 0x7f, e5m2 = 0x7e;

    return t == ACCEL_F32      ? (const void *)&f32
           : t == ACCEL_F64    ? (const void *)&f64
           : t == ACCEL_BF16   ? (const void *)&bf16
           : t == ACCEL_F16    ? (const void *)&f16
           : t == ACCEL_F8E4M3 ? (const void *)&e4m3
           : t == ACCEL_F8E5M2 ? (const void *)&e5m2
                               : NULL;
}

void ckpt_index_source(char name_out[CKPT_SOURCE_MAX], const struct ckpt_tensor *t,
                       size_t index)
{
    char name[CKPT_H5_NAME_MAX];

    ckpt_h5_name(name, t, index);
    for (const char *s = name; *s; s++) {
        *name_out++ = *s;
        if (*s == '%')
            *name_out++ = '%';
    }
    *name_out = '\0';
}

/* Boxes come in the order of their offsets, in which the shard files number them. */
static accel_status_t map_box(struct index *x, const struct ckpt_tensor *t,
                              size_t tensor, const struct ckpt_mbox *b, hid_t space,
                              hid_t dcpl)
{
    static const hsize_t zero[ACCEL_CKPT_MAX_DIMS];
    hsize_t start[ACCEL_CKPT_MAX_DIMS], count[ACCEL_CKPT_MAX_DIMS];
    char source[CKPT_SOURCE_MAX];
    hid_t from;
    herr_t r;

    if (x->seen[b->file].tensor != tensor + 1) {
        x->seen[b->file].tensor = tensor + 1;
        x->seen[b->file].boxes = 0;
    }
    ckpt_index_source(source, t, x->seen[b->file].boxes++);
    for (int d = 0; d < t->ndim; d++) {
        start[d] = (hsize_t)b->offset[d];
        count[d] = (hsize_t)b->shape[d];
    }
    from = H5Screate_simple(t->ndim, count, NULL);
    r = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    /* all of the source, but as a block: of "all" the index would keep no size, and a
     * check could not compare it */
    if (r >= 0)
        r = H5Sselect_hyperslab(from, H5S_SELECT_SET, zero, NULL, count, NULL);
    if (r >= 0)
        r = H5Pset_virtual(dcpl, space, x->c->m.file[b->file].name, source, from);
    H5Sclose(from);
    return r < 0 ? failed(x, t->name, "map") : ACCEL_OK;
}

/* A scalar cannot be virtual: its one value is copied. */
static accel_status_t put_scalar(struct index *x, const struct ckpt_tensor *t,
                                 hid_t set, hid_t type)
{
    char value[8];
    accel_ckpt_box_t box = {
        .name = t->name, .dtype = t->dtype, .ndim = 0, .data = value
    };
    accel_status_t st = accel_ckpt_read((accel_ckpt_t *)x->c, &box, 1, x->err);

    if (!st && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)
        st = failed(x, t->name, "write");
    return st;
}

/* The dataset of one tensor or blob. */
static accel_status_t put_tensor(struct index *x, size_t i)
{
    const struct ckpt_tensor *t = &x->c->m.tensor[i];
    hid_t type = ckpt_h5_type(&x->floats, t->dtype),
          dcpl = H5Pcreate(H5P_DATASET_CREATE), space, set = -1;
    hsize_t dims[ACCEL_CKPT_MAX_DIMS];
    char name[CKPT_H5_NAME_MAX];
    accel_status_t st = ACCEL_OK;

    ckpt_h5_name(name, t, 0);
    for (int d = 0; d < t->ndim; d++)
        dims[d] = (hsize_t)t->shape[d];
    space = t->ndim ? H5Screate_simple(t->ndim, dims, NULL) : H5Scopy(x->scalar);
    if (space < 0 || dcpl < 0 || H5Pset_obj_track_times(dcpl, 0) < 0 ||
        (t->ndim && ckpt_index_fill(t->dtype) &&
         H5Pset_fill_value(dcpl, type, ckpt_index_fill(t->dtype)) < 0))
        st = failed(x, name, "properties");
    for (size_t k = t->box; t->ndim && k < t->box + t->boxes && !st; k++)
        st = map_box(x, t, i, &x->c->m.box[k], space, dcpl);
    H5Sselect_all(space);
    if (!st)
        set = H5Dcreate2(x->file, name, type, space, x->lcpl, dcpl, H5P_DEFAULT);
    if (!st &&
        (set < 0 || ckpt_h5_put_dtypes(&x->c->m, t, set, x->dtype_name, x->scalar) < 0))
        st = failed(x, name, "create");
    if (!st && t->ndim == 0)
        st = put_scalar(x, t, set, type);
    if (set >= 0 && H5Dclose(set) < 0 && !st)
        st = failed(x, name, "close");
    H5Sclose(space);
    H5Pclose(dcpl);
    return st;
}

static accel_status_t fill_index(struct index *x, const char *path)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    accel_status_t st = ACCEL_OK;

    ckpt_h5_floats_open(&x->floats);
    x->dtype_name = H5Tcopy(H5T_C_S1);
    x->scalar = H5Screate(H5S_SCALAR);
    x->lcpl = H5Pcreate(H5P_LINK_CREATE);
    H5Tset_size(x->dtype_name, CKPT_H5_DTYPE_NAME);
    H5Pset_create_intermediate_group(x->lcpl, 1);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(fapl, 0, 1); /* flock fails on some parallel disks */
#endif
    x->file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, fapl);
    if (x->file < 0)
        st = failed(x, CKPT_INDEX, "create");
    for (size_t i = 0; i < x->c->m.tensors && !st; i++) {
        st = put_tensor(x, i);
        if (x->progress)
            x->progress(x->user, CKPT_INDEX, (int64_t)i + 1, (int64_t)x->c->m.tensors);
    }
    if (x->file >= 0 && H5Fclose(x->file) < 0 && !st)
        st = failed(x, CKPT_INDEX, "close");
    H5Pclose(fapl);
    H5Pclose(x->lcpl);
    H5Sclose(x->scalar);
    H5Tclose(x->dtype_name);
    ckpt_h5_floats_close(&x->floats);
    return st;
}

/* The finished file gets its name; one that is there stays. */
static accel_status_t name_index(const accel_ckpt_t *c, accel_error_t *err)
{
    int fd = ckpt_open_plain(c->dirfd, CKPT_INDEX_PART);
    accel_status_t st;

    if (fd < 0)
        return accel_fail_at(err, A0801, c->dir, "check the disk", "cannot open: %m");
    st = ckpt_fsync(fd, CKPT_INDEX, err);
    close(fd);
    /* a link, unlike a rename, replaces nothing */
    if (!st && linkat(c->dirfd, CKPT_INDEX_PART, c->dirfd, CKPT_INDEX, 0))
        st = accel_fail_at(err, errno == EEXIST ? A0845 : A0801, c->dir,
                           "move the old index away", "cannot name " CKPT_INDEX ": %m");
    unlinkat(c->dirfd, CKPT_INDEX_PART, 0);
    return st ? st : ckpt_fsync(c->dirfd, c->dir, err);
}

accel_status_t ckpt_index(const accel_ckpt_t *c, ckpt_progress_f *progress, void *user,
                          accel_error_t *err)
{
    struct index x = { .c = c, .progress = progress, .user = user, .err = err };
    struct ckpt_h5_quiet quiet;
    char path[64];
    accel_status_t st;

    if (faccessat(c->dirfd, CKPT_INDEX, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return accel_fail_at(err, A0845, c->dir, "move the old index away",
                             CKPT_INDEX " already exists and is not replaced");
    x.seen = calloc((size_t)c->m.world, sizeof(*x.seen));
    if (!x.seen)
        return accel_fail_nomem(err, "the index", (size_t)c->m.world * sizeof(*x.seen));
    /* a leftover of one that was killed */
    unlinkat(c->dirfd, CKPT_INDEX_PART, 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d/" CKPT_INDEX_PART, c->dirfd);
    if (ckpt_h5_begin(&quiet)) {
        st = failed(&x, CKPT_INDEX, "start");
    } else {
        st = fill_index(&x, path);
        ckpt_h5_end(&quiet);
    }
    if (!st)
        st = name_index(c, err);
    else
        unlinkat(c->dirfd, CKPT_INDEX_PART, 0);
    free(x.seen);
    return st;
}
