/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel completion bash`: prints the script that completion.awk made when accel was
 * built.
 */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/own_program.h"

/* The shell must be named, so that other shells can follow without
 * a change of meaning. */
static error_t parse_completion_args(int key, char *arg, struct argp_state *state)
{
    const char **shell = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        if (strcmp(arg, "bash") != 0)
            argp_error(state, "no completion for '%s'; available: bash", arg);
        *shell = arg;
        return 0;
    case ARGP_KEY_END:
        if (!*shell)
            argp_error(state, "name the shell: bash");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .parser = parse_completion_args,
    .args_doc = "bash",
    .doc = "Prints the completion script for a shell. Installing accel puts it where "
           "bash-completion finds it. To load it by hand: source <(accel completion "
           "bash)"
};

static int run_completion(int argc, char **argv)
{
    static const char *const roots[] = { "cli/man/", "../share/bash-completion/",
                                         DATADIR "/bash-completion/", NULL };
    const char *shell = NULL;
    char path[PATH_MAX];

    cli_parse(&cli_completion, argc, argv, &shell);
    cli_own_file(roots, "completions/accel", F_OK, path);
    return cli_print_file(path);
}

const struct cli_command cli_completion = {
    .name = "completion",
    .run = run_completion,
    .summary = "completion script for bash",
    .example = "accel completion bash",
    .argp = &argp,
};
