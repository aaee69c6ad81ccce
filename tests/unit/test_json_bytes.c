/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON of safetensors, byte by byte: each one of a header and of an index that the
 * grammar needs is left out, doubled, or another one, and refused.
 */
#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "tests/tap.h"
#include "tests/unit/run_folder.h"
#include "weights/safetensors/accel_safetensors.h"

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

int main(void)
{
    run_folder_new(folder);
    for (int row = 0; row < (int)ACCEL_ARRAY_SIZE(rows); row++)
        test_row(row);
    run_folder_remove(folder);
    return tap_done();
}
