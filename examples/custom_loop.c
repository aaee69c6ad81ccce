/* SPDX-License-Identifier: Apache-2.0
 * custom_loop: the loop of serial_loop.c on any number of ranks, stopped and resumed at
 * any step:  srun --accel-config=ddp.yaml ./custom_loop [OUT] */
#include <accel.h>
#include "curve.h"

int main(int argc, char **argv)
{
    accel_options_t options = { .bytes = sizeof options,
                                .run_name = "curve",
                                .log = accel_log_stderr };
    accel_optimizer_t sgd = { sizeof sgd, ACCEL_SGD, .lr = RATE };
    accel_job_t job = { .bytes = sizeof job, .optimizer = &sgd, .steps = STEPS };
    const int64_t bumps = BUMPS;
    accel_unit_t *unit = NULL;
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    int64_t sample[BATCH];
    float *g;

    job.out_dir = argc > 1 ? argv[1] : NULL;
    if (accel_open(&run, &options, &err) ||
        !(unit = accel_unit_new(run, "curve", &err)))
        return accel_report(&err);
    job.batch = BATCH / accel_world_size(run);
    accel_unit_param(unit, "w", 1, &bumps, (accel_init_t){ 0 }, NULL, &err);
    accel_prepare(run, &job, &err);
    while (accel_more(run) && !accel_next_samples(run, sample, job.batch, &err)) {
        double loss = 0;

        if (accel_unit_want(unit, &err) || accel_unit_gradient(unit, 0, &g, &err))
            break;
        for (int i = 0; i < job.batch; i++)
            loss += curve_sample(sample[i], accel_unit_values(unit, 0), g, job.batch);
        accel_unit_done(unit);
        accel_finish_backward(run, loss, &err);
        accel_step(run, &err);
    }
    accel_close(run, NULL);
    return accel_report(&err);
}
