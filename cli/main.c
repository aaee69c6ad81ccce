/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel [--json] COMMAND ...`: finds the sub-command and hands it its
 * arguments, as git does.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* What JSON is made of. Callers go on without a value that cannot be made. */
static void *json_memory(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p)
        cli_lacks_memory();
    return p;
}

static void list_commands(bool everyday)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    for (size_t i = 0; i < n; i++)
        if (commands[i]->everyday == everyday)
            printf("  accel %-13s %s\n", commands[i]->name, commands[i]->summary);
}

/* What accel is and what it can do, the most used commands first. */
static void overview(void)
{
    printf("accel %s: distributed, sharded, preemption-safe training under Slurm\n",
           accel_version());
    printf("  srun --accel-config=fsdp.yaml ./train    run a training program\n\n");
    printf("Commands:\n");
    list_commands(true);
    printf("\nMore commands:\n");
    list_commands(false);
}

/* `accel` alone. */
static void short_help(void)
{
    overview();
    printf("\nMore: accel COMMAND --help; accel --help; accel --version\n");
}

/* `accel --help`: the overview and the exit codes, which all sub-commands share. */
static void long_help(void)
{
    printf("Example: accel check fsdp.yaml\n\n");
    overview();
    printf("\nExit codes:\n");
    for (int code = 0; code < 256; code++) {
        char meaning[256];

        if (cli_exit_meaning(code, meaning, sizeof(meaning)))
            printf("  %3d  %s\n", code, meaning);
    }
    printf("\nMore: accel COMMAND --help; man accel; man accel-config\n");
}

/* Suggests the command with the nearest spelling. */
static int unknown_command(const char *name)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);
    const char *names[CLI_MAX_COMMANDS], *near;
    char hint[80] = "see accel --help";

    for (size_t i = 0; i < n; i++)
        names[i] = commands[i]->name;
    near = suggest_nearest(name, names, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean 'accel %s'?", near);
    return cli_error(A0011, NULL, hint, "unknown command '%s'", name);
}

static bool is_json_option(const char *word)
{
    return !strcmp(word, "--" CLI_JSON_NAME) || !strcmp(word, "-j");
}

/* Runs the command that argv[at] names. The words before it (--json) become options of
 * the command: its own name is cut out and argv[0] replaced. */
static int run_command(int argc, char **argv, int at)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);
    char name[64];

    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[at], commands[i]->name))
            continue;
        /* argp names the program by argv[0] in its messages. */
        snprintf(name, sizeof(name), "accel %s", commands[i]->name);
        memmove(&argv[at], &argv[at + 1], (size_t)(argc - at) * sizeof(*argv));
        argv[0] = name;
        return commands[i]->run(argc - 1, argv);
    }
    return unknown_command(argv[at]);
}

/* Options in front of the command: only --json, which is moved after it. The rest of
 * argv belongs to the sub-command, so nothing here parses it. */
int main(int argc, char **argv)
{
    int at = 1;

    if (argc < 2) {
        short_help();
        return cli_finish(0);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("accel %s\n", accel_version());
        return cli_finish(0);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        long_help();
        return cli_finish(0);
    }
    /* Scripts put --json in front of any command that prints a table. */
    while (at < argc && is_json_option(argv[at]))
        at++;
    json_set_alloc_funcs(json_memory, free);
    if (at < argc)
        return run_command(argc, argv, at);
    return cli_error(A0010, NULL, "name the command: accel --json topo",
                     "%s is an option of a command, and no command is given", argv[1]);
}
