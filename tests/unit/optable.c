/* SPDX-License-Identifier: Apache-2.0
 *
 * Drives the op table (optable.h): inputs drawn from the case's name alone, one forward
 * and backward per backend, values against the reference, gradients against its central
 * differences. Reaches tensors through the backend only.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/floats.h"
#include "ops/ops.h"
#include "tests/tap.h"
#include "tests/unit/optable.h"
#include "tests/world/resident.h"

#define SAMPLED 60 /* elements of a gradient that are compared */

const struct op_rows *const optable[] = { &optable_elementwise, &optable_rows,
                                          &optable_views, &optable_linear, NULL };

struct op_input op_computed_input(int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (
        struct op_input){ .kind = OP_COMPUTED, .ndim = ndim, .dim = { a, b, c, d } };
}

struct op_input op_parameter_input(int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (
        struct op_input){ .kind = OP_PARAMETER, .ndim = ndim, .dim = { a, b, c, d } };
}

/* ---- inputs ---------------------------------------------------------------------- */

static uint64_t drawn;

static double draw(void)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (double)(drawn >> 33) / 2147483648.0;
}

static double rounded(double x, accel_dtype_t t)
{
    float v = (float)x, narrow;

    floats_narrow(&narrow, t, &v, 1);
    floats_widen(&v, &narrow, t, 1);
    return v;
}

/* What results may differ by from those of double: of their own size (half a unit in
 * the last place of the storage type), and of the largest one. Values behind a second
 * rounding (coarse) have the error of that, too. */
struct allowed {
    double own, values, coarse_values, gradients, coarse_gradients;
};

static struct allowed allowed_for(const struct op_trial *t)
{
    /* An operand in e4m3 is off by 2^-4 of itself, one in e5m2 by 2^-3, and terms of
     * either sign by less than that of the largest sum. A chain has two products. */
    if (t->recipe)
        return (struct allowed){ 0x1p-8, 0x1p-3, 0x1p-2, 0x1p-2, 0x1p-1 };
    switch (t->compute) {
    case ACCEL_BF16:
        return (struct allowed){ 0x1p-8, 2e-5, 5e-3, 2e-5, 2e-2 };
    case ACCEL_F16:
        /* 6e-5: of the least `largest`, 1e-3, two halves of a subnormal step (2^-25) */
        return (struct allowed){ 0x1p-11, 6e-5, 5e-3 / 8, 6e-5, 2e-2 / 8 };
    default:
        return (struct allowed){ 0, 1e-5, 1e-5, 1e-5, 1e-5 };
    }
}

/* The same numbers for every dtype, but for their rounding. */
static void seed(const struct op_case *c)
{
    drawn = 14695981039346656037u;
    for (const char *s = c->name; *s; s++)
        drawn = (drawn ^ (uint8_t)*s) * 1099511628211u;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c->s); i++)
        drawn = (drawn ^ (uint64_t)c->s[i]) * 1099511628211u;
}

static void draw_inputs(struct op_trial *t)
{
    seed(t->c);
    t->inputs = t->c->with->inputs(t->c, t->in);
    for (int k = 0; k < t->inputs; k++) {
        struct op_input *in = &t->in[k];
        double reach = in->reach > 0 ? in->reach : 1;

        t->parameters += in->kind == OP_PARAMETER;
        in->elems = 1;
        for (int i = 0; i < in->ndim; i++)
            in->elems *= in->dim[i];
        in->v = calloc((size_t)in->elems + 1, sizeof(*in->v));
        for (int64_t i = 0; i < in->elems; i++)
            in->v[i] =
                op_input_learns(in)
                    ? rounded(in->least > 0 ? in->least + draw() * (reach - in->least)
                                            : (2 * draw() - 1) * reach,
                              t->compute)
                    : (double)(in->low +
                               (int64_t)(draw() * (double)(in->high - in->low)));
    }
}

static void pack(void *to, const double *from, int64_t n, accel_dtype_t t)
{
    for (int64_t i = 0; i < n; i++)
        if (t == ACCEL_I32)
            ((int32_t *)to)[i] = (int32_t)from[i];
        else if (t == ACCEL_I8)
            ((int8_t *)to)[i] = (int8_t)from[i];
        else
            floats_narrow((char *)to + i * (int64_t)accel_dtype_bytes(t), t,
                          &(float){ (float)from[i] }, 1);
}

static void upload(struct graph *g, accel_tensor_t *t, const double *from)
{
    size_t bytes = (size_t)t->elems * accel_dtype_bytes(t->dtype);
    void *host = malloc(bytes + 1);

    pack(host, from, t->elems, t->dtype);
    g->backend->from_host(g->backend, t->data, host, bytes);
    free(host);
}

/* ---- forward and backward -------------------------------------------------------- */

static accel_tensor_t *part_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m;
    return n ? in[0] : NULL;
}

static const accel_class_t root_class = { sizeof(root_class), "Root", part_forward, 0 };
static const accel_class_t part_class = { sizeof(part_class), "PartBlock", part_forward,
                                          0 };

struct rig {
    struct graph g;
    accel_module_t *root;
    struct units units;
    struct resident r;
    accel_tensor_t *in[OP_INPUTS];
    struct fp8_linear linear[OP_INPUTS];
};

static bool rig_open(struct rig *k, const struct op_trial *t, struct backend *be)
{
    accel_error_t err = { 0 };
    char name[16];

    memset(k, 0, sizeof(*k));
    if (graph_open(&k->g, be, t->compute, false, &err))
        return tap_ok(false, "%s: %s", t->what, err.text);
    k->root = nn_module_new(&k->g, &root_class, NULL, "");
    /* A tree without parameters is no model; ops without any still need a root. */
    accel_param(k->root, "unused", 1, &(int64_t){ 1 }, (accel_init_t){ 0 });
    for (int i = 0; i < t->inputs; i++) {
        const struct op_input *in = &t->in[i];

        snprintf(name, sizeof(name), "p%d", i);
        if (in->kind == OP_PARAMETER)
            k->in[i] = accel_param(nn_module_new(&k->g, &part_class, k->root, name),
                                   "w", in->ndim, in->dim, (accel_init_t){ 0 });
    }
    if (nn_units_build(k->root, t->apart, "PartBlock", &k->units, &err) ||
        resident_open(&k->r, &k->units, t->compute, 1))
        return tap_ok(false, "%s: %s", t->what, err.text);
    k->g.residency = resident_residency(&k->r);
    k->g.narrows = t->recipe && !t->recipe->blocks;
    for (int i = 0; t->recipe && i < t->inputs; i++) {
        k->linear[i].recipe = t->recipe;
        if (t->in[i].kind == OP_PARAMETER && t->in[i].ndim == 2)
            k->in[i]->param->fp8 = &k->linear[i];
    }
    return true;
}

static void rig_close(struct rig *k)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(k->root);
    graph_close(&k->g);
}

static void place(struct rig *k, const struct op_trial *t)
{
    for (int i = 0; i < t->inputs; i++) {
        const struct op_input *in = &t->in[i];

        if (in->kind == OP_PARAMETER) {
            pack(k->r.master[k->in[i]->param->unit] + k->in[i]->param->unit_offset,
                 in->v, in->elems, ACCEL_F32);
            continue;
        }
        k->in[i] = graph_tensor(&k->g,
                                in->kind == OP_IDS     ? ACCEL_I32
                                : in->kind == OP_BYTES ? ACCEL_I8
                                                       : t->compute,
                                in->ndim, in->dim);
        k->in[i]->needs_grad = in->kind == OP_COMPUTED;
        upload(&k->g, k->in[i], in->v);
    }
    resident_refresh(&k->r);
}

static accel_tensor_t *trial_forward(struct rig *k, const struct op_trial *t)
{
    k->g.draws.seed = OP_SEED;
    k->g.draws.first_sample = OP_FIRST_SAMPLE;
    k->g.draws.calls = 0;
    return t->c->with->build(t->c, k->in);
}

/* The tape entry behind loss = sum of weight * y. */
static bool weigh(struct graph *g, const struct tape_entry *e)
{
    bool add;
    accel_tensor_t *dy = grad_target(g, e->in[0], &add);

    if (dy)
        g->backend->copy(g->backend, dy->data, e->saved[0]->data,
                         (size_t)dy->elems * accel_dtype_bytes(dy->dtype));
    return dy != NULL;
}

static accel_tensor_t *weighted_loss(struct rig *k, struct op_trial *t,
                                     accel_tensor_t *y)
{
    const int64_t one = 1;
    accel_tensor_t *w = graph_tensor(&k->g, y->dtype, y->ndim, y->dim);
    accel_tensor_t *loss = graph_tensor(&k->g, ACCEL_F32, 1, &one);

    if (!t->weight) {
        t->weight = calloc((size_t)y->elems + 1, sizeof(*t->weight));
        for (int64_t i = 0; i < y->elems; i++)
            t->weight[i] = rounded(draw() - 0.5, ACCEL_BF16);
    }
    upload(&k->g, w, t->weight);
    loss->needs_grad = true;
    tape_record(&k->g, &(struct tape_entry){ .op = "weigh",
                                             .backward = weigh,
                                             .out = loss,
                                             .in = { y },
                                             .saved = { w } });
    return loss;
}

static float *download(const accel_tensor_t *t, int64_t elems)
{
    float *to = calloc((size_t)elems + 1, sizeof(*to));

    if (t && accel_tensor_read(t, to, (size_t)elems, NULL))
        to[0] = NAN;
    return to;
}

static bool through(struct op_trial *t, struct rig *k, struct op_outcome *o)
{
    accel_error_t err = { 0 };
    accel_tensor_t *y, *again;

    place(k, t);
    y = trial_forward(k, t);
    if (!y)
        return tap_ok(false, "%s: forward: %s", t->what, k->g.error.text);
    o->elems = y->elems;
    o->out = download(y, y->elems);
    k->g.recording = false;
    again = trial_forward(k, t);
    k->g.recording = true;
    o->again = download(again, y->elems);
    if (graph_backward(&k->g, weighted_loss(k, t, y), 1.0f, &err))
        return tap_ok(false, "%s: backward: %s", t->what, err.text);
    resident_pull(&k->r);
    for (int i = 0; i < t->inputs; i++) {
        const struct op_input *in = &t->in[i];

        if (in->kind == OP_COMPUTED)
            o->grad[i] = download(k->in[i]->grad, in->elems);
        else if (in->kind == OP_PARAMETER) {
            o->grad[i] = calloc((size_t)in->elems + 1, sizeof(float));
            memcpy(o->grad[i],
                   k->r.grad[k->in[i]->param->unit] + k->in[i]->param->unit_offset,
                   (size_t)in->elems * sizeof(float));
        }
    }
    o->faults = k->r.faults;
    return true;
}

bool op_attempt(struct op_trial *t, struct backend *be, struct op_outcome *o)
{
    struct rig k;
    bool good = rig_open(&k, t, be) && through(t, &k, o);

    rig_close(&k);
    return good;
}

/* The part of op_retry that is watched. */
static accel_status_t attempt_watched(struct op_trial *t, struct rig *k,
                                      void (*watch)(bool), accel_error_t *err)
{
    accel_tensor_t *y, *loss;
    accel_status_t st;

    place(k, t);
    watch(true);
    y = trial_forward(k, t);
    watch(false);
    if (!y) {
        *err = k->g.error;
        return k->g.error.code;
    }
    loss = weighted_loss(k, t, y);
    watch(true);
    st = graph_backward(&k->g, loss, 1.0f, err);
    watch(false);
    return st;
}

accel_status_t op_retry(struct op_trial *t, struct backend *be, void (*watch)(bool),
                        struct op_outcome *o, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    int open = 0;
    struct rig k;

    if (rig_open(&k, t, be)) {
        st = attempt_watched(t, &k, watch, err);
        for (int u = 0; u < k.units.count; u++)
            open += abs(k.r.open[u]);
        graph_reset(&k.g);
        resident_zero_grad(&k.r);
        through(t, &k, o);
        o->faults += open;
    }
    rig_close(&k);
    return st;
}

void op_outcome_free(struct op_outcome *o)
{
    free(o->out);
    free(o->again);
    for (int i = 0; i < OP_INPUTS; i++)
        free(o->grad[i]);
}

/* ---- judgement ------------------------------------------------------------------- */

double op_excess(const double *got, const double *want, int64_t n, double rel,
                 double size)
{
    double largest = 1e-3, worst = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        double far = fabs(got[i] - want[i]) / (rel * fabs(want[i]) + size * largest);

        worst = isnan(far) ? INFINITY : fmax(worst, far);
    }
    return worst;
}

static double reference(struct op_trial *t, int64_t elems)
{
    double loss = 0;

    t->c->with->reference(t->c, t->in, t->want);
    for (int64_t i = 0; i < elems; i++)
        loss += t->weight[i] * t->want[i];
    return loss;
}

static void judge_gradient(struct op_trial *t, const struct op_outcome *o, int which)
{
    struct op_input *in = &t->in[which];
    int64_t stride = in->elems / SAMPLED + 1, n = 0;
    double got[SAMPLED + 1], want[SAMPLED + 1], far;
    const struct allowed may = allowed_for(t);

    for (int64_t i = 0; i < in->elems; i += stride) {
        double h = 1e-5, keep = in->v[i], up, down;

        in->v[i] = keep + h;
        up = reference(t, o->elems);
        in->v[i] = keep - h;
        down = reference(t, o->elems);
        in->v[i] = keep;
        got[n] = o->grad[which][i];
        want[n++] = (up - down) / (2 * h);
    }
    far = op_excess(got, want, n, may.own,
                    t->c->coarse ? may.coarse_gradients : may.gradients);
    tap_ok(far < 1, "%s: gradient of input %d, %.2g of what is allowed", t->what, which,
           far);
}

/* A device's library may make a product whose value before the activation is saved by
 * another kernel, with sums in another order. */
static bool same_again(const struct op_outcome *o, bool device, bool narrow)
{
    double largest = 0, worst = 0;

    if (!device || !narrow)
        return !memcmp(o->out, o->again, (size_t)o->elems * sizeof(float));
    for (int64_t i = 0; i < o->elems; i++)
        largest = fmax(largest, fabs(o->out[i]));
    for (int64_t i = 0; i < o->elems; i++)
        worst = fmax(worst, fabs(o->out[i] - o->again[i]) - 0x1p-7 * fabs(o->out[i]));
    return worst <= 0x1p-9 * largest;
}

static void judge(struct op_trial *t, const struct op_outcome *o, bool device)
{
    const struct allowed may = allowed_for(t);
    double *got = calloc((size_t)o->elems + 1, sizeof(*got)), far;

    t->want = calloc((size_t)o->elems + 1, sizeof(*t->want));
    for (int64_t i = 0; i < o->elems; i++)
        got[i] = o->out[i];
    reference(t, o->elems);
    far = op_excess(got, t->want, o->elems, may.own,
                    t->c->coarse > 1 ? may.coarse_values : may.values);
    tap_ok(far < 1, "%s: values, %.2g of what is allowed", t->what, far);
    tap_ok(same_again(o, device, t->compute != ACCEL_F32),
           "%s: the same without a tape", t->what);
    /* the references of gradients take most of the time, and touch no memory of an op */
    for (int i = 0; i < t->inputs && !TAP_SANITIZED; i++)
        if (op_input_learns(&t->in[i]))
            judge_gradient(t, o, i);
    tap_is_int(o->faults, 0, "%s: residency protocol", t->what);
    free(got);
    free(t->want);
}

bool op_same(const struct op_trial *t, const struct op_outcome *a,
             const struct op_outcome *b)
{
    bool same = a->elems == b->elems &&
                !memcmp(a->out, b->out, (size_t)a->elems * sizeof(float));

    for (int i = 0; i < t->inputs && same; i++)
        if (op_input_learns(&t->in[i]))
            same =
                a->grad[i] && b->grad[i] &&
                !memcmp(a->grad[i], b->grad[i], (size_t)t->in[i].elems * sizeof(float));
    return same;
}

void op_trial_open(struct op_trial *t, const struct op_case *c, accel_dtype_t compute,
                   bool apart)
{
    *t = (struct op_trial){ .c = c, .compute = compute, .apart = apart };
    draw_inputs(t);
    snprintf(t->what, sizeof(t->what),
             "%s %lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld;%g,%g %s%s", c->name,
             (long long)c->s[0], (long long)c->s[1], (long long)c->s[2],
             (long long)c->s[3], (long long)c->s[4], (long long)c->s[5],
             (long long)c->s[6], (long long)c->s[7], c->r[0], c->r[1],
             accel_dtype_name(compute), apart ? ", units apart" : "");
}

void op_trial_close(struct op_trial *t)
{
    for (int i = 0; i < t->inputs; i++)
        free(t->in[i].v);
    free(t->weight);
}

/* Backends of a run of the table. */
struct run {
    struct backend *const *be;
    int n;
};

static void run_trial(struct op_trial *t, void *user)
{
    const struct run *r = user;
    struct op_outcome first = { 0 };

    if (op_attempt(t, r->be[0], &first)) {
        judge(t, &first, r->be[0]->device);
        for (int i = 1; i < r->n; i++) {
            const struct backend *be = r->be[i];
            struct op_outcome other = { 0 };

            if (op_attempt(t, r->be[i], &other))
                tap_ok(op_same(t, &first, &other),
                       "%s: same bits on %s with %d threads", t->what, be->name,
                       be->threads);
            op_outcome_free(&other);
        }
    }
    op_outcome_free(&first);
}

typedef void trial_f(struct op_trial *t, void *user);

static void one_case(const struct op_case *c, accel_dtype_t compute, bool apart,
                     trial_f *one, void *user)
{
    struct op_trial t;

    op_trial_open(&t, c, compute, apart);
    if (!apart || t.parameters > 1)
        one(&t, user);
    op_trial_close(&t);
}

/* All but delayed scaling, whose scales are those of earlier steps. */
static const struct {
    const char *name;
    struct fp8_recipe recipe;
} recipes[] = {
#define HYBRID                                                                         \
    {                                                                                  \
        ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2                                       \
    }
#define E4M3                                                                           \
    {                                                                                  \
        ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E4M3                                       \
    }
    { "current", { .current = true, .type = HYBRID } },
    { "powers", { .current = true, .powers = true, .type = HYBRID } },
    { "block", { .current = true, .blocks = FP8_BLOCKS_128, .type = E4M3 } },
    { "mxfp8", { .current = true, .blocks = FP8_BLOCKS_32, .type = E4M3 } },
    { "current, forward wide",
      { .current = true, .type = HYBRID, .wide = { true, false, false } } },
};

static bool has_recipe(const struct backend *be, const struct fp8_recipe *r)
{
    if (be->fp8 == BACKEND_FP8_NONE)
        return false;
    return !r->blocks ||
           (be->fp8_blocks &
            (r->blocks == FP8_BLOCKS_128 ? BACKEND_BLOCKS_128 : BACKEND_BLOCKS_32));
}

static void one_fp8(const struct op_case *c, const struct backend *be, bool blocks_only,
                    trial_f *one, void *user)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(recipes); i++) {
        struct op_trial t;
        size_t used;

        if (!has_recipe(be, &recipes[i].recipe) ||
            (blocks_only && !recipes[i].recipe.blocks))
            continue;
        op_trial_open(&t, c, ACCEL_BF16, false);
        t.recipe = &recipes[i].recipe;
        used = strlen(t.what);
        snprintf(t.what + used, sizeof(t.what) - used, ", fp8 %s", recipes[i].name);
        one(&t, user);
        op_trial_close(&t);
    }
}

void optable_each(const struct backend *be, trial_f *one, void *user)
{
    for (int k = 0; optable[k]; k++)
        for (int i = 0; i < optable[k]->count; i++) {
            one_case(&optable[k]->at[i], ACCEL_F32, false, one, user);
            one_case(&optable[k]->at[i], ACCEL_BF16, false, one, user);
            /* for a sanitizer these are the accesses of the two above */
            if (TAP_SANITIZED)
                continue;
            one_case(&optable[k]->at[i], ACCEL_F16, false, one, user);
            one_case(&optable[k]->at[i], ACCEL_F32, true, one, user);
        }
    for (int i = 0; i < optable_fp8.count; i++)
        one_fp8(&optable_fp8.at[i], be, false, one, user);
}

void optable_run(struct backend *const *be, int n)
{
    optable_each(be[0], run_trial, &(struct run){ be, n });
}

void optable_run_blocks(struct backend *const *be, int n)
{
    for (int i = 0; i < optable_fp8.count; i++)
        one_fp8(&optable_fp8.at[i], be[0], true, run_trial, &(struct run){ be, n });
}
