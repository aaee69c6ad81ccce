/* SPDX-License-Identifier: Apache-2.0
 *
 * linear in fp8, forward and gradients, against sums in double. What is allowed is
 * the rounding of the operands, 2^-4 of each number in E4M3 and 2^-3 in E5M2, and that
 * of bfloat16 results. Two linears read the same tensor, with the same scale or not.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "nn/nn.h"
#include "precision/fp8.h"
#include "tests/tap.h"
#include "tests/world/module_rig.h"
#include "tests/world/op_rig.h"

struct row {
    const char *name;
    int64_t rows, in, out;
    struct fp8_recipe recipe;
    /* the second linear's scale of x is a half of the first's */
    bool apart;
    /* some columns of the gradient are 2^18 times the others: blocks along rows lose
     * the others, those along columns do not */
    bool steep;
};

#define E4M3                                                                           \
    {                                                                                  \
        ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E4M3                                       \
    }
#define HYBRID                                                                         \
    {                                                                                  \
        ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2                                       \
    }

/* Of a row; what it does not say is off. */
#define RECIPE(types, ...) .recipe = { .type = types, __VA_ARGS__ }

static const struct row rows[] = {
    { "delayed, HYBRID", 24, 48, 32, RECIPE(HYBRID, .history = 4) },
    { "two scales", 24, 48, 32, RECIPE(HYBRID, .history = 4), .apart = true },
    { "delayed, E4M3", 7, 560, 16, RECIPE(E4M3, .history = 1) },
    { "current, HYBRID", 24, 48, 32, RECIPE(HYBRID, .current = true) },
    { "current, E4M3", 33, 16, 208, RECIPE(E4M3, .current = true) },
    { "powers of two, HYBRID", 24, 48, 32,
      RECIPE(HYBRID, .current = true, .powers = true) },
    { "blocks of 128", 130, 272, 144,
      RECIPE(E4M3, .current = true, .blocks = FP8_BLOCKS_128) },
    { "blocks of 32", 50, 80, 48,
      RECIPE(E4M3, .current = true, .blocks = FP8_BLOCKS_32) },
    { "blocks of 128, steep", 50, 80, 48,
      RECIPE(E4M3, .current = true, .blocks = FP8_BLOCKS_128), .steep = true },
    { "blocks of 32, steep", 50, 80, 64,
      RECIPE(E4M3, .current = true, .blocks = FP8_BLOCKS_32), .steep = true },
    { "blocks of 32, HYBRID", 24, 48, 32,
      RECIPE(HYBRID, .current = true, .blocks = FP8_BLOCKS_32) },
    { "blocks of 128, wide gradient of the weight", 24, 48, 32,
      RECIPE(E4M3, .current = true, .blocks = FP8_BLOCKS_128,
             .wide = { false, false, true }) },
    { "wide forward", 24, 48, 32, RECIPE(HYBRID, .history = 4, .wide = { true }) },
    { "wide gradient of the input", 24, 48, 32,
      RECIPE(HYBRID, .current = true, .wide = { false, true }) },
    { "wide gradient of the weight", 24, 48, 32,
      RECIPE(HYBRID, .current = true, .wide = { false, false, true }) },
};

struct rig {
    const struct row *row;
    struct module_rig mod;
    accel_tensor_t *weight[2], *bias;
    struct fp8_linear linear[2];
    struct fp8_live live[2][FP8_TENSORS];
    double *x, *dy;
};

static accel_tensor_t *never(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)in, (void)n;
    return NULL;
}

/* Scales that bring values of up to 2 near the largest number. */
static void rig_scales(struct rig *k)
{
    const struct row *row = k->row;

    for (int i = 0; i < 2; i++) {
        struct fp8_linear *l = &k->linear[i];

        l->recipe = &row->recipe;
        l->state =
            calloc(FP8_TENSORS * (size_t)(1 + row->recipe.history), sizeof(float));
        fp8_begin(l);
        for (int t = 0; t < FP8_TENSORS; t++)
            *fp8_scale(l, (enum fp8_tensor)t) =
                fp8_scale_for(2, row->recipe.type[t], 0, 1);
        if (row->apart && i == 1)
            *fp8_scale(l, FP8_INPUT) /= 2;
        fp8_take(l);
        fp8_show(l, k->live[i]);
        l->live = k->live[i];
        k->weight[i]->param->fp8 = l;
    }
}

static void rig_open(struct rig *k, const struct row *row)
{
    static const accel_class_t top = { sizeof(top), "Top", never, 0 };
    const accel_init_t init = { ACCEL_INIT_NORMAL, 0.3f };
    const int64_t dims[] = { row->out, row->in };
    accel_module_t *m;

    memset(k, 0, sizeof(*k));
    k->row = row;
    if (!module_rig_open(&k->mod, ACCEL_BF16, 1))
        exit(1);
    m = k->mod.model = nn_module_new(&k->mod.g, &top, NULL, NULL);
    k->weight[0] = accel_param(m, "a", 2, dims, init);
    k->weight[1] = accel_param(m, "b", 2, dims, init);
    k->bias = accel_param(m, "bias", 1, dims, init);
    if (!module_rig_fill(&k->mod, false, NULL))
        exit(1);
    k->x = rig_random(row->rows * row->in, ACCEL_BF16, 4);
    k->dy = rig_random(row->rows * row->out, ACCEL_BF16, 4);
    for (int64_t i = 0; row->steep && i < row->rows * row->out; i++)
        k->dy[i] *= i % row->out % 32 ? 0x1p-9 : 0x1p9;
    rig_scales(k);
}

static void rig_close(struct rig *k)
{
    free(k->x);
    free(k->dy);
    free(k->linear[0].state);
    free(k->linear[1].state);
    module_rig_close(&k->mod);
}

/* Element of a weight as the op sees it. */
static double weight_at(const struct rig *k, int i, int64_t o, int64_t c)
{
    const accel_tensor_t *w = k->weight[i];
    const bf16_t *data = k->mod.r.data[w->param->unit];

    return (double)bf16_to_f32(data[w->param->unit_offset + o * k->row->in + c]);
}

/* What is allowed of a sum of the sizes `size`: the error of its operands. */
static double allowed(const struct row *row, enum fp8_product product, double size)
{
    const double gradient =
        row->recipe.type[FP8_GRADIENT] == ACCEL_F8E5M2 ? 0x1p-3 : 0x1p-4;
    const double other = product == FP8_FORWARD ? 0x1p-4 : gradient;

    return ((row->recipe.wide[product] ? 0 : 0x1p-4 + other + 0x1p-4 * other) +
            0x1p-7) *
           size;
}

/* Counts in two: beyond what is allowed, and farther off than bfloat16 would be. */
static void count(int outcome[2], double got, double want, double size, double allow)
{
    outcome[0] += !(fabs(got - want) <= allow + 1e-4);
    outcome[1] += fabs(got - want) > 0x1p-8 * size;
}

static void check(const struct rig *k, const char *what, const int outcome[2],
                  enum fp8_product product)
{
    tap_ok(outcome[0] == 0 && (outcome[1] > 0) == !k->row->recipe.wide[product],
           "%s: %s, %d beyond what is allowed, %d as only 8 bits are", k->row->name,
           what, outcome[0], outcome[1]);
}

/* Values, or the gradient of the input: [rows, out or in] of sums over the other. */
static void check_sums(const struct rig *k, const accel_tensor_t *t, const char *what,
                       enum fp8_product product)
{
    const bool forward = product == FP8_FORWARD;
    const int64_t in = k->row->in, out = k->row->out;
    const int64_t cols = forward ? out : in, terms = forward ? in : out;
    const double *x = forward ? k->x : k->dy;
    const bf16_t *bias = (const bf16_t *)k->mod.r.data[0] + k->bias->param->unit_offset;
    int outcome[2] = { 0 };

    for (int64_t r = 0; r < k->row->rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = forward ? (double)bf16_to_f32(bias[c]) : 0, size = fabs(sum);

            for (int64_t n = 0; n < terms; n++)
                for (int i = 0; i < 2; i++) {
                    const double w =
                        forward ? weight_at(k, i, c, n) : weight_at(k, i, n, c);
                    const double p = x[r * terms + n] * w;

                    sum += p;
                    size += fabs(p);
                }
            count(outcome, (double)bf16_to_f32(((const bf16_t *)t->data)[r * cols + c]),
                  sum, size, allowed(k->row, product, size));
        }
    check(k, what, outcome, product);
}

static void check_weights(struct rig *k)
{
    const struct row *row = k->row;
    const float *grad = k->mod.r.grad[0];
    int outcome[2] = { 0 };
    double far = 0;

    for (int64_t o = 0; o < row->out; o++) {
        double bias = 0;

        for (int64_t c = 0; c < row->in; c++) {
            double sum = 0, size = 0;

            for (int64_t r = 0; r < row->rows; r++) {
                const double p = k->dy[r * row->out + o] * k->x[r * row->in + c];

                sum += p;
                size += fabs(p);
            }
            for (int i = 0; i < 2; i++)
                count(outcome,
                      (double)grad[k->weight[i]->param->unit_offset + o * row->in + c],
                      sum, size, allowed(row, FP8_WEIGHT_GRADIENT, size));
        }
        for (int64_t r = 0; r < row->rows; r++)
            bias += k->dy[r * row->out + o];
        far = fmax(far, fabs((double)grad[k->bias->param->unit_offset + o] - bias) /
                            (1 + fabs(bias)));
    }
    check(k, "gradients of the weights", outcome, FP8_WEIGHT_GRADIENT);
    tap_ok(far < 1e-4, "that of the bias never saw 8 bits: %.1e", far);
}

/* What the step has seen of each tensor. */
static bool has_seen(const struct rig *k)
{
    double most = 0, weight = 0;

    for (int64_t i = 0; i < k->row->rows * k->row->in; i++)
        most = fmax(most, fabs(k->x[i]));
    for (int64_t i = 0; i < k->row->in * k->row->out; i++)
        weight = fmax(weight, fabs(weight_at(k, 1, 0, i)));
    return k->row->recipe.current || ((double)k->live[0][FP8_INPUT].amax == most &&
                                      (double)k->live[1][FP8_INPUT].amax == most &&
                                      (double)k->live[1][FP8_WEIGHT].amax == weight);
}

/* Bytes of the arena after the step; 0: it failed. */
static size_t test_row(const struct row *row)
{
    struct rig k;
    accel_tensor_t *x, *y, *loss;
    size_t peak;

    rig_open(&k, row);
    x = rig_tensor(&k.mod.g, k.x, 1, row->rows, row->in);
    y = accel_add(accel_linear(x, k.weight[0], k.bias, ACCEL_ACT_NONE),
                  accel_linear(x, k.weight[1], NULL, ACCEL_ACT_NONE));
    loss = y ? rig_weigh(&k.mod.g, y, k.dy) : NULL;
    if (!loss) {
        tap_ok(false, "%s: %s", row->name, k.mod.g.error.text);
        rig_close(&k);
        return 0;
    }
    graph_queue_waiting(&k.mod.g);
    check_sums(&k, y, "values", FP8_FORWARD);
    tensor_retain(x);
    tap_ok(graph_backward(&k.mod.g, loss, 1, NULL) == ACCEL_OK && has_seen(&k),
           "%s: largest magnitudes %s", row->name, k.mod.g.error.text);
    check_sums(&k, x->grad, "gradient of the input", FP8_INPUT_GRADIENT);
    check_weights(&k);
    peak = arena_peak_bytes(k.mod.g.arena);
    rig_close(&k);
    return peak;
}

/* Micro-batches that read a buffer, which is there in all of them: nothing of the first
 * is taken for the third's, whose tensors lie where those of the first were. */
static void test_buffer(void)
{
    const int64_t dims[] = { 24, 48 };
    struct rig k;
    accel_tensor_t *x, *y;
    float values[3] = { 0 };

    rig_open(&k, &rows[0]);
    x = accel_buffer(k.mod.model, "x", ACCEL_BF16, 2, dims,
                     (accel_init_t){ .kind = ACCEL_INIT_ONES });
    if (nn_buffers_open(k.mod.model, NULL))
        exit(1);
    for (int i = 0; i < 3; i++) {
        for (int other = 0; other < 2 * i; other++)
            (void)rig_tensor(&k.mod.g, k.x, 1, dims[0], dims[1]);
        y = i == 1 ? NULL : accel_linear(x, k.weight[0], NULL, ACCEL_ACT_NONE);
        values[i] = y ? bf16_to_f32(((const bf16_t *)y->data)[0]) : 0;
        graph_reset(&k.mod.g);
    }
    tap_ok(values[0] == values[2] && values[0] != 0, "a buffer: %g, %g",
           (double)values[0], (double)values[2]);
    rig_close(&k);
}

int main(void)
{
    size_t peak[ACCEL_ARRAY_SIZE(rows)];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        peak[i] = test_row(&rows[i]);
    tap_ok(peak[0] < peak[1], "with one scale there is one copy: %zu bytes and not %zu",
           peak[0], peak[1]);
    test_buffer();
    return tap_done();
}
