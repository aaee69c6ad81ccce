/* SPDX-License-Identifier: Apache-2.0
 *
 * stepper FILE [requeue=DIR] [exit=N] [save=MS] [ignore]: a program that trains on
 * nothing, reduced to its contract with Slurm. Rank 0 appends one line "STEP RESTART"
 * per step to FILE and continues there after a restart; each other rank makes FILE.RANK
 * once signals reach it; every rank appends "RANK RESTART SIGNAL" to FILE.signals.
 * SIGTERM, SIGUSR1 or SIGUSR2: stops after the step, saves for MS and exits 85, or N,
 * or goes on; with `requeue` rank 0 first asks for the requeue as the library does,
 * which may end in 75. Ends 0 five steps after a restart; 3 if none comes.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preemption/requeue.h"

#define STEPS_AFTER_RESTART 5
#define STEPS_AT_MOST       30000 /* of 20 ms each */

static int last_step(const char *path)
{
    FILE *f = fopen(path, "r");
    int step = 0, restart = 0;

    while (f && fscanf(f, "%d %d", &step, &restart) == 2)
        ;
    if (f)
        fclose(f);
    return step;
}

static int write_step(const char *path, int step, long restart)
{
    FILE *f = fopen(path, "a");

    if (!f)
        return -1;
    fprintf(f, "%d %ld\n", step, restart);
    return fclose(f);
}

static void say(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "stepper: %s\n", line);
}

static void write_signal(const char *path, long rank, long restart, int sig)
{
    char name[4096];
    FILE *f;

    snprintf(name, sizeof(name), "%s.signals", path);
    f = fopen(name, "a");
    if (!f)
        return;
    fprintf(f, "%ld %ld %s\n", rank, restart, sigabbrev_np(sig));
    fclose(f);
}

/* Returns the exit code. */
static int ask_for_requeue(const char *dir, int signal_number)
{
    const char *notice = getenv("ACCEL_PREEMPTION_NOTICE");
    struct accel_log log = { .fn = say, .level = ACCEL_LOG_INFO };
    struct requeue_request request = { .state_dir = dir,
                                       .signal = signal_number,
                                       .lead_seconds = 120,
                                       .grace_seconds = -1,
                                       .restart = env_long("SLURM_RESTART_COUNT", 0),
                                       .max_restarts = 100 };
    struct requeue_ending e;
    long long grace;

    if (notice && sscanf(notice, "%*s %*s %lld", &grace) == 1)
        request.grace_seconds = grace;
    e = requeue_look(&request, &log);
    if (e.result == REQUEUE_DONE)
        e.result = requeue_ask(&request, e.job, &log);
    fprintf(stderr, "stepper: %s; %s\n", stop_reason_text(e.reason),
            requeue_result_text(e.result));
    return e.result == REQUEUE_NOT_MEANT || e.result == REQUEUE_LIMIT ? 75 : 85;
}

struct settings {
    const char *file, *requeue_dir;
    int exit_code, save_ms;
    bool ignore;
    long rank, restart;
};

static bool make_sign(const struct settings *s)
{
    char name[4096];
    FILE *f;

    snprintf(name, sizeof(name), "%s.%ld", s->file, s->rank);
    f = fopen(name, "w");
    return f && fclose(f) == 0;
}

static bool parse(struct settings *s, int argc, char **argv)
{
    if (argc < 2)
        return false;
    s->file = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "requeue=", 8))
            s->requeue_dir = argv[i] + 8;
        else if (!strncmp(argv[i], "exit=", 5))
            s->exit_code = atoi(argv[i] + 5);
        else if (!strncmp(argv[i], "save=", 5))
            s->save_ms = atoi(argv[i] + 5);
        else if (!strcmp(argv[i], "ignore"))
            s->ignore = true;
        else
            return false;
    }
    return true;
}

/* What to do about `sig`; true: it ends the run. */
static bool ends(struct settings *s, int sig)
{
    const struct timespec asking_time = { .tv_sec = 30 };
    const struct timespec save = { s->save_ms / 1000, s->save_ms % 1000 * 1000000L };
    sigset_t stop;

    write_signal(s->file, s->rank, s->restart, sig);
    if (sig == SIGCONT || s->ignore)
        return false;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    nanosleep(&save, NULL);
    if (s->requeue_dir && s->rank == 0)
        s->exit_code = ask_for_requeue(s->requeue_dir, sig);
    if (s->requeue_dir && s->rank != 0) {
        /* As the library: leave after rank 0 has asked, or srun's kill-on-bad-exit ends
         * it midway. srun ends with the largest code, so rank 0 decides. */
        sigtimedwait(&stop, NULL, &asking_time);
        s->exit_code = 75;
    }
    return true;
}

int main(int argc, char **argv)
{
    const struct timespec step_time = { .tv_nsec = 20 * 1000 * 1000 };
    struct settings s = { .exit_code = 85 };
    sigset_t seen;
    int step, first, caught;

    if (!parse(&s, argc, argv))
        return 64;
    s.rank = env_long("ACCEL_RANK", 0);
    s.restart = env_long("ACCEL_RESTART_COUNT", 0);
    sigemptyset(&seen);
    sigaddset(&seen, SIGTERM);
    sigaddset(&seen, SIGUSR1);
    sigaddset(&seen, SIGUSR2);
    sigaddset(&seen, SIGCONT);
    sigprocmask(SIG_BLOCK, &seen, NULL);
    if (s.rank != 0 && !make_sign(&s))
        return 74;
    first = step = last_step(s.file);
    while (step - first < (s.restart > 0 ? STEPS_AFTER_RESTART : STEPS_AT_MOST)) {
        step++;
        caught = sigtimedwait(&seen, NULL, &step_time);
        if (s.rank == 0 && write_step(s.file, step, s.restart) != 0)
            return 74;
        if (caught > 0 && ends(&s, caught))
            return s.exit_code;
    }
    return s.restart > 0 ? 0 : 3;
}
