/* SPDX-License-Identifier: Apache-2.0
 *
 * The module tree: modules with their state, and parameters. In: classes with a
 * forward. Out: the tree. Runs no forward, and knows nothing about sharding or data.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"
#include "tensor/tape.h"

/* Children are kept in order of declaration: a model walks its blocks by `next`. */
static void link_last(accel_module_t *parent, accel_module_t *m)
{
    accel_module_t **at = &parent->child;

    while (*at)
        at = &(*at)->next;
    *at = m;
}

/* `name` of a root is not looked at: its path is "". */
accel_module_t *nn_module_new(struct graph *g, const accel_class_t *cls,
                              accel_module_t *parent, const char *name)
{
    accel_module_t *m;

    if (g->error.code)
        return NULL;
    if (!cls || !cls->name || !cls->forward)
        return graph_fail(g, A0609, NULL, "pass a class with a name and a forward",
                          "module '%s' has no class with a name and a forward",
                          name ? name : "");
    if (parent && !nn_name_fits(g, parent, name))
        return NULL;
    /* A state of 0 bytes gets one: NULL stays the sign of a failure. */
    m = calloc(1, sizeof(*m));
    if (m) {
        m->path = parent ? nn_join(parent->path, name) : strdup("");
        m->state = calloc(1, cls->state_bytes ? cls->state_bytes : 1);
    }
    if (!m || !m->path || !m->state) {
        nn_module_free(m);
        return graph_fail(g, A0001, NULL, "use more ranks or a smaller model",
                          "cannot allocate a module");
    }
    m->g = g;
    m->cls = cls;
    m->parent = parent;
    m->unit = -1;
    m->types = (struct module_types){ g->compute, g->compute, g->compute };
    if (parent)
        link_last(parent, m);
    return m;
}

/* Also frees what nn_module_new has left half made. */
void nn_module_free(accel_module_t *root)
{
    if (!root)
        return;
    for (accel_module_t *c = root->child, *next; c; c = next) {
        next = c->next;
        nn_module_free(c);
    }
    for (int i = 0; i < root->param_count; i++)
        param_free(root->param[i]);
    free(root->param);
    nn_buffers_free(root);
    for (int i = 0; i < root->alias_count; i++)
        free(root->alias[i].name);
    free(root->alias);
    free(root->path);
    free(root->state);
    free(root);
}

void *accel_module_state(accel_module_t *m)
{
    return m ? m->state : NULL;
}

accel_t *accel_module_run(accel_module_t *m)
{
    return m ? m->g->run : NULL;
}

/* param_new takes over the joined name, also on failure. */
accel_tensor_t *accel_param(accel_module_t *m, const char *name, int ndim,
                            const int64_t *dims, accel_init_t init)
{
    accel_tensor_t **list, *t;

    if (!m || m->g->error.code)
        return NULL;
    if (!nn_name_fits(m->g, m, name))
        return NULL;
    t = param_new(m->g, m->path, nn_join(m->path, name), ndim, dims, init);
    list = t ? reallocarray(m->param, (size_t)m->param_count + 1, sizeof(*list)) : NULL;
    if (t && !list) {
        param_free(t);
        return graph_fail(m->g, A0001, NULL, "use more ranks or a smaller model",
                          "cannot allocate a parameter");
    }
    if (!t)
        return NULL;
    m->param = list;
    list[m->param_count++] = t;
    return t;
}
