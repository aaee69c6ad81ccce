/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table on two backends: their results beside each other, which the references
 * are too coarse for where they take differences.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/tap.h"
#include "tests/unit/optable.h"

static double apart(const float *got, const float *want, int64_t n, double rel,
                    double size)
{
    double *a = calloc((size_t)n + 1, sizeof(*a)),
           *b = calloc((size_t)n + 1, sizeof(*b));
    double far;

    for (int64_t i = 0; i < n; i++) {
        a[i] = got[i];
        b[i] = want[i];
    }
    far = op_excess(a, b, n, rel, size);
    free(a);
    free(b);
    return far;
}

static void beside(const struct op_trial *t, const struct op_outcome *want,
                   const struct op_outcome *got)
{
    const bool narrow = t->compute != ACCEL_F32;
    /* one unit in the last place of the storage type */
    const double last = t->compute == ACCEL_BF16 ? 0x1p-7 : 0x1p-10;
    /* Near zero a sum of narrow numbers that cancel; behind a second rounded value,
     * whose last place may differ, that much of what it was. */
    const double rel = narrow ? last : 1e-5;
    const double size = narrow ? t->c->coarse ? last : 0x1p-12 : 1e-5;
    double far = apart(got->out, want->out, want->elems, rel, narrow ? 0x1p-12 : 1e-5);

    for (int i = 0; i < t->inputs; i++)
        if (op_input_learns(&t->in[i]))
            far = fmax(far,
                       apart(got->grad[i], want->grad[i], t->in[i].elems, rel, size));
    tap_ok(far < 1, "%s: as on the CPU, %.2g of what is allowed", t->what, far);
}

static void run_case(const struct op_case *c, struct backend *be,
                     struct backend *device, accel_dtype_t compute)
{
    struct op_outcome want = { 0 }, got = { 0 };
    struct op_trial t;

    op_trial_open(&t, c, compute, false);
    if (op_attempt(&t, be, &want) && op_attempt(&t, device, &got))
        beside(&t, &want, &got);
    op_outcome_free(&want);
    op_outcome_free(&got);
    op_trial_close(&t);
}

void optable_beside(struct backend *be, struct backend *device)
{
    for (int k = 0; optable[k]; k++)
        for (int i = 0; i < optable[k]->count; i++) {
            run_case(&optable[k]->at[i], be, device, ACCEL_F32);
            run_case(&optable[k]->at[i], be, device, ACCEL_BF16);
            run_case(&optable[k]->at[i], be, device, ACCEL_F16);
        }
}
