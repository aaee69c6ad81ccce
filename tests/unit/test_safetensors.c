/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors: every rule of the header and of the index with a file that
 * breaks it, values of every float dtype, every range of a transpose.
 */
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numbers/minifloat.h"
#include "weights/safetensors/st_internal.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static char dir[64] = "/tmp/accel-st.XXXXXX";

/* `length`: what the first 8 bytes say; -1: the truth. */
static const char *file_of(const char *name, const char *header, int64_t length,
                           const void *data, size_t bytes)
{
    static char path[128];
    uint64_t n = length < 0 ? strlen(header) : (uint64_t)length;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "we");
    if (!f)
        abort();
    for (int i = 0; i < 8; i++)
        fputc((int)(n >> 8 * i & 0xff), f);
    fputs(header, f);
    for (size_t i = 0; i < bytes; i++)
        fputc(data ? ((const unsigned char *)data)[i] : 0, f);
    fclose(f);
    return path;
}

#define T(name, dtype, shape, range)                                                   \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape                           \
    ",\"data_offsets\":" range "}"

static const struct bad_header {
    const char *what, *header;
    size_t bytes;
    const char *text;
} bad_headers[] = {
    { "no object", " {}", 0, "does not begin with {" },
    { "a list", "[]", 0, "does not begin with {" },
    { "nothing", "", 0, "does not begin with {" },
    { "not closed", "{", 0, "double quotes" },
    { "no value", "{\"a\"", 0, "colon" },
    { "a value of another kind", "{\"a\":1}", 0, "an object is expected" },
    { "a comma too many", "{" T("a", "U8", "[1]", "[0,1]") ",}", 1, "double quotes" },
    { "no comma", "{" T("a", "U8", "[1]", "[0,1]") T("b", "U8", "[1]", "[1,2]") "}", 2,
      "a comma or a closing bracket" },
    { "text behind the end", "{" T("a", "U8", "[1]", "[0,1]") "} x", 1,
      "more text after the end" },
    { "a NUL behind the end", "{}\\u0000", 0, "more text after the end" },
    { "a comment", "{/**/}", 0, "double quotes" },
    { "single quotes", "{'a':{}}", 0, "double quotes" },
    { "an unknown dtype", "{" T("a", "F31", "[1]", "[0,4]") "}", 4, "unknown dtype" },
    { "a dtype in lower case", "{" T("a", "f32", "[1]", "[0,4]") "}", 4,
      "unknown dtype" },
    { "an unknown key", "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"offsets\":[0,1]}}", 1,
      "a key that is not" },
    { "no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "is missing" },
    { "no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
      "is missing" },
    { "no range", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "is missing" },
    { "an empty tensor entry", "{\"a\":{}}", 0, "is missing" },
    { "a field twice",
      "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
      1, "twice" },
    { "a tensor twice",
      "{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2,
      "tensor a appears twice" },
    { "a tensor twice, once escaped",
      "{" T("a", "U8", "[1]", "[0,1]") "," T("\\u0061", "U8", "[1]", "[1,2]") "}", 2,
      "tensor a appears twice" },
    { "empty tensors of one name",
      "{" T("a", "U8", "[0]", "[0,0]") "," T("a", "U8", "[0]", "[0,0]") "}", 0,
      "twice" },
    { "a negative size", "{" T("a", "U8", "[-1]", "[0,1]") "}", 1, "whole number" },
    { "a fraction as size", "{" T("a", "U8", "[1.0]", "[0,1]") "}", 1, "whole number" },
    { "an exponent as size", "{" T("a", "U8", "[1e0]", "[0,1]") "}", 1,
      "whole number" },
    { "a leading zero", "{" T("a", "U8", "[01]", "[0,1]") "}", 1, "leading zero" },
    { "text as size", "{" T("a", "U8", "[\"1\"]", "[0,1]") "}", 1, "whole number" },
    { "a size beyond int64", "{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1,
      "beyond" },
    { "a product beyond int64",
      "{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0,
      "too many elements" },
    { "a product that wraps to the size of the range",
      "{" T("a", "U8", "[4294967297,4294967296]", "[0,4294967296]") "}", 0,
      "too many elements" },
    { "bytes beyond int64", "{" T("a", "F64", "[2305843009213693952]", "[0,0]") "}", 0,
      "too many bytes" },
    { "overflow hidden behind a zero",
      "{" T("a", "F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0,
      "too many elements" },
    { "nine dimensions", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1,
      "8 dimensions" },
    { "half a byte", "{" T("a", "F4", "[3]", "[0,2]") "}", 2, "fill the last byte" },
    { "a range of another size", "{" T("a", "F32", "[2]", "[0,4]") "}", 4,
      "do not match shape and dtype" },
    { "a range of a size too large", "{" T("a", "F32", "[1]", "[0,8]") "}", 8,
      "do not match shape and dtype" },
    { "a range that ends before it begins", "{" T("a", "U8", "[1]", "[2,1]") "}", 2,
      "end before they begin" },
    { "a range of one number", "{" T("a", "U8", "[1]", "[1]") "}", 1, "comma" },
    { "a range of three numbers", "{" T("a", "U8", "[1]", "[0,1,2]") "}", 2, "comma" },
    { "a range beyond the file", "{" T("a", "U8", "[8]", "[0,8]") "}", 7,
      "8 bytes, but the file has 7" },
    { "bytes behind the last tensor", "{" T("a", "U8", "[8]", "[0,8]") "}", 9,
      "8 bytes, but the file has 9" },
    { "data without a tensor", "{}", 1, "0 bytes, but the file has 1" },
    { "a hole before the first", "{" T("a", "U8", "[1]", "[1,2]") "}", 2,
      "after a gap" },
    { "a hole between",
      "{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3,
      "after a gap" },
    { "an overlap",
      "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3,
      "inside another" },
    { "the same range twice",
      "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", 2,
      "inside another" },
    { "an empty tensor inside another",
      "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[0]", "[1,1]") "}", 2,
      "inside another" },
    { "metadata that begins as null", "{\"__metadata__\":nul}", 0, "an object" },
    { "metadata that is no text", "{\"__metadata__\":{\"a\":1}}", 0, "double quotes" },
    { "metadata that is a list", "{\"__metadata__\":[]}", 0, "an object is expected" },
    { "metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "a second" },
    { "a key of the metadata twice", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0,
      "key k" },
};

static void test_bad_headers(void)
{
    accel_safetensors_t *s = NULL;
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad_headers); i++) {
        const struct bad_header *b = &bad_headers[i];
        const char *path = file_of("bad.safetensors", b->header, -1, NULL, b->bytes);

        memset(&err, 0, sizeof(err));
        tap_ok(accel_safetensors_open(&s, path, &err) == ACCEL_ECORRUPT &&
                   err.message == 824 && strstr(err.text, b->text) &&
                   strcmp(err.where, path) == 0 && !s,
               "%s: %s", b->what, err.text);
    }
}

static void test_bad_lengths(void)
{
    static const struct {
        const char *what, *text;
        int64_t length;
    } cases[] = {
        { "a header longer than the file", "more than the file", 100 },
        { "a header of one byte more", "more than the file", 3 },
        { "a header beyond the cap", "100 million", 100000001 },
        { "a header of 2^63 - 1 bytes", "100 million", INT64_MAX },
        { "a header that ends too early", "double quotes", 1 },
        { "a header of no byte", "does not begin", 0 },
    };
    accel_safetensors_t *s = NULL;
    accel_error_t err;
    char path[128];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_ok(accel_safetensors_open(
                   &s, file_of("bad.safetensors", "{}", cases[i].length, NULL, 0),
                   &err) == ACCEL_ECORRUPT &&
                   strstr(err.text, cases[i].text),
               "%s: %s", cases[i].what, err.text);
    snprintf(path, sizeof(path), "%s/bad.safetensors", dir);
    file_of("bad.safetensors", "", 100000001, NULL, 0);
    if (truncate(path, 8 + 100000001)) /* nearly all of it a hole */
        abort();
    tap_ok(accel_safetensors_open(&s, path, &err) == ACCEL_ECORRUPT &&
               strstr(err.text, "100 million"),
           "a file of more than that: %s", err.text);
    for (int n = 0; n < 8; n++) {
        if (truncate(path, n))
            abort();
        if (accel_safetensors_open(&s, path, &err) != ACCEL_ECORRUPT)
            break;
        if (n == 7)
            tap_ok(true, "files of 0 to 7 bytes: %s", err.text);
    }
}

static void test_good_header(void)
{
#define ODD                                                                            \
    T("f4", "F4", "[2,3]", "[39,42]")                                                  \
    "," T("f6a", "F6_E2M3", "[4]", "[42,45]") "," T("f6b", "F6_E3M2", "[2,4]",         \
                                                    "[45,51]")
#define FNUZ                                                                           \
    T("f8a", "F8_E4M3FNUZ", "[3]", "[51,54]")                                          \
    "," T("f8b", "F8_E5M2FNUZ", "[3]", "[54,57]")
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"\xc3\xa4\":\"\\u00e4\\ud83d\\ude00\"}"
        "," T("z", "F32", "[2,3]", "[6,30]") " , \n\t" T("scalar", "F64", "[]", "[30,38]") "," T(
            "empty", "F32", "[3,0,2]",
            "[6,6]") "," T("e2", "F32", "[0]",
                           "[38,38]") "," T("a\\/\\\"b", "U8", "[6]",
                                            "[0,6]") "," T("one", "BOOL",
                                                           "[1,1,1,1,1,1,1,1]",
                                                           "[38,39]") "," ODD "," FNUZ
                                                                      "}    ";
    static const char *const odd[] = { "f4", "f6a", "f6b", "f8a", "f8b", "a/\"b" };
    const accel_safetensors_tensor_t *t;
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    float value[6];

    tap_is_int(accel_safetensors_open(
                   &s, file_of("good.safetensors", header, -1, NULL, 57), &err),
               ACCEL_OK, "a header of odd but right forms %s", err.text);
    if (!s)
        return;
    tap_is_int((long long)accel_safetensors_count(s), 11, "eleven tensors");
    tap_is_str(accel_safetensors_metadata(s, "format"), "pt", "metadata");
    tap_is_str(accel_safetensors_metadata(s, "\xc3\xa4"), "\xc3\xa4\xf0\x9f\x98\x80",
               "escapes of metadata");
    tap_ok(!accel_safetensors_metadata(s, "no"), "a key that is not there");
    tap_is_str(accel_safetensors_at(s, 0)->name, "a/\"b", "sorted; escapes of a name");
    tap_ok(!accel_safetensors_at(s, 11) && !accel_safetensors_find(s, "zz"), "no more");
    t = accel_safetensors_find(s, "scalar");
    tap_ok(t && t->ndim == 0 && t->elems == 1 && t->bytes == 8, "a scalar");
    t = accel_safetensors_find(s, "empty");
    tap_ok(t && t->ndim == 3 && t->elems == 0 && t->bytes == 0 &&
               !accel_safetensors_read(s, t, 0, 0, value, &err),
           "a tensor without elements");
    t = accel_safetensors_find(s, "z");
    tap_ok(t && t->elems == 6 && !strcmp(t->file, "good.safetensors") &&
               !strcmp(t->dtype, "F32"),
           "a matrix");
    tap_ok(t && accel_safetensors_read(s, t, 3, 4, value, &err) == ACCEL_EINVAL &&
               accel_safetensors_read(s, t, -1, 2, value, &err) == ACCEL_EINVAL &&
               accel_safetensors_read(s, t, 7, INT64_MAX, value, &err) == ACCEL_EINVAL,
           "ranges beyond it: %s", err.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(odd); i++)
        tap_ok(accel_safetensors_read(s, accel_safetensors_find(s, odd[i]), 0, 1, value,
                                      &err) == ACCEL_EUNSUPPORTED,
               "a dtype that is no float is refused when it is wanted: %s", err.text);
    if (truncate(file_of("good.safetensors", header, -1, NULL, 57), 300))
        abort();
    accel_safetensors_close(s);
    tap_ok(!accel_safetensors_open(
               &s, file_of("null.safetensors", "{\"__metadata__\":null}", -1, NULL, 0),
               &err),
           "metadata that is null %s", err.text);
    accel_safetensors_close(s);
}

/* Every way to write a character, at the first and last code point of each length. */
static const struct text_case {
    const char *json, *bytes; /* bytes NULL: refused */
} texts[] = { { "", "" },
              { "plain ~", "plain ~" },
              { "\\\" \\\\ \\/ \\b \\f \\n \\r \\t", "\" \\ / \b \f \n \r \t" },
              { "\\u0001\\u001f\\u007f", "\x01\x1f\x7f" },
              { "\\u0080\\u07ff", "\xc2\x80\xdf\xbf" },
              { "\\u0800\\uFfFf", "\xe0\xa0\x80\xef\xbf\xbf" },
              { "\\ud7ff\\ue000", "\xed\x9f\xbf\xee\x80\x80" },
              { "\\ud800\\udc00", "\xf0\x90\x80\x80" },
              { "\\udbff\\udfff", "\xf4\x8f\xbf\xbf" },
              { "\\ud83d\\uDE4F", "\xf0\x9f\x99\x8f" },
              { "\x7f", "\x7f" },
              { "\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf" },
              { "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf",
                "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf" },
              { "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
                "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
              { "\x80", NULL },
              { "\xbf", NULL },
              { "\xc0\x80", NULL },
              { "\xc1\xbf", NULL },
              { "\xc2", NULL },
              { "\xc2\x7f", NULL },
              { "\xc2\xc0", NULL },
              { "\xe0\x9f\xbf", NULL },
              { "\xe1\x80", NULL },
              { "\xe1\x80\x41", NULL },
              { "\xed\xa0\x80", NULL },
              { "\xed\xbf\xbf", NULL },
              { "\xf0\x8f\xbf\xbf", NULL },
              { "\xf4\x90\x80\x80", NULL },
              { "\xf5\x80\x80\x80", NULL },
              { "\xf1\x80\x80", NULL },
              { "\xff", NULL },
              { "\x1f", NULL },
              { "\x01", NULL },
              { "\\u0000", NULL },
              { "\\ud800", NULL },
              { "\\ud800x", NULL },
              { "\\ud800\\n", NULL },
              { "\\ud800\\udbff", NULL },
              { "\\ud800\\ue000", NULL },
              { "\\ud800\\u0041", NULL },
              { "\\udc00", NULL },
              { "\\udfff", NULL },
              { "\\u", NULL },
              { "\\u12", NULL },
              { "\\u123", NULL },
              { "\\u123g", NULL },
              { "\\u123@", NULL },
              { "\\u/000", NULL },
              { "\\u:000", NULL },
              { "\\U0041", NULL },
              { "\\a", NULL },
              { "\\", NULL } };

static void test_texts(void)
{
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(texts); i++) {
        const struct text_case *c = &texts[i];
        accel_safetensors_t *s = NULL;
        accel_error_t err = { 0 };
        char header[200];
        accel_status_t st;
        const char *got;

        snprintf(header, sizeof(header), "{\"__metadata__\":{\"k\":\"%s\"}}", c->json);
        st = accel_safetensors_open(
            &s, file_of("text.safetensors", header, -1, NULL, 0), &err);
        got = st ? NULL : accel_safetensors_metadata(s, "k");
        if (c->bytes ? !got || strcmp(got, c->bytes) != 0 : st != ACCEL_ECORRUPT) {
            tap_diag("'%s': '%s' %s", c->json, got ? got : "refused", err.text);
            wrong++;
        }
        accel_safetensors_close(s);
    }
    tap_is_int(wrong, 0, "%zu texts in JSON", ACCEL_ARRAY_SIZE(texts));
}

static void test_cut(void)
{
    static const char header[] = "{" T("a", "F32", "[10,10]", "[0,400]") "}";
    const char *path = file_of("cut.safetensors", header, -1, NULL, 400);
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    float value[100];

    if (accel_safetensors_open(&s, path, &err) || truncate(path, 200))
        abort();
    tap_ok(accel_safetensors_read(s, accel_safetensors_at(s, 0), 0, 100, value, &err) ==
               ACCEL_ECORRUPT,
           "cut after it was opened: %s: %s", err.where, err.text);
    tap_is_int(accel_safetensors_read_transposed(s, accel_safetensors_at(s, 0), 0, 100,
                                                 value, &err),
               ACCEL_ECORRUPT, "transposed, too");
    accel_safetensors_close(s);
}

/* ---- values ---------------------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* The same bits as the rule for one number, which test_wire compares with the format: of
 * every code, of the middle between every two and of what is beside it. */
static void test_f16(void)
{
    const struct st_dtype *f16 = st_dtype_find("F16");
    int bad_wide = 0, bad_back = 0, bad_round = 0;
    static uint16_t all[65536], back[65536];
    static float wide[65536], next[65536];

    for (unsigned i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    st_to_f32(wide, all, 65536, f16);
    st_from_f32(back, wide, 65536, f16);
    for (unsigned i = 0; i < 65536; i++) {
        bad_wide += bits_of(wide[i]) != bits_of(f16_to_f32((f16_t)i));
        bad_back += isnan(wide[i]) ? !isnan(f16_to_f32(back[i])) : back[i] != i;
    }
    tap_is_int(bad_wide, 0, "F16: all 65536 patterns");
    tap_is_int(bad_back, 0, "and back");
    for (int side = -1; side <= 1; side++) {
        for (unsigned i = 0; i < 65535; i++) {
            const float middle = (wide[i] + wide[i + 1]) / 2;

            next[i] = side ? nextafterf(middle, side * INFINITY) : middle;
        }
        st_from_f32(back, next, 65535, f16);
        for (unsigned i = 0; i < 65535; i++)
            bad_round += back[i] != f32_to_f16(next[i]);
    }
    tap_is_int(bad_round, 0, "rounded to the nearest, ties to even");
}

/* One file with the same values in every float dtype, read in pieces of all sizes. */
static void test_dtypes(void)
{
    enum { N = 300001 }; /* more than one buffer */
    static const char *const names[] = { "F32", "BF16", "F16", "F64" };
    static float want[N], got[N];
    static unsigned char raw[N * 8];

    for (int i = 0; i < N; i++)
        want[i] = (float)((i * 37) % 255 - 127) / 64; /* exact in all of them */
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(names); k++) {
        const struct st_dtype *d = st_dtype_find(names[k]);
        const int bytes = d->bits / 8;
        accel_safetensors_t *s = NULL;
        accel_error_t err = { 0 };
        char header[200];
        int bad = 0;

        snprintf(header, sizeof(header),
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                 names[k], N, N * bytes);
        for (int i = 0; i < N && bytes == 8; i++)
            memcpy(raw + 8 * i, &(double){ (double)want[i] }, 8);
        if (bytes < 8)
            st_from_f32(raw, want, N, d);
        if (accel_safetensors_open(
                &s, file_of("values.safetensors", header, -1, raw, (size_t)(N * bytes)),
                &err))
            tap_diag("%s", err.text);
        for (int64_t at = 0, n = 1; s && at < N; at += n, n = 3 * n + 1) {
            n = n < N - at ? n : N - at;
            bad += accel_safetensors_read(s, accel_safetensors_at(s, 0), at, n,
                                          got + at, &err) != ACCEL_OK;
        }
        tap_ok(s && !bad && !memcmp(want, got, sizeof(want)), "%s: values", names[k]);
        accel_safetensors_close(s);
    }
}

/* Every range [b, e) when the matrix is small, some when not. */
static int transpose_wrong(int64_t rows, int64_t cols, const char *dtype, int64_t step)
{
    const struct st_dtype *d = st_dtype_find(dtype);
    const int bytes = d->bits / 8;
    int64_t n = rows * cols, bad = 0;
    float *value = malloc((size_t)n * 4), *got = malloc((size_t)(n + 2) * 4);
    void *raw = malloc((size_t)n * 4);
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    char header[200];

    for (int64_t i = 0; i < n; i++)
        value[i] = bytes == 2 ? (float)(i % 251) : (float)i;
    st_from_f32(raw, value, (size_t)n, d);
    snprintf(
        header, sizeof(header),
        "{\"a\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%lld]}}",
        dtype, (long long)rows, (long long)cols, (long long)(n * bytes));
    if (accel_safetensors_open(
            &s, file_of("t.safetensors", header, -1, raw, (size_t)(n * bytes)), &err))
        tap_diag("%s", err.text);
    for (int64_t b = 0; s && b <= n; b += step)
        for (int64_t e = b; e <= n; e += step) {
            got[0] = got[e - b + 1] = -7; /* nothing is written beyond the range */
            bad += accel_safetensors_read_transposed(s, accel_safetensors_at(s, 0), b,
                                                     e - b, got + 1, &err) != ACCEL_OK;
            bad += got[0] != -7 || got[e - b + 1] != -7;
            for (int64_t i = b; i < e; i++)
                bad += got[1 + i - b] != value[i % rows * cols + i / rows];
        }
    accel_safetensors_close(s);
    free(value);
    free(got);
    free(raw);
    return s ? (int)bad : -1;
}

/* What is allocated, in bytes; malloc takes large blocks from the system, one by one. */
static size_t allocated(void)
{
    const struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void test_transposed(void)
{
    static const struct {
        int64_t rows, cols, step;
        const char *dtype;
    } cases[] = {
        { 1, 1, 1, "F32" },
        { 1, 9, 1, "F32" },
        { 9, 1, 1, "BF16" },
        { 5, 7, 1, "F32" },
        { 17, 3, 1, "F16" },
        { 33, 35, 97, "F32" },
        { 40, 3000, 23456, "F32" } /* by rows, with gaps */,
        { 700, 500, 98765, "BF16" },
        { 3, 40000, 17171, "F32" } /* wider than the buffer takes */,
    };
    const size_t before = allocated();

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_is_int(transpose_wrong(cases[i].rows, cases[i].cols, cases[i].dtype,
                                   cases[i].step),
                   0, "transpose of %lld x %lld %s", (long long)cases[i].rows,
                   (long long)cases[i].cols, cases[i].dtype);
    /* malloc's own lists keep less */
    tap_ok(allocated() < before + (1 << 20), "no buffer is left");
}

/* ---- shards ---------------------------------------------------------------------- */

static const char *text_of(const char *name, const char *text)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    run_folder_write(path, text);
    return path;
}

static const char *index_of(const char *text)
{
    return text_of("model.safetensors.index.json", text);
}

#define MAP(map)                                                                       \
    "{\"metadata\":{\"total_size\":12,\"x\":[1.5e3,null]},\"weight_map\":{" map "}}"
#define GOOD_MAP "\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\""

static const struct bad_index {
    const char *what, *index, *text;
    accel_status_t status;
} bad_indices[] = {
    { "another directory", MAP("\"a\":\"../s1.safetensors\""), "this directory",
      ACCEL_ECORRUPT },
    { "a path", MAP("\"a\":\"sub/s1.safetensors\""), "this directory", ACCEL_ECORRUPT },
    { "an absolute path", MAP("\"a\":\"/etc/s1.safetensors\""), "this directory",
      ACCEL_ECORRUPT },
    { "an escaped path", MAP("\"a\":\"..\\u002fs1.safetensors\""), "this directory",
      ACCEL_ECORRUPT },
    { "no name", MAP("\"a\":\"\""), "this directory", ACCEL_ECORRUPT },
    { "only the suffix", MAP("\"a\":\".safetensors\""), "this directory",
      ACCEL_ECORRUPT },
    { "another kind of file", MAP("\"a\":\"s1.bin\""), "this directory",
      ACCEL_ECORRUPT },
    { "a number as file", MAP("\"a\":1"), "double quotes", ACCEL_ECORRUPT },
    { "no map", "{\"metadata\":{}}", "no weight_map", ACCEL_ECORRUPT },
    { "an empty map", MAP(""), "no weight_map", ACCEL_ECORRUPT },
    { "two maps", "{\"weight_map\":{},\"weight_map\":{}}", "a second", ACCEL_ECORRUPT },
    { "no JSON", "weights", "an object", ACCEL_ECORRUPT },
    { "a text without its end", "{\"a", "byte 3: a string is not closed",
      ACCEL_ECORRUPT },
    { "half an escape", "{\"a\\", "byte 4: a string is not closed", ACCEL_ECORRUPT },
    { "two digits of an escape", "{\"\\u00", "byte 6: \\u needs", ACCEL_ECORRUPT },
    { "more after the end", MAP(GOOD_MAP) " \n,", "after the end", ACCEL_ECORRUPT },
    { "a tensor twice", MAP("\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\""),
      "a appears twice", ACCEL_ECORRUPT },
    { "a tensor in another shard",
      MAP("\"a\":\"s2.safetensors\",\"b\":\"s2.safetensors\""),
      "a is not in s2.safetensors", ACCEL_ECORRUPT },
    { "shards exchanged", MAP("\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\""),
      "a is not in s2.safetensors, but in s1.safetensors", ACCEL_ECORRUPT },
    { "nine missing shards",
      MAP("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"3.safetensors\","
          "\"d\":\"4.safetensors\",\"e\":\"5.safetensors\",\"f\":\"6.safetensors\","
          "\"g\":\"7.safetensors\","
          "\"h\":\"8.safetensors\",\"i\":\"9.safetensors\""),
      "9 of the 9 shards are missing: 1.safetensors, 2.safetensors, 3.safetensors, "
      "4.safetensors, 5.safetensors, 6.safetensors, 7.safetensors, 8.safetensors, ...",
      ACCEL_ENOENT },
    { "a tensor in no shard", MAP(GOOD_MAP ",\"c\":\"s1.safetensors\""),
      "c is not in s1.safetensors", ACCEL_ECORRUPT },
    { "missing shards",
      MAP(GOOD_MAP ",\"c\":\"s3.safetensors\",\"d\":\"s4.safetensors\""),
      "2 of the 4 shards are missing: s3.safetensors, s4.safetensors", ACCEL_ENOENT },
    { "a tensor in two shards, and the index does not say in which",
      MAP("\"c\":\"s5.safetensors\",\"d\":\"s6.safetensors\""), "tensor a is in both",
      ACCEL_ECORRUPT },
    { "a tensor in two shards, and the index names a third",
      MAP("\"a\":\"s2.safetensors\",\"c\":\"s5.safetensors\",\"d\":\"s6.safetensors\""),
      "tensor a is in both", ACCEL_ECORRUPT },
    { "a pointer of git-lfs",
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n",
      "a pointer of git-lfs", ACCEL_ENOENT },
    { "a shard that is a pointer of git-lfs", MAP("\"a\":\"lfs.safetensors\""),
      "a pointer of git-lfs", ACCEL_ENOENT },
};

/* `a` is 1.5 in s1, and 0 in s5 and s6. */
static void test_copies(void)
{
    static const char *const maps[] = {
        MAP("\"a\":\"s1.safetensors\",\"c\":\"s5.safetensors\""),
        MAP("\"c\":\"./s5.safetensors\",\"a\":\"././s1.safetensors\""),
        MAP("\"a\":\"s6.safetensors\",\"c\":\"s5.safetensors\",\"d\":\"s6."
            "safetensors\""),
    };

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(maps); k++) {
        accel_safetensors_t *s = NULL;
        accel_error_t err = { 0 };
        float value = 1;

        tap_ok(!accel_safetensors_open(&s, index_of(maps[k]), &err) &&
                   accel_safetensors_count(s) == (k < 2 ? 2 : 3) &&
                   !accel_safetensors_read(s, accel_safetensors_find(s, "a"), 0, 1,
                                           &value, &err) &&
                   value == (k < 2 ? 1.5f : 0),
               "of two copies the one that the index names %s", err.text);
        accel_safetensors_close(s);
    }
}

static void test_index(void)
{
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    float value = 0;

    tap_ok(accel_safetensors_open(&s, dir, &err) == ACCEL_ENOENT, "no weights: %s",
           err.text);
    file_of("s1.safetensors", "{" T("a", "F32", "[]", "[0,4]") "}", -1,
            &(float){ 1.5f }, 4);
    file_of("s2.safetensors", "{" T("b", "F32", "[]", "[0,4]") "}", -1,
            &(float){ 2.5f }, 4);
    file_of("s5.safetensors",
            "{" T("a", "F32", "[]", "[0,4]") "," T("c", "F32", "[]", "[4,8]") "}", -1,
            NULL, 8);
    file_of("s6.safetensors",
            "{" T("a", "F32", "[]", "[0,4]") "," T("d", "F32", "[]", "[4,8]") "}", -1,
            NULL, 8);
    text_of("lfs.safetensors",
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n");
    test_copies();
    index_of(MAP(GOOD_MAP));
    tap_is_int(accel_safetensors_open(&s, dir, &err), ACCEL_OK, "two shards %s",
               err.text);
    tap_ok(s && accel_safetensors_count(s) == 2 &&
               !strcmp(accel_safetensors_find(s, "b")->file, "s2.safetensors") &&
               !accel_safetensors_read(s, accel_safetensors_find(s, "b"), 0, 1, &value,
                                       &err) &&
               value == 2.5f,
           "each tensor in its own");
    accel_safetensors_close(s);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad_indices); i++) {
        const struct bad_index *b = &bad_indices[i];

        s = NULL;
        tap_ok(accel_safetensors_open(&s, index_of(b->index), &err) == b->status &&
                   strstr(err.text, b->text) && !s,
               "%s: %s", b->what, err.text);
    }
}

static void test_paths(void)
{
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    char path[128];

    snprintf(path, sizeof(path), "%s/none/model.safetensors", dir);
    tap_is_int(accel_safetensors_open(&s, path, &err), ACCEL_ENOENT, "no such file");
    tap_is_int(accel_safetensors_open(&s, "", &err), ACCEL_ENOENT, "no name");
    snprintf(path, sizeof(path), "%s/pipe.safetensors", dir);
    if (mkfifo(path, 0600))
        abort();
    tap_is_int(accel_safetensors_open(&s, path, &err), ACCEL_EIO, "a pipe: %s",
               err.text);
    snprintf(path, sizeof(path), "%s/sub", dir);
    if (mkdir(path, 0700))
        abort();
    snprintf(path, sizeof(path), "%s/sub/pytorch_model.bin", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    snprintf(path, sizeof(path), "%s/sub", dir);
    tap_ok(accel_safetensors_open(&s, path, &err) == ACCEL_ENOENT &&
               strstr(err.text, "pytorch_model.bin"),
           "pickled weights: %s", err.text);
    file_of("sub/model.safetensors", "{}", -1, NULL, 0);
    tap_is_int(accel_safetensors_open(&s, path, &err), ACCEL_OK, "a directory");
    tap_is_int(s ? (int)accel_safetensors_count(s) : -1, 0, "of no tensor");
    accel_safetensors_close(s);
}

int main(void)
{
    run_folder_new(dir);
    test_bad_headers();
    test_bad_lengths();
    test_good_header();
    test_texts();
    test_cut();
    test_f16();
    test_dtypes();
    test_transposed();
    test_index();
    test_paths();
    run_folder_remove(dir);
    return tap_done();
}
