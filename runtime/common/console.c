/* SPDX-License-Identifier: Apache-2.0
 *
 * Ready-made pieces for a program's main: a logger and the report of its last error,
 * both to stderr. Nothing in the library calls them.
 */
#include <stdio.h>

#include "common/common.h"

void accel_log_stderr(void *user, accel_log_level_t level, const char *line)
{
    static const char *const prefix[] = { "accel: error: ", "accel: warning: ", "",
                                          "" };

    (void)user;
    fprintf(stderr, "%s%s\n",
            (size_t)level < ACCEL_ARRAY_SIZE(prefix) ? prefix[level] : "",
            line ? line : "");
}

int accel_report(const accel_error_t *err)
{
    char text[1536];

    if (!err)
        return accel_exit_code(ACCEL_OK);
    accel_error_format(err, text, sizeof(text));
    if (err->text[0])
        fprintf(stderr, "%s\n", text);
    return accel_exit_code(err->code);
}
