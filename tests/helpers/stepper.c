/* SPDX-License-Identifier: Apache-2.0
 *
 * stepper FILE [requeue DIR]: a trainer reduced to its contract with Slurm. Rank 0 appends
 * one line "STEP RESTART" per step to FILE and continues there after a restart. SIGTERM,
 * SIGUSR1 or SIGUSR2: stops after the step and exits 85; with `requeue` rank 0 first asks
 * for the requeue as the library does. Ends 0 five steps after a restart; 3 if none comes.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train/requeue.h"

#define STEPS_AFTER_RESTART 5
#define STEPS_AT_MOST       3000 /* of 20 ms each */

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

static void ask_for_requeue(const char *dir, int signal_number)
{
    struct accel_log log = { .fn = say, .level = ACCEL_LOG_INFO };
    struct requeue_request request = { .state_dir = dir,
                                       .signal = signal_number,
                                       .lead_seconds = 120 };
    enum requeue_result result;
    accel_error_t err = { 0 };

    if (requeue_job(&request, &log, &result, &err) != ACCEL_OK)
        fprintf(stderr, "stepper: %s\n", err.text);
    else
        fprintf(stderr, "stepper: requeue: %s\n", requeue_result_text(result));
}

int main(int argc, char **argv)
{
    const struct timespec step_time = { .tv_nsec = 20 * 1000 * 1000 };
    const struct timespec asking_time = { .tv_sec = 30 };
    long rank = env_long("ACCEL_RANK", 0), restart = env_long("ACCEL_RESTART_COUNT", 0);
    sigset_t stop;
    int step, first, caught;

    if (argc != 2 && argc != 4)
        return 64;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGUSR1);
    sigaddset(&stop, SIGUSR2);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    first = step = last_step(argv[1]);
    while (step - first < (restart > 0 ? STEPS_AFTER_RESTART : STEPS_AT_MOST)) {
        step++;
        caught = sigtimedwait(&stop, NULL, &step_time);
        if (rank == 0 && write_step(argv[1], step, restart) != 0)
            return 74;
        if (caught > 0) {
            if (rank == 0 && argc == 4)
                ask_for_requeue(argv[3], caught);
            if (rank != 0 && argc == 4) /* as the library: leave after rank 0 has asked,
                                           or srun's kill-on-bad-exit ends it midway */
                sigtimedwait(&stop, NULL, &asking_time);
            return 85;
        }
    }
    return restart > 0 ? 0 : 3;
}
