/* SPDX-License-Identifier: Apache-2.0
 *
 * What the saves of a run make of a disk that fails: the last one, at the end and when
 * told to stop, is tried again a few times; one in the middle is passed over. The
 * output directories that a run makes are durable.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/accel_ckpt.h"
#include "common/common.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/world/run_folder.h"
#include "tests/unit/disk_shim.h"

static char dir[256];
static char config[300];
static int warnings; /* of the last checkpoint */
static char warned[400];

static void log_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    if (level != ACCEL_LOG_WARN || !strstr(line, "cannot save the"))
        return;
    warnings += strstr(line, "the last checkpoint") != NULL;
    snprintf(warned, sizeof(warned), "%s", line);
}

/* The first `broken` commits fail, or beginnings; -1: all. `reason`: how. */
static const char commits[] = "renameat2", begins[] = "mkdirat", *refused = commits;
static int broken, reason;

static int no_call(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, refused) != 0 || !strstr(name, "step_") || broken == 0)
        return 0;
    broken -= broken > 0;
    return reason;
}

/* A run of two steps of one parameter, told to stop after `stop` of them (0: never). */
static accel_status_t train(const char *name, int stop, accel_error_t *err)
{
    static const int64_t one[] = { 1 };
    accel_options_t o = { sizeof(o), .config_file = config, .run_name = "last",
                          .threads = 1, .log = log_line };
    accel_job_t j = { sizeof(j), .steps = 2, .batch = 4, .seed = 3 };
    accel_status_t st;
    accel_unit_t *u = NULL;
    accel_t *run = NULL;
    char out[400];

    snprintf(out, sizeof(out), "%s/%s", dir, name);
    j.out_dir = out;
    j.optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .kind = ACCEL_SGD,
                                        .lr = 0.5f };
    st = accel_open(&run, &o, err);
    if (!st)
        u = accel_unit_new(run, "a", err);
    ACCEL_TRY(st, accel_unit_param(u, "weight", 1, one,
                                   (accel_init_t){ ACCEL_INIT_ZEROS, 0 }, NULL, err));
    ACCEL_TRY(st, accel_prepare(run, &j, err));
    disk_paused_ms = warnings = 0;
    disk_hook = no_call;
    for (int i = 1; !st && accel_more(run); i++) {
        int64_t index[4];
        float *g;

        st = accel_next_samples(run, index, 4, err);
        ACCEL_TRY(st, accel_unit_gradient(u, 0, &g, err));
        ACCEL_TRY(st, accel_finish_backward(run, 1.0, err));
        if (i == stop)
            raise(SIGUSR1);
        ACCEL_TRY(st, accel_step(run, err));
    }
    disk_hook = NULL;
    accel_close(run, NULL);
    return st;
}

/* The newest complete step of a run, or -1. */
static int64_t newest(const char *name)
{
    accel_ckpt_info_t *list = NULL;
    int64_t step = -1;
    char root[400];
    size_t n = 0;

    snprintf(root, sizeof(root), "%s/%s/checkpoints", dir, name);
    accel_ckpt_list(root, &list, &n, NULL);
    for (size_t i = n; i-- > 0;)
        if (list[i].complete)
            step = list[i].step;
    free(list);
    return step;
}

static void test_end(void)
{
    accel_error_t err = { 0 };

    reason = EIO;
    broken = 1;
    tap_is_int(train("once", 0, &err), ACCEL_OK, "one failure at the end: tried again");
    tap_is_int(newest("once"), 2, "and saved");
    tap_is_int(warnings, 1, "with a warning: %s", warned);
    tap_ok(strstr(warned, "attempt 1 of 4") && strstr(warned, "Input/output error"),
           "which says why");
    tap_is_int(disk_paused_ms, 1000, "after a second");
    broken = 3;
    tap_is_int(train("thrice", 0, &err), ACCEL_OK, "three failures are survived");
    tap_is_int(newest("thrice"), 2, "saved");
    tap_is_int(disk_paused_ms, 7000, "after 1, 2 and 4 seconds");
    broken = -1;
    tap_is_int(train("never", 0, &err), ACCEL_EIO, "a disk that stays broken: %s",
               err.text);
    tap_is_int(warnings, 3, "four tries in all");
    tap_is_int(disk_paused_ms, 7000, "and no pause behind the last");
    tap_is_int(newest("never"), -1, "nothing visible");
    refused = begins;
    tap_is_int(train("begin", 0, &err), ACCEL_EIO, "no save can begin: %s", err.text);
    refused = commits;
}

static void test_stop(void)
{
    accel_error_t err = { 0 };

    reason = ENOSPC;
    broken = 2;
    tap_ok(train("stop", 1, &err) != ACCEL_OK && strstr(err.text, "signalled"),
           "told to stop: %s", err.text);
    tap_is_int(newest("stop"), 1, "the step is saved at the third try");
    tap_is_int(warnings, 2, "two warnings");
}

/* Which of the directories that got a new one were fsynced: a bit each. */
static int made_in;

static void synced(int fd)
{
    const char *const made[] = { "", "/new", "/new/out" };
    char self[64], path[400], want[400];
    ssize_t n;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(made); i++) {
        snprintf(want, sizeof(want), "%s%s", dir, made[i]);
        if (strcmp(path, want) == 0)
            made_in |= 1 << i;
    }
}

static void test_directories(void)
{
    accel_error_t err = { 0 };

    broken = 0;
    disk_synced = synced;
    tap_is_int(train("new/out", 0, &err), ACCEL_OK, "a run in new directories (%s)",
               err.text);
    disk_synced = NULL;
    tap_is_int(made_in, 7, "each directory that got a new one was fsynced");
}

int main(void)
{
    char real[PATH_MAX];

    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    unsetenv("ACCEL_CONFIG_RESOLVED");
    world_tmpdir(dir, "save-last");
    if (!realpath(dir, real) ||
        (size_t)snprintf(dir, sizeof(dir), "%s", real) >= sizeof(dir))
        return 1;
    snprintf(config, sizeof(config), "%s/c.yaml", dir);
    run_folder_write(config, "distributed_type: 'NO'\nuse_cpu: true\n");
    test_end();
    test_stop();
    test_directories();
    world_rmtree(dir);
    return tap_done();
}
