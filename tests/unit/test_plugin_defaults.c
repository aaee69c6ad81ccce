/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's defaults.c and user_env.c: which launch options follow from a config, and give way to
 * what the environment, the command line or the script says; whose warning signal it
 * is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/unit/fake_plugin.h"

bool __wrap_cmdline_is_sbatch(void);
static bool is_sbatch;

bool __wrap_cmdline_is_sbatch(void)
{
    return is_sbatch;
}

enum program { SRUN, SBATCH, SALLOC };
enum { OFF = 1, USR2 = 2, NO_REQUEUE = 4 };

struct row {
    const char *what;
    enum program client;
    int tasks, nodes, flags;
    const char *env;           /* "NAME=VALUE NAME=VALUE" before */
    const char *line, *script; /* words; script NULL: none */
    const char *want; /* inputs in order; "| after: those that stay"; "| warning: X" */
};

#define SRUN_ALL "SLURM_MPI_TYPE=pmix SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "
#define OURS     "SLURM_KILL_BAD_EXIT=1 SLURM_DISABLE_STATUS=1 SLURM_SIGNAL=USR1@120 "
#define STAY     "| stay SLURM_MPI_TYPE SLURM_NTASKS SLURM_NTASKS_PER_NODE "
#define BATCH    "SBATCH_OPEN_MODE=append SBATCH_REQUEUE=1 "
/* Without preemption, and with 4 tasks; with it, but without a warning of accel's. */
#define PLAIN                                                                          \
    "SLURM_MPI_TYPE=pmix SLURM_KILL_BAD_EXIT=1 | stay SLURM_MPI_TYPE | warning none"
#define TASKS                                                                          \
    "SLURM_MPI_TYPE=pmix SLURM_NTASKS=4 SLURM_KILL_BAD_EXIT=1 "                        \
    "| stay SLURM_MPI_TYPE SLURM_NTASKS | warning none"
#define NO_WARNING                                                                     \
    "SLURM_MPI_TYPE=pmix SLURM_KILL_BAD_EXIT=1 SLURM_DISABLE_STATUS=1 "                \
    "| stay SLURM_MPI_TYPE | warning none"
#define NOT_AGAIN                                                                      \
    "SBATCH_OPEN_MODE=append SBATCH_SIGNAL=USR1@120 "                                  \
    "| stay SLURM_ACCEL_WARNING=USR1@120 "

static const struct row rows[] = {
    { "a bare srun", SRUN, 4, 2, 0, "", "srun ./a", NULL,
      SRUN_ALL OURS STAY "| warning USR1@120" },
    { "one node per task", SRUN, 4, 4, 0, "", "srun ./a", NULL,
      "SLURM_MPI_TYPE=pmix SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=1 " OURS STAY
      "| warning USR1@120" },
    { "the other signal", SRUN, 0, 0, USR2, "", "srun ./a", NULL,
      "SLURM_MPI_TYPE=pmix SLURM_KILL_BAD_EXIT=1 SLURM_DISABLE_STATUS=1 "
      "SLURM_SIGNAL=USR2@120 | stay SLURM_MPI_TYPE | warning USR2@120" },
    { "no preemption", SRUN, 0, 0, OFF, "", "srun ./a", NULL, PLAIN },
    { "tasks that nodes do not divide", SRUN, 5, 2, OFF, "", "srun ./a", NULL,
      "SLURM_MPI_TYPE=pmix SLURM_NTASKS=5 SLURM_KILL_BAD_EXIT=1 | stay "
      "SLURM_MPI_TYPE SLURM_NTASKS | warning none" },
    { "nodes are not said", SRUN, 4, 0, OFF, "", "srun ./a", NULL, TASKS },
    { "only nodes are said", SRUN, 0, 2, OFF, "", "srun ./a", NULL, PLAIN },
    { "the environment wins", SRUN, 4, 2, 0,
      "SLURM_MPI_TYPE=none SLURM_NTASKS=3 SLURM_KILL_BAD_EXIT=0 "
      "SLURM_SIGNAL=INT@5 SLURM_NTASKS_PER_NODE=3",
      "srun ./a", NULL,
      "SLURM_DISABLE_STATUS=1 | stay SLURM_MPI_TYPE SLURM_NTASKS "
      "SLURM_NTASKS_PER_NODE SLURM_SIGNAL SLURM_KILL_BAD_EXIT | warning none" },
    { "SLURM_NPROCS counts", SRUN, 4, 0, OFF, "SLURM_NPROCS=3", "srun ./a", NULL,
      PLAIN },
    { "tasks per GPU are typed", SRUN, 4, 2, OFF, "", "srun --ntasks-per-gpu=1 ./a",
      NULL, TASKS },
    { "tasks per GPU are exported", SRUN, 4, 2, OFF, "SLURM_NTASKS_PER_GPU=1",
      "srun ./a", NULL, TASKS },
    { "more tasks than CPUs, typed", SRUN, 4, 2, OFF, "", "srun -O ./a", NULL, TASKS },
    { "more tasks than CPUs, spelt out", SRUN, 4, 2, OFF, "", "srun --overcommit ./a",
      NULL, TASKS },
    { "more tasks than CPUs, exported", SRUN, 4, 2, OFF, "SLURM_OVERCOMMIT=1",
      "srun ./a", NULL, TASKS },
    { "a signal is typed", SRUN, 0, 0, 0, "", "srun --signal=USR1@9 ./a", NULL,
      NO_WARNING },
    { "a signal of the program's", SRUN, 0, 0, 0, "", "srun ./a --signal=USR1@9", NULL,
      "SLURM_MPI_TYPE=pmix " OURS "| stay SLURM_MPI_TYPE | warning USR1@120" },
    { "in a job that accel asked for", SRUN, 0, 0, 0,
      "SLURM_JOB_ID=7 SLURM_ACCEL_WARNING=USR1@60", "srun ./a", NULL,
      "SLURM_MPI_TYPE=pmix SLURM_KILL_BAD_EXIT=1 SLURM_DISABLE_STATUS=1 | stay "
      "SLURM_MPI_TYPE | warning USR1@60" },
    { "in somebody's job", SRUN, 0, 0, 0, "SLURM_JOB_ID=7", "srun ./a", NULL,
      NO_WARNING },
    { "sbatch", SBATCH, 4, 2, 0, "", "sbatch a.sh", "a.sh -n 4",
      BATCH "SBATCH_SIGNAL=USR1@120 | stay SLURM_ACCEL_WARNING=USR1@120 " },
    { "sbatch, the script's signal", SBATCH, 4, 2, 0, "", "sbatch a.sh",
      "a.sh --signal=B:USR1@9", BATCH "| stay " },
    { "sbatch, a signal is typed", SBATCH, 4, 2, 0, "", "sbatch --signal=USR1@9 a.sh",
      NULL, BATCH "| stay " },
    { "sbatch, a signal is exported", SBATCH, 4, 2, 0, "SBATCH_SIGNAL=USR1@9",
      "sbatch a.sh", NULL, BATCH "| stay SBATCH_SIGNAL " },
    { "sbatch, the script's open mode", SBATCH, 4, 2, OFF, "", "sbatch a.sh",
      "a.sh --open-mode=truncate", "| stay " },
    { "sbatch, the script stays away", SBATCH, 4, 2, 0, "", "sbatch a.sh",
      "a.sh --no-requeue", NOT_AGAIN },
    { "sbatch, the user stays away", SBATCH, 4, 2, 0, "SBATCH_NO_REQUEUE=1",
      "sbatch a.sh", NULL, NOT_AGAIN },
    { "sbatch, requeue: false", SBATCH, 4, 2, NO_REQUEUE, "", "sbatch a.sh", NULL,
      NOT_AGAIN },
    { "sbatch, no preemption", SBATCH, 4, 2, OFF, "", "sbatch a.sh", NULL,
      "SBATCH_OPEN_MODE=append | stay " },
    { "salloc", SALLOC, 4, 2, 0, "", "salloc -n 4", NULL,
      BATCH "SALLOC_SIGNAL=USR1@120 | stay SLURM_ACCEL_WARNING=USR1@120 " },
};

static void export_all(const char *env)
{
    char *text = strdup(env), *rest = text, *word;

    while ((word = strsep(&rest, " ")))
        if (strchr(word, '='))
            putenv(strdup(word));
    free(text);
}

static void show_stay(const struct row *r)
{
    static const char *const inputs[] = {
        "SLURM_MPI_TYPE", "SLURM_NTASKS",        "SLURM_NTASKS_PER_NODE",
        "SLURM_SIGNAL",   "SLURM_KILL_BAD_EXIT", "SBATCH_OPEN_MODE",
        "SBATCH_REQUEUE", "SBATCH_SIGNAL",       "SALLOC_SIGNAL",
    };

    printf("| stay ");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(inputs); i++)
        if (getenv(inputs[i]))
            printf("%s ", inputs[i]);
    if (r->client != SRUN && getenv(ENV_JOB_WARNING))
        printf(ENV_JOB_WARNING "=%s ", getenv(ENV_JOB_WARNING));
}

static void run_row(const void *arg)
{
    struct client *c = &fake_client;
    struct config *cfg = &c->file.config;
    const struct row *r = arg;
    char *script[8] = { NULL }, *copy = strdup(r->script ? r->script : "");
    size_t n = 0;

    clearenv();
    export_all(r->env);
    for (char *rest = copy, *w; r->script && (w = strsep(&rest, " "));)
        script[n++] = w;
    cfg->num_processes = r->tasks;
    cfg->num_machines = r->nodes;
    cfg->preempt_enabled = !(r->flags & OFF);
    cfg->preempt_requeue = !(r->flags & NO_REQUEUE);
    cfg->preempt_signal = r->flags & USR2 ? PREEMPT_USR2 : PREEMPT_USR1;
    cfg->preempt_lead_seconds = 120;
    is_sbatch = r->client == SBATCH;
    fake_split(r->line);
    c->typed.script = r->script ? script : NULL;
    user_env_keep(&c->env);
    /* Slurm has the plugin set them twice; the second time changes nothing. */
    for (int twice = 0; twice < 2; twice++) {
        if (r->client == SRUN)
            defaults_for_srun(&c->defaults, cfg, &c->typed, &c->env);
        else
            defaults_for_allocator(&c->defaults, cfg, &c->typed);
    }
    for (size_t i = 0; i < c->defaults.set_count; i++)
        printf("%s=%s ", c->defaults.set[i].name, c->defaults.set[i].value);
    defaults_withdraw(&c->defaults);
    show_stay(r);
    if (r->client == SRUN) {
        const char *warning = defaults_warning(&c->defaults, &c->typed, &c->env);
        printf("| warning %s", warning ? warning : "none");
    }
    user_env_free(&c->env);
    free(copy);
}

static void environment(const void *unused)
{
    struct user_env env = { 0 };

    (void)unused;
    setenv("A", "1", 1);
    setenv("AB", "2", 1);
    user_env_keep(&env);
    setenv("A", "3", 1);
    unsetenv("AB");
    user_env_keep(&env); /* the first one counts */
    printf("%s %s %s", user_env_get(&env, "A"), user_env_get(&env, "AB"),
           user_env_get(&env, "B") ? "?" : "none");
    printf(" %ld %ld", user_env_long(&env, "A", 7), user_env_long(&env, "B", 7));
    user_env_free(&env);
    printf(" %s", user_env_get(&env, "A") ? "?" : "gone");
}

int main(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_str(fake_child(run_row, &rows[i]), rows[i].want, "%s", rows[i].what);
    tap_is_str(fake_child(environment, NULL), "1 2 none 1 7 gone",
               "the user's environment is that of the start");
    return tap_done();
}
