/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear, norm and embedding as modules (see layers.h). Every leaf has the same state,
 * so that layer_weight and layer_bias work for all of them.
 */
#include "models/layers.h"

#include <stdio.h>

#include "tensor/tape.h"

/* State of a leaf; it uses the members that its kind has. */
struct layer {
    accel_tensor_t *weight, *bias;
    accel_activation_t act;
    float eps;
};

/* A leaf takes one input. A NULL one came from an earlier failure and stays NULL. */
static accel_tensor_t *only_input(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    if (n == 1)
        return in[0];
    return graph_fail(m->g, A0605, NULL, "call it with one tensor",
                      "module '%s' was given %d inputs", m->path, n);
}

static accel_tensor_t *linear_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    struct layer *l = accel_module_state(m);

    return accel_linear(only_input(m, in, n), l->weight, l->bias, l->act);
}

static accel_tensor_t *layernorm_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    struct layer *l = accel_module_state(m);

    return accel_layernorm(only_input(m, in, n), l->weight, l->bias, l->eps);
}

static accel_tensor_t *rmsnorm_forward(accel_module_t *m, accel_tensor_t *const *in,
                                       int n)
{
    struct layer *l = accel_module_state(m);

    return accel_rmsnorm(only_input(m, in, n), l->weight, l->eps);
}

static accel_tensor_t *embedding_forward(accel_module_t *m, accel_tensor_t *const *in,
                                         int n)
{
    struct layer *l = accel_module_state(m);

    return accel_embedding(only_input(m, in, n), l->weight, NULL);
}

LAYER_CLASS(linear_class, "Linear", linear_forward, sizeof(struct layer));
LAYER_CLASS(layernorm_class, "LayerNorm", layernorm_forward, sizeof(struct layer));
LAYER_CLASS(rmsnorm_class, "RMSNorm", rmsnorm_forward, sizeof(struct layer));
LAYER_CLASS(embedding_class, "Embedding", embedding_forward, sizeof(struct layer));

accel_module_t *layer_new(accel_module_t *parent, const accel_class_t *cls,
                          const char *name)
{
    return parent ? nn_module_new(parent->g, cls, parent, name) : NULL;
}

/* accel_param is NULL after a failure; then the forward is never reached. */
accel_module_t *layer_linear(accel_module_t *parent, const char *name, int64_t out,
                             int64_t in, enum layer_bias bias, float deviation,
                             accel_activation_t act)
{
    accel_module_t *m = layer_new(parent, &linear_class, name);
    struct layer *l = accel_module_state(m);

    if (!l)
        return NULL;
    l->weight = accel_param(m, "weight", 2, (int64_t[]){ out, in },
                            (accel_init_t){ ACCEL_INIT_NORMAL, deviation });
    if (bias == LAYER_BIAS)
        l->bias =
            accel_param(m, "bias", 1, &out, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    l->act = act;
    return m;
}

/* Both norms: weight of ones, and a bias where asked for. */
static accel_module_t *norm_new(accel_module_t *parent, const accel_class_t *cls,
                                const char *name, int64_t width, float eps, bool bias)
{
    accel_module_t *m = layer_new(parent, cls, name);
    struct layer *l = accel_module_state(m);

    if (!l)
        return NULL;
    l->weight =
        accel_param(m, "weight", 1, &width, (accel_init_t){ ACCEL_INIT_ONES, 0 });
    if (bias)
        l->bias =
            accel_param(m, "bias", 1, &width, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    l->eps = eps;
    return m;
}

accel_module_t *layer_layernorm(accel_module_t *parent, const char *name, int64_t width,
                                float eps)
{
    return norm_new(parent, &layernorm_class, name, width, eps, true);
}

accel_module_t *layer_rmsnorm(accel_module_t *parent, const char *name, int64_t width,
                              float eps)
{
    return norm_new(parent, &rmsnorm_class, name, width, eps, false);
}

accel_module_t *layer_embedding(accel_module_t *parent, const char *name, int64_t rows,
                                int64_t width, float deviation)
{
    accel_module_t *m = layer_new(parent, &embedding_class, name);
    struct layer *l = accel_module_state(m);

    if (l)
        l->weight = accel_param(m, "weight", 2, (int64_t[]){ rows, width },
                                (accel_init_t){ ACCEL_INIT_NORMAL, deviation });
    return m;
}

/* "MODEL: layers 0, heads 4 ..."; too long a list is cut off. */
accel_status_t layer_sizes_check(const char *model, const struct layer_size *size,
                                 int n, accel_error_t *err)
{
    char text[256] = "";
    size_t len = 0;
    bool good = true;

    for (int i = 0; i < n; i++) {
        good = good && size[i].value >= 1;
        if (len < sizeof(text))
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %d",
                                    i ? ", " : "", size[i].name, size[i].value);
    }
    if (good)
        return ACCEL_OK;
    return accel_fail(err, A0612, "use at least 1 for every size",
                      "%s: invalid sizes: %s", model, text);
}

accel_module_t *layer_tree(const struct graph *g, accel_module_t *m, accel_error_t *err)
{
    if (!g->error.code)
        return m;
    if (err)
        *err = g->error;
    nn_module_free(m);
    return NULL;
}

accel_tensor_t *layer_weight(const accel_module_t *m)
{
    return m ? ((const struct layer *)m->state)->weight : NULL;
}

accel_tensor_t *layer_call(accel_module_t *m, accel_tensor_t *x)
{
    return accel_call(m, &x, 1);
}
