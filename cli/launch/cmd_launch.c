/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel launch --config FILE [-n N] CMD...`: the same program without Slurm: as one
 * process, as several Python processes side by side, or through mpirun's PMIx server.
 * Validates the config first and gives the tasks the environment that srun would. The
 * program's exit status is ours.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "config/config.h"
#include "cli/cli.h"
#include "cli/launch/launch.h"
#include "cli/config/settings.h"

/* First word of the command line that mpirun's tasks get: it is for us alone
 * and stands in no help. */
static const char as_task[] = "--as-task";

struct launch_args {
    /* NULL: not given. */
    const char *config, *resume;
    /* 0: not given. */
    long processes;
    bool dry_run;
    struct launch_flags flags;
    struct cli_settings settings;
    /* The program and its arguments, ended by NULL. */
    char **command;
    /* The interpreter that runs the command; NULL: none. */
    char *python;
};

static error_t parse_launch_args(int key, char *arg, struct argp_state *state)
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
            argp_error(state, "-n takes a number of processes, at least 1, not '%s'",
                       arg);
        return 0;
    case 'r':
        a->resume = arg;
        return 0;
    case 'd':
        a->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        /* From the first operand on, all words belong to the
         * program, options included. */
        a->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!a->command)
            argp_error(state, "no program given");
        return 0;
    default:
        return cli_settings_parse(key, arg, state, &a->settings);
    }
}

/* The number of processes of the whole run, which must be known: nothing
 * else tells it here. */
static accel_status_t count_processes(const struct launch_args *a,
                                      const struct config *cfg, long *n_out,
                                      accel_error_t *err)
{
    const char *place = a->config ? a->config : "num_processes";

    if (cfg->distributed_type == DIST_NO && a->processes > 1)
        return accel_fail_at(
            err, A0303, place, "omit -n, or set distributed_type: FSDP or MULTI_CPU",
            "distributed_type NO is one process, but -n is %ld", a->processes);
    *n_out = cfg->distributed_type == DIST_NO ? 1 : (long)cfg->num_processes;
    if (*n_out < 1)
        return accel_fail_at(err, A0304, place,
                             "give -n N, or num_processes in the file",
                             "the number of processes is not given");
    return ACCEL_OK;
}

/* Resolves --resume to an absolute choice and exports it. A choice that cannot work is
 * told before anything is started. The variable is always set in the end, because
 * mpirun warns of one that is not. */
static accel_status_t export_resume(const char *text, accel_error_t *err)
{
    char choice[4096];
    accel_status_t st;

    if (!text)
        text = getenv(ENV_RESUME) ? getenv(ENV_RESUME) : "auto";
    st = resume_choice(text, NULL, choice, sizeof(choice), err);
    ACCEL_TRY(st, resume_exists(text, choice, err));
    if (st == ACCEL_OK && setenv(ENV_RESUME, choice, 1))
        st = accel_fail_nomem(err, "the environment", strlen(choice));
    return st;
}

/* Finds mistakes in the program's name here, with a suggestion, and not as
 * one failure per rank. */
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

/* Does the command run under Python? As with Accelerate: a *.py file or a module (-m)
 * does, any other program does not. */
static bool is_python(const struct launch_args *a)
{
    size_t n = strlen(a->command[0]);

    return a->flags.module ||
           (!a->flags.no_python && n > 3 && !strcmp(a->command[0] + n - 3, ".py"));
}

/* Makes the words to run: for Python, the interpreter in front. The new array and the
 * interpreter's path are malloc'ed and live until the exec. */
static accel_status_t make_command(struct launch_args *a, accel_error_t *err)
{
    size_t n = 0, tail = 0;
    char **argv;

    if (!is_python(a))
        return check_program(a->command[0], err);
    a->python = cli_find_program("python3");
    if (!a->python)
        a->python = cli_find_program("python");
    if (!a->python)
        return accel_fail(
            err, A0305,
            "activate the virtual environment, or load a module that has Python",
            "no python3 or python for '%s'", a->command[0]);
    if (!a->flags.module && access(a->command[0], R_OK))
        return accel_fail(err, A0305, "check the path", "no script '%s'",
                          a->command[0]);
    while (a->command[tail])
        tail++;
    argv = calloc(tail + 3, sizeof(*argv));
    if (!argv)
        return accel_fail_nomem(err, "arguments", 0);
    argv[n++] = a->python;
    if (a->flags.module)
        argv[n++] = (char *)"-m";
    memcpy(argv + n, a->command, tail * sizeof(*argv));
    a->command = argv;
    return ACCEL_OK;
}

/* Do the processes find each other by the variables alone, as Accelerate's do? Others
 * need a PMIx server. */
static bool side_by_side(const struct launch_args *a)
{
    return a->python || a->flags.no_python;
}

/* mpirun's arguments, then this program as its task, then the command.
 * Binding is left to accel: with more ranks than cores (a laptop, a
 * container) Open MPI would refuse. */
static char **mpirun_command(const char *mpirun, const char *count, const char *self,
                             char **command)
{
    const char *head[] = { mpirun,           "-n",        count, "--map-by",
                           ":OVERSUBSCRIBE", "--bind-to", "none" };
    const char *const names[] = { ENV_LAUNCH_ENVIRONMENT, ENV_LAUNCH_PORT, ENV_RESUME };
    size_t n = 0, tail = 0;
    char **argv;

    while (command[tail])
        tail++;
    argv = calloc(ACCEL_ARRAY_SIZE(head) + 2 * ACCEL_ARRAY_SIZE(names) + tail + 5,
                  sizeof(*argv));
    if (!argv)
        return NULL;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(head); i++)
        argv[n++] = (char *)head[i];
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        argv[n++] = (char *)"-x";
        argv[n++] = (char *)names[i];
    }
    /* Containers run as root, which Open MPI refuses by default. */
    if (geteuid() == 0)
        argv[n++] = (char *)"--allow-run-as-root";
    argv[n++] = (char *)self;
    argv[n++] = (char *)"launch";
    argv[n++] = (char *)as_task;
    memcpy(argv + n, command, tail * sizeof(*argv));
    return argv;
}

/* *mpirun_out is the caller's to free. */
static accel_status_t find_mpirun(long n, char **mpirun_out, accel_error_t *err)
{
    *mpirun_out = cli_find_program("mpirun");
    if (*mpirun_out)
        return ACCEL_OK;
    return accel_fail(
        err, A0307,
        "install Open MPI (Debian: openmpi-bin, RHEL: openmpi) or load its "
        "module; or use srun",
        "mpirun not found; %ld processes need its PMIx server", n);
}

/* Inside a job mpirun would take the job's nodes and start a daemon with srun, which in
 * the shell of a step waits for the CPUs of that very step. The processes are to run
 * here. These are the settings of Open MPI 4 and 5; the user's own stay. */
static bool keep_mpirun_here(void)
{
    static const char *const names[] = { "OMPI_MCA_plm", "OMPI_MCA_ras", "PRTE_MCA_plm",
                                         "PRTE_MCA_ras" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (setenv(names[i], "^slurm", 0))
            return false;
    return true;
}

/* The environment travels in two variables, and each task applies the
 * list for its own rank. */
static int run_mpirun(const struct launch_args *a, const struct launch_env *env)
{
    char self[4096], count[32], port[16], *mpirun = NULL, **argv;
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    accel_error_t err;
    int code;

    if (find_mpirun(env->world, &mpirun, &err))
        return cli_fail(&err);
    /* mpirun starts this very program, not another one of PATH. */
    self[len > 0 ? len : 0] = '\0';
    snprintf(count, sizeof(count), "%lld", (long long)env->world);
    snprintf(port, sizeof(port), "%u", env->port);
    argv = mpirun_command(mpirun, count, self, a->command);
    if (!argv || setenv(ENV_LAUNCH_ENVIRONMENT, env->carrier.s, 1) ||
        setenv(ENV_LAUNCH_PORT, port, 1) || !keep_mpirun_here()) {
        code = cli_no_memory("arguments");
    } else {
        code = launch_mpirun(argv);
    }
    free(argv);
    free(mpirun);
    return code;
}

/* Starts the program. One process: this one becomes it. Several: Python's find each
 * other by themselves, others need a PMIx server. */
static int start_program(const struct launch_args *a, const struct launch_env *env)
{
    accel_error_t err;
    int code;

    if (env->kept.s)
        fprintf(stderr,
                "accel: kept from your environment:%s (unset to let accel set them)\n",
                env->kept.s);
    if (env->local_world > 1) {
        launch_env_begin(env);
        code = side_by_side(a) ? launch_fork(env, a->command) : run_mpirun(a, env);
        launch_env_end(env, code);
        return code;
    }
    if (launch_env_apply(env, 0, &err))
        return cli_fail(&err);
    return launch_become(a->command);
}

/* The same note as srun's: Accelerate's FSDP shards nothing on CPUs. */
static void say_no_shards(const struct launch_args *a, const struct config *cfg)
{
    char where[256];

    if (a->python && cfg->distributed_type == DIST_FSDP && cfg->device == DEVICE_CPU)
        fprintf(stderr,
                "accel: %s: on CPUs a script of Accelerate does not shard: every rank "
                "trains a full replica, as with MULTI_CPU (programs of libaccel do "
                "shard)\n",
                config_where(cfg, "distributed_type", where, sizeof(where)));
}

/* The same note as srun's about accel.python.trainer. */
static void say_no_python_modules(const struct launch_args *a, const struct config *cfg)
{
    char dir[PATH_MAX], text[PATH_MAX + 256];

    if (a->python && cfg->python_trainer &&
        !python_modules_found(python_modules_dir(dir, sizeof(dir)), text, sizeof(text)))
        fprintf(stderr, "accel: %s\n", text);
}

/* --dry-run: what each task would get, then the command. */
static int print_dry_run(const struct launch_args *a, const struct launch_env *env)
{
    accel_error_t err;

    if (launch_env_print(env, &err))
        return cli_fail(&err);
    for (int i = 0; a->command[i]; i++)
        printf("%s%s", i ? " " : "", a->command[i]);
    printf("\n");
    return cli_finish(0);
}

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "Accelerate config file", 0 },
    { "num-processes", 'n', "N", 0,
      "Processes of the whole run, overriding num_processes of the file", 0 },
    { "resume", 'r', "auto|none|best|PATH", 0,
      "What to resume from: the newest intact checkpoint (default), nothing, the best "
      "by accel.checkpoint.metric, or PATH",
      0 },
    { "dry-run", 'd', NULL, 0,
      "Print the environment of the tasks and the command, but run nothing", 0 },
    CLI_SETTINGS_OPTIONS,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_launch_args,
    .args_doc = "PROGRAM [ARGUMENT...]",
    .doc =
        "Starts a program on this machine without Slurm, in the same way as srun "
        "--accel-config=FILE. Python scripts (*.py), and any program with --no_python, "
        "are started directly, once per process. Several processes of another program "
        "are started through mpirun (Open MPI).\vAccepts the flags of accelerate "
        "launch as well, with - or _: one for each key (--fsdp_version 2), --cpu, "
        "--multi_gpu, --use_fsdp, --use_deepspeed, --use_megatron_lm, -m, --no_python, "
        "--num_cpu_threads_per_process. The exit code is that of the program, or 65 "
        "for a problem in the file, 66 for a missing file or program, 69 if mpirun is "
        "missing."
};

/* --cpu, or a run whose type no source gives, becomes one process or replicas
 * (MULTI_CPU), as with Accelerate. Resolves the config once more with that type. */
static int settle_type(const struct launch_args *a, struct cli_settings *s,
                       struct cli_config *c)
{
    bool open = a->flags.cpu || !config_is_given(&c->config, "distributed_type");
    const char *type = c->config.num_processes > 1 ? "MULTI_CPU" : "NO";

    if (!open || (!a->flags.cpu && a->config))
        return 0;
    if (!cli_settings_add(s, "distributed_type", type))
        return cli_no_memory("the settings");
    return cli_config_load(a->config, s, c);
}

/* -n is a setting like any other, so it goes over the file and is checked with it. */
static int load_launch_config(struct launch_args *a, struct cli_config *c)
{
    char count[32];
    int code;

    snprintf(count, sizeof(count), "%ld", a->processes);
    if (a->processes && !cli_settings_add(&a->settings, "num_processes", count))
        return cli_no_memory("the settings");
    code = cli_config_load(a->config, &a->settings, c);
    if (!code)
        code = settle_type(a, &a->settings, c);
    cli_settings_free(&a->settings);
    return code;
}

/* The stages of a launch: resolve, count, find the program, choose where to
 * resume, make the environment, start. Whatever can fail does so before the
 * first process starts. */
static int launch_config(struct launch_args *a)
{
    /* Static for its size. */
    static struct cli_config c;
    struct launch_env env = { .claim = -1 };
    accel_error_t err;
    long n = 0;
    int code = load_launch_config(a, &c);

    if (code)
        return code;
    if (count_processes(a, &c.config, &n, &err) || make_command(a, &err) ||
        export_resume(a->resume, &err))
        return cli_fail(&err);
    /* mpirun has no hosts here; Python's processes meet through the variables alone. */
    if (!side_by_side(a) && c.config.num_machines > 1)
        return cli_error(A0302, a->config ? a->config : "num_machines",
                         "use srun --accel-config, or set num_machines: 1",
                         "num_machines is %lld, but accel launch starts programs that "
                         "need MPI or PMIx on one machine only",
                         (long long)c.config.num_machines);
    say_no_shards(a, &c.config);
    say_no_python_modules(a, &c.config);
    if (launch_env_make(&c.config, a->config, n, a->flags.threads, &env, &err))
        code = cli_fail(&err);
    else
        code = a->dry_run ? print_dry_run(a, &env) : start_program(a, &env);
    launch_env_free(&env);
    return code;
}

/* A task of mpirun: takes its environment, then becomes the program. */
static int run_task(char **command)
{
    accel_error_t err;

    launch_mpirun_task();
    return launch_env_as_task(&err) ? cli_fail(&err) : launch_become(command);
}

/* Accelerate's flags are translated first: argp knows neither underscores
 * nor a flag per key. */
static int run_launch(int argc, char **argv)
{
    struct launch_args a = { .settings = { .without_slurm = true } };
    accel_error_t err;
    int count, code;
    char **words;

    if (argc > 2 && !strcmp(argv[1], as_task))
        return run_task(argv + 2);
    words = launch_flags_translate(argc, argv, &a.flags, &count, &err);
    if (!words)
        return cli_fail(&err);
    cli_parse(&cli_launch, count, words, &a);
    code = launch_config(&a);
    launch_flags_free(words);
    return code;
}

const struct cli_command cli_launch = {
    .name = "launch",
    .run = run_launch,
    .summary = "start a program without Slurm",
    .example = "accel launch --config fsdp.yaml -n 2 ./train",
    .argp = &argp,
    .everyday = true,
};
