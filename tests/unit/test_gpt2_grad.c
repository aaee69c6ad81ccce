/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole gpt2 against one in double: loss, and gradients of every parameter against
 * central differences of the double one (a spread of elements of each).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/floats.h"
#include "models/model_config.h"
#include "tests/tap.h"
#include "tests/unit/reference.h"
#include "tests/world/module_rig.h"

#define BATCH  2
#define TIME   67
#define ROWS   (BATCH * TIME)
#define WIDTH  10
#define VOCAB  23
#define LAYERS 2

static const accel_model_config_t cfg = { .model_type = "gpt2",
                                          .layers = LAYERS,
                                          .heads = 2,
                                          .width = WIDTH,
                                          .context = 70,
                                          .vocab = VOCAB };
static int32_t ids[ROWS], targets[ROWS];
static double *value[LAYERS + 1]; /* master of each unit, in double */
static const struct units *units;

static const double *param(int unit, int index)
{
    return value[unit] + units->unit[unit].param[index]->param->unit_offset;
}

static void add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static double reference(void)
{
    static double x[ROWS * WIDTH], y[ROWS * WIDTH], wide[ROWS * 4 * WIDTH];

    ref_embedding(x, ids, param(0, 0), param(0, 1), ROWS, TIME, WIDTH);
    for (int u = 1; u <= LAYERS; u++) {
        ref_layernorm(y, x, param(u, 0), param(u, 1), ROWS, WIDTH, 1e-5f);
        ref_linear(wide, y, param(u, 2), param(u, 3), ROWS, WIDTH, 3 * WIDTH, 0);
        ref_attention(y, wide, BATCH, TIME, WIDTH, cfg.heads);
        ref_linear(wide, y, param(u, 4), param(u, 5), ROWS, WIDTH, WIDTH, 0);
        add(x, wide, ROWS * WIDTH);
        ref_layernorm(y, x, param(u, 6), param(u, 7), ROWS, WIDTH, 1e-5f);
        ref_linear(wide, y, param(u, 8), param(u, 9), ROWS, WIDTH, 4 * WIDTH, 1);
        ref_linear(y, wide, param(u, 10), param(u, 11), ROWS, 4 * WIDTH, WIDTH, 0);
        add(x, y, ROWS * WIDTH);
    }
    ref_layernorm(y, x, param(0, 2), param(0, 3), ROWS, WIDTH, 1e-5f);
    return ref_cross_entropy(y, param(0, 0), targets, ROWS, WIDTH, VOCAB);
}

static void check_param(const struct resident *r, int unit, const accel_tensor_t *t,
                        double tolerance, const char *dtype)
{
    double diff = 0, size = 1e-6;

    for (int64_t i = 0; i < t->elems; i += t->elems / 9 + 1) {
        double *v = value[unit] + t->param->unit_offset + i, keep = *v, up, want;
        double got = r->grad[unit][t->param->unit_offset + i];

        *v = keep + 1e-5;
        up = reference();
        *v = keep - 1e-5;
        want = (up - reference()) / 2e-5;
        *v = keep;
        diff = fmax(diff, isnan(got) ? INFINITY : fabs(got - want));
        size = fmax(size, fabs(want));
    }
    tap_ok(diff < tolerance * size, "%s: gradient of %s, distance %.1e", dtype, t->name,
           diff / size);
}

/* Larger weights than a fresh model's, so that no gradient is small by accident, but
 * not so large that the softmax saturates: then the gradients would be
 * ill-conditioned. */
static void spread(struct resident *r, accel_dtype_t compute)
{
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->unit[u].param_count; k++) {
            const accel_tensor_t *t = units->unit[u].param[k];

            for (int64_t n = 0; n < t->elems; n++) {
                int64_t i = t->param->unit_offset + n;
                float narrow, f = r->master[u][i] * (t->ndim == 2 ? 12.0f : 1.0f);

                f += (float)(n * 37 % 101) / 505.0f - 0.1f;
                floats_narrow(&narrow, compute, &f, 1);
                floats_widen(&r->master[u][i], &narrow, compute, 1);
                value[u][i] = r->master[u][i];
            }
        }
    resident_refresh(r);
}

static void check_model(struct module_rig *k, double tolerance, const char *dtype)
{
    int64_t dims[2] = { BATCH, TIME };
    struct graph *g = &k->g;
    accel_tensor_t *in[2] = { graph_tensor(g, ACCEL_I32, 2, dims),
                              graph_tensor(g, ACCEL_I32, 2, dims) };
    accel_tensor_t *loss;
    accel_error_t err = { 0 };
    float got = NAN;

    memcpy(in[0]->data, ids, sizeof(ids));
    memcpy(in[1]->data, targets, sizeof(targets));
    loss = accel_call(k->model, in, 2);
    tap_ok(loss && !accel_tensor_read(loss, &got, 1, &err) &&
               !graph_backward(g, loss, 1.0f, &err),
           "%s: forward and backward %s", dtype, g->error.text);
    tap_is_close(got, reference(), tolerance / 10, "%s: loss", dtype);
    for (int u = 0; u < units->count; u++)
        for (int i = 0; i < units->unit[u].param_count; i++)
            check_param(&k->r, u, units->unit[u].param[i], tolerance, dtype);
}

static void run(accel_dtype_t compute, double tolerance)
{
    struct module_rig k;

    if (!module_rig_open(&k, compute, 2))
        tap_ok(false, "open");
    k.model = model_new(&k.g, &cfg, NULL);
    if (!module_rig_fill(&k, true, ""))
        tap_ok(false, "units");
    units = &k.units;
    for (int u = 0; u < units->count; u++)
        value[u] = calloc((size_t)units->unit[u].elems, sizeof(double));
    spread(&k.r, compute);
    check_model(&k, tolerance, accel_dtype_name(compute));
    for (int u = 0; u < units->count; u++)
        free(value[u]);
    module_rig_close(&k);
}

int main(void)
{
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i * 7 % VOCAB;
        targets[i] = i % 9 == 4 ? -1 : i * 5 % VOCAB;
    }
    run(ACCEL_F32, 1e-5);
    run(ACCEL_BF16, 5e-2);
    run(ACCEL_F16, 8e-3);
    return tap_done();
}
