/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward of linear where it takes short cuts: a result with an activation that
 * two read, a bias of another unit than its weight, a frozen weight. The gradients are
 * those of the same model without short cuts, though only one unit's lies in memory at
 * a time.
 */
#include <math.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/module_rig.h"

enum { ROWS = 5, IN = 3, HIDDEN = 7, OUT = 4, MOST = 256 };

struct top {
    accel_tensor_t *weight, *bias, *other; /* other: the bias of block a */
    accel_module_t *a, *b;
    accel_activation_t act;
    bool apart; /* the activation as an op of its own */
};

/* One buffer for the gradients of all units, as a sharded run has. */
struct one_buffer {
    struct residency real;
    float sum[MOST];
    int64_t elems[8];
    int open;
};

static void hand_in(struct one_buffer *o)
{
    float *to;

    if (o->open < 0 || o->real.grad(o->real.user, o->open, &to, NULL))
        return;
    for (int64_t i = 0; i < o->elems[o->open]; i++)
        to[i] += o->sum[i];
    o->open = -1;
}

static accel_status_t one_want(void *user, int unit, void **out, accel_error_t *err)
{
    struct one_buffer *o = user;

    return o->real.want(o->real.user, unit, out, err);
}

static void one_done(void *user, int unit)
{
    struct one_buffer *o = user;

    o->real.done(o->real.user, unit);
}

static accel_status_t one_grad(void *user, int unit, float **out, accel_error_t *err)
{
    struct one_buffer *o = user;

    (void)err;
    if (o->open != unit) {
        hand_in(o);
        memset(o->sum, 0, sizeof(o->sum));
        o->open = unit;
    }
    *out = o->sum;
    return ACCEL_OK;
}

static accel_tensor_t *top_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    struct top *t = accel_module_state(m);
    accel_tensor_t *h, *y, *z;

    (void)n;
    h = accel_linear(in[0], t->weight, t->bias, t->apart ? ACCEL_ACT_NONE : t->act);
    if (t->apart)
        h = accel_activate(h, t->act);
    y = accel_linear(h, t->a->param[0], t->other, ACCEL_ACT_NONE);
    z = accel_linear(h, t->b->param[0], NULL, ACCEL_ACT_NONE);
    return accel_mse(accel_add(y, z), in[1]);
}

static accel_tensor_t *never(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)in, (void)n;
    return NULL;
}

struct rig {
    struct module_rig mod;
    struct one_buffer one;
};

static bool rig_open(struct rig *k, accel_activation_t act, bool apart, bool frozen)
{
    static const accel_class_t top = { sizeof(top), "Top", top_forward,
                                       sizeof(struct top) };
    static const accel_class_t block = { sizeof(block), "PartBlock", never, 0 };
    const accel_init_t init = { ACCEL_INIT_NORMAL, 0.5f };
    const int64_t hidden = HIDDEN, out = OUT;
    accel_module_t *m;
    struct graph *g = &k->mod.g;
    struct top *t;

    if (!module_rig_open(&k->mod, ACCEL_F32, 1))
        return false;
    m = k->mod.model = nn_module_new(g, &top, NULL, NULL);
    t = accel_module_state(m);
    *t = (struct top){ .act = act, .apart = apart };
    t->weight = accel_param(m, "weight", 2, (int64_t[]){ HIDDEN, IN }, init);
    t->bias = accel_param(m, "bias", 1, &hidden, init);
    t->other = accel_param(m, "other", 1, &out, init);
    t->a = nn_module_new(g, &block, m, "a");
    t->b = nn_module_new(g, &block, m, "b");
    accel_param(t->a, "weight", 2, (int64_t[]){ OUT, HIDDEN }, init);
    accel_param(t->b, "weight", 2, (int64_t[]){ OUT, HIDDEN }, init)->needs_grad =
        !frozen;
    if (!module_rig_fill(&k->mod, true, NULL) || k->mod.units.count != 3)
        return false;
    k->one = (struct one_buffer){ .real = g->residency, .open = -1 };
    for (int u = 0; u < k->mod.units.count; u++)
        k->one.elems[u] = k->mod.units.unit[u].elems;
    if (!apart)
        g->residency = (struct residency){
            .user = &k->one, .want = one_want, .done = one_done, .grad = one_grad
        };
    return true;
}

static bool step(struct rig *k)
{
    struct graph *g = &k->mod.g;
    accel_tensor_t *in[2], *loss;

    in[0] = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ ROWS, IN });
    in[1] = graph_tensor(g, ACCEL_F32, 2, (int64_t[]){ ROWS, OUT });
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < in[i]->elems; j++)
            ((float *)in[i]->data)[j] = (float)((j * 5 + i) % 7) - 3;
    loss = accel_call(k->mod.model, in, 2);
    if (!loss || graph_backward(g, loss, 1.0f, NULL)) {
        tap_diag("%s: %s", g->error.where, g->error.text);
        return false;
    }
    hand_in(&k->one);
    return true;
}

/* The largest difference between the gradients, relative to the largest gradient. */
static double far(const struct rig *a, const struct rig *b, double *largest)
{
    double worst = 0;

    *largest = 0;
    for (int u = 0; u < a->mod.units.count; u++)
        for (int64_t i = 0; i < a->mod.units.unit[u].elems; i++) {
            double x = (double)a->mod.r.grad[u][i], y = (double)b->mod.r.grad[u][i];

            *largest = fmax(*largest, fabs(y));
            worst = fabs(x - y) > worst || isnan(x) ? fabs(x - y) : worst;
        }
    return worst / *largest;
}

int main(void)
{
    static const accel_activation_t acts[] = { ACCEL_ACT_RELU, ACCEL_ACT_GELU,
                                               ACCEL_ACT_SILU };

    for (size_t i = 0; i < 2 * ACCEL_ARRAY_SIZE(acts); i++) {
        accel_activation_t act = acts[i / 2];
        bool frozen = i % 2;
        struct rig shortcut, plain;
        double largest, most = 0, off;

        if (!tap_ok(rig_open(&shortcut, act, false, frozen) &&
                        rig_open(&plain, act, true, frozen) && step(&shortcut) &&
                        step(&plain),
                    "a step"))
            return tap_done();
        off = far(&shortcut, &plain, &largest);
        tap_ok(off < 1e-5 && largest > 0.01,
               "activation %d: gradients off by %.1e of %g", (int)act, off, largest);
        for (int64_t k = 0; k < shortcut.mod.units.unit[2].elems; k++)
            most = fmax(most, fabs((double)shortcut.mod.r.grad[2][k]));
        tap_ok((most == 0) == frozen, "the weight of block b is %s",
               frozen ? "frozen" : "trained");
        module_rig_close(&shortcut.mod);
        module_rig_close(&plain.mod);
    }
    return tap_done();
}
