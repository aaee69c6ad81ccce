/* SPDX-License-Identifier: Apache-2.0
 *
 * The world of libacceljob's tests (attempt_world.h).
 */
#include "tests/unit/attempt_world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/world/run_folder.h"

int64_t world_ns = WORLD_BEGIN * WORLD_SECOND;
int world_read_error, world_write_error, world_pause_signal;
char world_said[8192];

static char folder[] = "/tmp/accel-attempt.XXXXXX";

static ssize_t fail(int error)
{
    errno = error;
    return -1;
}

/* ---- in place of libc's ---------------------------------------------------------- */

/* Exported: the library must find these before libc's. */
#pragma GCC visibility push(default)

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){ .tv_sec = world_ns / WORLD_SECOND,
                              .tv_nsec = world_ns % WORLD_SECOND };
    return 0;
}

time_t time(time_t *now)
{
    const time_t seconds = world_ns / WORLD_SECOND;

    if (now)
        *now = seconds;
    return seconds;
}

int nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)left;
    world_ns += pause->tv_sec * WORLD_SECOND + pause->tv_nsec;
    return world_pause_signal ? raise(world_pause_signal) : 0;
}

ssize_t read(int fd, void *buf, size_t n)
{
    const int error = world_read_error;

    if (error == EINTR) /* the next one works */
        world_read_error = 0;
    return error ? fail(error) : syscall(SYS_read, fd, buf, n);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    return world_write_error ? fail(world_write_error) : syscall(SYS_write, fd, buf, n);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return world_write_error ? fail(world_write_error)
                             : syscall(SYS_pwrite64, fd, buf, n, at);
}

#pragma GCC visibility pop

/* ---- files ----------------------------------------------------------------------- */

void world_begin(void)
{
    alarm(HANG_S);
    setenv("TZ", "UTC", 1);
    run_folder_new(folder);
    /* as if it were not there, whatever has started this program */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
}

void world_end(void)
{
    setenv("PATH", "/usr/bin:/bin", 1);
    run_folder_remove(folder);
}

void world_new(void)
{
    static const char *const ours[] = {
        "ACCEL_PREEMPTION",    "ACCEL_PREEMPTION_NOTICE", "ACCEL_WARNING",
        "ACCEL_RESTART_COUNT", "ACCEL_FIRST_JOB_ID",      "SLURM_JOB_ID",
        "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME",      "SLURM_JOB_END_TIME",
        "SLURM_STEP_ID",
    };
    char command[160], path[160];

    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        unsetenv(ours[i]);
    setenv("PATH", "/usr/bin:/bin", 1);
    snprintf(command, sizeof(command), "rm -rf '%s'/* && mkdir '%s/bin'", folder,
             folder);
    if (system(command) != 0)
        tap_skip_all("the folder cannot be emptied");
    snprintf(path, sizeof(path), "%s/bin", folder);
    setenv("PATH", path, 1);
    world_ns = WORLD_BEGIN * WORLD_SECOND;
}

const char *world_path(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

const char *world_ckpt(const char *name)
{
    char inside[160];

    snprintf(inside, sizeof(inside), "ckpt%s%s", *name ? "/" : "", name);
    return world_path(inside);
}

bool world_has(const char *path)
{
    return access(path, F_OK) == 0;
}

const char *world_text(const char *path)
{
    static char text[64 << 10];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n > 0 && text[n - 1] == '\n' ? n - 1 : n] = '\0';
    if (f)
        fclose(f);
    return text;
}

void world_write(const char *path, const char *text)
{
    run_folder_write(path, text);
}

int world_count(const char *path, const char *part)
{
    const char *text = world_text(path);
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)); n++)
        at += strcspn(at, "\n");
    return n;
}

void world_job(const char *job, int restart)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", restart);
    setenv("SLURM_JOB_ID", job, 1);
    setenv("ACCEL_RESTART_COUNT", number, 1);
}

void world_scontrol(const char *show, const char *requeue)
{
    char text[2048];

    snprintf(
        text, sizeof(text),
        "#!/bin/sh\necho \"$*\" >>'%s'\ncase $1 in\nrequeue) :\n%s\n;;\n*) :\n%s\n;;"
        "\nesac\n",
        world_path("calls"), requeue, show);
    world_write(world_path("bin/scontrol"), text);
    chmod(world_path("bin/scontrol"), 0755);
}

/* ---- attempts -------------------------------------------------------------------- */

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    const size_t used = strlen(world_said);

    (void)user, (void)level;
    snprintf(world_said + used, sizeof(world_said) - used, "%s%s", used ? " | " : "",
             line);
}

accel_attempt_t *world_try(int rank, int size, accel_error_t *err)
{
    accel_attempt_t *attempt = NULL;

    world_said[0] = '\0';
    memset(err, 0, sizeof(*err));
    accel_attempt_open(world_ckpt(""), rank, size, 1, keep_line, NULL, &attempt, err);
    return attempt;
}

accel_attempt_t *world_open(int rank, int size)
{
    accel_error_t err;
    accel_attempt_t *attempt = world_try(rank, size, &err);

    if (!attempt) {
        printf("Bail out! no attempt: %s\n", err.text);
        world_end();
        exit(1);
    }
    return attempt;
}

void world_stop(accel_attempt_t *attempt, int sig)
{
    raise(sig);
    accel_attempt_agreed(attempt, accel_attempt_vote(attempt));
}

accel_status_t world_save(accel_attempt_t *attempt, int64_t step, double seconds)
{
    int save = 0;
    accel_status_t st = accel_attempt_save_begin(attempt, step, &save, NULL);

    world_ns += (int64_t)(seconds * 1e9);
    return st != ACCEL_OK ? st : accel_attempt_note_save(attempt, step, NULL);
}
