/* SPDX-License-Identifier: Apache-2.0
 *
 * observe/: the JSONL log keeps each step once over restarts, whatever a killed run
 * left; a record and its progress line, byte by byte; a later attempt that has taken
 * the log; memory of this process.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/observe.h"
#include "tests/tap.h"

static char last_line[512], said[1024];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(last_line, sizeof(last_line), "%s", line);
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static const struct accel_log log_to_test = { keep_line, NULL, ACCEL_LOG_INFO };

static accel_status_t write_steps(const char *path, int64_t done, int64_t first,
                                  int64_t last)
{
    struct observe o = { .total_steps = 100, .every = 10, .writer.log = &log_to_test };
    accel_error_t err = { 0 };
    accel_status_t st = observe_open(&o, path, done, &err);

    for (int64_t i = first; st == ACCEL_OK && i <= last; i++) {
        struct step_record s = { .info = { 0, i, 1.0 / 3, .rate = 20000, .total_ms = 50,
                                           .lr = { 1e-3 } },
                                 .grad_norm = 2,
                                 .tokens = true,
                                 .eval_loss = NAN };

        observe_step(&o, &s);
    }
    lines_sync(&o.file);
    lines_close(&o.file);
    return st;
}

/* Number of records; checks that step i stands on line i. */
static int count_in_order(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[1024], want[64];
    int n = 0;

    while (f && fgets(line, sizeof(line), f)) {
        snprintf(want, sizeof(want), "{\"step\":%d,\"loss\":0.33333333333333331,",
                 n + 1);
        if (strncmp(line, want, strlen(want)) != 0)
            break;
        n++;
    }
    if (f)
        fclose(f);
    return n;
}

static void read_log(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");

    text[f ? fread(text, 1, size - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
}

/* ---- a record, byte by byte ------------------------------------------------------ */

static int asked;

static int64_t device_peak(const void *bytes)
{
    asked++;
    return *(const int64_t *)bytes;
}

/* More memory than this process has, so that no sample changes what is expected. */
#define PEAK (INT64_C(1) << 50)

static const int64_t device = 3 << 20;
static const struct {
    struct step_record step;
    bool device;
    int asked;
    const char *record, *items, *said;
} rows[] = {
    { { { 0, 5, 1.0 / 3, 20000, .lr = { 1e-3 }, .total_ms = 50 }, 2, true, NAN, 0 },
      false,
      0,
      "{\"step\":5,\"loss\":0.33333333333333331,\"lr\":0.001,\"step_ms\":50.000,"
      "\"tokens_per_s\":20000.0,\"grad_norm\":2,\"mem_peak_bytes\":"
      "1125899906842624}\n",
      "train/loss=0.33333333333333331 train/lr=0.001 train/grad_norm=2 "
      "train/step_ms=50 train/tokens_per_s=20000 "
      "train/mem_peak_bytes=1125899906842624 ",
      "" },
    { { { 0, 6, 2, 5.67, .lr = { 1.0 / 3 }, .total_ms = 1234.5678 },
        0.1,
        false,
        NAN,
        0 },
      true,
      0,
      "{\"step\":6,\"loss\":2,\"lr\":0.333333333,\"step_ms\":1234.568,"
      "\"samples_per_s\":5.7,\"grad_norm\":0.10000000000000001,"
      "\"mem_peak_bytes\":1125899906842624,\"gpu_peak_bytes\":0}\n",
      "train/loss=2 train/lr=0.33333333333333331 "
      "train/grad_norm=0.10000000000000001 "
      "train/step_ms=1234.5678 train/samples_per_s=5.6699999999999999 "
      "train/mem_peak_bytes=1125899906842624 train/gpu_peak_bytes=0 ",
      "" },
    { { { 0, 7, 1.5, 702.8, .total_ms = 9.96 }, INFINITY, false, 0.7, 0 },
      true,
      1,
      "{\"step\":7,\"loss\":1.5,\"lr\":0,\"step_ms\":9.960,\"samples_per_s\":702.8,"
      "\"grad_norm\":null,\"mem_peak_bytes\":1125899906842624,"
      "\"gpu_peak_bytes\":3145728,\"eval_loss\":0.69999999999999996}\n",
      "train/loss=1.5 train/lr=0 train/grad_norm=inf "
      "train/step_ms=9.9600000000000009 train/samples_per_s=702.79999999999995 "
      "train/mem_peak_bytes=1125899906842624 train/gpu_peak_bytes=3145728 "
      "eval/loss=0.69999999999999996 ",
      "step 7/25 loss 1.5000 lr 0.0e+00 10.0 ms 703 samples/s norm inf mem 1.0 PiB "
      "gpu 3.0 MiB\nstep 7/25 held-out loss 0.7000\n" },
    { { { 0, 25, NAN, .lr = { 1e-8 } }, NAN, true, INFINITY, 0 },
      false,
      0,
      "{\"step\":25,\"loss\":null,\"lr\":1e-08,\"step_ms\":0.000,"
      "\"tokens_per_s\":0.0,\"grad_norm\":null,\"mem_peak_bytes\":1125899906842624,"
      "\"eval_loss\":null}\n",
      "train/loss=nan train/lr=1e-08 train/grad_norm=nan train/step_ms=0 "
      "train/tokens_per_s=0 train/mem_peak_bytes=1125899906842624 eval/loss=inf ",
      "step 25/25 loss nan lr 1.0e-08 0.0 ms 0 tok/s norm nan mem 1.0 PiB\n"
      "step 25/25 held-out loss inf\n" },
};

static void test_bytes(const char *path)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct observe o = { .total_steps = 25,
                             .every = 10,
                             .peak_bytes = PEAK,
                             .device_peak = rows[i].device ? device_peak : NULL,
                             .device_user = &device,
                             .writer.log = &log_to_test };
        struct step_record r = rows[i].step;
        accel_item_t item[STEP_ITEMS];
        accel_error_t err = { 0 };
        char text[1024];
        int n = 0;

        asked = 0;
        said[0] = '\0';
        if (observe_open(&o, path, 0, &err))
            tap_diag("%s", err.text);
        observe_step(&o, &r);
        lines_close(&o.file);
        read_log(path, text, sizeof(text));
        tap_is_str(text, rows[i].record, "record %zu", i);
        tap_is_str(said, rows[i].said, "its progress line");
        tap_is_int(asked, rows[i].asked, "the device is asked when a line is due");
        text[0] = '\0';
        for (int k = 0, items = step_items(&r, item); k < items; k++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s=%.17g ",
                          item[k].kind ? "?" : item[k].name, item[k].value);
        tap_is_str(text, rows[i].items, "its items, in their order");
    }
}

/* ---- attempts of a job ---------------------------------------------------------- */

static bool answer(void *ours)
{
    return *(bool *)ours;
}

/* The log's name is another attempt's while the first one still writes. */
static void test_taken_over(const char *path)
{
    bool ours = false;
    struct observe first = { .every = 10, .writer = { &log_to_test, answer, &ours } };
    struct observe second = { .every = 10, .writer.log = &log_to_test };
    struct step_record s = { .info.step = 11, .eval_loss = NAN };
    accel_error_t err = { 0 };
    char text[1024];

    if (observe_open(&first, path, 0, &err))
        tap_diag("%s", err.text);
    observe_step(&first, &s);
    if (observe_open(&second, path, 10, &err))
        tap_diag("%s", err.text);
    observe_step(&first, &s);
    read_log(path, text, sizeof(text));
    tap_is_str(text, "",
               "a record of the first attempt does not get into the second's log");
    ours = true;
    observe_step(&first, &s);
    read_log(path, text, sizeof(text));
    tap_ok(!strncmp(text, "{\"step\":11,", 11), "unless the log is its own again");
    lines_close(&first.file);
    lines_close(&second.file);
}

int main(void)
{
    char dir[] = "/tmp/accel-observe.XXXXXX", path[64];
    struct observe o = { .total_steps = 1, .every = 1 };
    accel_error_t err = { 0 };
    FILE *f;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/log.jsonl", dir);
    tap_is_int(write_steps(path, 0, 1, 30), ACCEL_OK, "30 records written");
    tap_is_int(count_in_order(path), 30, "each once, full precision");
    tap_ok(strstr(last_line, "step 30/100 loss 0.3333 lr 1.0e-03 50 ms 20.0k tok/s"),
           "progress line");
    tap_diag("%s", last_line);

    f = fopen(path, "a");
    fprintf(f, "{\"step\":31,\"lo");
    fclose(f);
    tap_is_int(write_steps(path, 20, 21, 40), ACCEL_OK,
               "resumed at step 20 after a kill");
    tap_is_int(count_in_order(path), 40, "each step once, no torn line");
    tap_is_int(write_steps(path, 40, 41, 40), ACCEL_OK, "resumed with nothing to do");
    tap_is_int(count_in_order(path), 40, "nothing lost");
    tap_is_int(write_steps(path, 0, 1, 5), ACCEL_OK,
               "started again from the beginning");
    tap_is_int(count_in_order(path), 5, "old records are gone");

    tap_is_int(observe_open(&o, "/nonexistent-dir/log.jsonl", 0, &err), ACCEL_ECREATE,
               "a log that cannot be created is an error");
    tap_is_str(err.where, "/nonexistent-dir/log.jsonl", "and names the file");
    test_bytes(path);
    test_taken_over(path);
    tap_ok(observe_memory(NULL) > 100000, "memory of this process is known");
    unlink(path);
    rmdir(dir);
    return tap_done();
}
