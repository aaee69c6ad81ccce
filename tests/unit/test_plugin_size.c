/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's size.c: options that a client is started again with, what the user's own
 * say of a size, which sizes fit a config, and the words of a refusal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun_plugin/step/plugin_step.h"
#include "tests/tap.h"
#include "tests/unit/fake_plugin.h"

/* ---- asking again ---------------------------------------------------------------- */

struct again {
    int tasks, nodes;
    const char *line, *script; /* script: one word more than its name, or NULL */
    const char *want;          /* the words of the second start; "": there is none */
};

static const struct again again_rows[] = {
    { 4, 0, "sbatch a.sh x", NULL, "sbatch --ntasks=4 a.sh x" },
    { 4, 2, "sbatch a.sh", NULL,
      "sbatch --ntasks=4 --ntasks-per-node=2 --nodes=2 a.sh" },
    { 4, 4, "sbatch a.sh", NULL,
      "sbatch --ntasks=4 --ntasks-per-node=1 --nodes=4 a.sh" },
    { 5, 2, "sbatch a.sh", NULL, "sbatch --ntasks=5 a.sh" }, /* not divisible */
    { 8, 2, "sbatch -O a.sh", NULL, "sbatch --ntasks=8 --nodes=2 -O a.sh" },
    { 8, 2, "sbatch a.sh", "--overcommit", "sbatch --ntasks=8 --nodes=2 a.sh" },
    { 1, 2, "sbatch a.sh", NULL, "sbatch --ntasks=1 a.sh" },
    { 4, 2, "sbatch -N 2 a.sh", NULL, "sbatch --ntasks=4 -N 2 a.sh" },
    { 4, 2, "sbatch a.sh", "--nodes=2", "sbatch --ntasks=4 a.sh" },
    { 0, 2, "sbatch a.sh", NULL, "" },
    { 4, 2, "sbatch -n4 a.sh", NULL, "" },
    { 4, 2, "sbatch --ntasks=4 a.sh", NULL, "" },
    { 4, 2, "sbatch --ntasks-per-node=4 a.sh", NULL, "" },
    { 4, 2, "sbatch --ntasks-per-gpu=1 a.sh", NULL, "" },
    { 4, 2, "sbatch --ntasks-per-tres=1 a.sh", NULL, "" },
    { 4, 2, "sbatch a.sh", "-n4", "" },
    { 4, 2, "sbatch a.sh", "--ntasks-per-node=2", "" },
    { 4, 2, "sbatch a.sh", "hetjob", "" },
    { 4, 2, "sbatch a.sh", "packjob", "" },
    { 4, 2, "salloc -c 1 : -c 2", NULL, "" },
};

/* This very program is what the second start runs; main() says its words then. */
static void ask_again(const void *arg)
{
    struct config *cfg = &fake_client.file.config;
    const struct again *r = arg;
    char *script[] = { (char *)"a.sh", (char *)r->script, NULL };

    cfg->num_processes = r->tasks;
    cfg->num_machines = r->nodes;
    fake_context = S_CTX_ALLOCATOR;
    fake_split(r->line);
    fake_client.typed.script = r->script ? script : NULL;
    size_ask_again(cfg, &fake_client.typed);
    size_forget_guard();
    if (getenv("ACCEL_SIZED"))
        printf("the guard stays");
}

static void say_words(char **argv)
{
    for (size_t i = 0; argv[i]; i++)
        printf("%s%s", i ? " " : "", argv[i]);
    fflush(stdout);
}

static void guarded(const void *arg)
{
    (void)arg;
    setenv("ACCEL_SIZED", "1", 1);
    ask_again(&again_rows[0]);
}

/* ---- what was typed -------------------------------------------------------------- */

struct typed_row {
    const char *line, *script, *outer; /* outer: SLURM_NTASKS of the allocation */
    spank_context_t context;
    unsigned tasks, nodes;
    bool given; /* a size of its own */
};

static const struct typed_row typed_rows[] = {
    { "srun ./a", NULL, NULL, S_CTX_LOCAL, 0, 0, false },
    { "srun -n 3 -N2 ./a", NULL, NULL, S_CTX_LOCAL, 3, 2, true },
    { "srun --ntasks=3 --nodes=2 ./a", NULL, NULL, S_CTX_LOCAL, 3, 2, true },
    { "srun -N 2-4 ./a", NULL, NULL, S_CTX_LOCAL, 0, 0, true },
    { "srun -n 1K ./a", NULL, NULL, S_CTX_LOCAL, 0, 0, true },
    { "srun -n -1 ./a", NULL, NULL, S_CTX_LOCAL, 0, 0, true },
    { "srun -n 2147483647 ./a", NULL, NULL, S_CTX_LOCAL, 0, 0, true },
    { "srun -n 2147483646 ./a", NULL, NULL, S_CTX_LOCAL, 2147483646, 0, true },
    { "srun -N2 --ntasks-per-node=3 ./a", NULL, NULL, S_CTX_LOCAL, 0, 2, true },
    { "srun ./a", NULL, "8", S_CTX_LOCAL, 8, 0, false },
    { "srun -n 2 ./a", NULL, "8", S_CTX_LOCAL, 2, 0, true },
    { "sbatch -N2 --ntasks-per-node=3 a.sh", NULL, "8", S_CTX_ALLOCATOR, 6, 2, true },
    { "sbatch -N65536 --ntasks-per-node=3 a.sh", NULL, NULL, S_CTX_ALLOCATOR, 0, 65536,
      true },
    { "sbatch a.sh", "-n5", NULL, S_CTX_ALLOCATOR, 5, 0, false },
    { "sbatch -n 4 a.sh", "-n5", NULL, S_CTX_ALLOCATOR, 4, 0, true },
    { "sbatch -N3 a.sh", "-N5", NULL, S_CTX_ALLOCATOR, 0, 3, true },
    { "sbatch --ntasks-per-node=2 a.sh", "-n5", NULL, S_CTX_ALLOCATOR, 0, 0, false },
};

static void show_typed(const void *arg)
{
    const struct typed_row *r = arg;
    char *script[] = { (char *)"a.sh", (char *)r->script, NULL };
    uint32_t tasks = 99, nodes = 99;

    clearenv();
    if (r->outer)
        setenv("SLURM_NTASKS", r->outer, 1);
    user_env_keep(&fake_client.env);
    fake_context = r->context;
    fake_split(r->line);
    fake_client.allocates = r->context == S_CTX_ALLOCATOR;
    fake_client.typed.script = r->script ? script : NULL;
    size_typed(&fake_client, &tasks, &nodes);
    printf("%u %u %s", tasks, nodes, size_is_typed(fake_words) ? "typed" : "open");
    user_env_free(&fake_client.env);
}

static void test_typed(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(typed_rows); i++) {
        const struct typed_row *r = &typed_rows[i];
        char want[64];

        snprintf(want, sizeof(want), "%u %u %s", r->tasks, r->nodes,
                 r->given ? "typed" : "open");
        tap_is_str(fake_child(show_typed, r), want, "size of '%s' (%s)", r->line,
                   r->script  ? r->script
                   : r->outer ? r->outer
                              : "-");
    }
}

/* ---- does it fit? ---------------------------------------------------------------- */

static void test_fits(void)
{
    static const struct {
        int want, machines, type;
        unsigned tasks, nodes;
        const char *said; /* begins so; "": it fits */
    } rows[] = {
        { 4, 2, DIST_MULTI_CPU, 4, 2, "" },
        { 0, 0, DIST_MULTI_CPU, 9, 3, "" },
        { 4, 2, DIST_MULTI_CPU, 0, 0, "" }, /* not known yet */
        { 4, 0, DIST_MULTI_CPU, 3, 1,
          "A0301 num_processes is 4, but this step has 3 tasks | request 4 tasks (-n "
          "4; "
          "in a batch job also #SBATCH --ntasks=4), or set num_processes: 3 " },
        { 1, 0, DIST_MULTI_CPU, 2, 1,
          "A0301 num_processes is 1, but this step has 2 tasks | request 1 task (-n "
          "1; " },
        { 2, 0, DIST_MULTI_CPU, 1, 1,
          "A0301 num_processes is 2, but this step has 1 task | request 2 tasks (" },
        { 0, 2, DIST_MULTI_CPU, 4, 1,
          "A0302 num_machines is 2, but this step has 1 node | request 2 nodes (-N 2), "
          "or set num_machines: 1 in the file" },
        { 0, 1, DIST_MULTI_CPU, 4, 2,
          "A0302 num_machines is 1, but this step has 2 nodes | request 1 node (-N "
          "1), " },
        { 0, 0, DIST_NO, 2, 1, "A0303 " },
        { 1, 0, DIST_NO, 2, 1, "A0303 " },
        { 0, 0, DIST_NO, 1, 1, "" },
        { 0, 0, DIST_MULTI_CPU, 7, 1, "7 does not fit" },
        { 0, 0, DIST_MULTI_CPU, 8, 1, "" },
    };
    struct config *cfg = &fake_client.file.config;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        cfg->num_processes = rows[i].want;
        cfg->num_machines = rows[i].machines;
        cfg->distributed_type = rows[i].type;
        fake_said[0] = '\0';
        bool fits = size_fits(&fake_client, rows[i].tasks, rows[i].nodes);
        tap_ok(fits == !rows[i].said[0] &&
                   !strncmp(fake_said, rows[i].said, strlen(rows[i].said)),
               "%d tasks and %d machines of type %d, %u and %u given", rows[i].want,
               rows[i].machines, rows[i].type, rows[i].tasks, rows[i].nodes);
        if (strncmp(fake_said, rows[i].said, strlen(rows[i].said)) != 0)
            tap_diag("%s", fake_said);
    }
}

static void refuse(const void *arg)
{
    struct config *cfg = &fake_client.file.config;

    cfg->num_processes = 2;
    cfg->distributed_type = DIST_MULTI_CPU;
    user_env_keep(&fake_client.env);
    setvbuf(stdout, NULL, _IONBF, 0);
    fake_split(arg);
    size_refuse_early(&fake_client);
    printf("goes on%s", fake_said);
}

/* ---- too small an allocation ----------------------------------------------------- */

struct hint {
    int tasks;
    const char *cpus, *line, *env, *want;
};

static const struct hint hint_rows[] = {
    { 4, "2", "srun ./a", NULL,
      "A0314 this allocation has 2 CPUs, but the config asks for 4 tasks | pass "
      "--ntasks=4 to sbatch or salloc\n" },
    { 4, "1", "srun ./a", NULL,
      "A0314 this allocation has 1 CPU, but the config asks for 4 tasks | pass "
      "--ntasks=4 to sbatch or salloc\n" },
    { 7, "2(x3)", "srun ./a", NULL,
      "A0314 this allocation has 6 CPUs, but the config asks for 7 tasks | pass "
      "--ntasks=7 to sbatch or salloc\n" },
    { 8, "2(x3),1", "srun ./a", NULL,
      "A0314 this allocation has 7 CPUs, but the config asks for 8 tasks | pass "
      "--ntasks=8 to sbatch or salloc\n" },
    { 4, "4", "srun ./a", NULL, "" },
    { 4, "2(x2)", "srun ./a", NULL, "" },
    { 4, "two", "srun ./a", NULL, "" },
    { 4, "2;3", "srun ./a", NULL, "" },
    { 4, NULL, "srun ./a", NULL, "" },
    { 4, "2", "srun -n 4 ./a", NULL, "" },
    { 4, "2", "srun -O ./a", NULL, "" },
    { 4, "2", "srun --overcommit ./a", NULL, "" },
    { 4, "2", "srun ./a", "SLURM_NTASKS", "" },
    { 4, "2", "srun ./a", "SLURM_NPROCS", "" },
    { 4, "2", "srun ./a", "SLURM_OVERCOMMIT", "" },
};

static void show_hint(const void *arg)
{
    struct config *cfg = &fake_client.file.config;
    const struct hint *r = arg;

    clearenv();
    if (r->cpus)
        setenv("SLURM_JOB_CPUS_PER_NODE", r->cpus, 1);
    if (r->env)
        setenv(r->env, "1", 1);
    user_env_keep(&fake_client.env);
    cfg->num_processes = r->tasks;
    fake_split(r->line);
    size_hint(&fake_client);
    printf("%s", fake_said);
    user_env_free(&fake_client.env);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv("ACCEL_SIZED")) {
        say_words(argv);
        return 0;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(again_rows); i++)
        tap_is_str(fake_child(ask_again, &again_rows[i]), again_rows[i].want,
                   "%d tasks on %d nodes: '%s' (%s)", again_rows[i].tasks,
                   again_rows[i].nodes, again_rows[i].line,
                   again_rows[i].script ? again_rows[i].script : "-");
    tap_is_str(fake_child(guarded, NULL), "", "the second start asks no third time");
    test_typed();
    test_fits();
    tap_is_str(fake_child(refuse, "srun -n 3 ./a"), "", "a wrong size ends srun early");
    tap_is_str(fake_child(refuse, "srun -n 2 ./a"), "goes on", "a right one does not");
    tap_is_str(fake_child(refuse, "srun ./a : ./b"), "", "two components do");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(hint_rows); i++)
        tap_is_str(fake_child(show_hint, &hint_rows[i]), hint_rows[i].want,
                   "%d tasks in CPUs %s: '%s' %s", hint_rows[i].tasks,
                   hint_rows[i].cpus ? hint_rows[i].cpus : "-", hint_rows[i].line,
                   hint_rows[i].env ? hint_rows[i].env : "");
    return tap_done();
}
