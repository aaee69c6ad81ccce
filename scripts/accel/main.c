/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel COMMAND ...`: finds the sub-command and hands it its arguments, as git does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scripts/accel/cli.h"

static void list_commands(bool everyday_only)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    printf("Commands:\n");
    for (size_t i = 0; i < n; i++)
        if (commands[i]->everyday || !everyday_only)
            printf("  accel %-10s %s\n", commands[i]->name, commands[i]->summary);
}

/* About twelve lines: what one types, not all there is. */
static void short_help(void)
{
    printf("accel %s: distributed, sharded, preemption-safe training under Slurm\n\n",
           accel_version());
    printf("  srun --accel-config=fsdp.yaml ./train    run a training program\n\n");
    list_commands(true);
    printf("\nMore: accel COMMAND --help; accel --help; accel --version\n");
}

static void long_help(void)
{
    printf("Example: accel check fsdp.yaml\n\n");
    printf("accel %s: distributed, sharded, preemption-safe training under Slurm\n\n",
           accel_version());
    printf("  srun --accel-config=fsdp.yaml ./train    run a training program\n\n");
    list_commands(false);
    printf("\nExit codes:\n");
    for (int code = 0; code < 256; code++) {
        char meaning[256];

        if (cli_exit_meaning(code, meaning, sizeof(meaning)))
            printf("  %3d  %s\n", code, meaning);
    }
    printf("\nMore: accel COMMAND --help; man accel; man accel-config\n");
}

static int unknown_command(const char *name)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);
    const char *names[CLI_MAX_COMMANDS], *near;
    char hint[80] = "see accel --help";
    accel_error_t err;

    for (size_t i = 0; i < n; i++)
        names[i] = commands[i]->name;
    near = suggest_nearest(name, names, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean 'accel %s'?", near);
    accel_fail(&err, A0011, hint, "unknown command '%s'", name);
    return cli_fail(&err);
}

int main(int argc, char **argv)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);
    char name[64];

    if (argc < 2) {
        short_help();
        return 0;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("accel %s\n", accel_version());
        return 0;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        long_help();
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], commands[i]->name))
            continue;
        /* argp names the program by argv[0] in its messages. */
        snprintf(name, sizeof(name), "accel %s", commands[i]->name);
        argv[1] = name;
        return commands[i]->run(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}
