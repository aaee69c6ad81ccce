/* SPDX-License-Identifier: Apache-2.0
 *
 * See op_rig.h. Plain loops, nothing shared with the code under test but the tape.
 */
#include "tests/world/op_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/floats.h"
#include "ops/ops.h"
#include "tests/tap.h"

static uint64_t state = 1;

void rig_seed(uint64_t seed)
{
    state = seed;
}

double *rig_random(int64_t n, accel_dtype_t type, double size)
{
    double *v = malloc((size_t)(n + 1) * sizeof(*v));

    for (int64_t i = 0; v && i < n; i++) {
        float f, narrow;

        state = state * 6364136223846793005u + 1442695040888963407u;
        f = (float)(((double)(state >> 33) / 2147483648.0 - 0.5) * size);
        floats_narrow(&narrow, type, &f, 1);
        floats_widen(&f, &narrow, type, 1);
        v[i] = f;
    }
    return v;
}

float rig_sequence(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 1000003u + i * 7919u + 12345u;

    for (int k = 0; k < 3; k++)
        x = x * 1664525u + 1013904223u;
    return (float)((double)(x >> 8) / 8388608.0 - 1.0);
}

static void write_values(accel_tensor_t *t, const double *from)
{
    for (int64_t i = 0; i < t->elems; i++)
        floats_narrow((char *)t->data + i * (int64_t)accel_dtype_bytes(t->dtype),
                      t->dtype, &(float){ (float)from[i] }, 1);
}

accel_tensor_t *rig_tensor(struct graph *g, const double *values, int64_t a, int64_t b,
                           int64_t c)
{
    accel_tensor_t *t = graph_tensor(g, g->compute, 3, (int64_t[]){ a, b, c });

    write_values(t, values);
    t->needs_grad = true;
    return t;
}

static bool weigh(struct graph *g, const struct tape_entry *e)
{
    bool add;
    accel_tensor_t *dy = grad_target(g, e->in[0], &add);

    if (dy)
        memcpy(dy->data, e->saved[0]->data,
               (size_t)dy->elems * accel_dtype_bytes(dy->dtype));
    return dy != NULL;
}

accel_tensor_t *rig_weigh(struct graph *g, accel_tensor_t *y, const double *weight)
{
    accel_tensor_t *w = graph_tensor(g, y->dtype, y->ndim, y->dim);
    accel_tensor_t *loss = graph_tensor(g, ACCEL_F32, 1, &(int64_t){ 1 });

    write_values(w, weight);
    loss->needs_grad = true;
    tape_record(g, &(struct tape_entry){ .op = "weigh",
                                         .backward = weigh,
                                         .out = loss,
                                         .in = { y },
                                         .saved = { w } });
    return loss;
}

double rig_distance(const double *got, const double *want, int64_t n, double floor)
{
    double diff = 0, size = floor;

    for (int64_t i = 0; i < n; i++) {
        diff = fabs(got[i] - want[i]) > diff ? fabs(got[i] - want[i]) : diff;
        diff = isnan(got[i]) ? INFINITY : diff;
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
    }
    return diff / size;
}

void rig_check(const accel_tensor_t *y, const double *want, double tolerance,
               const char *what)
{
    float *got = malloc((size_t)y->elems * sizeof(*got));
    double *wide = malloc((size_t)y->elems * sizeof(*wide)), far;

    accel_tensor_read(y, got, (size_t)y->elems, NULL);
    for (int64_t i = 0; i < y->elems; i++)
        wide[i] = got[i];
    far = rig_distance(wide, want, y->elems, 1e-3);
    tap_ok(far < tolerance, "%s: values, distance %.1e", what, far);
    free(got);
    free(wide);
}

FILE *rig_golden(const char *name)
{
    const char *src = getenv("ACCEL_SRC");
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/tests/data/ops/%s", src ? src : ".", name);
    f = fopen(path, "r");
    if (!f)
        tap_ok(false, "cannot open %s", path);
    return f;
}

int rig_line(FILE *f, const char *word, double *v, int most)
{
    char text[4096], *at = text, *end;
    size_t len = strlen(word);
    int n = 0;

    if (!fgets(text, sizeof(text), f) || strncmp(text, word, len) != 0)
        return -1;
    for (at += len; n < most; n++, at = end) {
        v[n] = strtod(at, &end);
        if (end == at)
            break;
    }
    return n;
}

void rig_check_line(FILE *f, const char *word, const accel_tensor_t *y,
                    double tolerance, const char *what)
{
    float *all = malloc((size_t)y->elems * sizeof(*all));
    double want[64], got[64], far;
    int n = rig_line(f, word, want, 64);
    int64_t step = y->elems / 40 + 1;

    accel_tensor_read(y, all, (size_t)y->elems, NULL);
    for (int i = 0; i < n && i * step < y->elems; i++)
        got[i] = all[i * step];
    far =
        n == (y->elems + step - 1) / step ? rig_distance(got, want, n, 1e-3) : INFINITY;
    tap_ok(far < tolerance, "%s: %s as torch has it, distance %.1e", what, word, far);
    free(all);
}
