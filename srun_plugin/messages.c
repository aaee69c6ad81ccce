/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the plugin, in the form of the command line: a code, the place, the cure on
 * a line of its own. A row of messages.def and its words come in. Out they go to
 * Slurm's error log, which is the user's terminal in srun, sbatch, salloc and in a
 * task.
 */
#include "srun_plugin/messages.h"

#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

bool plugin_error(enum message code, const char *where, const char *cure,
                  const char *fmt, ...)
{
    char text[1024], tag[16];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    slurm_error("accel: %s: %s%s%s", message_tag(code - MESSAGE_BASE, tag, sizeof(tag)),
                where ? where : "", where ? ": " : "", text);
    if (cure)
        slurm_error("  cure: %s", cure);
    return false;
}

/* The error has its code, place and cure already. */
bool plugin_report(const accel_error_t *err)
{
    char text[2048];

    accel_error_format(err, text, sizeof(text));
    plugin_lines("accel: ", text);
    return false;
}

/* One call per line, so that each gets Slurm's own prefix. */
void plugin_lines(const char *prefix, const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");

        if (n > 0)
            slurm_error("%s%.*s", prefix, n, text);
        prefix = "";
        text += n + (text[n] == '\n');
    }
}
