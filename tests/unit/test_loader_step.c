/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader that failed on one rank, in the reduction of a step: all ranks end with its
 * message, and no weight has changed. 100 rounds.
 */
#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"

/* What the reduction of a step needs of a run whose micro-batches are done. */
static int step_rank(struct boot *b, void *arg)
{
    struct model_request request = {
        .dir = "none",
        .sizes = { .layers = 1, .heads = 1, .width = 8, .context = 8, .vocab = 16 },
        .strategy = SHARD_FULL
    };
    const int round = *(int *)arg, failing = round % b->size;
    accel_error_t err = { 0 };
    char want[64], place[32];
    float loss = 1;
    accel_status_t st;
    accel_t run = { 0 };
    int bad;

    if (backend_cpu_open(&request.backend, 1, &err) ||
        model_run_open(&run, b, &request, &err)) {
        fprintf(stderr, "# open: %s\n", err.text);
        return 1;
    }
    run.job.steps = 9;
    run.job.accumulate = run.job.batch = 1;
    run.loop.losses = &loss;
    run.loop.micro = 1;
    run.loader_failure.failed = b->rank == failing;
    run.loader_failure.error.code = ACCEL_EIO;
    snprintf(run.loader_failure.error.text, sizeof(run.loader_failure.error.text),
             "sample %d of rank %d", round, b->rank);
    snprintf(want, sizeof(want), "sample %d of rank %d", round, failing);
    snprintf(place, sizeof(place), "rank %d", failing);
    st = accel_step(&run, &err);
    bad =
        st != ACCEL_EIO || strcmp(err.text, want) != 0 || strcmp(err.where, place) != 0;
    bad |= accel_more(&run) || accel_steps_done(&run) != 0;
    if (bad)
        fprintf(stderr, "# rank %d: %d, '%s' at '%s'\n", b->rank, st, err.text,
                err.where);
    model_run_close(&run);
    return bad;
}

int main(void)
{
    int bad = 0;

    for (int round = 0; round < 100; round++)
        bad += fork_world(2 + round % 3, step_rank, &round, HANG_S) != 0;
    tap_is_int(bad, 0, "one rank's loader fails: all end at the step, 100 times");
    return tap_done();
}
