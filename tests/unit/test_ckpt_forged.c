/* SPDX-License-Identifier: Apache-2.0
 *
 * Shard files whose hashes all hold and whose HDF5 structures tell another story than
 * the manifest: each is found, and named. Then flipped bits in structures whose hash
 * was made again, and HDF5's errors as one line.
 */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/hdf5/ckpt_h5.h"
#include "cli/data/isolate.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/unit/disk_shim.h"

static char root[256], dir[300], file[400], other[400];

#define NO_RANGE "dataset model/a: the bytes are not contiguous"
/* Each kind: its name in this file and in a line of TAP, and what the finding must say;
 * shell tests count them from 0. */
/* clang-format off */
#define ALL_KINDS(KIND) \
    KIND(SOUND, "as accel writes it", NULL) \
    KIND(EXTRA_DATASET, "another dataset", \
         "group /model has 6 entries, but the manifest names 5") \
    KIND(EXTRA_GROUP, "another group", "group /model has 6 entries") \
    KIND(EXTRA_IN_ROOT, "another dataset at the top", "group / has 4 entries") \
    KIND(EXTRA_LINK, "another link", "group /model has 6 entries") \
    KIND(OTHER_TYPE, "another type", "dataset model/a: the type differs") \
    KIND(OTHER_ORDER, "another byte order", "dataset model/a: the type differs") \
    KIND(OTHER_SHAPE, "another shape", "dataset model/a: the shape differs") \
    KIND(OTHER_RANK, "fewer dimensions", "dataset model/a: the number of dimensions") \
    KIND(EXTERNAL, "bytes of another file", \
         "dataset model/a: the bytes are in another file") \
    KIND(VIRTUAL, "a virtual dataset", NO_RANGE) \
    KIND(VIRTUAL_ABOVE, "a virtual dataset of a file above", NO_RANGE) \
    KIND(CHUNKED, "chunks", NO_RANGE) \
    KIND(FILTERED, "a filter that a plug-in has", NO_RANGE) \
    KIND(COMPACT, "bytes in the header", NO_RANGE) \
    KIND(SOFT_LINK, "a soft link", "dataset model/a: is a link") \
    KIND(SOFT_GROUP, "a soft link to a group", "group optim: is a link") \
    KIND(EXTERNAL_LINK, "a link to another file", "dataset model/a: is a link") \
    KIND(SWAPPED, "two names swapped", "dataset model/a: the bytes are not where") \
    KIND(HARD_LINK, "two names of one dataset", \
         "dataset model/a: the bytes are not where the manifest says") \
    KIND(MISSING, "a dataset missing", "dataset model/a: missing") \
    KIND(MISSING_GROUP, "a group missing", "group optim: missing") \
    KIND(GROUP_INSTEAD, "a group instead", "dataset model/a: is another kind of object") \
    KIND(ATTR_OFFSET, "a wrong offset", "dataset model/cut@1: the attribute") \
    KIND(ATTR_SHAPE, "a wrong global shape", "dataset model/cut@1: the attribute") \
    KIND(ATTR_DTYPE, "a wrong accel_dtype", "dataset model/a: the attribute accel_dtype") \
    KIND(ATTR_TYPE, "offsets as floats", "dataset model/cut@1: the attribute") \
    KIND(ATTR_EXTRA, "another attribute", "dataset model/a: has other attributes") \
    KIND(FILE_STEP, "another step", "attribute step is not 3") \
    KIND(FILE_RANK, "another rank", "attribute rank is not 0") \
    KIND(FILE_EXTRA, "another attribute of the file", "the file has other attributes") \
    KIND(USERBLOCK, "a block in front", "does not begin at the first byte") \
    KIND(NO_SIGNATURE, "no HDF5 file", "HDF5 cannot open the file: H5F")
/* clang-format on */

#define KIND_NAME(kind, name, want) kind,
#define KIND_ROW(kind, name, want)  { name, want },
enum kind { ALL_KINDS(KIND_NAME) KINDS };
static const struct {
    const char *name, *want;
} kinds[KINDS] = { ALL_KINDS(KIND_ROW) };

/* The datasets, in the manifest's order; the two of model/cut are boxes of one
 * tensor. */
static const struct set {
    const char *tensor, *name;
    accel_dtype_t dtype;
    int ndim;
    int64_t global[2], offset[2], shape[2];
    bool blob;
} sets[] = {
    { "model/a", "model/a", ACCEL_F32, 2, { 4, 3 }, { 0 }, { 4, 3 }, false },
    { "model/b", "model/b", ACCEL_F32, 2, { 4, 3 }, { 0 }, { 4, 3 }, false },
    { "model/cut", "model/cut", ACCEL_I64, 1, { 4 }, { 0 }, { 2 }, false },
    { "model/cut", "model/cut@1", ACCEL_I64, 1, { 4 }, { 2 }, { 2 }, false },
    { "model/s", "model/s", ACCEL_F64, 0, { 0 }, { 0 }, { 0 }, false },
    { "optim/a/m", "optim/a/m", ACCEL_BF16, 1, { 6 }, { 0 }, { 6 }, false },
    { "trainer", "state/trainer", ACCEL_U8, 1, { 5 }, { 0 }, { 5 }, true },
};
#define SETS ACCEL_ARRAY_SIZE(sets)

static int64_t at[SETS], end_of_file; /* -1: not in the HDF5 file's own space */

static int64_t bytes_of(const struct set *x)
{
    int64_t n = (int64_t)accel_dtype_bytes(x->dtype);

    for (int d = 0; d < x->ndim; d++)
        n *= x->shape[d];
    return n;
}

/* ---- the HDF5 file --------------------------------------------------------------- */

static void must(int64_t r)
{
    if (r < 0)
        abort();
}

static void attr(hid_t on, const char *name, hid_t type, int n, const void *data)
{
    hid_t space =
        n ? H5Screate_simple(1, &(hsize_t){ (hsize_t)n }, NULL) : H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(on, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

    must(H5Awrite(a, H5Tget_class(type) == H5T_STRING ? type : H5T_NATIVE_INT64, data));
    H5Aclose(a);
    H5Sclose(space);
}

static void text_attr(hid_t on, const char *name, const char *text, size_t size)
{
    char fixed[64] = { 0 };
    hid_t type = H5Tcopy(H5T_C_S1);

    snprintf(fixed, sizeof(fixed), "%s", text);
    H5Tset_size(type, size);
    attr(on, name, type, 0, fixed);
    H5Tclose(type);
}

static void set_attributes(hid_t h, const struct set *x, enum kind kind)
{
    bool a = strcmp(x->name, "model/a") == 0, cut = strcmp(x->name, "model/cut@1") == 0;
    int64_t global = x->global[0] + (cut && kind == ATTR_SHAPE),
            offset = x->offset[0] - (cut && kind == ATTR_OFFSET);

    text_attr(h, "accel_dtype",
              a && kind == ATTR_DTYPE ? "int32" : accel_dtype_name(x->dtype),
              CKPT_H5_DTYPE_NAME);
    if (x->shape[0] != x->global[0]) {
        attr(h, "global_shape", H5T_STD_I64LE, 1, &global);
        attr(h, "offset", cut && kind == ATTR_TYPE ? H5T_IEEE_F64LE : H5T_STD_I64LE, 1,
             &offset);
    }
    if (a && kind == ATTR_EXTRA)
        text_attr(h, "unit", "m", 2);
}

/* model/a in another way than the others. */
static hid_t odd_space(const struct set *x, enum kind kind)
{
    const hsize_t transposed[2] = { 3, 4 }, flat[1] = { 12 };
    hsize_t dims[2] = { (hsize_t)x->shape[0], (hsize_t)x->shape[1] };

    if (kind == OTHER_SHAPE)
        return H5Screate_simple(2, transposed, NULL);
    if (kind == OTHER_RANK)
        return H5Screate_simple(1, flat, NULL);
    return x->ndim ? H5Screate_simple(x->ndim, dims, NULL) : H5Screate(H5S_SCALAR);
}

/* A filter that whoever reads the file must look for. */
#define FILTER 32015

static size_t pass_through(unsigned flags, size_t n, const unsigned values[],
                           size_t bytes, size_t *room, void **buf)
{
    (void)flags;
    (void)n;
    (void)values;
    (void)room;
    (void)buf;
    return bytes;
}

static const H5Z_class2_t filter = { H5Z_CLASS_T_VERS,   FILTER, 1,    1,
                                     "known here alone", NULL,   NULL, pass_through };

static hid_t odd_plist(hid_t space, enum kind kind)
{
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY);
    H5Pset_obj_track_times(p, 0);
    if (kind == EXTERNAL)
        H5Pset_external(p, other, 0, 48);
    else if (kind == VIRTUAL)
        H5Pset_virtual(p, space, ".", "/model/b", space);
    else if (kind == VIRTUAL_ABOVE)
        H5Pset_virtual(p, space, "../other.h5", "/x", space);
    else if (kind == CHUNKED || kind == FILTERED)
        H5Pset_chunk(p, 2, (const hsize_t[2]){ 2, 3 });
    else if (kind == COMPACT)
        H5Pset_layout(p, H5D_COMPACT);
    if (kind == FILTERED)
        must(H5Pset_filter(p, FILTER, H5Z_FLAG_MANDATORY, 0, NULL));
    if (kind == EXTERNAL || kind == VIRTUAL || kind == VIRTUAL_ABOVE ||
        kind == CHUNKED || kind == FILTERED)
        H5Pset_alloc_time(p, H5D_ALLOC_TIME_DEFAULT);
    return p;
}

/* Puts something else where model/a should be; true: done. */
static bool instead(hid_t h5, hid_t lcpl, enum kind kind)
{
    if (kind == MISSING)
        return true;
    if (kind == SOFT_LINK)
        must(H5Lcreate_soft("/model/b", h5, "model/a", lcpl, H5P_DEFAULT));
    else if (kind == EXTERNAL_LINK)
        must(H5Lcreate_external("other.h5", "/x", h5, "model/a", lcpl, H5P_DEFAULT));
    else if (kind == GROUP_INSTEAD)
        must(H5Gclose(H5Gcreate2(h5, "model/a", lcpl, H5P_DEFAULT, H5P_DEFAULT)));
    else
        return kind == HARD_LINK; /* which comes when model/b is there */
    return true;
}

static void put_set(hid_t h5, hid_t lcpl, size_t i, enum kind kind)
{
    const struct set *x = &sets[i];
    struct ckpt_h5_floats floats;
    hid_t type, space, plist, h;
    haddr_t where;

    must(ckpt_h5_floats_open(&floats));
    type = ckpt_h5_type(&floats, x->dtype);

    at[i] = -1;
    if (i != 0 || !instead(h5, lcpl, kind)) {
        space = odd_space(x, i == 0 ? kind : SOUND);
        plist = odd_plist(space, i == 0 ? kind : SOUND);
        if (i == 0 && kind == OTHER_TYPE)
            type = H5T_STD_I32LE;
        if (i == 0 && kind == OTHER_ORDER)
            type = H5T_IEEE_F32BE;
        h = H5Dcreate2(h5, x->name, type, space, lcpl, plist, H5P_DEFAULT);
        must(h);
        set_attributes(h, x, kind);
        where = H5Dget_offset(h);
        if (where != HADDR_UNDEF && (i != 0 || (kind != CHUNKED && kind != FILTERED)))
            at[i] = (int64_t)where;
        H5Dclose(h);
        H5Pclose(plist);
        H5Sclose(space);
    }
    ckpt_h5_floats_close(&floats);
}

static void put_extras(hid_t h5, hid_t lcpl, enum kind kind)
{
    hid_t one = H5Screate(H5S_SCALAR);

    if (kind == EXTRA_DATASET || kind == EXTRA_IN_ROOT)
        must(H5Dclose(H5Dcreate2(h5, kind == EXTRA_DATASET ? "model/x" : "x",
                                 H5T_STD_I32LE, one, lcpl, H5P_DEFAULT, H5P_DEFAULT)));
    H5Sclose(one);
    if (kind == EXTRA_GROUP)
        must(H5Gclose(H5Gcreate2(h5, "model/x", lcpl, H5P_DEFAULT, H5P_DEFAULT)));
    if (kind == EXTRA_LINK)
        must(H5Lcreate_soft("/model/a", h5, "model/x", lcpl, H5P_DEFAULT));
    if (kind == HARD_LINK)
        must(H5Lcreate_hard(h5, "model/b", h5, "model/a", lcpl, H5P_DEFAULT));
    if (kind == SWAPPED) {
        must(H5Lmove(h5, "model/a", h5, "model/c", lcpl, H5P_DEFAULT));
        must(H5Lmove(h5, "model/b", h5, "model/a", lcpl, H5P_DEFAULT));
        must(H5Lmove(h5, "model/c", h5, "model/b", lcpl, H5P_DEFAULT));
    }
    if (kind == SOFT_GROUP || kind == MISSING_GROUP)
        must(H5Lmove(h5, "optim", h5, "moved", lcpl, H5P_DEFAULT));
    if (kind == SOFT_GROUP)
        must(H5Lcreate_soft("/moved", h5, "optim", lcpl, H5P_DEFAULT));
}

static void put_file(enum kind kind)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE),
          lcpl = H5Pcreate(H5P_LINK_CREATE), h5;
    const int64_t version = CKPT_FORMAT, step = 3 + (kind == FILE_STEP), world = 1,
                  rank = kind == FILE_RANK;

    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_create_intermediate_group(lcpl, 1);
    if (kind == USERBLOCK)
        H5Pset_userblock(fcpl, 512);
    h5 = H5Fcreate(file, H5F_ACC_TRUNC, fcpl, fapl);
    must(h5);
    attr(h5, "accel_format_version", H5T_STD_I64LE, 0, &version);
    attr(h5, "step", H5T_STD_I64LE, 0, &step);
    attr(h5, "world_size", H5T_STD_I64LE, 0, &world);
    attr(h5, "rank", H5T_STD_I64LE, 0, &rank);
    text_attr(h5, "accel_version", "0", 32);
    text_attr(h5, "owner", "17.0", 64);
    text_attr(h5, "sharding", "X", 64);
    if (kind == FILE_EXTRA)
        text_attr(h5, "more", "X", 2);
    must(H5Zregister(&filter));
    for (size_t i = 0; i < SETS; i++)
        put_set(h5, lcpl, i, kind);
    put_extras(h5, lcpl, kind);
    must(H5Fclose(h5));
    must(H5Zunregister(FILTER));
    H5Pclose(fapl);
    H5Pclose(fcpl);
    H5Pclose(lcpl);
}

/* ---- data and manifest that agree ------------------------------------------------ */

static void put_data(struct ckpt_manifest *m)
{
    int fd = open(file, O_RDWR);
    struct stat st;
    char data[64];

    if (fd < 0 || fstat(fd, &st))
        abort();
    end_of_file = st.st_size;
    for (size_t i = 0; i < m->boxes; i++) {
        struct ckpt_mbox *b = &m->box[i];

        if (b->at < 0) { /* no place of its own in the HDF5 file: behind it */
            b->at = end_of_file;
            end_of_file += b->bytes;
        }
        memset(data, (int)i + 1, sizeof(data));
        m->piece[b->piece] =
            ckpt_piece_hash(ckpt_box_seed(m, b), 0, data, (size_t)b->bytes);
        must(pwrite(fd, data, (size_t)b->bytes, b->at));
    }
    close(fd);
}

/* The hash of the structures, and the manifest's own, made again. */
static void seal(struct ckpt_manifest *m)
{
    struct strbuf text = { 0 };
    size_t *order = NULL;
    char path[400];
    int fd = open(file, O_RDONLY), out;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) || ckpt_boxes_by_place(m, &order, NULL))
        abort();
    m->file[0].bytes = st.st_size;
    if (ckpt_meta_hash(m, 0, fd, order, m->boxes, &m->file[0].meta, NULL) ||
        ckpt_manifest_format(m, -1, &text, NULL))
        abort();
    snprintf(path, sizeof(path), "%s/MANIFEST", dir);
    out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || write(out, text.s, text.len) != (ssize_t)text.len || close(out))
        abort();
    close(fd);
    free(order);
    strbuf_free(&text);
}

static void forge(enum kind kind)
{
    struct ckpt_manifest m = { .step = 3, .world = 1 };
    struct ckpt_h5_quiet quiet;

    world_rmtree(dir);
    if (mkdir(dir, 0777))
        abort();
    m.file = calloc(1, sizeof(*m.file));
    ckpt_shard_name(m.file[0].name, 0, 1);
    snprintf(m.version, sizeof(m.version), "0");
    snprintf(m.owner, sizeof(m.owner), "17.0");
    snprintf(m.sharding, sizeof(m.sharding), "X");
    snprintf(m.run_id, sizeof(m.run_id), "forged");
    must(ckpt_h5_begin(&quiet));
    put_file(kind);
    ckpt_h5_end(&quiet);
    for (size_t i = 0; i < SETS; i++) {
        struct ckpt_tensor t = { .name = (char *)sets[i].tensor,
                                 .dtype = sets[i].dtype,
                                 .blob = sets[i].blob,
                                 .ndim = sets[i].ndim };
        struct ckpt_mbox b = { .tensor = m.tensors, .at = at[i] };

        b.bytes = bytes_of(&sets[i]);
        memcpy(t.shape, sets[i].global, sizeof(sets[i].global));
        memcpy(b.offset, sets[i].offset, sizeof(sets[i].offset));
        memcpy(b.shape, sets[i].shape, sizeof(sets[i].shape));
        if (ckpt_manifest_add_tensor(&m, &t, NULL) ||
            ckpt_manifest_add_box(&m, &b, NULL))
            abort();
    }
    if (ckpt_manifest_sort(&m, NULL))
        abort();
    put_data(&m);
    if (kind == NO_SIGNATURE)
        world_flip(file, 0, 0);
    seal(&m);
    ckpt_manifest_free(&m);
}

/* ---- what is found --------------------------------------------------------------- */

struct found {
    int lines;
    char text[4000];
};

static void note(void *user, accel_status_t what, const char *line)
{
    struct found *f = user;
    size_t used = strlen(f->text);

    (void)what;
    f->lines++;
    snprintf(f->text + used, sizeof(f->text) - used, "%s; ", line);
}

static accel_status_t compare_in_child(void *arg, isolate_say *say, void *user,
                                       accel_error_t *err)
{
    return accel_ckpt_verify_hdf5(arg, 0, say, user, err);
}

static accel_status_t compare(struct found *f, enum isolate_end *end)
{
    static const struct isolate_limits limits = { 20, 60, (size_t)1 << 28 };
    accel_status_t s = ACCEL_OK;
    accel_ckpt_t *c = NULL;

    *f = (struct found){ 0 };
    *end = ISOLATE_DONE;
    if (accel_ckpt_open(&c, dir, NULL) ||
        isolate_run(compare_in_child, c, &limits, note, f, end, &s, NULL))
        s = ACCEL_EIO;
    accel_ckpt_close(c);
    return s;
}

static void test_kinds(void)
{
    for (int k = 0; k < KINDS; k++) {
        enum isolate_end end;
        struct found f = { 0 };
        accel_status_t s;

        forge(k);
        tap_is_int(accel_ckpt_verify(dir, note, &f, NULL), ACCEL_OK,
                   "%s: every hash holds %s", kinds[k].name, f.text);
        s = compare(&f, &end);
        if (!kinds[k].want)
            tap_ok(end == ISOLATE_DONE && s == ACCEL_OK && f.lines == 0,
                   "and so does the rest %s", f.text);
        else
            tap_ok(end == ISOLATE_DONE && s == ACCEL_ECORRUPT &&
                       strstr(f.text, kinds[k].want) && strstr(f.text, "rank_00000"),
                   "found: %s", f.text);
    }
}

/* ---- flipped bits ---------------------------------------------------------------- */

static bool in_box(const struct ckpt_manifest *m, int64_t byte)
{
    for (size_t i = 0; i < m->boxes; i++)
        if (byte >= m->box[i].at && byte < m->box[i].at + m->box[i].bytes)
            return true;
    return false;
}

/* Bits flipped in HDF5's structures, and the manifest made to fit: each is either
 * found, or HDF5 finds all as it should be (a gap, say); never is the parent harmed. */
static void test_flips(void)
{
    int found = 0, right = 0, fatal = 0, unsound = 0, flips = 200;
    accel_ckpt_t *c = NULL;
    struct stat st;

    forge(SOUND);
    if (accel_ckpt_open(&c, dir, NULL) || stat(file, &st))
        abort();
    srand(11);
    for (int i = 0; i < flips; i++) {
        int64_t byte = rand() % st.st_size;
        enum isolate_end end;
        struct found f;
        accel_status_t s;
        int bit = rand() % 8;

        if (in_box(&c->m, byte)) {
            i--;
            continue;
        }
        world_flip(file, byte, bit);
        seal(&c->m);
        unsound += accel_ckpt_verify(dir, NULL, NULL, NULL) != ACCEL_OK;
        s = compare(&f, &end);
        fatal += end != ISOLATE_DONE;
        found += end == ISOLATE_DONE && s == ACCEL_ECORRUPT && f.lines > 0;
        right += end == ISOLATE_DONE && s == ACCEL_OK;
        world_flip(file, byte, bit);
    }
    accel_ckpt_close(c);
    tap_is_int(unsound, 0, "%d flipped bits with all hashes made again", flips);
    tap_is_int(found + right + fatal, flips,
               "%d found, %d without effect, %d where HDF5 failed", found, right,
               fatal);
    tap_ok(found > flips / 4, "most are found");
}

/* ---- errors ---------------------------------------------------------------------- */

static void test_describe(void)
{
    static const struct {
        const char *desc, *want;
    } cases[] = {
        { "file write failed: time = Sun Nov 22 06:00:00 2026\n, filename = "
          "'/proc/self/fd/5/rank', file descriptor = 7, errno = 28, error message = "
          "'No space left on device', "
          "buf = 0x55d0c8f0, total write size = 96",
          "f: file write failed: No space left on device" },
        { "unable to extend file properly, errno = 4, error message = "
          "'Interrupted system call'",
          "f: unable to extend file properly: Interrupted system call" },
        { "unable to open file: name = '/a: b', errno = 2, error message = "
          "'No such file or directory', flags = 0, o_flags = 0",
          "f: unable to open file: No such file or directory" },
        { "truncated file: eof = 96, sblock->base_addr = 0",
          "f: truncated file: eof = 96, sblock->base_addr = 0" },
        { "bad id, ptr = 0x7ffc12, more", "f: bad id" },
        { "not found", "f: not found" },
        { "a\nb", "f: a b" },
        { "x, error message = 'cut", "f: x, error message = 'cut" },
    };
    char got[256];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        ckpt_h5_describe("f", cases[i].desc, got, sizeof(got));
        tap_is_str(got, cases[i].want, "an error of HDF5");
    }
}

static int no_space(const char *call, const char *name, int fd)
{
    (void)name;
    (void)fd;
    return strcmp(call, "write") == 0 || strcmp(call, "pwrite") == 0 ? ENOSPC : 0;
}

static void test_layout_error(void)
{
    accel_error_t err = { 0 };

    disk_hook = no_space;
    tap_is_int(numbers_save_alone(root, 9, 9, NULL, &err), ACCEL_EIO,
               "HDF5 has no space");
    disk_hook = NULL;
    tap_ok(strstr(err.where, "rank_00000-of-00001.h5") != NULL, "the file: %s",
           err.where);
    tap_ok(strstr(err.text, "HDF5 H5") &&
               strstr(err.text, ": No space left on device") &&
               !strchr(err.text, '\n') && !strstr(err.text, "0x"),
           "the operation and the cause in one line: %s", err.text);
}

static void name_files(void)
{
    snprintf(dir, sizeof(dir), "%s/step_00000003", root);
    snprintf(file, sizeof(file), "%s/rank_00000-of-00001.h5", dir);
    snprintf(other, sizeof(other), "%s/other", root);
}

/* For shell tests: ROOT [NUMBER] makes ROOT/step_00000003 of that kind and leaves
 * it. */
static int leave_one(int argc, char **argv)
{
    int kind = argc > 2 ? atoi(argv[2]) : SOUND;

    if (kind < 0 || kind >= KINDS)
        return 64;
    snprintf(root, sizeof(root), "%s", argv[1]);
    name_files();
    forge(kind);
    printf("%s\n", kinds[kind].want ? kinds[kind].want : "sound");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return leave_one(argc, argv);
    world_tmpdir(root, "ckpt-forged");
    name_files();
    test_describe();
    test_layout_error();
    test_kinds();
    test_flips();
    world_rmtree(root);
    return tap_done();
}
