/* SPDX-License-Identifier: Apache-2.0
 *
 * The words after the plugin in plugstack.conf, a file of root's. Nothing is opened or
 * said here.
 */
#include "srun_plugin/options/arguments.h"

#include <stdio.h>
#include <string.h>

/* A wrong word may be a misspelt site=, and with it the site's locks: it is kept, so
 * that no config is used beside it. Clients that use none never hear of it. */
void arguments_take(struct arguments *a, int ac, char **av)
{
    a->lines++;
    for (int i = 0; i < ac; i++) {
        if (!a->site[0] && strncmp(av[i], "site=/", 6) == 0 &&
            strlen(av[i] + 5) < sizeof(a->site))
            snprintf(a->site, sizeof(a->site), "%s", av[i] + 5);
        else if (!a->wrong[0])
            snprintf(a->wrong, sizeof(a->wrong), "%s", av[i][0] ? av[i] : "\"\"");
    }
}
