/* SPDX-License-Identifier: Apache-2.0
 *
 * The module tree: names, parameters, and the call that gives each forward its scope.
 * In: classes with a forward. Out: tensors. Knows nothing of sharding or data.
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

/* module_path is for messages and for the tape, depth for calls that are not allowed
 * inside a forward. Both are set back when the forward fails. */
accel_tensor_t *nn_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct graph *g = m->g;
    const char *outer = g->module_path;
    int mark = scope_begin(g);
    accel_tensor_t *out;

    g->module_path = m->path;
    g->depth++;
    out = m->cls->forward(m, in, n);
    g->depth--;
    if (!out)
        graph_fail(g, A0609, NULL, "return the output of an op",
                   "the forward of class %s returned NULL", m->cls->name);
    g->module_path = outer;
    if (g->error.code)
        return NULL;
    scope_end(g, mark, out);
    return out;
}

/* A recomputed module runs as usual where nothing is recorded, and where an outer one
 * is being recomputed already. */
accel_tensor_t *accel_call(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    if (!m || m->g->error.code)
        return NULL;
    return m->recompute && m->g->recording && !m->g->recomputing
               ? nn_recompute_call(m, in, n)
               : nn_forward(m, in, n);
}
