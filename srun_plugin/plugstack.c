/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks for accel's line in plugstack.conf, a file of root's, and in the files that it
 * includes, and takes the words after the plugin. Reads with the caller's rights;
 * changes nothing, says nothing.
 */
#include "srun_plugin/plugstack.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

/* Files that include each other in a circle end here. */
enum { INCLUDE_DEPTH = 4 };

static void read_file(struct plugstack *p, const char *path, int depth);

/* `include` takes a glob pattern; files in the order of their names,
 * as Slurm reads them. */
static void include_files(struct plugstack *p, const char *pattern, int depth)
{
    glob_t list = { 0 };

    if (depth < INCLUDE_DEPTH && glob(pattern, 0, NULL, &list) == 0)
        for (size_t i = 0; i < list.gl_pathc; i++)
            read_file(p, list.gl_pathv[i], depth + 1);
    globfree(&list);
}

static void read_file(struct plugstack *p, const char *path, int depth)
{
    FILE *f = fopen(path, "re");
    char line[2 * PATH_MAX], mode[16], what[PATH_MAX];
    int end;

    /* A line is "required|optional PATH [ARGUMENT...]" or "include PATTERN". */
    for (int n = 1; f && fgets(line, sizeof(line), f); n++) {
        /* Comments end a line. */
        line[strcspn(line, "#\n")] = '\0';
        if (sscanf(line, "%15s %4095s %n", mode, what, &end) != 2)
            continue;
        if (!strcmp(mode, "include")) {
            include_files(p, what, depth);
        } else if (strstr(what, PLUGIN_FILE)) {
            /* The first one is shown, whichever file has it. */
            if (p->found++)
                continue;
            snprintf(p->file, sizeof(p->file), "%s", path);
            snprintf(p->plugin, sizeof(p->plugin), "%s", what);
            snprintf(p->words, sizeof(p->words), "%s", line + end);
            p->line = n;
            p->required = !strcmp(mode, "required");
        }
    }
    if (f)
        fclose(f);
}

void plugstack_read(struct plugstack *p, const char *path)
{
    read_file(p, path, 0);
}

/* ---- its words ------------------------------------------------------------------- */

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
