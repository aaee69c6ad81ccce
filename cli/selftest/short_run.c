/* SPDX-License-Identifier: Apache-2.0
 *
 * The training part of the self-test: some steps of a small GPT-2 under the user's
 * config, through the public interface, compared with the same steps in a single
 * process. In: the run, a directory. Out: losses. All it writes stays below the
 * directory it was given.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/selftest/selftest.h"
#include "common/env_names.h"

/* Tokens of a sample; bytes of text; lowest number of the text's descriptor. */
enum { SEQ = 32, TEXT_BYTES = 64 << 10, TEXT_FD = 500 };

extern char **environ;

/* The training text without a file: every process makes the same one in memory. The
 * file's name is part of what ranks must agree on, and here it holds the descriptor's
 * number: TEXT_FD is high enough to be free in every rank. */
static int open_text(void)
{
    static char text[TEXT_BYTES];
    int low = memfd_create("accel-test-text", MFD_CLOEXEC);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, TEXT_FD);
    uint32_t word = 1;

    if (low >= 0)
        close(low);
    for (size_t i = 0; i < sizeof(text); i++) {
        word = word * 1664525u + 1013904223u;
        text[i] = (char)('a' + (word >> 24) % 26);
    }
    if (fd >= 0 && write(fd, text, sizeof(text)) != (ssize_t)sizeof(text)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* One optimizer step. *loss_out is the mean over all samples of all ranks. accel_step
 * updates the weights with the last micro-batch only, so it follows each backward. */
static accel_status_t one_step(accel_t *run, accel_module_t *model, int micro,
                               double *loss_out, accel_error_t *err)
{
    double sum = 0;
    accel_status_t st = ACCEL_OK;

    for (int m = 0; st == ACCEL_OK && m < micro; m++) {
        accel_tensor_t *batch[2], *loss = NULL;
        float value = 0;

        st = accel_next(run, batch, 2, err);
        if (st == ACCEL_OK)
            loss = accel_call(model, batch, 2);
        if (loss)
            st = accel_tensor_read(loss, &value, 1, err);
        ACCEL_TRY(st, accel_backward(run, loss, err));
        sum += value;
        ACCEL_TRY(st, accel_step(run, err));
    }
    ACCEL_TRY(st, comm_all_reduce(run->comm, &sum, 1, ACCEL_F64, COMM_SUM, err));
    *loss_out = sum / micro / run->boot.size;
    return st;
}

/* Losses of SELFTEST_STEPS steps of a small model with `micro` micro-batches each. All
 * that the run writes lies below `out`. Ranks agree (run_agree) on the text before
 * accel_prepare, which is collective. */
static accel_status_t selftest_train(accel_t *run, int micro, const char *out,
                                     double loss_out[SELFTEST_STEPS],
                                     accel_error_t *err)
{
    static const accel_model_config_t shape = { .bytes = sizeof(shape),
                                                .model_type = "gpt2",
                                                .layers = 2,
                                                .heads = 2,
                                                .width = 32,
                                                .context = SEQ,
                                                .vocab = 256 };
    /* One step more than is made: the run must not be over, or it would do its last
     * save. A large eps keeps rounding from reversing the first steps of Adam. */
    accel_job_t job = { .bytes = sizeof(job),
                        .steps = SELFTEST_STEPS + 1,
                        .batch = 1,
                        .accumulate = micro,
                        .clip = 1.0f,
                        .seed = 1,
                        .out_dir = out,
                        .optimizer =
                            &(accel_optimizer_t){ .bytes = sizeof(accel_optimizer_t),
                                                  .lr = 1e-2f,
                                                  .eps = 1e-3f } };
    char path[64];
    int fd = open_text();
    accel_status_t st;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0)
        st =
            accel_fail(err, A0063, "check the limits of memory and files",
                       "cannot make %d bytes of text: %s", TEXT_BYTES, strerror(errno));
    else
        st = accel_dataset_open(&job.data, path, SEQ, 0, err);
    st = run_agree(run, st, err);
    if (st == ACCEL_OK) {
        job.model = accel_model_new(run, &shape, NULL); /* prepare says what is wrong */
        st = accel_prepare(run, &job, err);
    }
    for (int s = 0; st == ACCEL_OK && s < SELFTEST_STEPS; s++)
        st = one_step(run, job.model, micro, &loss_out[s], err);
    accel_dataset_close(job.data);
    if (fd >= 0)
        close(fd);
    return st;
}

/* ---- the same in one process ----------------------------------------------------- */

/* Losses are printed as hexadecimal floats: the comparison must not lose digits. An
 * error is printed in their place, for the parent to pass on. */
int selftest_reference(int world, const char *out)
{
    accel_options_t options = { .bytes = sizeof(options), .run_name = "self-test" };
    double loss[SELFTEST_STEPS];
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    accel_status_t st = accel_open(&run, &options, &err);
    char text[1500];

    ACCEL_TRY(st, selftest_train(run, world, out, loss, &err));
    for (int s = 0; st == ACCEL_OK && s < SELFTEST_STEPS; s++)
        printf("%a\n", loss[s]);
    if (st != ACCEL_OK) {
        accel_error_format(&err, text, sizeof(text));
        printf("%s\n", text);
    }
    accel_close(run, NULL);
    return accel_exit_code(st);
}

/* This process's environment without any launcher's variables, so that the child is a
 * world of one, and with the config `resolved`. The caller frees the array; its
 * strings are not copies. */
static char **lone_environment(char *resolved)
{
    static const char *const launchers[] = { "PMIX_",  "PMI_", "OMPI_",
                                             "SLURM_", "PRTE", ENV_PREFIX };
    size_t n = 0, kept = 0;
    char **env;

    while (environ[n])
        n++;
    env = calloc(n + 2, sizeof(*env));
    for (size_t i = 0; env && i < n; i++) {
        bool drop = false;

        for (size_t k = 0; k < ACCEL_ARRAY_SIZE(launchers); k++)
            drop |= strncmp(environ[i], launchers[k], strlen(launchers[k])) == 0;
        if (!drop)
            env[kept++] = environ[i];
    }
    if (env)
        env[kept] = resolved;
    return env;
}

/* Starts the child with its stdout in *fd_out. Returns 0 or an errno. posix_spawn with
 * /proc/self/exe finds this very program wherever it was installed. */
static int start_reference(char *const *argv, char *const *env, pid_t *pid_out,
                           int *fd_out)
{
    posix_spawn_file_actions_t actions;
    int fds[2], failed;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return errno;
    failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        if (!failed)
            failed = posix_spawn(pid_out, "/proc/self/exe", &actions, NULL, argv, env);
        posix_spawn_file_actions_destroy(&actions);
    }
    /* Only the child writes: its end is the reader's end of file. */
    close(fds[1]);
    if (failed)
        close(fds[0]);
    else
        *fd_out = fds[0];
    return failed;
}

/* Reads the losses that the child printed, or why there are none. Consumes
 * `from` and the child. */
static accel_status_t read_reference(pid_t pid, int from,
                                     double loss_out[SELFTEST_STEPS],
                                     accel_error_t *err)
{
    char text[1024] = "";
    size_t used = 0;
    ssize_t n;
    int status = 0;
    char *at = text;

    while (used < sizeof(text) - 1 &&
           ((n = read(from, text + used, sizeof(text) - 1 - used)) > 0 ||
            (n < 0 && errno == EINTR)))
        used += n > 0 ? (size_t)n : 0;
    text[used] = '\0';
    close(from);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    for (int s = 0; status == 0 && s < SELFTEST_STEPS; s++) {
        char *end;

        loss_out[s] = strtod(at, &end);
        if (end == at)
            status = -1;
        at = end;
    }
    if (status == 0)
        return ACCEL_OK;
    return accel_fail(err, A0063, "see its message, and free memory on this node",
                      "the same steps in one process failed (status %d): %.600s",
                      WIFEXITED(status) ? WEXITSTATUS(status) : status, text);
}

/* The same steps on the same samples as the run's ranks take them, in a single process:
 * starts this program again without its launcher's variables and reads what it prints.
 * Rank 0 calls it alone. */
static accel_status_t selftest_alone(const accel_t *run, const char *out,
                                     double loss_out[SELFTEST_STEPS],
                                     accel_error_t *err)
{
    static char resolved[17 << 10];
    const char key[] = ENV_RESOLVED "=";
    char number[16], *argv[] = { (char *)"accel-selftest", (char *)"--reference",
                                 number, (char *)out, NULL };
    struct config one = run->config;
    char **env;
    pid_t pid = -1;
    int from = -1, failed;
    accel_status_t st;

    one.num_processes = one.num_machines = 1;
    /* Ranks on the CPU are compared with one on the CPU: by itself it would take a
     * GPU that nobody gave. */
    if (!run->backend->device)
        one.device = DEVICE_CPU;
    /* One process has no launcher: the config travels as the one ACCEL_ variable. */
    memcpy(resolved, key, sizeof(key));
    ACCEL_CHECK(st, config_encode(&one, resolved + strlen(key),
                                  sizeof(resolved) - strlen(key), err));
    env = lone_environment(resolved);
    if (!env)
        return accel_fail_nomem(err, "the environment of a process", 0);
    snprintf(number, sizeof(number), "%d", run->boot.size);
    failed = start_reference(argv, env, &pid, &from);
    free(env);
    if (failed)
        return accel_fail(err, A0063, "check the limits of processes and memory",
                          "cannot start the process for comparison: %s",
                          strerror(failed));
    return read_reference(pid, from, loss_out, err);
}

/* ---- the check ------------------------------------------------------------------- */

/* All ranks train, then rank 0 alone repeats the steps in one process with as many
 * micro-batches as there are ranks: the same samples in the same order. The other
 * ranks wait in the agreement that follows. A loss that is not a number fails, since
 * !(off <= allowed) holds. */
accel_status_t check_steps(struct selftest *t, struct check *c, accel_error_t *err)
{
    const struct config *cfg = &t->run->config;
    /* Float32 differs only by the order of sums; bfloat16 also rounds on the wire. */
    double allowed = cfg->mixed_precision == PRECISION_NO ? 1e-5 : 1e-2, worst = 0;
    double loss[SELFTEST_STEPS] = { 0 }, alone[SELFTEST_STEPS] = { 0 };
    char out[sizeof(t->dir) + 16];
    int64_t start = clock_ns();
    accel_status_t st;

    snprintf(out, sizeof(out), "%s/out", t->dir);
    st = selftest_train(t->run, 1, out, loss, err);
    c->ms = (double)(clock_ns() - start) / 1e6;
    if (st != ACCEL_OK)
        return st;
    snprintf(out, sizeof(out), "%s/alone", t->dir);
    if (t->run->boot.rank == 0)
        st = selftest_alone(t->run, out, alone, err);
    if (st != ACCEL_OK || t->run->boot.rank != 0)
        return st;
    for (int s = 0; s < SELFTEST_STEPS; s++) {
        double off = fabs(loss[s] - alone[s]) / fabs(alone[s]);

        if (!(off <= allowed))
            return accel_fail(err, A0064,
                              "report it with this table and the output of `accel env`",
                              "step %d: the loss is %.9g, but %.9g in a single "
                              "process; the relative tolerance is %g",
                              s + 1, loss[s], alone[s], allowed);
        worst = off > worst ? off : worst;
    }
    snprintf(c->found, sizeof(c->found),
             "%s: loss %.6f in step %d, within %.0e of a single process",
             config_strategy_name(plan_strategy(cfg)), loss[SELFTEST_STEPS - 1],
             SELFTEST_STEPS, worst);
    return ACCEL_OK;
}
