/* SPDX-License-Identifier: Apache-2.0
 *
 * How often to save: the interval at which saves and lost work together cost the least.
 * In: seconds of a save, and mean seconds between failures. Out: seconds. For the
 * sources see plan.h.
 */
#include <math.h>

#include "plan/plan.h"

double plan_interval_young(double save_s, double mtbf_s)
{
    return sqrt(2 * save_s * mtbf_s);
}

double plan_interval_daly(double save_s, double mtbf_s)
{
    double ratio = save_s / (2 * mtbf_s);

    /* Beyond this a save takes longer than the time to the next failure. */
    if (ratio >= 1)
        return mtbf_s;
    return plan_interval_young(save_s, mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) -
           save_s;
}

double plan_interval_loss(double interval_s, double save_s, double mtbf_s)
{
    return save_s / interval_s + interval_s / (2 * mtbf_s);
}
