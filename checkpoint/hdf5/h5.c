/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that call libhdf5 share: types, names, attributes, and its errors in
 * one line.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_h5.h"

int ckpt_h5_begin(struct ckpt_h5_quiet *q)
{
    /* No cleanup by libhdf5 at the program's exit. The call fails, harmlessly, when
     * HDF5 is already in use. */
    H5dont_atexit();
    if (H5open() < 0)
        return -1;
    H5Eget_auto2(H5E_DEFAULT, &q->fn, &q->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return 0;
}

void ckpt_h5_end(const struct ckpt_h5_quiet *q)
{
    H5Eclear2(H5E_DEFAULT);
    H5Eset_auto2(H5E_DEFAULT, q->fn, q->data);
}

/* The sign, below it the exponent, then the mantissa. h5py shows such a dataset as
 * numbers. */
static hid_t float_of(size_t bytes, size_t mantissa, size_t bias)
{
    const size_t sign = 8 * bytes - 1;
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);

    if (t < 0 || H5Tset_fields(t, sign, mantissa, sign - mantissa, 0, mantissa) < 0 ||
        H5Tset_size(t, bytes) < 0 || H5Tset_ebias(t, bias) < 0) {
        H5Tclose(t);
        return -1;
    }
    return t;
}

/* bfloat16 is float32 with its lower half cut off. There is no such type for e4m3: HDF5
 * takes the largest exponent for infinities and NaN, and e4m3 has numbers there. */
int ckpt_h5_floats_open(struct ckpt_h5_floats *floats_out)
{
    floats_out->bf16 = float_of(2, 7, 127);
    floats_out->f16 = float_of(2, 10, 15);
    floats_out->e5m2 = float_of(1, 2, 15);
    return floats_out->bf16 < 0 || floats_out->f16 < 0 || floats_out->e5m2 < 0 ? -1 : 0;
}

void ckpt_h5_floats_close(const struct ckpt_h5_floats *floats)
{
    H5Tclose(floats->bf16);
    H5Tclose(floats->f16);
    H5Tclose(floats->e5m2);
}

hid_t ckpt_h5_type(const struct ckpt_h5_floats *floats, accel_dtype_t t)
{
    switch (t) {
    case ACCEL_F32:
        return H5T_IEEE_F32LE;
    case ACCEL_BF16:
        return floats->bf16;
    case ACCEL_I32:
        return H5T_STD_I32LE;
    case ACCEL_U16:
        return H5T_STD_U16LE;
    case ACCEL_U8:
    case ACCEL_F8E4M3: /* accel_dtype says what the bytes are */
        return H5T_STD_U8LE;
    case ACCEL_I8:
        return H5T_STD_I8LE;
    case ACCEL_F64:
        return H5T_IEEE_F64LE;
    case ACCEL_I64:
        return H5T_STD_I64LE;
    case ACCEL_F16:
        return floats->f16;
    case ACCEL_F8E5M2:
        return floats->e5m2;
    }
    return -1;
}

/* index counts the boxes of this tensor in this file. '@' is in no tensor name, so that
 * the numbered names are unique. */
void ckpt_h5_name(char name_out[CKPT_H5_NAME_MAX], const struct ckpt_tensor *t,
                  size_t index)
{
    snprintf(name_out, CKPT_H5_NAME_MAX, index ? "%s%s@%zu" : "%s%s",
             t->blob ? "state/" : "", t->name, index);
}

herr_t ckpt_h5_put_attribute(hid_t on, const char *name, hid_t type, hid_t space,
                             const void *data)
{
    hid_t attr = H5Acreate2(on, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    herr_t r = attr < 0 ? -1 : H5Awrite(attr, type, data);

    if (attr >= 0 && H5Aclose(attr) < 0)
        r = -1;
    return r;
}

herr_t ckpt_h5_put_dtypes(const struct ckpt_manifest *m, const struct ckpt_tensor *t,
                          hid_t set, hid_t type, hid_t space)
{
    const accel_dtype_t codes = ckpt_manifest_codes(m, t);
    char text[CKPT_H5_DTYPE_NAME] = { 0 }, of_codes[CKPT_H5_DTYPE_NAME] = { 0 };

    snprintf(text, sizeof(text), "%s", accel_dtype_name(t->dtype));
    snprintf(of_codes, sizeof(of_codes), "%s", accel_dtype_name(codes));
    if (ckpt_h5_put_attribute(set, "accel_dtype", type, space, text) < 0)
        return -1;
    return codes == t->dtype
               ? 0
               : ckpt_h5_put_attribute(set, CKPT_H5_CODES, type, space, of_codes);
}

hsize_t ckpt_h5_attribute_count(hid_t on)
{
#if H5_VERSION_GE(1, 12, 0)
    H5O_info2_t info;
    herr_t r = H5Oget_info3(on, &info, H5O_INFO_NUM_ATTRS);
#else
    H5O_info_t info;
    herr_t r = H5Oget_info2(on, &info, H5O_INFO_NUM_ATTRS);
#endif
    return r < 0 ? HSIZE_UNDEF : info.num_attrs;
}

/* The value is read only when its type is that of the buffer, so a forged attribute
 * cannot overrun it. */
bool ckpt_h5_has_attribute(hid_t on, const char *name, hid_t type, int count,
                           const void *want, size_t bytes)
{
    char got[ACCEL_CKPT_MAX_DIMS * sizeof(int64_t)];
    hsize_t dims = 0;
    hid_t attr = -1, its = -1, space = -1;
    bool same = false;

    if (H5Aexists(on, name) > 0)
        attr = H5Aopen(on, name, H5P_DEFAULT);
    if (attr >= 0) {
        its = H5Aget_type(attr);
        space = H5Aget_space(attr);
    }
    if (its >= 0 && space >= 0 && H5Tequal(its, type) > 0 &&
        H5Sget_simple_extent_ndims(space) == (count > 0) &&
        H5Sget_simple_extent_type(space) == (count ? H5S_SIMPLE : H5S_SCALAR) &&
        (!count || (H5Sget_simple_extent_dims(space, &dims, NULL) == 1 &&
                    dims == (hsize_t)count)))
        same = H5Aread(attr, type, got) >= 0 && memcmp(got, want, bytes) == 0;
    H5Sclose(space);
    H5Tclose(its);
    H5Aclose(attr);
    return same;
}

bool ckpt_h5_has_dtype(hid_t on, const char *name, accel_dtype_t want)
{
    char text[CKPT_H5_DTYPE_NAME] = { 0 };
    hid_t type = H5Tcopy(H5T_C_S1);
    bool ok;

    snprintf(text, sizeof(text), "%s", accel_dtype_name(want));
    ok = H5Tset_size(type, sizeof(text)) >= 0 &&
         ckpt_h5_has_attribute(on, name, type, 0, text, sizeof(text));
    H5Tclose(type);
    return ok;
}

/* `at` is inside a "word = value": the comma or colon in front
 * of it, or `at` itself. */
static const char *before_value(const char *desc, const char *at)
{
    for (const char *p = at; p > desc; p--)
        if (p[-1] == ',' || p[-1] == ':')
            return p - 1;
    return at;
}

void ckpt_h5_describe(const char *func, const char *desc, char *buf, size_t len)
{
    static const char words[] = "error message = '";
    const char *first = strstr(desc, " = "), *said = strstr(desc, words),
               *pointer = strstr(desc, "= 0x"), *end = desc + strlen(desc),
               *stop = NULL;

    if (said) {
        said += strlen(words);
        stop = strchr(said, '\'');
    }
    /* the system's own words are the only value worth showing */
    if (stop)
        end = before_value(desc, first);
    else if (pointer)
        end = before_value(desc, pointer);
    snprintf(buf, len, "%s: %.*s%s%.*s", func, (int)(end - desc), desc,
             stop ? ": " : "", stop ? (int)(stop - said) : 0, stop ? said : "");
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = ' ';
}

/* where `innermost` writes its line */
struct cause {
    char *buf;
    size_t len;
};

/* Called by H5Ewalk2 for each entry, the deepest first, which stops the walk. */
static herr_t innermost(unsigned n, const H5E_error2_t *e, void *user)
{
    const struct cause *c = user;

    (void)n;
    ckpt_h5_describe(e->func_name ? e->func_name : "?", e->desc ? e->desc : "?", c->buf,
                     c->len);
    return 1; /* the first is the deepest: stop */
}

void ckpt_h5_cause(char *buf, size_t len)
{
    struct cause c = { buf, len };

    snprintf(buf, len, "no details");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &c);
    H5Eclear2(H5E_DEFAULT);
}

hid_t ckpt_h5_open(int fd, char *cause, size_t len, int *error_out)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), h5;
    char path[64];
    int again;

    H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(fapl, 0, 1); /* flock fails on some parallel disks */
#endif
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    h5 = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    *error_out = 0;
    if (h5 < 0) {
        ckpt_h5_cause(cause, len); /* the next call clears it */
        again = open(path, O_RDONLY | O_CLOEXEC);
        *error_out = again < 0 ? errno : 0;
        if (again >= 0)
            close(again);
    }
    H5Pclose(fapl);
    return h5;
}
