/* SPDX-License-Identifier: Apache-2.0
 *
 * The size of an allocation from the config. sbatch and salloc have no environment
 * input for --ntasks, and the only call before their options are parsed cannot set an
 * option. So the client starts itself again, before anything is submitted, with the
 * options a user would have typed. Command line, script and config come in. Never
 * overrides a size the user gave.
 */
#include "srun_plugin/step/plugin_step.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env_names.h"
#include "common/repeat_list.h"
#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/messages.h"

/* --ntasks, --ntasks-per-node and --nodes. */
#define MAX_ADDED 3

/* The "s" of a message. */
static const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}

/* Any of these options fixes the number of tasks. */
static bool gives_tasks(char **argv)
{
    return cmdline_gives(argv, 'n', "ntasks", 6) ||
           cmdline_gives(argv, 0, "ntasks-per-node", 12) ||
           cmdline_gives(argv, 0, "ntasks-per-gpu", 12) ||
           cmdline_gives(argv, 0, "ntasks-per-tres", 12);
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

/* More tasks than CPUs, on purpose. */
static bool overcommits(const struct typed *t)
{
    return getenv(cmdline_is_sbatch() ? "SBATCH_OVERCOMMIT" : "SALLOC_OVERCOMMIT") ||
           cmdline_gives(t->words, 'O', "overcommit", 4) ||
           cmdline_gives(t->script, 'O', "overcommit", 4);
}

/* Writes the options to add into `text`; returns their number. */
static size_t missing(const struct config *cfg, const struct typed *t,
                      char text[MAX_ADDED][40])
{
    char **argv = t->words, **script = t->script;
    long long tasks = cfg->num_processes, nodes = cfg->num_machines;
    size_t n = 0;

    if (tasks <= 0 || gives_tasks(argv) || gives_tasks(script) ||
        has_word(script, "hetjob") || has_word(script, "packjob") ||
        (argv[cmdline_command(argv)] && strcmp(argv[cmdline_command(argv)], ":") == 0))
        return 0;
    snprintf(text[n++], sizeof(*text), "--ntasks=%lld", tasks);
    /* --nodes and --ntasks-per-node only together, or Slurm could spread the
     * tasks unevenly. */
    if (nodes <= 0 || tasks % nodes || cmdline_gives(argv, 'N', "nodes", 5) ||
        cmdline_gives(script, 'N', "nodes", 5))
        return n;
    /* To Slurm a number per node is a demand for as many CPUs. */
    if (!overcommits(t))
        snprintf(text[n++], sizeof(*text), "--ntasks-per-node=%lld", tasks / nodes);
    snprintf(text[n++], sizeof(*text), "--nodes=%lld", nodes);
    return n;
}

/* The added options come first, so what the user typed still wins over them. */
void size_ask_again(const struct config *cfg, const struct typed *t)
{
    char text[MAX_ADDED][40], cure[80], **argv = t->words, **next;
    size_t added, words = 0;

    if (getenv(ENV_SIZED) || !argv[0])
        return;
    added = missing(cfg, t, text);
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
        snprintf(cure, sizeof(cure), "pass %s on the command line", text[0]);
        plugin_error(A0316, argv[0], cure, "cannot restart with %s: %m", text[0]);
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
    return cmdline_gives(argv, 'N', "nodes", 5) ||
           cmdline_gives(argv, 'n', "ntasks", 6);
}

/* The command line wins over the script, for tasks and for nodes separately. */
void size_typed(const struct client *c, uint32_t *tasks_out, uint32_t *nodes_out)
{
    char **argv = c->typed.words, **script = c->typed.script;
    char **said = cmdline_gives(argv, 'N', "nodes", 5) ? argv : script;
    uint32_t per_node;

    *nodes_out = number_of(said, 'N', "nodes", 5);
    said = gives_tasks(argv) ? argv : script;
    *tasks_out = number_of(said, 'n', "ntasks", 6);
    per_node = number_of(said, 0, "ntasks-per-node", 12);
    /* In srun the number of tasks comes from the config, and --ntasks-per-node is a
     * limit. The bounds keep the product in 32 bits. */
    if (*tasks_out == 0 && c->allocates && per_node < 1u << 16 && *nodes_out < 1u << 16)
        *tasks_out = per_node * *nodes_out;
    /* A script's srun inherits the number of tasks of its job. */
    const char *outer = user_env_get(&c->env, "SLURM_NTASKS");
    if (*tasks_out == 0 && !c->allocates && outer)
        *tasks_out = (uint32_t)strtoul(outer, NULL, 10);
}

/* Checks the sizes of parallelism_config and megatron_lm_config against this step. */
static bool mesh_fits(const struct job_file *f, uint32_t tasks)
{
    accel_error_t err;

    if (!f->api || tasks == 0 ||
        f->api->check_world(&f->config, tasks, &err) == ACCEL_OK)
        return true;
    return plugin_report(&err);
}

/* Each message offers both ways out: another size, or another config. */
bool size_fits(const struct client *c, uint32_t tasks, uint32_t nodes)
{
    const struct config *cfg = &c->file.config;
    long long want = cfg->num_processes, machines = cfg->num_machines;
    char place[4200], cure[400];

    /* First, since with NO the file can say no other number. */
    if (cfg->distributed_type == DIST_NO && tasks > 1) {
        job_file_place(&c->file, "distributed_type", place, sizeof(place));
        return plugin_error(
            A0303, place,
            "start one task (-n1), or use distributed_type: MULTI_CPU, MULTI_GPU or "
            "FSDP; for a step without training: srun --accel-config=none ...",
            "distributed_type NO means one process, but this step has %u tasks", tasks);
    }
    if (want > 0 && tasks > 0 && tasks != want) {
        job_file_place(&c->file, "num_processes", place, sizeof(place));
        snprintf(
            cure, sizeof(cure),
            "request %lld task%s (-n %lld; in a batch job also #SBATCH --ntasks=%lld), "
            "or set num_processes: %u in the file, or remove num_processes to accept "
            "any number; for a step without training: srun --accel-config=none ...",
            want, plural(want), want, want, tasks);
        return plugin_error(A0301, place, cure,
                            "num_processes is %lld, but this step has %u task%s", want,
                            tasks, plural(tasks));
    }
    if (machines > 0 && nodes > 0 && nodes != machines) {
        job_file_place(&c->file, "num_machines", place, sizeof(place));
        snprintf(cure, sizeof(cure),
                 "request %lld node%s (-N %lld), or set num_machines: %u in the file, "
                 "or remove num_machines to accept any number",
                 machines, plural(machines), machines, nodes);
        return plugin_error(A0302, place, cure,
                            "num_machines is %lld, but this step has %u node%s",
                            machines, nodes, plural(nodes));
    }
    return mesh_fits(&c->file, tasks);
}

/* Sizes that are not known yet pass; srun_step.c sees the real ones. */
void size_refuse_early(const struct client *c)
{
    uint32_t tasks, nodes;

    size_typed(c, &tasks, &nodes);
    if (has_word(c->typed.words, ":") || user_env_get(&c->env, "SLURM_HET_SIZE"))
        size_refuse_het();
    else if (size_fits(c, tasks, nodes))
        return;
    exit(1);
}

void size_refuse_het(void)
{
    plugin_error(A0313, "SLURM_HET_SIZE", "use a job with one component",
                 "heterogeneous jobs are not supported yet");
}

/* Not when the user has chosen a number of tasks, or more tasks than CPUs,
 * on purpose. */
void size_hint(const struct client *c)
{
    char **argv = c->typed.words;
    long long cpus =
                  repeat_list_total(user_env_get(&c->env, "SLURM_JOB_CPUS_PER_NODE")),
              tasks = c->file.config.num_processes;
    char cure[80];

    if (cpus == 0 || cpus >= tasks || !argv || gives_tasks(argv) ||
        cmdline_gives(argv, 'O', "overcommit", 4) ||
        user_env_get(&c->env, "SLURM_NTASKS") ||
        user_env_get(&c->env, "SLURM_NPROCS") ||
        user_env_get(&c->env, "SLURM_OVERCOMMIT"))
        return;
    snprintf(cure, sizeof(cure), "pass --ntasks=%lld to sbatch or salloc", tasks);
    plugin_error(A0314, c->file.path, cure,
                 "this allocation has %lld CPU%s, but the config asks for %lld task%s",
                 cpus, plural(cpus), tasks, plural(tasks));
}
