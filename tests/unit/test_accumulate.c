/* SPDX-License-Identifier: Apache-2.0
 *
 * When there is a step: accumulation against rows measured with Accelerate and a second
 * statement of its rule, no_sync, short groups; and when weights are
 * averaged, over steps and over ranks.
 */
#include <math.h>

#include "optim/accumulate.h"
#include "optim/averages.h"
#include "optim/schedule.h"
#include "tests/tap.h"
#include "tests/unit/accumulate_rows.h"

static struct accumulate begun(accel_accumulation_t rule)
{
    struct accumulate a = { 0 };

    accumulate_set(&a, &rule, NULL);
    return a;
}

/* ---- Accelerate's rows ----------------------------------------------------------- */

/* Two epochs of micro-batches whose gradient is 1. */
static bool like_row(const struct accumulate_row *row)
{
    struct accumulate a = begun((accel_accumulation_t){ .every = row->every });
    const int batches = row->batches;
    double grad = 0;
    bool same = true;

    for (int i = 0; i < 2 * batches; i++) {
        accumulate_next(&a, i % batches == batches - 1);
        grad += 1.0 / accumulate_divisor(&a);
        same = same && accumulate_syncs(&a) == (row->sync[i] != 0) &&
               accumulate_reduces(&a) == accumulate_syncs(&a) &&
               fabs(grad * accumulate_step_scale(&a) - row->gradient[i]) < 1e-6 &&
               (double)a.step == row->step[i];
        if (accumulate_syncs(&a))
            grad = 0;
    }
    return same;
}

/* Measured with two ranks: loss w x, lr 1, rank r gets x = r + 1, r + 3 ...; what each
 * sees after the backward, and where weight and schedule are after the step. */
static void test_two_ranks(void)
{
    static const struct {
        int k;
        double grad[2][4], w[4];
        int64_t position[4];
    } rows[] = {
        { 1,
          { { 1.5, 3.5, 5.5, 7.5 }, { 1.5, 3.5, 5.5, 7.5 } },
          { -1.5, -5, -10.5, -18 },
          { 2, 4, 6, 8 } },
        { 2,
          { { 0.5, 2.5, 2.5, 6.5 }, { 1, 2.5, 3, 6.5 } },
          { 0, -2.5, -2.5, -9 },
          { 0, 2, 2, 4 } },
        { 3,
          { { 1 / 3.0, 4 / 3.0, 3.5, 2.5 }, { 2 / 3.0, 2, 3.5, 2.5 } },
          { 0, 0, -3.5, -6 },
          { 0, 0, 2, 4 } },
    };
    const struct schedule_advance rule = { .with_optimizer = true, .ranks = 2 };
    const accel_schedule_t linear = { .kind = ACCEL_SCHEDULE_LINEAR, .steps = 8 };

    for (size_t c = 0; c < ACCEL_ARRAY_SIZE(rows); c++) {
        struct accumulate a = begun((accel_accumulation_t){ .every = rows[c].k });
        double grad[2] = { 0 }, w = 0;
        int64_t position = 0;
        bool same = true;

        for (int i = 0; i < 4; i++) {
            accumulate_next(&a, i == 3);
            for (int r = 0; r < 2; r++)
                grad[r] += (r + 1 + 2 * i) / (double)accumulate_divisor(&a);
            if (accumulate_reduces(&a))
                grad[0] = grad[1] = (grad[0] + grad[1]) / 2;
            for (int r = 0; r < 2; r++)
                same = same && fabs(grad[r] - rows[c].grad[r][i]) < 1e-9;
            if (accumulate_syncs(&a)) {
                w -= grad[0] * accumulate_step_scale(&a);
                grad[0] = grad[1] = 0;
            }
            position = schedule_advance(
                &rule, &(struct schedule_event){ .sync = accumulate_syncs(&a) },
                &linear, position);
            same = same && fabs(w - rows[c].w[i]) < 1e-9 &&
                   position == rows[c].position[i];
        }
        tap_ok(same, "two ranks that accumulate %d are Accelerate's", rows[c].k);
    }
}

/* Accelerator._do_sync said once more: the numbers of the micro-batches, counted over
 * all epochs from 1, after which there is a step. */
static bool steps_after(int number, int batches, int k, bool across)
{
    const bool last = number % batches == 0;

    if (across)
        return number % k == 0;
    return last || (number % batches) % k == 0;
}

static void test_grid(void)
{
    int wrong = 0;

    for (int bits = 0; bits < 8; bits++)
        for (int batches = 1; batches <= 12; batches++)
            for (int k = 1; k <= 13; k++) {
                struct accumulate a =
                    begun((accel_accumulation_t){ .every = k,
                                                  .across_epochs = bits & 1,
                                                  .sync_each_batch = bits & 2 });

                if (bits & 4)
                    accumulate_no_sync_begin(&a);
                for (int i = 1; i <= 3 * batches; i++) {
                    const bool step = steps_after(i, batches, k, bits & 1);

                    accumulate_next(&a, i % batches == 0);
                    wrong += accumulate_syncs(&a) != step;
                    wrong += accumulate_steps(&a) != (step && !(bits & 4));
                    wrong +=
                        accumulate_reduces(&a) != (!(bits & 4) && (step || (bits & 2)));
                    wrong += accumulate_divisor(&a) != k;
                    wrong += accumulate_step_scale(&a) != 1;
                }
            }
    tap_is_int(wrong, 0, "with and without epochs, no_sync and sync_each_batch");
}

/* ---- groups ---------------------------------------------------------------------- */

/* Gradients 1, 2, 3 ... of one group; at its end, what the optimizer sees. */
static double group_gradient(struct accumulate *a, const int *k, int n)
{
    double grad = 0;

    for (int i = 0; i < n; i++) {
        a->rule.every = k[i];
        accumulate_next(a, i == n - 1);
        grad += (i + 1) / (double)accumulate_divisor(a);
    }
    return grad * accumulate_step_scale(a);
}

static void test_short_groups(void)
{
    static const int four[] = { 4, 4, 4, 4 };
    struct accumulate a = begun((accel_accumulation_t){ .every = 4 });
    struct accumulate b =
        begun((accel_accumulation_t){ .every = 4, .short_by_count = 1 });

    tap_is_close(group_gradient(&a, four, 3), 6.0 / 4, 1e-12,
                 "3 of 4 micro-batches: a quarter each, as Accelerate has it");
    tap_is_close(group_gradient(&b, four, 3), 6.0 / 3, 1e-12,
                 "by their count: their mean");
    tap_is_close(group_gradient(&b, four, 1), 1, 1e-12, "also of one");
    tap_is_close(group_gradient(&b, four, 4), 10.0 / 4, 1e-12, "a full group");
    for (int k = 1; k < 200; k++) {
        bool full = true;

        b.rule.every = k;
        b.step = 0;
        do
            accumulate_next(&b, false);
        while (!accumulate_syncs(&b));
        full = full && accumulate_step_scale(&b) == 1;
        if (!full || k == 199)
            tap_ok(full, "a full group of up to %d keeps its bits", k);
    }
}

/* k changed within a group that ends short: as Accelerate has it each gradient has its
 * own 1 / k; by their count the weights of all add up to 1. */
static void test_mixed_groups(void)
{
    static const struct {
        int k[4], n;
    } rows[] = {
        { { 4, 4, 2 }, 3 },    { { 4, 4, 3 }, 3 },    { { 4, 3, 3 }, 3 },
        { { 2, 3, 4 }, 3 },    { { 3, 5 }, 2 },       { { 5, 3 }, 2 },
        { { 9, 8, 7, 6 }, 4 }, { { 7, 7, 7, 5 }, 4 }, { { 2, 4 }, 2 },
    };
    struct accumulate a = begun((accel_accumulation_t){ .every = 1 });
    struct accumulate b =
        begun((accel_accumulation_t){ .every = 1, .short_by_count = 1 });

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        double sum = 0, weight = 0;

        for (int m = 0; m < rows[i].n; m++) {
            sum += (m + 1.0) / rows[i].k[m];
            weight += 1.0 / rows[i].k[m];
        }
        tap_is_close(group_gradient(&a, rows[i].k, rows[i].n), sum, 1e-12,
                     "k from %d to %d: each its own", rows[i].k[0],
                     rows[i].k[rows[i].n - 1]);
        tap_is_close(group_gradient(&b, rows[i].k, rows[i].n), sum / weight, 1e-12,
                     "weights add up to 1");
    }
}

/* A new k counts from the next micro-batch on; the counter is not set back. */
static void test_changing(void)
{
    static const int k[] = { 3, 3, 2, 2, 1, 4, 4, 4 };
    static const bool sync[] = { 0, 0, 0, 1, 1, 0, 0, 1 };
    struct accumulate a = begun((accel_accumulation_t){ .every = 3 });
    accel_error_t err = { 0 };
    bool same = true;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(k); i++) {
        accel_accumulation_t rule = { .every = k[i] };

        accumulate_set(&a, &rule, NULL);
        accumulate_next(&a, false);
        same = same && accumulate_syncs(&a) == sync[i];
    }
    tap_ok(same, "k may change at any micro-batch");
    tap_ok(accumulate_set(&a, &(accel_accumulation_t){ .every = 0 }, &err) ==
                   ACCEL_EINVAL &&
               a.rule.every == 4 && err.hint[0],
           "k of 0: %s", err.text);
}

static void test_no_sync(void)
{
    struct accumulate a = begun((accel_accumulation_t){ .every = 1 });
    accel_error_t err = { 0 };

    tap_ok(accumulate_syncs(&a) && accumulate_reduces(&a),
           "without accumulate every backward syncs");
    accumulate_no_sync_begin(&a);
    accumulate_no_sync_begin(&a);
    accumulate_next(&a, false);
    tap_ok(accumulate_syncs(&a) && !accumulate_reduces(&a) && !accumulate_steps(&a),
           "no_sync: a group ends, but there is no step");
    tap_ok(!accumulate_no_sync_end(&a, &err) && !accumulate_reduces(&a),
           "the inner one ends, the outer one holds");
    tap_ok(!accumulate_no_sync_end(&a, &err) && accumulate_reduces(&a), "both ended");
    tap_is_int(accumulate_no_sync_end(&a, &err), ACCEL_EINVAL, "%s", err.text);
}

/* ---- averages of weights --------------------------------------------------------- */

static void test_decay(void)
{
    static const struct {
        const char *what;
        accel_ema_t rule;
        int64_t n;
        double decay;
    } rows[] = {
        { "the first", { .decay = 0 }, 0, 0 },
        { "the default", { .decay = 0 }, 1, 0.999 },
        { "the first by count", { .warmup = ACCEL_EMA_BY_COUNT }, 0, 0 },
        { "by count", { .warmup = ACCEL_EMA_BY_COUNT }, 1, 2.0 / 11 },
        { "later by count", { .warmup = ACCEL_EMA_BY_COUNT }, 90, 91.0 / 100 },
        { "at last by count", { .warmup = ACCEL_EMA_BY_COUNT }, 100000, 0.999 },
        { "by power", { .warmup = ACCEL_EMA_BY_POWER }, 7, 0.75 },
        { "by power and gamma",
          { .warmup = ACCEL_EMA_BY_POWER, .gamma = 3, .power = 0.5 },
          9,
          0.5 },
        { "at last by power",
          { .warmup = ACCEL_EMA_BY_POWER, .decay = 0.9 },
          1 << 20,
          0.9 },
    };
    struct ema e;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_ok(!ema_begin(&e, &rows[i].rule, NULL) &&
                   fabs(ema_decay(&e.rule, rows[i].n) - rows[i].decay) < 1e-15,
               "decay, %s: %g", rows[i].what, rows[i].decay);
}

/* A scalar weight that is i at step i; the average after each step. */
static void test_ema(void)
{
    const accel_ema_t rule = { .decay = 0.75, .every = 2, .after = 3 };
    static const double want[] = { 0, 0, 0, 0, 5, 5, 5.5, 5.5, 6.375, 6.375 };
    float average = 0, keep = 0, take = 0;
    bool same = true;
    struct ema e;

    ema_begin(&e, &rule, NULL);
    for (int i = 1; i <= 10; i++) {
        if (ema_step(&e, &keep, &take))
            average = keep * average + take * (float)i;
        same = same && average == (float)want[i - 1];
    }
    tap_ok(same && e.steps == 10 && e.averaged == 3,
           "averaged every 2 steps after the third");
    ema_begin(&e, &(accel_ema_t){ .decay = 0.99999 }, NULL);
    ema_step(&e, &keep, &take);
    tap_ok(keep == 0 && take == 1, "the first average is the weights");
    ema_step(&e, &keep, &take);
    tap_is_close(take, 1e-5, 1e-7, "a small share keeps its digits");
}

static void test_ema_refused(void)
{
    static const accel_ema_t bad[] = {
        { .decay = 1 },        { .decay = -0.5 },
        { .decay = NAN },      { .gamma = -1 },
        { .power = HUGE_VAL }, { .every = -1 },
        { .after = -1 },       { .warmup = (accel_ema_warmup_t)3 },
    };
    struct ema e = { .steps = 5 };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++)
        tap_ok(ema_begin(&e, &bad[i], &err) == ACCEL_EINVAL && err.hint[0] &&
                   e.steps == 5,
               "%s", err.text);
}

/* Measured with Accelerate: two ranks, gradients 1 and 2, lr 1, every 2 of 5 steps. */
static void test_local_sgd(void)
{
    static const double want[2][6] = { { -1, -3, -4, -6, -7, -7.5 },
                                       { -2, -3, -5, -6, -8, -7.5 } };
    struct local_sgd l = { .every = 2 };
    double w[2] = { 0 };
    bool same = true;

    for (int i = 0; i < 6; i++) {
        for (int r = 0; r < 2 && i < 5; r++)
            w[r] -= r + 1;
        if (i == 5 || local_sgd_step(&l))
            w[0] = w[1] = (w[0] + w[1]) / 2;
        same = same && w[0] == want[0][i] && w[1] == want[1][i];
    }
    tap_ok(same, "local SGD averages as Accelerate does, and in the end");
    l = (struct local_sgd){ 0 };
    tap_ok(!local_sgd_step(&l), "not where it is off");
}

int main(void)
{
    accumulate_rows(like_row);
    test_two_ranks();
    test_grid();
    test_short_groups();
    test_mixed_groups();
    test_changing();
    test_no_sync();
    test_decay();
    test_ema();
    test_ema_refused();
    test_local_sgd();
    return tap_done();
}
