/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel COMMAND ...`: finds the sub-command and hands it its arguments, as git does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scripts/accel/cli.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "check", cmd_check, "check a config file and show what it means" },
    { "env", cmd_env, "versions, hardware and variables, for bug reports" },
    { "ckpt", cmd_ckpt, "list and verify checkpoints" },
    { "launch", cmd_launch, "start a program without Slurm" },
};

/* About twelve lines: what one types, not all there is. */
static void short_help(void)
{
    printf("accel %s: distributed, sharded, preemption-safe training under Slurm\n\n",
           accel_version());
    printf("  srun --accel-config=fsdp.yaml ./train    run a training program\n\n");
    printf("Commands:\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(commands); i++)
        printf("  accel %-8s %s\n", commands[i].name, commands[i].summary);
    printf("\nMore: accel COMMAND --help; accel --help; accel --version\n");
}

static void long_help(void)
{
    printf("Example: accel check fsdp.yaml\n\n");
    short_help();
    printf(
        "\nExit codes: 0 good, 64 wrong usage, 65 bad config, 66 file missing,\n"
        "69 something needed is not there, 70 a defect of accel, 71 operating system,\n"
        "74 input or output, 76 a peer died, 77 no permission, 85 saved: run me "
        "again.\n");
}

static int unknown_command(const char *name)
{
    const char *names[ACCEL_ARRAY_SIZE(commands)], *near;
    char hint[80] = "see accel --help";
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(commands); i++)
        names[i] = commands[i].name;
    near = suggest_nearest(name, names, ACCEL_ARRAY_SIZE(commands));
    if (near)
        snprintf(hint, sizeof(hint), "did you mean 'accel %s'?", near);
    accel_fail(&err, ACCEL_EUSAGE, hint, "unknown command '%s'", name);
    return cli_fail(&err);
}

int main(int argc, char **argv)
{
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
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(commands); i++) {
        if (strcmp(argv[1], commands[i].name))
            continue;
        /* argp names the program by argv[0] in its messages. */
        snprintf(name, sizeof(name), "accel %s", commands[i].name);
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}
