/* SPDX-License-Identifier: Apache-2.0
 *
 * Names in the tree: which names are valid, a module by its path, a second name for a
 * parameter. In: a root and a path. Out: what was found. Never creates modules.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "tensor/tape.h"

char *nn_join(const char *path, const char *name)
{
    size_t len = strlen(path) + strlen(name) + 2;
    char *s = malloc(len);

    if (s)
        snprintf(s, len, "%s%s%s", path, *path ? "." : "", name);
    return s;
}

/* The last part of a full name is what follows the parent's path and a dot; below the
 * root, whose path is "", it is the whole name. '/' is kept out because names become
 * paths in a checkpoint ("model/NAME"). */
bool nn_name_fits(struct graph *g, const accel_module_t *parent, const char *name)
{
    if (!name || !*name || strchr(name, '/'))
        return graph_fail(g, A0607, NULL, "use letters, digits, _ and dots",
                          "'%s' is not a valid name", name ? name : "NULL");
    for (accel_module_t *m = parent->child; m; m = m->next)
        if (!strcmp(m->path + strlen(parent->path) + (*parent->path ? 1 : 0), name))
            return graph_fail(g, A0607, NULL, "give it another name",
                              "module %s already exists", m->path);
    for (int i = 0; i < parent->param_count; i++)
        if (!strcmp(parent->param[i]->name + strlen(parent->path) +
                        (*parent->path ? 1 : 0),
                    name))
            return graph_fail(g, A0607, NULL, "give it another name",
                              "parameter %s already exists", parent->param[i]->name);
    for (int i = 0; i < parent->buffer_count; i++)
        if (!strcmp(parent->buffer[i]->buffer + strlen(parent->path) +
                        (*parent->path ? 1 : 0),
                    name))
            return graph_fail(g, A0607, NULL, "give it another name",
                              "buffer %s already exists", parent->buffer[i]->buffer);
    for (int i = 0; i < parent->alias_count; i++)
        if (!strcmp(parent->alias[i].name + strlen(parent->path) +
                        (*parent->path ? 1 : 0),
                    name))
            return graph_fail(g, A0607, NULL, "give it another name",
                              "parameter %s already exists", parent->alias[i].name);
    return true;
}

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
