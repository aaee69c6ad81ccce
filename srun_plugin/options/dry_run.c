/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --accel-dry-run: shows what this srun, sbatch or salloc would do, on
 * stdout, and queues nothing. The validated config with the origin of its values, the
 * words of the user and the launch defaults come in. Ends the client with 0, or with 1
 * for what would be refused.
 */
#include "srun_plugin/options/plugin_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/plugin.h"
#include "srun_plugin/messages.h"
#include "srun_plugin/step/plugin_step.h"

/* ---- the size -------------------------------------------------------------------- */

/* The size that would be used. What is typed wins; then, for srun, the allocation it is
 * in; then the config. 0: not known. */
static void find_size(const struct client *c, uint32_t *tasks_out, uint32_t *nodes_out)
{
    const struct config *cfg = &c->file.config;

    size_typed(c, tasks_out, nodes_out);
    if (!c->allocates && !*nodes_out)
        *nodes_out = (uint32_t)user_env_long(&c->env, "SLURM_JOB_NUM_NODES", 0);
    if (!*tasks_out)
        *tasks_out = (uint32_t)cfg->num_processes;
    if (!*nodes_out)
        *nodes_out = (uint32_t)cfg->num_machines;
}

static void print_size(uint32_t tasks, uint32_t nodes)
{
    char a[32] = "as many as Slurm gives", b[32] = "as Slurm places them";

    if (tasks)
        snprintf(a, sizeof(a), "%u", tasks);
    if (nodes)
        snprintf(b, sizeof(b), "%u", nodes);
    printf("  tasks        %s\n  nodes        %s\n", a, b);
    if (tasks && nodes && tasks % nodes == 0)
        printf("  per node     %u\n", tasks / nodes);
}

/* ---- launch options -------------------------------------------------------------- */

/* The option that each environment input of defaults.c stands for, with its letter (0:
 * none) and its shortest prefix. */
static const struct {
    const char *input, *option;
    char letter;
    size_t min_prefix;
} inputs[] = {
    { "SLURM_MPI_TYPE", "mpi", 0, 3 },
    { "SLURM_NTASKS", "ntasks", 'n', 6 },
    { "SLURM_NTASKS_PER_NODE", "ntasks-per-node", 0, 12 },
    { "SLURM_KILL_BAD_EXIT", "kill-on-bad-exit", 'K', 6 },
    { "SLURM_DISABLE_STATUS", "disable-status", 'X', 3 },
    { "SLURM_SIGNAL", "signal", 0, 3 },
    { "SBATCH_SIGNAL", "signal", 0, 3 },
    { "SALLOC_SIGNAL", "signal", 0, 3 },
    { "SBATCH_OPEN_MODE", "open-mode", 0, 4 },
    { "SBATCH_REQUEUE", "requeue", 0, 3 },
};

/* Did the user type that option? Then the input has no effect. */
static bool is_typed(const struct typed *t, size_t i)
{
    return cmdline_gives(t->words, inputs[i].letter, inputs[i].option,
                         inputs[i].min_prefix) ||
           cmdline_gives(t->script, inputs[i].letter, inputs[i].option,
                         inputs[i].min_prefix);
}

/* Does this client read this input? SLURM_ inputs are srun's, which has set them only
 * for itself. */
static bool is_for_us(const char *input)
{
    const char *const sbatch_only = "SBATCH_", *const salloc_only = "SALLOC_";

    if (strncmp(input, sbatch_only, strlen(sbatch_only)) == 0)
        return cmdline_is_sbatch();
    return strncmp(input, salloc_only, strlen(salloc_only)) != 0 ||
           !cmdline_is_sbatch();
}

/* Prints the launch defaults in the form of options, so that the line can be copied. */
static void print_options(const struct client *c)
{
    const struct launch_default *set = c->defaults.set;

    printf("  options set ");
    for (size_t k = 0; k < c->defaults.set_count; k++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(inputs); i++) {
            if (strcmp(set[k].name, inputs[i].input) != 0 || !is_for_us(set[k].name) ||
                is_typed(&c->typed, i))
                continue;
            /* Options without a value. */
            bool flag = strcmp(inputs[i].option, "requeue") == 0 ||
                        strcmp(inputs[i].option, "disable-status") == 0;
            printf(" --%s%s%s", inputs[i].option, flag ? "" : "=",
                   flag ? "" : set[k].value);
        }
    printf("\n");
}

/* The program or script, as typed. */
static void print_command(char **argv)
{
    if (!argv)
        return;
    argv += cmdline_command(argv);
    if (!*argv)
        return;
    printf("  command     ");
    for (; *argv; argv++)
        printf(" %s", *argv);
    printf("\n");
}

/* ---- values ---------------------------------------------------------------------- */

/* Writes where a value came from, in one or two words. */
static void origin_text(const struct config *cfg, size_t row, char *buf, size_t len)
{
    static const char *const names[] = {
        [ORIGIN_DEFAULT] = "default", [ORIGIN_SITE] = "site file",
        [ORIGIN_USER] = "user file",  [ORIGIN_FILE] = "line",
        [ORIGIN_ENV] = "environment", [ORIGIN_FLAG] = "option",
    };

    snprintf(buf, len, "%s", names[cfg->origin[row]]);
    if (cfg->origin[row] == ORIGIN_FILE)
        snprintf(buf, len, "line %d", cfg->line[row]);
}

/* Prints what libaccel honours, and everything that was given. */
static void print_values(const struct job_file *f)
{
    const struct config *cfg = &f->config;
    size_t count;
    const struct config_key *keys = f->api->schema(&count);

    printf("values\n");
    for (size_t i = 0; i < count; i++) {
        char name[128], value[1100], origin[32];

        if (keys[i].offset == SIZE_MAX && cfg->origin[i] == ORIGIN_DEFAULT)
            continue;
        f->api->key_path(&keys[i], name, sizeof(name));
        f->api->value_text(cfg, &keys[i], value, sizeof(value));
        origin_text(cfg, i, origin, sizeof(origin));
        printf("  %-46s %-22s %s\n", name, value[0] ? value : "-", origin);
    }
}

/* The choice of --accel-resume as resume_option.c has put it into the environment. */
static void print_resume(void)
{
    const char *choice = getenv(ENV_RESUME);

    if (!choice || strcmp(choice, "auto") == 0)
        printf("  resume       auto: the newest intact checkpoint, if any\n");
    else if (strcmp(choice, "none") == 0)
        printf("  resume       none: from the beginning; refused if there are "
               "checkpoints\n");
    else if (strcmp(choice, "best") == 0)
        printf("  resume       best: the checkpoint of the best metric; later ones are "
               "moved aside\n");
    else
        printf("  resume       %s\n", choice);
}

/* ---- the tasks' environment ------------------------------------------------------ */

enum { RANGES = 8 };

/* Variables whose value differs between tasks: environ_apply is run for the
 * first and for the last task, into `row` and onto the screen. -1 stands for
 * what Slurm decides. */
struct ranges {
    const struct client *client;
    struct task_place first, last;
    size_t count;
    struct {
        char name[48], value[24];
    } row[RANGES];
};

/* As `get` of struct environ_ops: what the user exports would be there in a task. */
static bool get_exported(void *where, const char *name, char *buf, size_t len)
{
    const struct ranges *r = where;
    char room[1024];
    const char *value = taskenv_user_value(r->client, name, room, sizeof(room));

    if (value)
        snprintf(buf, len, "%s", value);
    return value != NULL;
}

/* As `unset`: nothing is really set here. */
static void unset_nothing(void *where, const char *name)
{
    (void)where;
    (void)name;
}

/* As `set` for the first task: keeps the value. */
static void note_first(void *where, const char *name, const char *value)
{
    struct ranges *r = where;

    if (r->count == RANGES)
        return;
    snprintf(r->row[r->count].name, sizeof(r->row[0].name), "%s", name);
    snprintf(r->row[r->count++].value, sizeof(r->row[0].value), "%s", value);
}

/* As `set` for the last task: prints "NAME=FIRST..LAST". */
static void print_range(void *where, const char *name, const char *last)
{
    struct ranges *r = where;
    const char *first = "";

    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->row[i].name, name))
            first = r->row[i].value;
    if (*first == '-' || *last == '-')
        printf("  %s: as Slurm places the tasks\n", name);
    else if (!strcmp(first, last))
        printf("  %s=%s\n", name, first);
    else
        printf("  %s=%s..%s\n", name, first, last);
}

/* What a value will be that is not known before the step exists; NULL: it is known.
 * `open` is what stands for "not known". */
static const char *known_later(const char *name, const char *value)
{
    static const struct {
        const char *name, *open, *text;
    } later[] = {
        { "MASTER_PORT", "0", "one free port per step" },
        { "WORLD_SIZE", "-1", "the number of tasks" },
        { "ROLE_WORLD_SIZE", "-1", "the number of tasks" },
        { "GROUP_WORLD_SIZE", "-1", "the number of nodes" },
        { ENV_FIRST_JOB, "0", "the job id" },
        { "MASTER_ADDR", "", "the node of rank 0" },
        { ENV_STEP_REPORTS, "", "a directory of the step, for what ranks report" },
        { "TORCHELASTIC_ERROR_FILE", "error_file=", "error.RANK in that directory" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(later); i++)
        if (!strcmp(name, later[i].name) && !strcmp(value, later[i].open))
            return later[i].text;
    return NULL;
}

/* A path that the task extends. False: the word is another one. */
static bool print_path(const char *name, const char *word)
{
    const char *dirs;
    bool cwd_last;

    if (!environ_path_word(word, &dirs, &cwd_last))
        return false;
    printf("  %s: %s%sits value%s\n", name, dirs, dirs[0] ? ", then " : "",
           cwd_last ? ", then the task's directory" : "");
    return true;
}

/* A config_env_f: prints one line of the tasks' environment. */
static void print_variable(void *user, const char *name, const char *value, bool task)
{
    struct ranges *r = user;
    const struct environ_ops first = { get_exported, note_first, unset_nothing, r },
                             last = { get_exported, print_range, unset_nothing, r };
    const char *later = known_later(name, value);
    char theirs[1024];
    /* Our own names override the user's, see environ_apply. */
    bool own = !strncmp(name, ENV_PREFIX, strlen(ENV_PREFIX));

    if (task && print_path(name, value))
        return;
    if (!own && get_exported(r, name, theirs, sizeof(theirs)))
        printf("  %s=%s (yours)\n", name, theirs);
    else if (later)
        printf("  %s: %s\n", name, later);
    else if (task) {
        r->count = 0;
        environ_apply(&first, &r->first, name, value, true);
        environ_apply(&last, &r->last, name, value, true);
    } else if (!strcmp(name, ENV_RESOLVED))
        printf("  %s: the values above, %zu bytes\n", name, strlen(value));
    else
        printf("  %s=%s\n", name, value);
}

/* A size, or -1 for "not known". */
static int64_t or_open(uint32_t n)
{
    return n ? (int64_t)n : -1;
}

/* The places of the first and the last task, assuming equally many tasks on
 * each node. */
static void find_places(struct ranges *r, uint32_t tasks, uint32_t nodes)
{
    int64_t t = or_open(tasks), n = or_open(nodes);
    /* Unequal nodes are not known before Slurm has placed the tasks. */
    int64_t per_node = tasks && nodes && tasks % nodes == 0 ? t / n : -1;

    r->first = (struct task_place){
        .world = t, .local_world = per_node, .nodes = n, .cores = -1
    };
    r->last = r->first;
    r->last.index = r->last.rank = tasks ? t - 1 : -1;
    r->last.local_rank = per_node > 0 ? per_node - 1 : -1;
    r->last.node = nodes ? n - 1 : -1;
}

/* Goes the same way as a real step (taskenv_list), so the list cannot differ. False,
 * with the reason reported: the step could not start. */
static bool print_tasks(const struct client *c, uint32_t tasks, uint32_t nodes)
{
    struct ranges r = { .client = c };
    const struct environ_ops first = { get_exported, note_first, unset_nothing, &r },
                             last = { get_exported, print_range, unset_nothing, &r };
    struct config_world world = { .tasks = or_open(tasks),
                                  .nodes = or_open(nodes),
                                  .master_addr = "" };
    accel_error_t err = { 0 };

    find_places(&r, tasks, nodes);
    printf("each task gets\n");
    environ_apply_place(&first, &r.first);
    environ_apply_place(&last, &r.last);
    if (taskenv_list(c, &world, print_variable, &r, &err) == ACCEL_OK)
        return true;
    return plugin_report(&err);
}

/* Would the size be accepted? A step of another size is refused. An allocation may be
 * larger: a step of the right size fits into it, but a note says how to ask for one. */
static bool size_allowed(const struct client *c, uint32_t tasks, uint32_t nodes)
{
    const struct config *cfg = &c->file.config;

    if (!c->allocates)
        return size_fits(c, tasks, nodes);
    if (cfg->num_processes > 0 && tasks != cfg->num_processes)
        printf("note: a step of all %u tasks would be refused: num_processes is %lld; "
               "start it with -n %lld\n",
               tasks, (long long)cfg->num_processes, (long long)cfg->num_processes);
    return true;
}

/* Without a config there is nothing to show. That is an error, because the user must
 * not believe in an empty plan. */
void dry_run_refuse(void)
{
    plugin_error(A0344, "--" OPTION_DRY_RUN,
                 "add --" OPTION_CONFIG "=FILE, or leave --" OPTION_DRY_RUN " out",
                 "there is nothing to show without --%s; nothing was queued",
                 OPTION_CONFIG);
    exit(1);
}

void dry_run_show(const struct client *c)
{
    uint32_t tasks, nodes;
    bool fits;

    find_size(c, &tasks, &nodes);
    printf("accel: dry run: nothing is queued\n  config       %s\n", c->file.path);
    print_size(tasks, nodes);
    print_options(c);
    print_resume();
    print_command(c->typed.words);
    print_values(&c->file);
    fits = print_tasks(c, tasks, nodes) && size_allowed(c, tasks, nodes);
    /* The plan is the only result; losing it is an error. */
    if (fflush(stdout) != 0) {
        plugin_error(A0345, "stdout", "free space, or redirect the output elsewhere",
                     "cannot print the plan: %m");
        exit(accel_exit_code(ACCEL_EIO));
    }
    exit(fits ? 0 : 1);
}
