/* SPDX-License-Identifier: Apache-2.0
 *
 * The size of an allocation from the config. sbatch and salloc have no environment
 * input for --ntasks, and the only call before their options are parsed cannot set an
 * option. So the client starts itself again, before anything is submitted, with the
 * options a user would have typed. Command line, script and config come in. Never
 * overrides a size the user gave.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "common/repeat_list.h"
#include "srun_plugin/config_api.h"
#include "srun_plugin/plugin.h"

/* --ntasks, --ntasks-per-node and --nodes. */
#define MAX_ADDED 3

/* The "s" of a message. */
static const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}

/* Is the option on this command line (or in the script's words)? `letter` 0: it
 * has none. */
static bool gives(char **argv, char letter, const char *name, size_t min_prefix)
{
    return argv && (cmdline_option(argv, name, min_prefix) ||
                    (letter && cmdline_letter(argv, letter)));
}

/* Any of these options fixes the number of tasks. */
static bool gives_tasks(char **argv)
{
    return gives(argv, 'n', "ntasks", 6) || gives(argv, 0, "ntasks-per-node", 12) ||
           gives(argv, 0, "ntasks-per-gpu", 12) ||
           gives(argv, 0, "ntasks-per-tres", 12);
}

/* Is `word` among the words from the command on? ":" and "hetjob" mark heterogeneous
 * jobs; the size of one component does not follow from the file. */
static bool has_word(char **argv, const char *word)
{
    for (size_t i = argv ? cmdline_command(argv) : 0; argv && argv[i]; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

/* Writes the options to add into `text`; returns their number. */
static size_t missing(const struct config *cfg, char **argv, char **script,
                      char text[MAX_ADDED][40])
{
    long long tasks = cfg->num_processes, nodes = cfg->num_machines;
    size_t n = 0;

    if (tasks <= 0 || gives_tasks(argv) || gives_tasks(script) ||
        has_word(script, "hetjob") || has_word(script, "packjob") ||
        (argv[cmdline_command(argv)] && strcmp(argv[cmdline_command(argv)], ":") == 0))
        return 0;
    snprintf(text[n++], sizeof(*text), "--ntasks=%lld", tasks);
    /* --nodes and --ntasks-per-node only together, or Slurm could spread the
     * tasks unevenly. */
    if (nodes <= 0 || tasks % nodes || gives(argv, 'N', "nodes", 5) ||
        gives(script, 'N', "nodes", 5))
        return n;
    snprintf(text[n++], sizeof(*text), "--ntasks-per-node=%lld", tasks / nodes);
    snprintf(text[n++], sizeof(*text), "--nodes=%lld", nodes);
    return n;
}

/* The added options come first, so what the user typed still wins over them. */
void size_ask_again(const struct config *cfg, char **argv, char **script)
{
    char text[MAX_ADDED][40], cure[80], **next;
    size_t added, words = 0;

    if (getenv(ENV_SIZED) || !argv[0])
        return;
    added = missing(cfg, argv, script, text);
    if (added == 0)
        return;
    while (argv[words])
        words++;
    next = malloc((words + added + 1) * sizeof(*next));
    if (!next)
        return;
    next[0] = argv[0];
    for (size_t i = 0; i < added; i++)
        next[1 + i] = text[i];
    /* The NULL at the end is copied along. */
    memcpy(next + 1 + added, argv + 1, words * sizeof(*next));
    if (setenv(ENV_SIZED, "1", 1) == 0) {
        cmdline_exec(next, environ);
        snprintf(cure, sizeof(cure), "give %s on the command line", text[0]);
        plugin_error(A0316, argv[0], cure, "cannot start it again with %s: %m",
                     text[0]);
        unsetenv(ENV_SIZED);
    }
    free(next);
}

void size_forget_guard(void)
{
    unsetenv(ENV_SIZED);
}

/* The number that an option gives, or 0: "2-4", "1K" and the like are left to Slurm. */
static uint32_t number_of(char **argv, char letter, const char *name, size_t min_prefix)
{
    const char *text = argv ? cmdline_option(argv, name, min_prefix) : NULL;
    char *end;

    if (!text && argv && letter)
        text = cmdline_letter(argv, letter);
    long n = text ? strtol(text, &end, 10) : 0;
    return text && end > text && !*end && n > 0 && n < INT_MAX ? (uint32_t)n : 0;
}

bool size_is_typed(char **argv)
{
    return gives(argv, 'N', "nodes", 5) || gives(argv, 'n', "ntasks", 6);
}

/* The command line wins over the script, for tasks and for nodes separately. */
void size_typed(char **argv, char **script, uint32_t *tasks_out, uint32_t *nodes_out)
{
    char **said = gives(argv, 'N', "nodes", 5) ? argv : script;
    uint32_t per_node;

    *nodes_out = number_of(said, 'N', "nodes", 5);
    said = gives_tasks(argv) ? argv : script;
    *tasks_out = number_of(said, 'n', "ntasks", 6);
    per_node = number_of(said, 0, "ntasks-per-node", 12);
    /* In srun the number of tasks comes from the config, and --ntasks-per-node is a
     * limit. The bounds keep the product in 32 bits. */
    if (*tasks_out == 0 && spank_context() == S_CTX_ALLOCATOR && per_node < 1u << 16 &&
        *nodes_out < 1u << 16)
        *tasks_out = per_node * *nodes_out;
    /* A script's srun inherits the number of tasks of its job. */
    const char *outer = defaults_user_env("SLURM_NTASKS");
    if (*tasks_out == 0 && spank_context() == S_CTX_LOCAL && outer)
        *tasks_out = (uint32_t)strtoul(outer, NULL, 10);
}

/* Checks the sizes of parallelism_config and megatron_lm_config against this step. */
static bool mesh_fits(const struct config *cfg, uint32_t tasks)
{
    const struct config_api *api = opts_api();
    accel_error_t err;

    if (!api || tasks == 0 || api->check_world(cfg, tasks, &err) == ACCEL_OK)
        return true;
    plugin_report(&err);
    return false;
}

/* Each message offers both ways out: another size, or another config. */
bool size_fits(const struct config *cfg, uint32_t tasks, uint32_t nodes)
{
    long long want = cfg->num_processes, machines = cfg->num_machines;
    char place[4200], cure[400];

    if (want > 0 && tasks > 0 && tasks != want) {
        opts_place("num_processes", place, sizeof(place));
        snprintf(cure, sizeof(cure),
                 "ask for %lld task%s (-n %lld; in a batch job also "
                 "#SBATCH --ntasks=%lld), or write num_processes: %u in the file, or "
                 "leave num_processes out to accept any number; a step that is no "
                 "training, inside a job that is: srun --accel-config=none ...",
                 want, plural(want), want, want, tasks);
        plugin_error(A0301, place, cure,
                     "num_processes is %lld, but this step has %u task%s", want, tasks,
                     plural(tasks));
        return false;
    }
    if (machines > 0 && nodes > 0 && nodes != machines) {
        opts_place("num_machines", place, sizeof(place));
        snprintf(
            cure, sizeof(cure),
            "ask for %lld node%s (-N %lld), or write num_machines: %u in the file, "
            "or leave num_machines out to accept any number",
            machines, plural(machines), machines, nodes);
        plugin_error(A0302, place, cure,
                     "num_machines is %lld, but this step has %u node%s", machines,
                     nodes, plural(nodes));
        return false;
    }
    if (cfg->distributed_type == DIST_NO && tasks > 1) {
        opts_place("distributed_type", place, sizeof(place));
        plugin_error(A0303, place,
                     "start one task (-n1), or write distributed_type: MULTI_CPU, "
                     "MULTI_GPU or FSDP; a step that is no training: srun "
                     "--accel-config=none ...",
                     "distributed_type NO is one process, but this step has %u tasks",
                     tasks);
        return false;
    }
    return mesh_fits(cfg, tasks);
}

/* Sizes that are not known yet pass; local.c sees the real ones. */
void size_refuse_early(const struct config *cfg, char **argv)
{
    uint32_t tasks, nodes;

    size_typed(argv, NULL, &tasks, &nodes);
    if (has_word(argv, ":") || defaults_user_env("SLURM_HET_SIZE"))
        size_refuse_het();
    else if (size_fits(cfg, tasks, nodes))
        return;
    exit(1);
}

void size_refuse_het(void)
{
    plugin_error(A0313, "SLURM_HET_SIZE", "use one component",
                 "heterogeneous jobs are not supported yet");
}

/* Not when the user has chosen a number of tasks, or more tasks than CPUs,
 * on purpose. */
void size_hint(const struct config *cfg, char **argv)
{
    long long cpus = repeat_list_total(defaults_user_env("SLURM_JOB_CPUS_PER_NODE")),
              tasks = cfg->num_processes;
    char cure[80];

    if (cpus == 0 || cpus >= tasks || !argv || gives_tasks(argv) ||
        gives(argv, 'O', "overcommit", 4) || defaults_user_env("SLURM_NTASKS") ||
        defaults_user_env("SLURM_NPROCS") || defaults_user_env("SLURM_OVERCOMMIT"))
        return;
    snprintf(cure, sizeof(cure), "give sbatch or salloc --ntasks=%lld", tasks);
    plugin_error(A0314, opts_path(), cure,
                 "this allocation has %lld CPU%s, the config asks for %lld task%s",
                 cpus, plural(cpus), tasks, plural(tasks));
}
