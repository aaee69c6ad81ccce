/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON of safetensors, byte by byte: each one of a header and of an index that the
 * grammar needs is left out, doubled, or another one, and refused. And values that
 * nobody reads.
 */
#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "weights/safetensors/st_internal.h"

static char folder[] = "/tmp/accel-bytes.XXXXXX";

#define TENSOR(name, range)                                                            \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":" range "}"
#define NUMBERS "000000000000"

static const char header[] = "{\"__metadata__\":{\"k\":\"v\"}," TENSOR(
    "a", "[0,6]") "," TENSOR("b", "[6,12]") "}";
static const char index_text[] =
    "{\"metadata\":{\"total\":[true,\"y\",{\"x\":null}]},"
    "\"weight_map\":{\"a\":\"s.safetensors\",\"b\":\"s.safetensors\"}}";

static const char *write_header(const char *name, const char *text)
{
    static char path[128];
    const size_t n = strlen(text);
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "we");
    if (!f)
        tap_skip_all("no file can be written");
    for (int i = 0; i < 8; i++)
        fputc((int)(n >> 8 * i & 0xff), f);
    fprintf(f, "%s%s", text, NUMBERS);
    fclose(f);
    return path;
}

static const char *write_index(const char *name, const char *text)
{
    static char path[128];

    write_header("s.safetensors", header);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    run_folder_write(path, text);
    return path;
}

static const struct {
    const char *what, *text, *name;
    const char *(*write)(const char *name, const char *text);
} rows[] = {
    { "a header", header, "one.safetensors", write_header },
    { "an index", index_text, "model.safetensors.index.json", write_index },
};

static accel_status_t open_one(int row, const char *text)
{
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };
    accel_status_t st =
        accel_safetensors_open(&s, rows[row].write(rows[row].name, text), &err);

    accel_safetensors_close(s);
    return st;
}

static void test_row(int row)
{
    static const char marks[] = "{}[]:,\"";
    const char *whole = rows[row].text;
    int tried = 0, taken = 0;

    tap_is_int(open_one(row, whole), ACCEL_OK, "%s as it should be", rows[row].what);
    for (const char *at = whole; *at; at++)
        for (size_t k = 0; strchr(marks, *at) && k <= sizeof(marks); k++) {
            /* nothing, twice the byte, each other mark */
            const char by[] = { k > 1 ? marks[k - 2] : *at, *at, '\0' };
            char text[512];

            if (k > 1 && by[0] == *at)
                continue;
            snprintf(text, sizeof(text), "%.*s%.*s%s", (int)(at - whole), whole,
                     k < 2 ? 2 * (int)k : 1, by, at + 1);
            tried++;
            if (open_one(row, text) != ACCEL_ECORRUPT) {
                tap_diag("%s", text);
                taken++;
            }
        }
    tap_ok(tried > 200 && !taken, "%s: %d with one byte wrong, %d are taken",
           rows[row].what, tried, taken);
}

/* Values that an index may hold beside its map are skipped, but must be JSON; NULL:
 * they are. The value begins at byte 5; the byte of an error is where reading
 * stopped. */
static const struct {
    const char *value, *says;
} skipped[] = {
    { "0", NULL },
    { "-1", NULL },
    { "10.25", NULL },
    { "1e5", NULL },
    { "1E+5", NULL },
    { "-0.5e-07", NULL },
    { "true", NULL },
    { "false", NULL },
    { "null", NULL },
    { "\"a\"", NULL },
    { "[]", NULL },
    { "{}", NULL },
    { "[[],{}]", NULL },
    { " [ 1 , 2 ] ", NULL },
    { "{\"a\":[{\"b\":0}]}", NULL },
    { "", "byte 5: not a JSON value" },
    { "01", "byte 7: not a JSON value" },
    { "-", "byte 6: not a JSON value" },
    { "+1", "byte 5: not a JSON value" },
    { "1.", "byte 7: a number ends with its decimal point" },
    { ".5", "byte 5: not a JSON value" },
    { "1e", "byte 7: a number has no digits in its exponent" },
    { "1e+", "byte 8: a number has no digits in its exponent" },
    { "--1", "byte 6: not a JSON value" },
    { "tru", "byte 5: not a JSON value" },
    { "True", "byte 5: not a JSON value" },
    { "nul", "byte 5: not a JSON value" },
    { "truefalse", "byte 9: a comma or a closing bracket is expected here" },
    { "NaN", "byte 5: not a JSON value" },
    { "'a'", "byte 5: not a JSON value" },
    { "[", "byte 6: not a JSON value" },
    { "[1", "byte 20: a comma or a closing bracket is expected here" },
    { "[1,", "byte 8: not a JSON value" },
    { "[1,]", "byte 8: not a JSON value" },
    { "[1 2]", "byte 8: a comma or a closing bracket is expected here" },
    { "[,1]", "byte 6: not a JSON value" },
    { "{", "byte 6: text in double quotes is expected here" },
    { "{\"a\"}", "byte 9: a colon is expected here" },
    { "{\"a\":}", "byte 10: not a JSON value" },
    { "{\"a\":1,}", "byte 12: text in double quotes is expected here" },
    { "{1:2}", "byte 6: text in double quotes is expected here" },
    { "1 2", "byte 7: a comma or a closing bracket is expected here" },
    { "\"a", "byte 9: a comma or a closing bracket is expected here" },
    { "]", "byte 5: not a JSON value" },
    { "1x", "byte 6: a comma or a closing bracket is expected here" },
    { "-0", NULL },
    { "-x", "byte 6: not a JSON value" },
    { "-01", "byte 8: not a JSON value" },
    { "1.5.e1", "byte 8: a comma or a closing bracket is expected here" },
    { "1.e5", "byte 7: a number ends with its decimal point" },
    { "1E-", "byte 8: a number has no digits in its exponent" },
    { "nul]", "byte 5: not a JSON value" },
    { "[1 , 2 }", "byte 12: a comma or a closing bracket is expected here" },
    { "[ 1 , x]", "byte 11: not a JSON value" },
    { "{ \"a\" 1}", "byte 11: a colon is expected here" },
    { "{ \"a\" : 1 ]", "byte 15: a comma or a closing bracket is expected here" },
    { "{ , }", "byte 7: text in double quotes is expected here" },
    { "{\"a\":1 , }", "byte 14: text in double quotes is expected here" },
    { "\"a\\", "byte 8: an unknown escape" },
    { "\"\\x\"", "byte 7: an unknown escape" },
    { "\"\\u12g4\"", "byte 10: \\u needs four hexadecimal digits" },
    { "\"\\u\"", "byte 8: \\u needs four hexadecimal digits" },
    { "\"\\u0000\"", "byte 12: a NUL in a string" },
    { "\"\\ud83d\"", "byte 12: half of a surrogate pair" },
    { "\"\\ud83dx\\u0041\"", "byte 12: half of a surrogate pair" },
    { "\"\\ud83d\\u0041\"", "byte 18: half of a surrogate pair" },
    { "\"\\ude00\\ude00\"", "byte 12: half of a surrogate pair" },
    { "\"\\ude00\"", "byte 12: half of a surrogate pair" },
    { "\"\\ud83d\\ude00\"", NULL },
    { "\"a\x01\"", "byte 7: a control character in a string" },
    { "\"\xc3(\"", "byte 6: not UTF-8" },
    { "\"\xc3\xa4\xff\"", "byte 8: not UTF-8" },
};

/* What is said of an index with this value beside its map; "": nothing. */
static const char *skips(const char *value)
{
    static accel_error_t err;
    struct st_index x;
    char text[400];

    err.text[0] = '\0';
    snprintf(text, sizeof(text), "{\"x\":%s,\"weight_map\":{\"a\":\"s.safetensors\"}}",
             value);
    if (st_index_parse(&x, text, strlen(text), "index", &err) == ACCEL_OK)
        st_index_free(&x);
    return err.text;
}

/* Texts that are cut, or go on after a NUL: only `len` bytes of them count. */
static void test_lengths(void)
{
    static const struct {
        const char *text, *says;
        size_t len;
    } rows[] = {
        { "{\"a\xc3\xa4\":1}", "byte 3: not UTF-8", 4 },
        { "{\"a\xf0\x9f\x98\x80\":1}", "byte 3: not UTF-8", 6 },
        { "{\"a\\\0\":1}", "byte 4: an unknown escape", 9 },
        { "{\"a\\n\":1}", "byte 4: a string is not closed", 4 },
        { "{\"a\\u0041\":1}", "byte 7: \\u needs four hexadecimal digits", 7 },
        { "{\"a\\ud83d\\ude00\":1}", "byte 9: half of a surrogate pair", 10 },
        { "{\"a\":true}", "byte 5: not a JSON value", 8 },
        { "{\"a\":1.5}", "byte 7: a number ends with its decimal point", 7 },
        { "{\"a\":1}\0", "byte 7: there is more text after the end", 8 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { 0 };
        struct st_index x;
        char text[32];

        memcpy(text, rows[i].text, rows[i].len + 1);
        st_index_parse(&x, text, rows[i].len, "index", &err);
        tap_is_str(err.text, rows[i].says, "%zu bytes of %s", rows[i].len,
                   rows[i].text);
    }
}

static void test_skipped(void)
{
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(skipped); i++) {
        const char *says = skips(skipped[i].value);

        if (strcmp(says, skipped[i].says ? skipped[i].says : "")) {
            tap_diag("%s: %s", skipped[i].value, says);
            wrong++;
        }
    }
    tap_is_int(wrong, 0, "%zu values that nobody reads", ACCEL_ARRAY_SIZE(skipped));
    for (int depth = 31; depth <= 33; depth++)
        for (int object = 0; object < 2; object++) {
            char deep[100] = "";

            memset(deep, '[', (size_t)depth);
            strcat(deep, object ? " {}" : " 7");
            memset(deep + strlen(deep), ']', (size_t)depth);
            tap_is_str(skips(deep),
                       depth <= 32 ? "" : "byte 39: objects and lists nest too deeply",
                       "%s in %d lists", object ? "an object" : "a number", depth);
        }
}

int main(void)
{
    run_folder_new(folder);
    for (int row = 0; row < (int)ACCEL_ARRAY_SIZE(rows); row++)
        test_row(row);
    test_skipped();
    test_lengths();
    run_folder_remove(folder);
    return tap_done();
}
