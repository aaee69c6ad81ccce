#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: the lines for early stopping of doc/preemption.md were run by nobody. A program with
# exactly these lines stops when its patience is over, and goes back to its best weights.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
! built_with_sanitizer || skip_all "the program is built without sanitizers"
command -v cc >/dev/null || skip_all "no compiler"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
page=$ACCEL_SRC/doc/preemption.md
# In the loop, and behind it.
sed -n '/^    accel_evaluate(run, 0, &loss/,/break;$/p' "$page" >loop.inc
sed -n '/^    if (!accel_ckpt_best("out/p' "$page" >behind.inc
is "$(cat loop.inc behind.inc | wc -l | tr -d ' ')" 4 "the page has the lines"

# One parameter goes to 4, past the 2 that fits what is held out: the loss there falls, then rises.
cat >stop.c <<'END'
#include <accel.h>
#include <accel_ckpt.h>
#include <accel_models.h>
#include <accel_objects.h>
#include <accel_state.h>
#include <math.h>
#include <stdio.h>

enum { SAMPLES = 40, HELD = 10 };

struct net {
    accel_tensor_t *gain;
};

/* accel holds out the last ones. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    *(float *)dst[0] = 1;
    *(float *)dst[1] = index < SAMPLES - HELD ? 4 : 2;
    return 0;
}

static accel_tensor_t *forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    const struct net *net = accel_module_state(m);

    (void)n;
    return accel_mse(accel_linear(in[0], net->gain, NULL, ACCEL_ACT_NONE), in[1]);
}

int main(void)
{
    static const accel_class_t cls = { sizeof(cls), "Net", forward, sizeof(struct net) };
    static const accel_field_t fields[] = { { ACCEL_F32, 1, { 1 } }, { ACCEL_F32, 1, { 1 } } };
    const accel_options_t options = { sizeof(options), .config_file = "stop.yaml", .log = accel_log_stderr };
    const int64_t dims[] = { 1, 1 };
    const int patience = 3;
    accel_job_t job = { sizeof(job), .steps = 200, .batch = 5, .out_dir = "out",
                        .optimizer = &(accel_optimizer_t){ sizeof(accel_optimizer_t), .kind = ACCEL_SGD, .lr = 0.05f } };
    accel_dataset_t *data = NULL;
    accel_tensor_t *batch[2];
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    double loss = 0, least = INFINITY;
    float gain = 0;
    char dir[4096];
    int bad = 0;

    if (accel_open(&run, &options, &err) ||
        accel_dataset_new(&data, SAMPLES, fields, 2, fetch, NULL, 0.25, &err))
        return accel_report(&err);
    job.model = accel_module_new(run, &cls, NULL, "");
    job.data = data;
    ((struct net *)accel_module_state(job.model))->gain =
        accel_param(job.model, "gain", 2, dims, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    accel_prepare(run, &job, &err);
    while (accel_more(run) && !accel_next(run, batch, 2, &err)) {
        accel_backward(run, accel_call(job.model, batch, 2), &err);
        accel_step(run, &err);
#include "loop.inc"
    }
    printf("ended at step %lld, %d after the best\n", (long long)accel_steps_done(run), bad);
#include "behind.inc"
    accel_param_read(run, "gain", 0, &gain, 1, &err);
    printf("back at step %lld with %.2f\n", (long long)accel_steps_done(run), (double)gain);
    accel_close(run, NULL);
    accel_dataset_close(data);
    return accel_report(&err);
}
END
cc -std=gnu11 -Wall -Wextra -Werror -I. -I"$ACCEL_SRC/runtime" -I"$ACCEL_SRC/checkpoint" stop.c -o stop \
    -L"$ACCEL_BUILD/.libs" -Wl,-rpath,"$ACCEL_BUILD/.libs" -laccel -laccelckpt -lm >cc.out 2>&1
ok $? "it compiles without a warning" || diag "$(cat cc.out)"
cat >stop.yaml <<'END'
distributed_type: MULTI_CPU
use_cpu: true
accel:
  checkpoint: {every_steps: 1, keep: 2, keep_best: 1, metric: eval_loss, metric_mode: min}
END
./stop >out.log 2>err.log
is $? 0 "it runs" || diag "$(cat err.log)"
# a tenth of the way to 4 in each step: 1.87 after the sixth, 2.09 after the seventh
is "$(cat out.log)" "ended at step 11, 4 after the best
back at step 7 with 2.09" "it stops when its patience is over, and goes back"
done_testing
