/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel launch --config FILE [-n N] CMD...`: the same program without Slurm, through
 * mpirun's PMIx server, or as one process. Validates the config first, hands it to the
 * tasks in ACCEL_CONFIG_RESOLVED, and becomes the program: its exit status is ours.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "scripts/accel/cli.h"
#include "scripts/accel/settings.h"

struct launch_args {
    const char *config, *resume; /* resume: NULL, not given */
    long processes;              /* 0: not given */
    bool dry_run;
    struct cli_settings settings;
    char **command; /* NULL-terminated tail of argv */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct launch_args *a = state->input;
    char *end;

    switch (key) {
    case 'c':
        a->config = arg;
        return 0;
    case 'n':
        errno = 0;
        a->processes = strtol(arg, &end, 10);
        if (errno || *end || end == arg || a->processes < 1 || a->processes > 1048576)
            argp_error(state, "-n takes a number of processes from 1 up, not '%s'",
                       arg);
        return 0;
    case 'r':
        a->resume = arg;
        return 0;
    case 'd':
        a->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        /* The rest belongs to the program, options included. */
        a->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!a->config)
            argp_error(state, "--config FILE is missing");
        if (!a->command)
            argp_error(state, "no program given");
        return 0;
    default:
        return cli_settings_parse(key, arg, state, &a->settings);
    }
}

/* How many processes to start; the file and -n must agree. */
static accel_status_t count_processes(const struct launch_args *a,
                                      const struct config *cfg, long *n_out,
                                      accel_error_t *err)
{
    char hint[200];

    if (cfg->num_machines > 1)
        return accel_fail_at(
            err, A0302, a->config, "use srun --accel-config, or set num_machines: 1",
            "num_machines is %lld, but accel launch starts one machine",
            (long long)cfg->num_machines);
    if (cfg->distributed_type == DIST_NO && a->processes > 1)
        return accel_fail_at(
            err, A0303, a->config,
            "leave -n away, or set distributed_type: FSDP or MULTI_CPU",
            "distributed_type NO is one process, but -n is %ld", a->processes);
    if (a->processes && cfg->num_processes && a->processes != cfg->num_processes) {
        snprintf(hint, sizeof(hint), "leave -n away, or set num_processes: %ld",
                 a->processes);
        return accel_fail_at(err, A0301, a->config, hint,
                             "num_processes is %lld, but -n is %ld",
                             (long long)cfg->num_processes, a->processes);
    }
    *n_out = a->processes ? a->processes : (long)cfg->num_processes;
    if (cfg->distributed_type == DIST_NO)
        *n_out = 1;
    if (!*n_out)
        return accel_fail_at(err, A0304, a->config,
                             "give -n N, or num_processes in the file",
                             "the number of processes is not given");
    return ACCEL_OK;
}

/* The tasks read these two; nothing on their side opens the file. */
static accel_status_t export_config(const char *path, const struct config *cfg,
                                    accel_error_t *err)
{
    static char text[16 << 10];
    char *full = realpath(path, NULL);
    accel_status_t status = config_encode(cfg, text, sizeof(text), err);

    if (status == ACCEL_OK && (setenv("ACCEL_CONFIG", full ? full : path, 1) ||
                               setenv("ACCEL_CONFIG_RESOLVED", text, 1)))
        status = accel_fail_nomem(err, "the environment", strlen(text));
    free(full);
    return status;
}

/* A choice that cannot work is told before anything is started. Always set in the end,
 * because mpirun warns of a variable that is not. */
static accel_status_t export_resume(const char *text, accel_error_t *err)
{
    char choice[4096];
    accel_status_t status;

    if (!text)
        text = getenv(ENV_RESUME) ? getenv(ENV_RESUME) : "auto";
    status = resume_choice(text, NULL, choice, sizeof(choice), err);
    if (status == ACCEL_OK)
        status = resume_exists(text, choice, err);
    if (status == ACCEL_OK && setenv(ENV_RESUME, choice, 1))
        status = accel_fail_nomem(err, "the environment", strlen(choice));
    return status;
}

static accel_status_t check_program(const char *name, accel_error_t *err)
{
    char *found = cli_find_program(name), hint[300] = "check the path";

    if (found) {
        free(found);
        return ACCEL_OK;
    }
    if (strchr(name, '/') && !access(name, F_OK))
        return accel_fail(err, A0306, "make it executable: chmod +x", "cannot run '%s'",
                          name);
    if (!strchr(name, '/') && !access(name, X_OK))
        snprintf(hint, sizeof(hint), "did you mean './%s'?", name);
    return accel_fail(err, A0305, hint, "no program '%s'", name);
}

/* mpirun's arguments in front of the command. Binding is left to accel: with more ranks
 * than cores (a laptop, a container) Open MPI would refuse. */
static char **mpirun_command(const char *mpirun, const char *count, char **command)
{
    const char *head[] = { mpirun,           "-n",        count, "--map-by",
                           ":OVERSUBSCRIBE", "--bind-to", "none" };
    const char *const names[] = { "ACCEL_CONFIG", "ACCEL_CONFIG_RESOLVED", ENV_RESUME };
    size_t n = 0, tail = 0;
    char **argv;

    while (command[tail])
        tail++;
    argv = calloc(ACCEL_ARRAY_SIZE(head) + 2 * ACCEL_ARRAY_SIZE(names) + tail + 2,
                  sizeof(*argv));
    if (!argv)
        return NULL;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(head); i++)
        argv[n++] = (char *)head[i];
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        argv[n++] = (char *)"-x";
        argv[n++] = (char *)names[i];
    }
    if (geteuid() == 0)
        argv[n++] = (char *)"--allow-run-as-root";
    memcpy(argv + n, command, tail * sizeof(*argv));
    return argv;
}

/* Becomes the program. Returns only on failure. */
static int become(char **argv, bool dry_run)
{
    accel_error_t err;

    if (dry_run) {
        for (int i = 0; argv[i]; i++)
            printf("%s%s", i ? " " : "", argv[i]);
        printf("\n");
        return 0;
    }
    execvp(argv[0], argv);
    accel_fail(&err, errno == ENOENT ? A0305 : A0306,
               "check that it is a program for this machine", "cannot run '%s': %s",
               argv[0], strerror(errno));
    return cli_fail(&err);
}

static int launch(const struct launch_args *a, long n)
{
    accel_error_t err;
    char count[32], *mpirun, **argv;
    int code;

    if (n == 1)
        return become(a->command, a->dry_run);
    mpirun = cli_find_program("mpirun");
    if (!mpirun) {
        accel_fail(&err, A0307,
                   "install Open MPI (Debian: openmpi-bin, RHEL: openmpi) or load its "
                   "module; or use srun",
                   "mpirun is not there; %ld processes need its PMIx server", n);
        return cli_fail(&err);
    }
    snprintf(count, sizeof(count), "%ld", n);
    argv = mpirun_command(mpirun, count, a->command);
    if (argv) {
        code = become(argv, a->dry_run);
    } else {
        accel_fail_nomem(&err, "arguments", 0);
        code = cli_fail(&err);
    }
    free(argv);
    free(mpirun);
    return code;
}

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "Accelerate config file (required)", 0 },
    { "num-processes", 'n', "N", 0,
      "Processes to start (default: num_processes of the file)", 0 },
    { "resume", 'r', "auto|none|PATH", 0,
      "What to go on from: the newest intact checkpoint (default), nothing, or PATH",
      0 },
    { "dry-run", 'd', NULL, 0, "Print the command instead of running it", 0 },
    CLI_SETTINGS_OPTIONS,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PROGRAM [ARGUMENT...]",
    .doc = "Starts a program on this machine without Slurm, as srun "
           "--accel-config=FILE does with it: through mpirun (Open MPI), or directly "
           "when it is one process.\vThe exit code is the program's; 65 a problem in "
           "the file, 66 file or program missing, 69 no mpirun."
};

static int run_launch(int argc, char **argv)
{
    struct launch_args a = { 0 };
    struct cli_config c;
    accel_error_t err;
    long n = 0;
    int code;

    cli_parse(&cli_launch, argc, argv, &a);
    code = cli_config_load(a.config, &a.settings, &c);
    cli_settings_free(&a.settings);
    if (code)
        return code;
    if (count_processes(&a, &c.config, &n, &err) || check_program(a.command[0], &err) ||
        export_config(a.config, &c.config, &err) || export_resume(a.resume, &err))
        return cli_fail(&err);
    return launch(&a, n);
}

const struct cli_command cli_launch = {
    .name = "launch",
    .run = run_launch,
    .summary = "start a program without Slurm",
    .example = "accel launch --config fsdp.yaml -n 2 ./train",
    .argp = &argp,
    .everyday = true,
};
