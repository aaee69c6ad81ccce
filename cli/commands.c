/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of sub-commands and of exit codes, which help, completion and
 * manual page show. Pure.
 */
#include <stdio.h>

#include "cli/cli.h"

/* In the order of the help: everyday commands in the order of a first
 * run, then the others. */
static const struct cli_command *const commands[] = {
    &cli_check,    &cli_config, &cli_plan,          &cli_launch,
    &cli_test,     &cli_ckpt,   &cli_doctor,        &cli_tokenize,
    &cli_explain,  &cli_env,    &cli_merge_weights, &cli_topo,
    &cli_to_fsdp2, &cli_schema, &cli_completion,    &cli_man,
};

_Static_assert(ACCEL_ARRAY_SIZE(commands) <= CLI_MAX_COMMANDS, "CLI_MAX_COMMANDS");

const struct cli_command *const *cli_commands(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(commands);
    return commands;
}

bool cli_exit_meaning(int code, char *buf, size_t len)
{
    size_t used = 0;

    /* Several statuses may share one code. */
    for (accel_status_t s = ACCEL_OK; status_meaning(s) && used < len; s++)
        if (accel_exit_code(s) == code)
            used += (size_t)snprintf(buf + used, len - used, "%s%s", used ? "; " : "",
                                     status_meaning(s));
    return used > 0;
}
