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

/* Is it a run that was told to stop and did so? Then nothing has gone wrong. */
static bool was_stopped(const accel_error_t *err)
{
    const enum message m = message_of(err);

    return m == A0907 || m == A0923 || m == A0926 || m == A0927;
}

int accel_report(const accel_error_t *err)
{
    char text[1536];

    if (!err)
        return accel_exit_code(ACCEL_OK);
    accel_error_format(err, text, sizeof(text));
    if (err->text[0] && was_stopped(err))
        fprintf(stderr, "accel: %s\naccel:   %s\n", err->text, err->hint);
    else if (err->text[0])
        fprintf(stderr, "%s\n", text);
    return accel_exit_code(err->code);
}
