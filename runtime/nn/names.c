/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of the tree: a module by its path, a second name for a parameter. In: a root
 * and a path. Out: what was found. Never creates modules.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "tensor/tape.h"

/* Goes down only where the path begins with the child's, and tries the next
 * sibling when that leads nowhere: names may hold dots, so "h.1" and "h.1.x" can
 * be siblings. */
accel_module_t *accel_module_find(accel_module_t *root, const char *path)
{
    if (!root || !path)
        return NULL;
    if (!strcmp(root->path, path))
        return root;
    for (accel_module_t *c = root->child; c; c = c->next) {
        size_t n = strlen(c->path);

        if (!strncmp(c->path, path, n) && (path[n] == '.' || !path[n])) {
            accel_module_t *found = accel_module_find(c, path);

            if (found)
                return found;
        }
    }
    return NULL;
}

/* The alias is a name only: the parameter stays in the unit of the module that declared
 * it, and is stored once in checkpoints. */
accel_tensor_t *accel_tie(accel_module_t *m, const char *name, accel_tensor_t *param)
{
    struct nn_alias *list;
    char *full;

    if (!m || m->g->error.code || !nn_name_fits(m->g, m, name))
        return NULL;
    if (!param || !param->name || param->g != m->g)
        return graph_fail(m->g, A0609, NULL, "pass what accel_param returned",
                          "tie: '%s' of module '%s' needs a parameter of this run",
                          name, m->path);
    list = reallocarray(m->alias, (size_t)m->alias_count + 1, sizeof(*list));
    full = nn_join(m->path, name);
    if (list)
        m->alias = list;
    if (!list || !full) {
        free(full);
        return graph_fail(m->g, A0001, NULL, "use more ranks or a smaller model",
                          "cannot allocate a parameter's second name");
    }
    list[m->alias_count++] = (struct nn_alias){ .name = full, .param = param };
    return param;
}

/* Depth first; aliases count like names of parameters. */
accel_tensor_t *accel_param_find(accel_module_t *root, const char *name)
{
    accel_tensor_t *found = NULL;

    if (!root || !name)
        return NULL;
    for (int i = 0; i < root->param_count; i++)
        if (!strcmp(root->param[i]->name, name))
            return root->param[i];
    for (int i = 0; i < root->alias_count; i++)
        if (!strcmp(root->alias[i].name, name))
            return root->alias[i].param;
    for (accel_module_t *c = root->child; c && !found; c = c->next)
        found = accel_param_find(c, name);
    return found;
}
