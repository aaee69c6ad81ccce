/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_spank PLUGIN.so: stands in for slurmd and slurmstepd, so that their side of the
 * plugin runs under valgrind: every callback in every context, twice, with a carrier
 * that is right, missing, cut, too long, or damaged at random (always in the same way).
 * The calls that only srun may make end the program.
 * fake_spank PLUGIN.so FOLDER UID STATUS...: a slurmstepd whose tasks, of that user, end
 * one after another with these statuses of wait(); FOLDER is that of the step's reports.
 * Exit 0, or 1 with what went wrong on stderr.
 */
#include <dlfcn.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "config/python/environ.h"
#include "srun_plugin/plugin.h"

struct spank_handle {
    int unused;
};

static spank_context_t context;
static uint32_t step_id, task;
/* How the task ended, and whose it is. */
static int status;
static uid_t owner;
static struct spank_option *options[8];
static size_t option_count;
static long errors;

#pragma GCC visibility push(default)

spank_context_t spank_context(void)
{
    return context;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *o)
{
    (void)sp;
    if (option_count < 8)
        options[option_count++] = o;
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    uint32_t value = item == S_JOB_STEPID       ? step_id
                     : item == S_TASK_GLOBAL_ID ? task
                                                : 0;
    va_list ap;

    (void)sp;
    if (item == S_JOB_TOTAL_TASK_COUNT || item == S_JOB_LOCAL_TASK_COUNT)
        value = 2;
    else if (item == S_JOB_NNODES)
        value = 1;
    va_start(ap, item);
    if (item == S_TASK_ID)
        *va_arg(ap, int *) = (int)task;
    else if (item == S_TASK_EXIT_STATUS)
        *va_arg(ap, int *) = status;
    else if (item == S_JOB_UID || item == S_JOB_GID)
        *va_arg(ap, uid_t *) = owner;
    else if (item == S_JOB_SUPPLEMENTARY_GIDS) {
        *va_arg(ap, gid_t **) = &owner;
        *va_arg(ap, int *) = 1;
    } else
        *va_arg(ap, uint32_t *) = value;
    va_end(ap);
    return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
    const char *v = getenv(name);

    (void)sp;
    if (!v)
        return ESPANK_ENV_NOEXIST;
    return snprintf(buf, (size_t)len, "%s", v) < len ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    (void)sp;
    return setenv(name, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    (void)sp;
    return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

void slurm_error(const char *fmt, ...)
{
    (void)fmt;
    errors++;
}

void slurm_info(const char *fmt, ...)
{
    (void)fmt;
}

#pragma GCC visibility pop

typedef int (*callback_f)(spank_t, int, char **);

static struct spank_handle handle;
static void *plugin;

static int call(const char *name)
{
    callback_f f = (callback_f)dlsym(plugin, name);

    return f ? f(&handle, 0, (char *[]){ NULL }) : 0;
}

static void expect(int got, int want, const char *what)
{
    if (got == want)
        return;
    fprintf(stderr, "%s: returned %d, not %d\n", what, got, want);
    exit(1);
}

/* One step as slurmstepd sees it; returns what task_init says. */
static int step(const char *option, const char *carrier)
{
    int rc;

    context = S_CTX_REMOTE;
    option_count = 0;
    if (carrier)
        setenv(ENV_CARRIER, carrier, 1);
    else
        unsetenv(ENV_CARRIER);
    expect(call("slurm_spank_init"), 0, "init");
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < option_count; i++)
            expect(
                options[i]->cb(options[i]->val, options[i]->has_arg ? option : NULL, 1),
                0, "option callback");
    expect(call("slurm_spank_init_post_opt"), 0, "init_post_opt");
    expect(call("slurm_spank_user_init"), 0, "user_init");
    expect(call("slurm_spank_task_post_fork"), 0, "task_post_fork");
    expect(call("slurm_spank_task_init_privileged"), 0, "task_init_privileged");
    rc = call("slurm_spank_task_init");
    expect(call("slurm_spank_task_exit"), 0, "task_exit");
    expect(call("slurm_spank_exit"), 0, "exit");
    return rc;
}

static char *good_carrier(void)
{
    struct strbuf b = { 0 };
    accel_error_t err = { 0 };

    carrier_start(&b);
    carrier_add(&b, ENV_TASKS_PER_NODE, "2", false);
    carrier_add(&b, "ACCEL_CONFIG", "/a/config.yaml", false);
    carrier_add(&b, "MASTER_ADDR", "n1", false);
    if (carrier_seal(&b, &err) != ACCEL_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return b.s;
}

static void expect_variable(const char *name, const char *want)
{
    const char *v = getenv(name);

    if (v && strcmp(v, want) == 0)
        return;
    fprintf(stderr, "%s is %s, not %s\n", name, v ? v : "not set", want);
    exit(1);
}

static void damaged(const char *good, int rounds)
{
    size_t len = strlen(good);
    unsigned state = 1;

    for (int i = 0; i < rounds; i++) {
        char *text = strdup(good);
        if (!text)
            exit(1);
        for (int n = 1 + i % 3; n > 0; n--) {
            state = state * 1103515245u + 12345u;
            size_t at = (state >> 8) % len;
            text[at] = (char)(text[at] ^ (1 + (state >> 16) % 255));
        }
        if (i % 5 == 0)
            text[(state >> 8) % len] = '\0';
        if (strcmp(text, good) != 0)
            expect(step("/a/config.yaml", text), -1,
                   "task_init with a damaged carrier");
        free(text);
    }
}

static void other_contexts(void)
{
    for (int c = S_CTX_ERROR; c <= S_CTX_JOB_SCRIPT; c++) {
        context = (spank_context_t)c;
        if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR ||
            context == S_CTX_REMOTE)
            continue;
        expect(call("slurm_spank_init"), 0, "init");
        expect(call("slurm_spank_slurmd_exit"), 0, "slurmd_exit");
        expect(call("slurm_spank_job_prolog"), 0, "job_prolog");
        expect(call("slurm_spank_job_epilog"), 0, "job_epilog");
        expect(call("slurm_spank_exit"), 0, "exit");
    }
}

/* What task_init makes of SIGUSR1 with this warning in the carrier, when it was
 * `before`. */
static void warned(const char *warning, void (*before)(int), void (*want)(int))
{
    struct strbuf b = { 0 };
    struct sigaction now;
    accel_error_t err = { 0 };

    carrier_start(&b);
    carrier_add(&b, ENV_TASKS_PER_NODE, "2", false);
    if (warning)
        carrier_add(&b, ENV_WARNING, warning, false);
    if (carrier_seal(&b, &err) != ACCEL_OK)
        exit(1);
    signal(SIGUSR1, before);
    expect(step("/a/config.yaml", b.s), 0, "task_init of a task that is warned");
    sigaction(SIGUSR1, NULL, &now);
    if (now.sa_handler != want) {
        fprintf(stderr, "%s: SIGUSR1 is not what it should be\n",
                warning ? warning : "no warning");
        exit(1);
    }
    signal(SIGUSR1, SIG_DFL);
    free(b.s);
}

static void handler(int sig)
{
    (void)sig;
}

static void warnings(void)
{
    warned("USR1@120", SIG_DFL, SIG_IGN);
    warned("USR2@120", SIG_DFL, SIG_DFL);
    warned("USR1@120", handler, handler);
    warned("KILL@120", SIG_DFL, SIG_DFL);
    warned("USR1", SIG_DFL, SIG_DFL);
    warned(NULL, SIG_DFL, SIG_DFL);
}

static int end_tasks(const char *folder, char **words)
{
    context = S_CTX_REMOTE;
    expect(call("slurm_spank_init"), 0, "init");
    expect(options[0]->cb(options[0]->val, "/a/config.yaml", 1), 0, "option callback");
    setenv(ENV_STEP_ENDS, folder, 1);
    owner = (uid_t)atoi(*words);
    for (; words[1]; words++, task++) {
        status = atoi(words[1]);
        expect(call("slurm_spank_task_exit"), 0, "task_exit");
    }
    return 0;
}

int main(int argc, char **argv)
{
    char *good, *huge;

    plugin = argc == 2 || argc > 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!plugin) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "fake_spank PLUGIN.so");
        return 1;
    }
    if (argc > 4)
        return end_tasks(argv[2], argv + 3);
    good = good_carrier();
    huge = malloc(CARRIER_MAX + 100);
    if (!huge)
        return 1;
    memset(huge, 'x', CARRIER_MAX + 99);
    huge[CARRIER_MAX + 99] = '\0';
    other_contexts();
    expect(step(NULL, NULL), 0, "task_init without the option");
    expect(step("none", NULL), 0, "task_init with none");
    expect(step("/a/config.yaml", good), 0, "task_init");
    expect_variable("ACCEL_CONFIG", "/a/config.yaml");
    expect_variable("ACCEL_WORLD_SIZE", "2");
    if (getenv(ENV_CARRIER)) {
        fprintf(stderr, "the carrier reached the program\n");
        return 1;
    }
    expect(errors != 0, 0, "errors of a good step");
    warnings();
    expect(step("/a/config.yaml", NULL), -1, "task_init without a carrier");
    expect(step("/a/config.yaml", ""), -1, "task_init with an empty carrier");
    expect(step("/a/config.yaml", huge), -1, "task_init with a huge carrier");
    expect(step("/a/config.yaml", CARRIER_OFF), 0, "task_init that is left alone");
    expect(step("/a/config.yaml", CARRIER_REFUSED), -1, "task_init that is refused");
    damaged(good, 400);
    step_id = 0xfffffffb; /* the batch script: a step without a carrier */
    expect(step("/a/config.yaml", NULL), 0, "task_init of the batch script");
    free(good);
    free(huge);
    dlclose(plugin);
    return 0;
}
