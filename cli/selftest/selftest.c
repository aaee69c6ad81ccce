/* SPDX-License-Identifier: Apache-2.0
 *
 * accel-selftest: one rank of `accel test`, which starts it with the config
 * resolved in the environment. A program of its own, so that `accel` itself starts
 * without PMIx and UCX.
 *
 *     accel-selftest [--json] DIR             the test; DIR: where it may write
 *     accel-selftest --reference WORLD OUT    the same steps alone, losses on stdout
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/selftest/selftest.h"

/* Raises the signal that Slurm sends before a preemption and asks whether the run saw
 * it. The last check, because the run counts as stopping afterwards. */
static accel_status_t check_signal(struct selftest *t, struct check *c,
                                   accel_error_t *err)
{
    const struct config *cfg = &t->run->config;
    int sig = cfg->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1;
    const char *name = sig == SIGUSR2 ? "USR2" : "USR1";
    struct sigaction now;

    if (!cfg->preempt_enabled) {
        c->verdict = VERDICT_SKIPPED;
        snprintf(c->found, sizeof(c->found), "preemption is disabled");
        return ACCEL_OK;
    }
    /* A real warning must not be mistaken for the test's own. */
    if (accel_should_stop(t->run)) {
        c->verdict = VERDICT_SKIPPED;
        snprintf(c->found, sizeof(c->found), "this job is being preempted right now");
        return ACCEL_OK;
    }
    /* Raised without a handler the signal would end this process. */
    if (sigaction(sig, NULL, &now) != 0 || now.sa_handler == SIG_DFL ||
        now.sa_handler == SIG_IGN || raise(sig) != 0 || !accel_should_stop(t->run))
        return accel_fail(err, A0068,
                          "start it from a shell or script that does not ignore or "
                          "block the signal (trap '' USR1)",
                          "the warning before a preemption, SIG%s, does not reach the "
                          "run",
                          name);
    snprintf(c->found, sizeof(c->found), "SIG%s reaches every rank", name);
    return ACCEL_OK;
}

/* Later checks need what earlier ones made: the steps need the directory, the
 * checkpoint needs a prepared run. What is left out here is left out on all ranks,
 * since their outcomes agree. */
static void check_all(struct selftest *t)
{
    selftest_check(t, "map", check_map);
    selftest_check(t, "all_gather", check_collective);
    selftest_check(t, "reduce_scatter", check_collective);
    selftest_check(t, "all_reduce", check_collective);
    selftest_check(t, "broadcast", check_collective);
    selftest_check(t, "barrier", check_barrier);
    selftest_check(t, "directory", check_dir);
    if (t->check[t->checks - 1].verdict == VERDICT_OK)
        selftest_check(t, "steps", check_steps);
    if (t->run->prepared && t->run->status == ACCEL_OK)
        selftest_check(t, "checkpoint", check_checkpoint);
    selftest_check(t, "signal", check_signal);
}

/* Opens the run, which is the first check by itself, then runs the others. Without an
 * open run there are no ranks to agree with, so each says its own error. */
static int run_selftest(const char *parent, bool json)
{
    accel_options_t options = { .bytes = sizeof(options), .run_name = "self-test" };
    struct selftest t = { .parent = parent };
    struct check *c = &t.check[t.checks++];
    accel_error_t err = { 0 };
    int64_t start = clock_ns();
    int code, rank;

    if (accel_open(&t.run, &options, &err) != ACCEL_OK)
        return err.text[0] ? cli_fail(&err) : accel_exit_code(err.code);
    *c = (struct check){ .name = "start", .ms = (double)(clock_ns() - start) / 1e6 };
    snprintf(c->found, sizeof(c->found), "bootstrap, connections, %d thread%s",
             t.run->place.threads, t.run->place.threads == 1 ? "" : "s");
    check_all(&t);
    code = selftest_report(&t, json);
    rank = t.run->boot.rank;
    accel_close(t.run, NULL);
    /* Not before: the run's own thread may still delete a checkpoint there, and NFS
     * keeps files that are open. */
    if (rank == 0)
        workdir_remove(t.dir);
    return code;
}

/* No argp here: `accel test` is the only caller, and it checks its own command line. */
int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;

    if (argc == 4 && strcmp(argv[1], "--reference") == 0)
        return selftest_reference(atoi(argv[2]), argv[3]);
    if (argc != 2 + json) {
        fprintf(stderr, "accel-selftest: run `accel test`\n");
        return accel_exit_code(ACCEL_EUSAGE);
    }
    return run_selftest(argv[1 + json], json);
}
