/* SPDX-License-Identifier: Apache-2.0
 *
 * The words behind the plugin in plugstack.conf, a file of root's. Read in srun, sbatch
 * and salloc only; nothing is opened here.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "srun_plugin/plugin.h"

static char site[PATH_MAX];

/* An unknown word is reported but does not stop the client: it is the
 * administrator's mistake. */
void arguments_take(int ac, char **av)
{
    for (int i = 0; i < ac; i++) {
        if (strncmp(av[i], "site=/", 6) == 0 && strlen(av[i] + 5) < sizeof(site))
            snprintf(site, sizeof(site), "%s", av[i] + 5);
        else
            plugin_error(
                A0207, "plugstack.conf",
                "ask the administrator to use site=/ABSOLUTE/PATH, or no argument",
                "unknown argument '%s'", av[i]);
    }
}

const char *arguments_site(void)
{
    return site[0] ? site : NULL;
}
