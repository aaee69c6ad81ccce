/* SPDX-License-Identifier: Apache-2.0
 *
 * The times of the last iteration by phase, for accel_last_step. In: the ends of
 * phases. Measures the host; a device may still be working.
 */
#include <string.h>

#include "common/sized.h"
#include "loop/loop.h"
#include "handle/run.h"

void phase_end(accel_t *run, enum phase phase)
{
    int64_t now = clock_ns();

    if (run->loop.phase_from_ns && !run->loop.evaluating_from_ns)
        run->loop.phase_ns[phase] += now - run->loop.phase_from_ns;
    run->loop.phase_from_ns = now;
}

/* The mode may be older than the step, and even than accel_prepare. */
void phases_evaluate(accel_t *run, bool begins)
{
    struct loop *l = &run->loop;
    int64_t from = l->evaluating_from_ns;

    if (begins ? from : !from || run->graph.evaluating)
        return;
    phase_end(run, PHASE_OTHER);
    if (!begins)
        l->step_start_ns +=
            l->phase_from_ns - (from > l->step_start_ns ? from : l->step_start_ns);
    l->evaluating_from_ns = begins ? l->phase_from_ns : 0;
}

static double phase_ms(const accel_t *run, enum phase phase)
{
    return (double)run->loop.phase_ns[phase] / 1e6;
}

void phases_take(accel_t *run)
{
    accel_step_info_t *s = &run->loop.last;

    s->data_ms = phase_ms(run, PHASE_DATA);
    s->forward_ms = phase_ms(run, PHASE_FORWARD);
    s->backward_ms = phase_ms(run, PHASE_BACKWARD);
    s->optimizer_ms = phase_ms(run, PHASE_OPTIMIZER);
    s->wait_ms = phase_ms(run, PHASE_WAIT);
    memset(run->loop.phase_ns, 0, sizeof(run->loop.phase_ns));
}

accel_status_t accel_last_step(const accel_t *run, accel_step_info_t *out,
                               accel_error_t *err)
{
    const struct sized *type = SIZED(accel_step_info_t, loss_scale);
    accel_status_t st;

    ACCEL_CHECK(st, run_given(run, "accel_last_step", err));
    if (!out || !run->loop.last.step)
        return accel_fail(err, A0962, "call it after accel_step, with a struct",
                          "accel_last_step: %s",
                          out ? "no step has been done yet" : "out is NULL");
    ACCEL_CHECK(st, sized_check(type, out, err));
    sized_write(type, out, &run->loop.last);
    return ACCEL_OK;
}
