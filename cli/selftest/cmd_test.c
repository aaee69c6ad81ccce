/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel test`: proves that a run works here. As a task of srun or mpirun it becomes
 * one rank of the self-test. Inside an allocation it starts srun; elsewhere it runs as
 * one process, or through mpirun where there is no Slurm. The test itself is
 * accel-selftest, a program of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "config/config.h"
#include "cli/own_program.h"

struct test_args {
    /* NULL: not given. */
    const char *config, *dir;
    bool json;
};

static error_t parse_test_args(int key, char *arg, struct argp_state *state)
{
    struct test_args *a = state->input;

    switch (key) {
    case 'c':
        a->config = arg;
        return 0;
    case 'd':
        a->dir = arg;
        return 0;
    default:
        return cli_parse_json_into(key, state, &a->json);
    }
}

/* ---- where we are ---------------------------------------------------------------- */

/* Is this process a task of a step? The shell of salloc and a batch script have step
 * ids too, at the upper end of their range (such as SLURM_BATCH_SCRIPT); in those srun
 * is still to be started. */
static bool is_task(void)
{
    const char *step = getenv("SLURM_STEP_ID");

    if (getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_SIZE"))
        return true;
    return getenv("SLURM_PROCID") && step && strtoul(step, NULL, 10) < 0xfffffff0u;
}

/* Is this the first of all tasks? It alone prints what all of them found
 * before they can talk. */
static bool speaks(void)
{
    return env_long("PMIX_RANK",
                    env_long("OMPI_COMM_WORLD_RANK", env_long("SLURM_PROCID", 0))) == 0;
}

/* ---- config ---------------------------------------------------------------------- */

/* Resolves FILE over the weaker sources. Without any file the ranks shard, so that the
 * test covers the collectives that a real run uses. */
static int resolve_test_config(const char *path, struct config *cfg)
{
    struct config_sources sources = { .job_path = path && *path ? path : NULL };
    struct config_paths paths;
    struct config_diags diags;
    accel_error_t err;
    accel_status_t st;
    int code;

    config_sources_default(&sources, &paths);
    st = config_resolve(&sources, cfg, &diags, &err);
    code = accel_exit_code(st);
    for (size_t i = 0; i < diags.count && speaks(); i++)
        fprintf(stderr, "%s\n", diags.item[i].text);
    if (st != ACCEL_OK && !diags.errors && speaks())
        code = cli_fail(&err);
    config_diags_free(&diags);
    if (st == ACCEL_OK && !config_is_given(cfg, "distributed_type"))
        cfg->distributed_type = DIST_FSDP;
    return code;
}

/* The config: --config, else what srun resolved for this step, else what
 * the other sources say. */
static int load_test_config(const struct test_args *a, struct config *cfg)
{
    const char *resolved = getenv(ENV_RESOLVED);
    accel_error_t err = { 0 };

    if (a->config || !resolved || !*resolved)
        return resolve_test_config(a->config ? a->config : getenv(ENV_CONFIG), cfg);
    if (config_decode(resolved, cfg, &err) == ACCEL_OK)
        return 0;
    return speaks() ? cli_fail(&err) : accel_exit_code(err.code);
}

/* Hands the config to accel-selftest through the environment. Nothing of the user's may
 * be touched: the only checkpoint is the test's, in its own directory, and a preempted
 * job is not requeued from here. */
static accel_status_t export_test_config(struct config *cfg, accel_error_t *err)
{
    static char text[16 << 10];
    accel_status_t st;

    /* Only accel_save writes: nothing falls due by steps or minutes. */
    cfg->ckpt_dir[0] = '\0';
    cfg->ckpt_every_steps = 0;
    cfg->ckpt_every_minutes = 0;
    cfg->ckpt_keep = 1;
    cfg->preempt_requeue = cfg->preempt_resubmit = false;
    st = config_encode(cfg, text, sizeof(text), err);
    if (st == ACCEL_OK &&
        (setenv(ENV_RESOLVED, text, 1) || setenv(ENV_RESUME, "none", 1)))
        st = accel_fail_nomem(err, "the environment", strlen(text));
    return st;
}

/* Ranks on several nodes need a shared directory: the current one. On one node any
 * local directory will do. */
static const char *choose_dir(const struct test_args *a)
{
    const char *tmp = getenv("TMPDIR");

    if (a->dir)
        return a->dir;
    if (env_long("SLURM_STEP_NUM_NODES", 1) > 1)
        return ".";
    return tmp && *tmp ? tmp : "/tmp";
}

/* Becomes one rank of the test. */
static int be_rank(const struct test_args *a, struct config *cfg)
{
    char path[PATH_MAX];
    accel_error_t err;
    char *argv[4] = { path };
    int n = 1;

    if (cli_own_program("accel-selftest", "accel test", path, &err))
        return speaks() ? cli_fail(&err) : accel_exit_code(err.code);
    if (export_test_config(cfg, &err))
        return cli_fail(&err);
    if (a->json)
        argv[n++] = (char *)"--json";
    argv[n++] = (char *)choose_dir(a);
    return cli_become(path, argv);
}

/* "HEAD... accel test [--dir DIR] [--json]"; shown before it is run. */
static int start_ranks(const struct test_args *a, const char *const *head,
                       const char *self)
{
    char *argv[16];
    int n = 0;

    for (; head[n]; n++)
        argv[n] = (char *)head[n];
    argv[n++] = (char *)self;
    argv[n++] = (char *)"test";
    if (a->dir) {
        argv[n++] = (char *)"--dir";
        argv[n++] = (char *)a->dir;
    }
    if (a->json)
        argv[n++] = (char *)"--json";
    argv[n] = NULL;
    for (int i = 0; i < n; i++)
        fprintf(stderr, "%s%s", i ? " " : "starting: ", argv[i]);
    fputc('\n', stderr);
    return cli_become(argv[0], argv);
}

/* The config wants several processes and nothing has started them. With Slurm the user
 * is sent to srun, since a login node must not run them. */
static int start_elsewhere(const struct test_args *a, const char *self, bool slurm)
{
    const char *const launch[] = { self, "launch", "--config", a->config, NULL };
    char hint[PATH_MAX + 100];

    if (!slurm)
        return start_ranks(a, launch, self);
    snprintf(hint, sizeof(hint), "srun --accel-config=%s accel test", a->config);
    return cli_error(
        A0069, a->config, hint,
        "the config asks for several processes, but there is no allocation "
        "to start them in");
}

/* Decides who starts the ranks: nobody when this is a task already, srun inside an
 * allocation, `accel launch` for several processes without Slurm, else this
 * process is the only rank. */
static int run_test(int argc, char **argv)
{
    struct test_args a = { 0 };
    struct config cfg;
    char self[PATH_MAX + 8], option[PATH_MAX + 20], *srun;
    int code;

    cli_parse(&cli_test, argc, argv, &a);
    code = load_test_config(&a, &cfg);
    if (code)
        return code;
    if (is_task())
        return be_rank(&a, &cfg);
    /* Ranks run this very program, not whatever PATH has on their node. */
    if (!cli_own_dir(self))
        strcpy(self, ".");
    strcat(self, "/accel");
    srun = cli_find_program("srun");
    if (srun && getenv("SLURM_JOB_ID")) {
        /* A config goes through the plugin, as in a run. Without one srun
         * must be told of PMIx. */
        const char *const head[] = { "srun", a.config ? option : "--mpi=pmix", NULL };

        snprintf(option, sizeof(option), "--accel-config=%.4000s",
                 a.config ? a.config : "");
        code = start_ranks(&a, head, self);
    } else if (a.config && cfg.num_processes > 1) {
        code = start_elsewhere(&a, self, srun != NULL);
    } else {
        if (srun)
            fprintf(stderr, "note: this tests one process; srun --accel-config=FILE "
                            "accel test tests the ranks of a job\n");
        code = be_rank(&a, &cfg);
    }
    free(srun);
    return code;
}

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0,
      "Test with this config (default: the one srun resolved, else FULL_SHARD)", 0 },
    { "dir", 'd', "DIR", 0,
      "Write the test's checkpoint below DIR (default: TMPDIR; on several nodes the "
      "current directory)",
      0 },
    CLI_JSON_OPTION,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_test_args,
    .doc =
        "Tests that a run works here. It checks the map of ranks, the values of every "
        "collective, three steps of a small model against the same steps in one "
        "process, a checkpoint that it writes, verifies and reads back, and the "
        "preemption signal. Inside an allocation it starts srun itself. It does not "
        "touch your files and removes what it writes.\vGB_PER_S counts the bytes that "
        "a rank sends. Exit code: 0 if every check passes, else that of the first "
        "failed check."
};

const struct cli_command cli_test = {
    .name = "test",
    .run = run_test,
    .summary = "self-test on this allocation: ranks, steps, checkpoint",
    .example = "srun --accel-config=fsdp.yaml accel test",
    .argp = &argp,
};
