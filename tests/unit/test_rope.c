/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions: frequencies and values as transformers has them (golden file), the
 * gradient by central differences, positions behind a cache, threads, misuse.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ops/kv.h"
#include "ops/ops.h"
#include "tests/tap.h"
#include "tests/world/op_rig.h"

/* A cache whose length is `length`; its values are not used. */
static accel_kv_t *behind(struct graph *g, int64_t length)
{
    accel_kv_t *kv = kv_new(g, 1, 1, (int)length + 1, 1, 1, NULL);

    accel_kv_advance(kv, (int)length, NULL);
    return kv;
}

static void test_golden(struct backend *be)
{
    FILE *f = rig_golden("rope.golden");
    double c[11], want[256];
    int cases = 0;

    while (f && rig_line(f, "case", c, 11) == 11) {
        accel_rope_t o = { .kind = (accel_rope_kind_t)c[0],
                           .theta = (float)c[6],
                           .factor = (float)c[7],
                           .low_freq_factor = (float)c[8],
                           .high_freq_factor = (float)c[9],
                           .original_context = (int)c[10] };
        int64_t b = (int64_t)c[1], t = (int64_t)c[2], h = (int64_t)c[3];
        int64_t d = (int64_t)c[4];
        float frequency[256];
        double *values, *weight, got[256];
        accel_tensor_t *x, *y;
        accel_kv_t *kv;
        struct graph g;
        char what[64];
        int n;

        snprintf(what, sizeof(what), "golden case %d", ++cases);
        n = rig_line(f, "freq", want, 256);
        rope_frequencies(&o, d, frequency);
        for (int i = 0; i < n; i++)
            got[i] = frequency[i] / want[i] - 1;
        for (int i = 0; i < n; i++)
            want[i] = 0;
        tap_ok(n == d / 2 && rig_distance(got, want, n, 1) < 1.3e-7,
               "%s: frequencies of transformers to the last bit but one", what);
        rig_seed(11);
        graph_open(&g, be, ACCEL_F32, false, NULL);
        values = rig_random(b * t * h * d, ACCEL_F32, 3);
        weight = rig_random(b * t * h * d, ACCEL_F32, 1);
        kv = behind(&g, (int64_t)c[5]);
        x = rig_tensor(&g, values, b, t, h * d);
        y = accel_rope(x, (int)h, &o, kv);
        /* A last bit of a frequency is 4e-3 of the angle at position 60000. */
        rig_check_line(f, "out", y, 1e-5 + c[5] * 1e-7, what);
        graph_backward(&g, rig_weigh(&g, y, weight), 1.0f, NULL);
        rig_check_line(f, "dx", x->grad, 1e-5 + c[5] * 1e-7, what);
        accel_kv_free(kv);
        free(values);
        free(weight);
        graph_close(&g);
    }
    tap_is_int(cases, 6, "all golden cases");
    if (f)
        fclose(f);
}

/* Sum of weight * rope(x) in double. */
static double loss(const double *x, const double *weight, int64_t n, int64_t t_count,
                   int64_t heads, int64_t d)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % d, t = i / (heads * d) % t_count, pairs = d / 2;
        double angle = (double)t * pow(10000.0, -2.0 * (double)(k % pairs) / (double)d);
        double other = k < pairs ? -x[i + pairs] : x[i - pairs];

        sum += weight[i] * (x[i] * cos(angle) + other * sin(angle));
    }
    return sum;
}

static void test_gradient(struct backend *be, accel_dtype_t type)
{
    enum { B = 2, T = 11, H = 3, D = 14, N = B * T * H * D };
    double *x = rig_random(N, type, 3), *w = rig_random(N, type, 1);
    double tolerance = type == ACCEL_F32 ? 1e-5 : 2e-2, got[N], want[N];
    float dx[N];
    accel_tensor_t *t, *y;
    struct graph g;

    graph_open(&g, be, type, false, NULL);
    t = rig_tensor(&g, x, B, T, H * D);
    y = accel_rope(t, H, NULL, NULL);
    /* x is used twice: the gradients add. */
    y = accel_add(y, accel_rope(t, H, NULL, NULL));
    graph_backward(&g, rig_weigh(&g, y, w), 1.0f, NULL);
    accel_tensor_read(t->grad, dx, N, NULL);
    for (int i = 0; i < N; i++) {
        double h = 1e-5, keep = x[i], up;

        x[i] = keep + h;
        up = loss(x, w, N, T, H, D);
        x[i] = keep - h;
        want[i] = (up - loss(x, w, N, T, H, D)) / h;
        x[i] = keep;
        got[i] = dx[i];
    }
    tap_ok(rig_distance(got, want, N, 1e-3) < tolerance, "%s: gradient, distance %.1e",
           accel_dtype_name(type), rig_distance(got, want, N, 1e-3));
    free(x);
    free(w);
    graph_close(&g);
}

static void test_threads(void)
{
    enum { N = 3 * 37 * 4 * 10 };
    double *x = rig_random(N, ACCEL_F32, 3);
    float got[3][N];

    for (int i = 0; i < 3; i++) {
        struct backend *be;
        struct graph g;

        if (backend_cpu_open(&be, i + 1, NULL) ||
            graph_open(&g, be, ACCEL_F32, false, NULL))
            tap_ok(false, "open");
        accel_tensor_read(accel_rope(rig_tensor(&g, x, 3, 37, 40), 4, NULL, NULL),
                          got[i], N, NULL);
        graph_close(&g);
        backend_close(be);
    }
    tap_ok(!memcmp(got[0], got[1], sizeof(got[0])) &&
               !memcmp(got[0], got[2], sizeof(got[0])),
           "same bits with 1, 2 and 3 threads");
    free(x);
}

static void test_misuse(struct backend *be)
{
    static const struct {
        accel_rope_t o;
        int64_t width;
        int heads;
        const char *text;
    } cases[] = {
        { { .theta = 0 }, 12, 0, "x [1, 2, 12] does not fit 0 heads" },
        { { .theta = 0 }, 12, 5, "x [1, 2, 12] does not fit 5 heads" },
        { { .theta = 0 }, 12, 4, "x [1, 2, 12] does not fit 4 heads" },
        { { .theta = 0 }, 514, 1, "x [1, 2, 514] does not fit 1 heads" },
        { { .theta = -1 }, 12, 2, "theta -1" },
        { { .theta = NAN }, 12, 2, "theta" },
        { { .kind = (accel_rope_kind_t)7, .factor = 1 }, 12, 2, "kind 7" },
        { { .kind = ACCEL_ROPE_LINEAR }, 12, 2, "factor 0" },
        { { .kind = ACCEL_ROPE_LLAMA3,
            .factor = 8,
            .low_freq_factor = 4,
            .high_freq_factor = 4,
            .original_context = 8 },
          12,
          2,
          "high_freq_factor 4" },
    };
    double zero[2 * 514] = { 0 };
    struct graph g;

    graph_open(&g, be, ACCEL_F32, false, NULL);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        graph_reset(&g);
        tap_ok(!accel_rope(rig_tensor(&g, zero, 1, 2, cases[i].width), cases[i].heads,
                           &cases[i].o, NULL) &&
                   strstr(g.error.text, cases[i].text),
               "misuse: %s", g.error.text);
    }
    graph_close(&g);
}

int main(void)
{
    struct backend *be = NULL;
    accel_error_t err = { 0 };

    if (!tap_ok(!backend_cpu_open(&be, 2, &err), "open %s", err.text))
        return tap_done();
    test_golden(be);
    test_gradient(be, ACCEL_F32);
    test_gradient(be, ACCEL_BF16);
    test_threads();
    test_misuse(be);
    backend_close(be);
    return tap_done();
}
