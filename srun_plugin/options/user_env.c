/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's environment. environ comes in once, before anything in it is changed. What
 * the user exported goes out as long as the client lives, and a second start of srun
 * gets all of it. Never changes environ.
 */
#include "srun_plugin/options/option_values.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A copy, not pointers into environ: setenv may move or free those. The text follows
 * the pointers. */
void user_env_keep(struct user_env *e)
{
    size_t count = 0, bytes = 0;

    if (e->vars)
        return;
    for (char **v = environ; v && *v; v++, count++)
        bytes += strlen(*v) + 1;
    e->vars = malloc((count + 1) * sizeof(*e->vars) + bytes);
    if (!e->vars)
        return;
    char *text = (char *)(e->vars + count + 1);
    for (size_t i = 0; i < count; i++) {
        e->vars[i] = text;
        text = stpcpy(text, environ[i]) + 1;
    }
    e->vars[count] = NULL;
}

const char *user_env_get(const struct user_env *e, const char *name)
{
    size_t n = strlen(name);

    for (char **v = e->vars; v && *v; v++)
        if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
            return *v + n + 1;
    return NULL;
}

long user_env_long(const struct user_env *e, const char *name, long otherwise)
{
    const char *v = user_env_get(e, name);
    char *end;
    long n = v ? strtol(v, &end, 10) : otherwise;

    return v && (end == v || *end || n < 0) ? otherwise : n;
}

void user_env_free(struct user_env *e)
{
    free(e->vars);
    e->vars = NULL;
}
