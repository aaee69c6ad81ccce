/* SPDX-License-Identifier: Apache-2.0
 *
 * observe/: the JSONL log keeps each step once over restarts, whatever a killed run
 * left; the progress line; memory of this process.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/observe.h"
#include "tests/tap.h"

static char last_line[512];
static int lines;

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(last_line, sizeof(last_line), "%s", line);
    lines++;
}

static const struct accel_log log_to_test = { keep_line, NULL, ACCEL_LOG_INFO };

static accel_status_t write_steps(const char *path, int64_t done, int64_t first,
                                  int64_t last)
{
    struct observe o = { .total_steps = 100, .every = 10, .log = &log_to_test };
    accel_error_t err = { 0 };
    accel_status_t st = observe_open(&o, path, done, &err);

    for (int64_t i = first; st == ACCEL_OK && i <= last; i++) {
        struct observe_step s = { .step = i,
                                  .loss = 1.0 / 3,
                                  .lr = 1e-3,
                                  .grad_norm = 2,
                                  .step_ms = 50,
                                  .items = 1000,
                                  .tokens = true,
                                  .eval_loss = NAN };

        observe_step(&o, &s);
    }
    observe_sync(&o);
    observe_close(&o);
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
    tap_ok(observe_memory(NULL) > 100000, "memory of this process is known");
    unlink(path);
    rmdir(dir);
    return tap_done();
}
