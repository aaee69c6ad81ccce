/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizers against their formulas in double and against torch, the groups,
 * clipping, moving averages, and that neither threads nor the cut of a range change a
 * bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "numbers/rng.h"
#include "optim/optim.h"
#include "tests/tap.h"
#include "tests/world/op_rig.h"

#define N 50021 /* several blocks, and a tail */

static float uniform(uint64_t stream, uint64_t i)
{
    uint32_t w[4];

    rng_block(7, stream, i, w);
    return (float)(2 * rng_unit(w[0]) - 1);
}

static struct backend *be;

/* With the options' defaults, on a matrix or on a vector. */
static struct adamw_step adamw_step_of(const accel_optimizer_t *o, float lr, int64_t t,
                                       float grad_scale)
{
    accel_optimizer_t whole = optim_defaults(*o);
    struct optim_param p = optim_param_of(&whole, "w", 2);

    return optim_step_of(&whole, &p, lr, t, grad_scale).adamw;
}

static void adamw_update(float *p, float *m, float *v, float *g, size_t n, bool decayed,
                         const struct adamw_step *k)
{
    struct optim_step step = { .kind = ACCEL_ADAMW, .adamw = *k };

    if (!decayed)
        step.adamw.decay = 1.0f;
    be->update(be,
               &(struct update_span){
                   .p = p, .m.data = m, .v.data = v, .g = g, .n = (int64_t)n },
               1, &step);
}

static double sumsq_of(const struct span *x, int count)
{
    double sum;

    be->sumsq(be, &sum, x, count);
    return sum;
}

static double sumsq(const float *x, int64_t n)
{
    return sumsq_of(&(struct span){ x, n }, 1);
}

struct state {
    float p[N], m[N], v[N], g[N];
};

/* One of three, as new. */
static struct state *fresh(int which)
{
    static struct state states[3];
    struct state *s = &states[which];

    memset(s, 0, sizeof(*s));
    for (int i = 0; i < N; i++)
        s->p[i] = uniform(1, (uint64_t)i);
    return s;
}

static void gradients(struct state *s, int t)
{
    for (int i = 0; i < N; i++)
        s->g[i] = uniform(100 + (uint64_t)t, (uint64_t)i) * (i % 7 ? 0.1f : 3.0f);
}

/* The published algorithm, step by step, in double. */
static void reference(const accel_optimizer_t *given, double lr, int t, double scale,
                      bool decayed, double *p, double *m, double *v, const float *g)
{
    const accel_optimizer_t whole = optim_defaults(*given), *o = &whole;

    for (int i = 0; i < N; i++) {
        double gi = g[i] * scale, m_hat, v_hat;

        if (decayed)
            p[i] -= lr * o->weight_decay * p[i];
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * gi;
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * gi * gi;
        m_hat = m[i] / (1 - pow(o->beta1, t));
        v_hat = v[i] / (1 - pow(o->beta2, t));
        p[i] -= lr * m_hat / (sqrt(v_hat) + o->eps);
    }
}

static void test_adamw(bool decayed)
{
    const accel_optimizer_t o = { .lr = 0.01f, .weight_decay = 0.1f };
    struct state *s = fresh(0);
    double *p = calloc(3 * N, sizeof(*p)), worst = 0;

    for (int i = 0; i < N; i++)
        p[i] = s->p[i];
    for (int t = 1; t <= 20; t++) {
        double lr = 0.01 / t;
        struct adamw_step k = adamw_step_of(&o, (float)lr, t, 0.5f);

        gradients(s, t);
        reference(&o, (float)lr, t, 0.5, decayed, p, p + N, p + 2 * N, s->g);
        adamw_update(s->p, s->m, s->v, s->g, N, decayed, &k);
    }
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs(p[i] - s->p[i]));
    tap_ok(worst < 1e-6, "20 steps follow the formulas in double (decay %s): %.2g",
           decayed ? "on" : "off", worst);
    free(p);
}

static void test_first_step(void)
{
    const accel_optimizer_t o = { .weight_decay = 0.5f };
    struct adamw_step k = adamw_step_of(&o, 0.1f, 1, 1.0f);
    float p[2] = { 1, 1 }, m[2] = { 0 }, v[2] = { 0 };
    float g[2] = { 1e-3f, -40.0f };

    adamw_update(p, m, v, g, 2, false, &k);
    tap_is_close(p[0], 0.9, 1e-5,
                 "the first step has length lr, whatever the gradient");
    tap_is_close(p[1], 1.1, 1e-5, "and goes against its sign");
    tap_ok(g[0] == 0 && g[1] == 0, "the gradient is zero after the step");
    k = adamw_step_of(&o, 0.1f, 1, 0.0f);
    g[0] = 1e-3f;
    g[1] = -40.0f;
    p[0] = p[1] = 1;
    m[0] = m[1] = v[0] = v[1] = 0;
    adamw_update(p, m, v, g, 2, true, &k);
    tap_is_close(p[0], 0.95, 1e-6, "zero gradient: decay alone, lr * weight_decay");
}

static void run_steps(struct state *s, int threads, size_t cut)
{
    const accel_optimizer_t o = { .weight_decay = 0.1f };

    be->threads = threads;
    for (int t = 1; t <= 3; t++) {
        struct adamw_step k = adamw_step_of(&o, 1e-2f, t, 1.0f);

        gradients(s, t);
        adamw_update(s->p, s->m, s->v, s->g, cut, true, &k);
        adamw_update(s->p + cut, s->m + cut, s->v + cut, s->g + cut, N - cut, true, &k);
    }
}

static void test_bits(void)
{
    struct state *a = fresh(0), *b = fresh(1);
    double one, three;

    run_steps(a, 1, 0);
    run_steps(b, 3, 12345);
    tap_ok(memcmp(a, b, sizeof(*a)) == 0,
           "threads and cuts change no bit of the update");
    gradients(a, 1);
    be->threads = 1;
    one = sumsq(a->g, N);
    be->threads = 3;
    three = sumsq(a->g, N);
    tap_ok(one == three, "threads change no bit of the sum of squares");
}

static void test_sumsq(void)
{
    static float g[40];
    double want = 0;

    for (int n = 0; n < 40; n++) {
        for (int i = 0; i < n; i++)
            g[i] = (float)(i + 1);
        const struct span two[] = { { g, n }, { g, n } };

        if (sumsq(g, n) != want || sumsq_of(two, 2) != 2 * want) {
            tap_ok(false, "sum of squares of %d elements", n);
            return;
        }
        want += (double)(n + 1) * (n + 1);
    }
    tap_ok(true, "sum of squares of 0 to 39 elements");
    g[0] = 1e30f;
    tap_is_close(sumsq(g, 1), 1e60, 1e-6, "squares do not overflow float32");
}

/* What a device adds up after an exchange is what comm adds up on the host. */
static void test_sum_parts(accel_dtype_t type)
{
    enum { PARTS = 3, LONG = 5000 };
    static float parts[PARTS * LONG], a[LONG], b[LONG];
    const void *src[PARTS];
    size_t one = accel_dtype_bytes(type);
    bool same = true;

    for (uint32_t i = 0; i < PARTS * LONG; i++)
        parts[i] = uniform(9, i);
    if (type == ACCEL_BF16)
        be->narrow(be, parts, ACCEL_BF16, parts, PARTS * LONG);
    for (size_t r = 0; r < PARTS; r++)
        src[r] = (char *)parts + r * LONG * one;
    for (int again = 0; again < 2; again++) {
        be->sum_parts(be, a, again, NULL, parts, type, PARTS, LONG, 0.25f);
        reduce_scaled_sum(b, src, PARTS, LONG, type, 0.25f, again);
        same = same && memcmp(a, b, sizeof(a)) == 0;
    }
    tap_ok(same, "parts in %s are added in their order, to the bit",
           accel_dtype_name(type));
}

/* Narrowed in place the halves lie where other threads still have to read. */
static void test_narrow_in_place(void)
{
    enum { LONG = 2000003 };
    float *x = malloc(LONG * sizeof(*x));
    uint16_t *want = malloc(LONG * sizeof(*want));
    bool same = true;

    for (int again = 0; again < 5; again++) {
        for (uint32_t i = 0; i < LONG; i++)
            x[i] = (float)(i * 2654435761u >> 8);
        be->threads = 3;
        be->narrow(be, want, ACCEL_BF16, x, LONG);
        be->narrow(be, x, ACCEL_BF16, x, LONG);
        same = same && memcmp(x, want, LONG * sizeof(*want)) == 0;
    }
    tap_ok(same, "narrowed in place as elsewhere");
    free(x);
    free(want);
}

static void test_clip(void)
{
    accel_error_t err = { 0 };
    double norm = -1;
    float f = -1;

    tap_ok(!optim_clip(16, 1, &f, &norm, &err) && norm == 4, "norm is the root");
    tap_is_close(f, 1 / (4 + 1e-6), 1e-6, "clipped to max / (norm + 1e-6)");
    tap_ok(!optim_clip(0.25, 1, &f, NULL, &err) && f == 1,
           "within the limit: untouched");
    tap_ok(!optim_clip(1e12, 0, &f, NULL, &err) && f == 1, "0: never clipped");
    f = -1;
    tap_ok(optim_clip(INFINITY, 1, &f, &norm, &err) == ACCEL_EINVAL && f == -1,
           "infinite norm is an error, outputs untouched");
    tap_ok(optim_clip(NAN, 0, &f, &norm, &err) == ACCEL_EINVAL &&
               strstr(err.text, "not finite") && err.hint[0],
           "so is NaN, also without clipping, with a cure");
}

/* Limits and moving averages, element by element; the last ones are a tail. */
static void test_clamp_and_blend(void)
{
    struct state *a = fresh(0), *b = fresh(1);
    bool clamped = true, blended = true;

    for (int i = 0; i < N; i++)
        a->g[i] = b->g[i] = a->p[i] * 2;
    a->g[7] = b->g[7] = INFINITY;
    a->g[N - 1] = b->g[N - 1] = NAN;
    be->threads = 1;
    be->clamp(be, a->g, N, 0.5f);
    be->threads = 3;
    be->clamp(be, b->g, N, 0.5f);
    for (int i = 0; i < N - 1; i++)
        clamped =
            clamped && a->g[i] == fmaxf(-0.5f, fminf(0.5f, i == 7 ? 1 : 2 * a->p[i]));
    tap_ok(clamped && isnan(a->g[N - 1]) && memcmp(a->g, b->g, sizeof(a->g)) == 0,
           "clipped by value; NaN stays, so that it is seen");
    for (int i = 0; i < N; i++)
        a->m[i] = b->m[i] = uniform(3, (uint64_t)i);
    be->blend(be, a->m, a->p, 12345, 0.999f, 0.001f);
    be->blend(be, a->m + 12345, a->p + 12345, N - 12345, 0.999f, 0.001f);
    be->threads = 1;
    be->blend(be, b->m, b->p, N, 0.999f, 0.001f);
    for (int i = 0; i < N; i++)
        blended =
            blended && a->m[i] == 0.999f * uniform(3, (uint64_t)i) + 0.001f * a->p[i];
    tap_ok(blended && memcmp(a->m, b->m, sizeof(a->m)) == 0,
           "averaged; threads and cuts change no bit");
}

/* ---- against torch (tests/data/optim) -------------------------------------------- */

static void test_torch(const char *name, accel_optimizer_t o)
{
    enum { FEW = 6 };
    const char *src = getenv("ACCEL_SRC");
    float p[FEW], state[2][FEW] = { { 0 } }, g[FEW], want, worst = 0;
    char path[512];
    FILE *f;
    int count;

    snprintf(path, sizeof(path), "%s/tests/data/optim/%s.txt", src ? src : ".", name);
    f = fopen(path, "r");
    o = optim_defaults(o);
    optim_state_names(&o, &count);
    for (uint32_t i = 0; i < FEW; i++)
        p[i] = rig_sequence(1, i);
    for (uint32_t t = 1; t <= 20; t++) {
        const struct optim_param own = { 1, o.weight_decay, false, -1 };
        struct optim_step k = optim_step_of(&o, &own, o.lr, t, 0.5f);

        for (uint32_t i = 0; i < FEW; i++)
            g[i] = 2 * rig_sequence(100 + t, i); /* halved again, as clipping does */
        be->update(be,
                   &(struct update_span){ .p = p,
                                          .m.data = count > 0 ? state[0] : NULL,
                                          .v.data = state[1],
                                          .g = g,
                                          .n = FEW },
                   1, &k);
    }
    for (int i = 0; f && i < FEW; i++) {
        if (fscanf(f, "%f", &want) != 1)
            want = NAN;
        worst = fmaxf(worst, fabsf(p[i] - want) / fabsf(want));
        if (isnan(want))
            worst = NAN;
    }
    tap_ok(f && worst < 1e-6f, "%s: 20 steps are torch's to %.2g", name, (double)worst);
    if (f)
        fclose(f);
}

static void test_kinds(void)
{
    static const accel_optimizer_t kinds[] = {
        { .kind = ACCEL_SGD, .lr = 1e-2f },
        { .kind = ACCEL_SGD, .lr = 1e-2f, .momentum = 0.9f, .weight_decay = 0.1f },
        { .kind = ACCEL_SGD, .lr = 1e-2f, .momentum = 0.9f, .nesterov = 1 },
        { .kind = ACCEL_LION, .lr = 1e-2f, .weight_decay = 0.1f },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(kinds); i++) {
        const accel_optimizer_t o = optim_defaults(kinds[i]);
        const struct optim_param own = { 0.5f, 0.1f, false, -1 };
        const struct optim_step k = optim_step_of(&o, &own, 1e-2f, 3, 0.5f);
        struct state *a = fresh(0), *b = fresh(1), *start = fresh(2);
        const bool moment = o.kind == ACCEL_LION || o.momentum > 0;
        struct update_span x = {
            .p = a->p, .m.data = moment ? a->m : NULL, .g = a->g, .n = N
        };
        struct update_span y = {
            .p = b->p, .m.data = moment ? b->m : NULL, .g = b->g, .n = N
        };

        gradients(a, 1);
        gradients(b, 1);
        be->threads = 1;
        be->update(be, &x, 1, &k);
        be->threads = 3;
        be->update(be, &y, 1, &k);
        tap_ok(memcmp(a, b, sizeof(*a)) == 0 && a->p[N - 1] != start->p[N - 1] &&
                   sumsq(a->g, N) == 0,
               "%s: threads change no bit, the gradient is zero after", optim_name(&o));
    }
}

static void test_groups(void)
{
    static const accel_group_t groups[] = {
        { .match = "head.*", .lr_scale = 10, .weight_decay = 0 },
        { .match = "h.[01].*", .weight_decay = -1, .frozen = 1 },
        { .match = "*.bias", .weight_decay = 0.3f },
    };
    accel_optimizer_t o = { .weight_decay = 0.1f, .groups = groups, .group_count = 3 };
    struct optim_param p = optim_param_of(&o, "head.bias", 1);

    tap_ok(p.lr_scale == 10 && p.weight_decay == 0 && !p.frozen && p.group == 0,
           "the first group that matches counts");
    p = optim_param_of(&o, "head.weight", 2);
    tap_ok(p.weight_decay == 0 && optim_step_of(&o, &p, 0.5f, 1, 1).adamw.decay == 1,
           "a group's decay of 0 is none");
    o.lr = 1;
    p.lr_scale = 10;
    for (int kind = ACCEL_ADAMW; kind <= ACCEL_LION; kind++) {
        accel_optimizer_t one = { .kind = (accel_optimizer_kind_t)kind, .beta1 = 0.5f };
        struct optim_step k = optim_step_of(&one, &p, 0.25f, 1, 1);

        tap_ok((kind == ACCEL_ADAMW ? k.adamw.rate / 2
                : kind == ACCEL_SGD ? k.sgd.lr
                                    : k.lion.lr) == 2.5f,
               "ten times the rate for %s", optim_name(&one));
    }
    p = optim_param_of(&o, "h.1.weight", 2);
    tap_ok(p.frozen && p.lr_scale == 1 && p.weight_decay == 0.1f,
           "frozen; the optimizer's decay");
    p = optim_param_of(&o, "h.2.bias", 1);
    tap_ok(p.weight_decay == 0.3f && p.group == 2,
           "a group's own decay holds for vectors too");
    p = optim_param_of(&o, "h.2.gain", 1);
    tap_ok(p.group == -1 && p.weight_decay == 0 && p.lr_scale == 1,
           "in no group: no decay of vectors");
}

/* What each optimizer keeps, by name. */
static void test_state(void)
{
    static const struct {
        accel_optimizer_t o;
        int count;
        const char *first, *name;
    } cases[] = {
        { { .kind = ACCEL_ADAMW }, 2, "exp_avg", "adamw" },
        { { .kind = ACCEL_SGD }, 0, "momentum_buffer", "sgd" },
        { { .kind = ACCEL_SGD, .momentum = 0.9f },
          1,
          "momentum_buffer",
          "sgd-momentum" },
        { { .kind = ACCEL_LION }, 1, "exp_avg", "lion" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        int count;
        const char *const *names = optim_state_names(&cases[i].o, &count);

        tap_ok(count == cases[i].count && !strcmp(names[0], cases[i].first) &&
                   !strcmp(optim_name(&cases[i].o), cases[i].name),
               "%s keeps %d arrays", cases[i].name, cases[i].count);
    }
}

#define GROUP(...)                                                                     \
    {                                                                                  \
        .groups = &(const accel_group_t){ __VA_ARGS__ }, .group_count = 1              \
    }

static const struct {
    const char *what;
    accel_optimizer_t o;
} refused[] = {
    { "an unknown kind", { .kind = (accel_optimizer_kind_t)3 } },
    { "a negative rate", { .lr = -1 } },
    { "a rate that is no number", { .lr = NAN } },
    { "an infinite rate", { .lr = INFINITY } },
    { "a kind below the first", { .kind = (accel_optimizer_kind_t)-1 } },
    { "a negative decay", { .weight_decay = -0.1f } },
    { "a negative eps", { .eps = -1e-8f } },
    { "an infinite eps", { .eps = INFINITY } },
    { "an eps that is no number", { .eps = NAN } },
    { "a negative beta", { .beta1 = -0.1f } },
    { "beta 1 of 1", { .beta1 = 1 } },
    { "momentum of Lion", { .kind = ACCEL_LION, .momentum = 0.9f } },
    { "Nesterov of Lion", { .kind = ACCEL_LION, .nesterov = 1 } },
    { "beta 1", { .beta2 = 1 } },
    { "momentum of AdamW", { .momentum = 0.9f } },
    { "momentum of 1", { .kind = ACCEL_SGD, .momentum = 1 } },
    { "Nesterov without momentum", { .kind = ACCEL_SGD, .nesterov = 1 } },
    { "infinite decay", { .weight_decay = INFINITY } },
    { "groups that are not there", { .group_count = 1 } },
    { "fewer than no groups",
      { .groups = &(const accel_group_t){ .lr_scale = 1 }, .group_count = -1 } },
    { "a group of an infinite rate", GROUP(.match = "*", .lr_scale = INFINITY) },
    { "a group's rate that is no number", GROUP(.match = "*", .lr_scale = NAN) },
    { "a group with an empty glob", GROUP(.match = "", .lr_scale = 1) },
    { "a group's decay that is no number", GROUP(.match = "*", .weight_decay = NAN) },
    { "a group's infinite decay", GROUP(.match = "*", .weight_decay = -INFINITY) },
    { "8 bits of SGD",
      { .kind = ACCEL_SGD, .momentum = 0.9f, .moments = ACCEL_MOMENTS_8BIT } },
    { "another form of moments", { .moments = (accel_moments_t)3 } },
    { "FP8 of SGD", { .kind = ACCEL_SGD, .moments = ACCEL_MOMENTS_FP8 } },
    { "a group without a glob", GROUP(.lr_scale = 1) },
    { "a group's negative rate", GROUP(.match = "*", .lr_scale = -1) },
};

static void test_refused(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(refused); i++) {
        accel_error_t err = { 0 };

        tap_ok(optim_check(&refused[i].o, &err) == ACCEL_EINVAL && err.hint[0],
               "%s is refused: %s", refused[i].what, err.text);
    }
}

int main(void)
{
    accel_optimizer_t d = optim_defaults((accel_optimizer_t){ 0 });

    if (backend_cpu_open(&be, 0, NULL))
        return 1;
    tap_ok(d.lr == 3e-4f && d.beta1 == 0.9f && d.beta2 == 0.95f && d.eps == 1e-8f &&
               d.weight_decay == 0,
           "defaults are those of accel.h");
    test_adamw(false);
    test_adamw(true);
    test_first_step();
    test_bits();
    test_sumsq();
    test_sum_parts(ACCEL_F32);
    test_sum_parts(ACCEL_BF16);
    test_narrow_in_place();
    test_clip();
    test_clamp_and_blend();
    test_torch("adamw", (accel_optimizer_t){ .lr = 1e-2f, .weight_decay = 0.1f });
    test_torch("sgd", (accel_optimizer_t){ .kind = ACCEL_SGD, .lr = 1e-2f });
    test_torch("sgd-momentum", (accel_optimizer_t){ .kind = ACCEL_SGD,
                                                    .lr = 1e-2f,
                                                    .momentum = 0.9f,
                                                    .weight_decay = 0.1f });
    test_torch("sgd-nesterov", (accel_optimizer_t){ .kind = ACCEL_SGD,
                                                    .lr = 1e-2f,
                                                    .momentum = 0.9f,
                                                    .nesterov = 1,
                                                    .weight_decay = 0.1f });
    test_torch("lion", (accel_optimizer_t){
                           .kind = ACCEL_LION, .lr = 1e-2f, .weight_decay = 0.1f });
    test_kinds();
    test_groups();
    test_state();
    test_refused();
    backend_close(be);
    return tap_done();
}
