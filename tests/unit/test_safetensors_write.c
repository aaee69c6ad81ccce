/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: how tensors are spread over shards, the bytes of header and
 * index, what is refused, values in pieces and transposed, and what is left when
 * nothing was committed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel_safetensors.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

static char root[256], dir[300];

/* A name below dir; valid until the next call. */
static const char *path_of(const char *name)
{
    static char path[600];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

/* The content of a file below dir, with a NUL behind it; "" for none. */
static const char *content(const char *name)
{
    static char text[4096];
    FILE *f = fopen(path_of(name), "re");
    size_t n = 0;

    if (f) {
        n = fread(text, 1, sizeof(text) - 1, f);
        fclose(f);
    }
    text[n] = '\0';
    return text;
}

static bool has(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static int files_in_dir(void)
{
    return access(dir, F_OK) == 0 ? world_names_in(dir, "") : 0;
}

static void new_dir(void)
{
    static int count;

    snprintf(dir, sizeof(dir), "%s/%d", root, count++);
}

static float value(size_t tensor, int64_t i)
{
    return (float)((i * 31 + (int64_t)tensor * 7) % 127) - 60;
}

/* Writes and commits n vectors of these elements; the status. */
static accel_status_t write_all(const int64_t *elems, size_t n, int64_t shard_bytes,
                                accel_error_t *err)
{
    accel_safetensors_entry_t e[8] = { { 0 } };
    accel_safetensors_writer_t *w = NULL;
    static char name[8][8];
    accel_status_t st;

    for (size_t i = 0; i < n; i++) {
        snprintf(name[i], sizeof(name[i]), "t%zu", i);
        e[i] = (accel_safetensors_entry_t){ name[i], 1, { elems[i] }, NULL };
    }
    new_dir();
    st = accel_safetensors_create(&w, dir, "F32", e, n, shard_bytes, err);
    for (size_t i = 0; !st && i < n; i++)
        for (int64_t k = 0; !st && k < elems[i]; k++)
            st = accel_safetensors_write(w, i, k, 1, &(float){ value(i, k) }, err);
    if (!st)
        st = accel_safetensors_commit(w, NULL, NULL, err);
    accel_safetensors_writer_close(w);
    return st;
}

/* A commit that fails half-way leaves nothing that a second one would meet. */
static void test_failed_commit(void)
{
    static const accel_safetensors_entry_t e[] = { { "a", 1, { 4 }, NULL },
                                                   { "b", 1, { 4 }, NULL },
                                                   { "c", 1, { 4 }, NULL } };
    static const char *const obstacles[] = { "model-00002-of-00003.safetensors",
                                             "model.safetensors.index.json" };
    accel_safetensors_writer_t *w = NULL;
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(obstacles); i++) {
        const float values[4] = { 1, 2, 3, 4 };
        int failed;

        new_dir();
        accel_safetensors_create(&w, dir, "F32", e, 3, 16, &err);
        for (size_t k = 0; k < 3; k++)
            accel_safetensors_write(w, k, 0, 4, values, &err);
        mkdir(path_of(obstacles[i]), 0777);
        failed = accel_safetensors_commit(w, NULL, NULL, &err) != ACCEL_OK;
        accel_safetensors_writer_close(w);
        tap_ok(failed && files_in_dir() == 1, "%s is in the way: nothing else is left",
               obstacles[i]);
        rmdir(path_of(obstacles[i]));
    }
    tap_is_int(files_in_dir(), 0, "an empty directory");
}

/* Where t0, t1 ... are expected: one digit per tensor, the shard's number from 1. */
static void test_shards(void)
{
    static const struct {
        const char *what;
        int64_t elems[5], limit;
        const char *shard;
    } cases[] = {
        { "no limit", { 5, 5, 5, 5, 5 }, 0, "11111" },
        { "all fits exactly", { 1, 2, 3, 4, 5 }, 60, "11111" },
        { "a byte too few", { 1, 2, 3, 4, 5 }, 59, "11112" },
        { "two and two and one", { 5, 5, 5, 5, 5 }, 40, "11223" },
        { "each alone", { 5, 5, 5, 5, 5 }, 39, "12345" },
        { "each larger than a shard", { 5, 5, 5, 5, 5 }, 1, "12345" },
        { "one larger than a shard between", { 1, 1, 9, 1, 1 }, 8, "11233" },
        { "empty ones take no room", { 0, 2, 0, 2, 0 }, 8, "11122" },
        { "small ones behind a large one", { 2, 1, 1, 1, 1 }, 8, "12233" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        int64_t total = 0;
        accel_safetensors_t *s = NULL;
        accel_error_t err = { 0 };
        char got[6] = "", want[64];
        int last = cases[i].shard[4] - '0', wrong = 0;

        if (write_all(cases[i].elems, 5, cases[i].limit, &err) ||
            accel_safetensors_open(&s, dir, &err)) {
            tap_ok(false, "%s: %s", cases[i].what, err.text);
            continue;
        }
        for (size_t k = 0; k < 5; k++) {
            const accel_safetensors_tensor_t *t = accel_safetensors_at(s, k);
            float values[16] = { 0 };

            snprintf(want, sizeof(want), "model-%%05d-of-%05d.safetensors", last);
            for (int f = 1; f <= last; f++) {
                char name[64];

                snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", f, last);
                if (strcmp(t->file, last == 1 ? "model.safetensors" : name) == 0)
                    got[k] = (char)('0' + f);
            }
            total += t->bytes;
            wrong +=
                t->elems != cases[i].elems[k] ||
                accel_safetensors_read(s, t, 0, t->elems, values, &err) != ACCEL_OK;
            for (int64_t x = 0; x < t->elems; x++)
                wrong += values[x] != value(k, x);
        }
        tap_is_str(got, cases[i].shard, "%s: the shards", cases[i].what);
        tap_is_int(wrong, 0, "%s: the values", cases[i].what);
        snprintf(want, sizeof(want), "\"total_size\": %lld\n", (long long)total);
        tap_ok(last == 1
                   ? !has("model.safetensors.index.json")
                   : strstr(content("model.safetensors.index.json"), want) != NULL,
               "%s: the index", cases[i].what);
        tap_is_int(files_in_dir(), last + (last > 1), "%s: no other file",
                   cases[i].what);
        accel_safetensors_close(s);
    }
}

static void test_bytes(void)
{
    static const accel_safetensors_entry_t e[] = {
        { "b", 0, { 0 }, NULL },
        { "a\"\\\n\xc3\xa4", 2, { 1, 2 }, NULL },
        { "none", 3, { 2, 0, 1 }, NULL },
        { "deep", 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, NULL },
    };
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]},"
        "\"a\\u0022\\u005c\\u000a\xc3\xa4\":{\"dtype\":\"BF16\",\"shape\":[1,2],"
        "\"data_offsets\":[2,6]},"
        "\"none\":{\"dtype\":\"BF16\",\"shape\":[2,0,1],\"data_offsets\":[6,6]},"
        "\"deep\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[6,"
        "8]}}";
    size_t len = sizeof(header) - 1, padded = (len + 7) / 8 * 8;
    accel_safetensors_writer_t *w = NULL;
    accel_error_t err = { 0 };
    struct stat st;
    const char *got;

    new_dir();
    tap_is_int(accel_safetensors_create(&w, dir, "BF16", e, 4, 0, &err), ACCEL_OK,
               "names, scalars, nothing and 8 dimensions: %s", err.text);
    if (!w)
        return;
    tap_ok(!has("model.safetensors"), "nothing is visible before the commit");
    accel_safetensors_write(w, 1, 0, 2, (float[]){ 1, -2 }, &err);
    accel_safetensors_write(w, 0, 0, 1, (float[]){ 0.5f }, &err);
    tap_ok(accel_safetensors_commit(w, "config.json", "{}\n", &err) == ACCEL_EINVAL &&
               strstr(err.text, "deep: 0 of 1 elements"),
           "an element that is missing: %s", err.text);
    tap_ok(!has("model.safetensors") && !has("config.json"),
           "and still nothing is visible");
    accel_safetensors_write(w, 3, 0, 1, (float[]){ 3 }, &err);
    tap_is_int(accel_safetensors_commit(w, "config.json", "{}\n", &err), ACCEL_OK,
               "committed");
    accel_safetensors_writer_close(w);
    tap_is_str(content("config.json"), "{}\n", "the text file");
    got = content("model.safetensors");
    tap_ok(len % 8 != 0 &&
               (unsigned char)got[0] + 256 * (unsigned char)got[1] == (int)padded &&
               memcmp(got + 2, "\0\0\0\0\0", 6) == 0,
           "8 bytes of length: %d of %zu",
           (unsigned char)got[0] + 256 * (unsigned char)got[1], padded);
    tap_ok(memcmp(got + 8, header, len) == 0 &&
               strspn(got + 8 + len, " ") >= padded - len,
           "the header, filled with blanks");
    tap_ok(memcmp(got + 8 + padded, "\x00\x3f\x80\x3f\x00\xc0\x40\x40", 8) == 0,
           "the values");
    tap_ok(stat(path_of("model.safetensors"), &st) == 0 &&
               st.st_size == (off_t)(8 + padded + 8),
           "and no byte more");
    tap_is_int(files_in_dir(), 2, "two files");
    tap_ok(accel_safetensors_create(&w, dir, "BF16", e, 4, 0, &err) == ACCEL_ECREATE,
           "they are not replaced: %s", err.text);
}

static void test_refused(void)
{
    static const struct {
        const char *what;
        accel_safetensors_entry_t e[2];
        const char *dtype;
    } cases[] = {
        { "nine dimensions", { { "a", 9, { 1 }, NULL } }, "F32" },
        { "-1 dimensions", { { "a", -1, { 1 }, NULL } }, "F32" },
        { "a negative size", { { "a", 1, { -1 }, NULL } }, "F32" },
        { "too many elements", { { "a", 1, { INT64_MAX / 64 + 1 }, NULL } }, "F32" },
        { "a product that wraps",
          { { "a", 2, { INT64_C(1) << 33, INT64_C(1) << 33 }, NULL } },
          "F32" },
        { "no name", { { NULL, 0, { 0 }, NULL } }, "F32" },
        { "the name of the metadata",
          { { "__metadata__", 0, { 0 }, NULL }, { "a", 0, { 0 }, NULL } },
          "F32" },
        { "the same, last",
          { { "B", 0, { 0 }, NULL }, { "__metadata__", 0, { 0 }, NULL } },
          "F32" },
        { "a name twice", { { "a", 0, { 0 }, NULL }, { "a", 1, { 1 }, NULL } }, "F32" },
        { "float64", { { "a", 0, { 0 }, NULL } }, "F64" },
        { "integers", { { "a", 0, { 0 }, NULL } }, "I32" },
        { "integers of 64 bits", { { "a", 0, { 0 }, NULL } }, "I64" },
        { "an unknown dtype", { { "a", 0, { 0 }, NULL } }, "F31" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_safetensors_writer_t *w = NULL;
        accel_error_t err = { 0 };
        size_t n = 1 + (cases[i].e[1].name != NULL);

        new_dir();
        tap_ok(accel_safetensors_create(&w, dir, cases[i].dtype, cases[i].e, n, 0,
                                        &err) == ACCEL_EINVAL &&
                   !w && access(dir, F_OK) != 0,
               "%s: %s", cases[i].what, err.text);
    }
    tap_is_int(accel_safetensors_create(&(accel_safetensors_writer_t *){ NULL },
                                        "/proc/x", "F32", cases[9].e, 1, 0,
                                        &(accel_error_t){ 0 }),
               ACCEL_ECREATE, "no directory can be made");
}

/* A matrix written in pieces of many sizes, straight and transposed, is the same
 * file. */
static void test_values(void)
{
    static const int64_t shapes[][2] = { { 1, 1 },     { 1, 9 },    { 9, 1 },
                                         { 5, 7 },     { 64, 3 },   { 3, 64 },
                                         { 7, 40000 }, { 500, 600 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shapes); i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1], n = rows * cols, at = 0,
                step = 1;
        accel_safetensors_entry_t e[2] = { { "a", 2, { rows, cols }, NULL },
                                           { "b", 2, { rows, cols }, NULL } };
        float *transposed = malloc((size_t)n * 4), *flat = malloc((size_t)n * 4);
        float *got = malloc((size_t)n * 4);
        accel_safetensors_writer_t *w = NULL;
        accel_safetensors_t *s = NULL;
        accel_error_t err = { 0 };
        int bad = 0, wrong = 0;

        for (int64_t k = 0; k < n; k++) {
            flat[k] = value(0, k);
            transposed[k] = value(0, k % rows * cols + k / rows);
        }
        new_dir();
        bad += accel_safetensors_create(&w, dir, "F32", e, 2, 0, &err) != ACCEL_OK;
        for (; !bad && at < n; at += step, step = 3 * step + 1) {
            step = step < n - at ? step : n - at;
            bad += accel_safetensors_write(w, 0, at, step, flat + at, &err) != ACCEL_OK;
        }
        for (at = 0, step = 1; !bad && at < cols; at += step, step = 2 * step) {
            step = step < cols - at ? step : cols - at;
            bad += accel_safetensors_write_transposed(w, 1, at * rows, step * rows,
                                                      transposed + at * rows,
                                                      &err) != ACCEL_OK;
        }
        if (!bad && rows > 1)
            bad += accel_safetensors_write_transposed(w, 1, 1, rows, transposed,
                                                      &err) != ACCEL_EINVAL ||
                   accel_safetensors_write_transposed(w, 1, 0, 1, transposed, &err) !=
                       ACCEL_EINVAL;
        if (!bad)
            bad += accel_safetensors_write(w, 0, n, 1, flat, &err) != ACCEL_EINVAL ||
                   accel_safetensors_write(w, 0, -1, 1, flat, &err) != ACCEL_EINVAL ||
                   accel_safetensors_write(w, 0, 1, n, flat, &err) != ACCEL_EINVAL ||
                   accel_safetensors_write(w, 2, 0, 1, flat, &err) != ACCEL_EINVAL ||
                   accel_safetensors_write(w, 0, n, 0, flat, &err) != ACCEL_OK;
        bad += bad || accel_safetensors_commit(w, NULL, NULL, &err) != ACCEL_OK;
        accel_safetensors_writer_close(w);
        bad += bad || accel_safetensors_open(&s, dir, &err) != ACCEL_OK;
        for (size_t t = 0; !bad && t < 2; t++) {
            bad += accel_safetensors_read(s, accel_safetensors_at(s, t), 0, n, got,
                                          &err) != ACCEL_OK;
            wrong += memcmp(got, flat, (size_t)n * 4) != 0;
        }
        tap_ok(!bad && !wrong, "%lld x %lld: %s", (long long)rows, (long long)cols,
               err.text);
        accel_safetensors_close(s);
        free(transposed);
        free(flat);
        free(got);
    }
}

static void test_left(void)
{
    accel_safetensors_entry_t e[2] = { { "a", 1, { 4 }, NULL },
                                       { "b", 1, { 4 }, NULL } };
    accel_safetensors_writer_t *w = NULL;
    accel_error_t err = { 0 };

    new_dir();
    tap_is_int(accel_safetensors_create(&w, dir, "F16", e, 2, 8, &err), ACCEL_OK,
               "begun");
    tap_is_int(files_in_dir(), 2, "two files in progress");
    accel_safetensors_writer_close(w);
    tap_is_int(files_in_dir(), 0, "given up: nothing is left");
    tap_ok(mkdir(dir, 0700) == 0, "not even the directory");
    close(
        open(path_of(".model.safetensors.tmp"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    tap_is_int(accel_safetensors_create(&w, dir, "F16", e, 2, 0, &err), ACCEL_OK,
               "what a crash left is in nobody's way %s", err.text);
    accel_safetensors_writer_close(w);
    accel_safetensors_writer_close(NULL);
    tap_is_int(files_in_dir(), 0, "and goes with it");
    close(open(path_of("model.safetensors.index.json"), O_CREAT | O_WRONLY | O_CLOEXEC,
               0600));
    tap_ok(accel_safetensors_create(&w, dir, "F16", e, 2, 0, &err) == ACCEL_ECREATE &&
               strstr(err.text, "model.safetensors.index.json") && files_in_dir() == 1,
           "an index is not replaced either: %s", err.text);
}

/* Values of a dtype that is never converted, in two parts; float32 is refused. */
static void test_stored(void)
{
    const accel_safetensors_entry_t e = { "n", 1, { 3 }, "I64" };
    const int64_t value[3] = { -1, INT64_MAX, 7 };
    accel_safetensors_writer_t *w = NULL;
    accel_error_t err = { 0 };
    char stored[300], path[340];
    int64_t got[3] = { 0 };
    float zero = 0;
    FILE *f;

    snprintf(stored, sizeof(stored), "%s/stored", root);
    tap_ok(!accel_safetensors_create(&w, stored, "F32", &e, 1, 0, &err) &&
               accel_safetensors_write(w, 0, 0, 1, &zero, &err) == ACCEL_EINVAL &&
               !accel_safetensors_write_stored(w, 0, 1, 2, value + 1, &err) &&
               !accel_safetensors_write_stored(w, 0, 0, 1, value, &err) &&
               !accel_safetensors_commit(w, NULL, NULL, &err),
           "integers are written in parts, and take no floats");
    accel_safetensors_writer_close(w);
    snprintf(path, sizeof(path), "%s/model.safetensors", stored);
    f = fopen(path, "re");
    tap_ok(f && !fseek(f, -(long)sizeof(got), SEEK_END) &&
               fread(got, sizeof(got), 1, f) == 1 && !memcmp(got, value, sizeof(got)),
           "and are the file's last bytes");
    if (f)
        fclose(f);
}

/* What is refused of each call, with the numbers that the caller gave. */
static void test_ranges(void)
{
    static const accel_safetensors_entry_t e[] = { { "m", 2, { 4, 5 }, NULL },
                                                   { "v", 1, { 6 }, "I64" } };
    static const struct {
        char call; /* w, s(tored), t(ransposed) */
        size_t i;
        int64_t begin, count;
        const char *says; /* NULL: fine */
    } rows[] = {
        { 'w', 0, 20, 0, NULL },
        { 'w', 0, 20, 1, "entry 0 of 2 has no elements 20 to 21" },
        { 'w', 0, 21, 0, "entry 0 of 2 has no elements 21 to 21" },
        { 'w', 0, -1, 3, "entry 0 of 2 has no elements -1 to 2" },
        { 'w', 0, 3, -1, "entry 0 of 2 has no elements 3 to 2" },
        { 'w', 0, 1, 20, "entry 0 of 2 has no elements 1 to 21" },
        { 'w', 2, 0, 1, "entry 2 of 2 has no elements 0 to 1" },
        { 'w', 1, 0, 1, "entry 1 is I64: it takes no float32 values" },
        { 's', 1, 6, 0, NULL },
        { 's', 1, 4, 3, "entry 1 of 2 has no elements 4 to 7" },
        { 's', 2, 4, 3, "entry 2 of 2 has no elements 4 to 7" },
        { 't', 0, 4, 0, NULL },
        { 't', 0, 16, 8, "entry 0 of 2 has no elements 16 to 24" },
        { 't', 0, 2, 4, "entry 0: elements 2 to 6 are not whole rows" },
        { 't', 0, 4, 6, "entry 0: elements 4 to 10 are not whole rows" },
        { 't', 1, 0, 4, "entry 1 is I64: it takes no float32 values" },
    };
    static const float values[64];
    accel_safetensors_writer_t *w = NULL;
    accel_error_t err = { 0 };

    new_dir();
    if (!tap_ok(!accel_safetensors_create(&w, dir, "F32", e, 2, 0, &err), "%s",
                err.text))
        return;
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(rows); k++) {
        const size_t i = rows[k].i;
        const int64_t begin = rows[k].begin, count = rows[k].count;
        accel_status_t st;

        memset(&err, 0, sizeof(err));
        st = rows[k].call == 's'
                 ? accel_safetensors_write_stored(w, i, begin, count, values, &err)
             : rows[k].call == 't'
                 ? accel_safetensors_write_transposed(w, i, begin, count, values, &err)
                 : accel_safetensors_write(w, i, begin, count, values, &err);
        tap_is_int(st, rows[k].says ? ACCEL_EINVAL : ACCEL_OK, "%c %zu: %lld, %lld",
                   rows[k].call, i, (long long)begin, (long long)count);
        tap_is_str(err.text, rows[k].says ? rows[k].says : "", "and why");
    }
    accel_safetensors_writer_close(w);
}

int main(void)
{
    world_tmpdir(root, "st-write");
    test_stored();
    test_shards();
    test_failed_commit();
    test_bytes();
    test_refused();
    test_values();
    test_ranges();
    test_left();
    world_rmtree(root);
    return tap_done();
}
