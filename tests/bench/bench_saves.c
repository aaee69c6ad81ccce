/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_saves [MEGABYTES]: what a checkpoint costs a training of one rank, at once and in
 * the background. In: bytes of weights (256 MB). Out: the median of a memcpy of them, of
 * steps without a save, of the wait of a step that begins one in the background, and of
 * the next two steps; and what a save adds to a life of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "tests/bench/median.h"
#include "tests/faults/saves_world.h"

enum { COLS = 40, ROUNDS = 7, EVERY = 32, STEPS = ROUNDS * EVERY + 6 };

static double at[STEPS + 1], stall[ROUNDS + 2];
static int stalls;

static accel_status_t note(int rank, accel_t *run, accel_error_t *err)
{
    const int64_t step = accel_steps_done(run);

    (void)rank;
    (void)err;
    at[step] = (double)clock_ns() * 1e-9;
    if (run->background.stall > 0 && step % EVERY == 0)
        stall[stalls++] = run->background.stall;
    return ACCEL_OK;
}

static double copy_time(size_t bytes)
{
    char *from = malloc(bytes), *to = malloc(bytes);
    double t[ROUNDS];

    if (!from || !to)
        abort();
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t begun = clock_ns();

        memcpy(to, from, bytes);
        __asm__ volatile("" ::"r"(to) : "memory");
        t[i] = (double)(clock_ns() - begun) * 1e-9;
    }
    free(from);
    free(to);
    return median(t, ROUNDS);
}

/* The steps that are `behind` steps after one that began a save. */
static double step_time(int behind)
{
    double t[ROUNDS];
    int n = 0;

    for (int step = 2 * EVERY; step + behind <= STEPS - 2 && n < ROUNDS; step += EVERY)
        t[n++] = at[step + behind] - at[step + behind - 1];
    return median(t, n);
}

/* Seconds of the steps around all periodic saves. The last one, at the end, is left out. */
static double whole(void)
{
    return at[STEPS - 1] - at[EVERY - 1];
}

static int live(const struct saves_life *life)
{
    accel_error_t err = { 0 };

    if (!saves_new())
        return 73;
    if (saves_live_here(life, &err))
        fprintf(stderr, "%s: %s\n", err.where, err.text);
    saves_end();
    return accel_exit_code(err.code);
}

/* Three lives of each kind in turns: the quickest is the least disturbed. */
static int compare(struct saves_life life, double lost_out[2])
{
    enum { NONE, AT_ONCE, BEHIND, KINDS };
    double best[KINDS] = { 1e9, 1e9, 1e9 };

    for (int i = 0; i < 3 * KINDS; i++) {
        int code;

        life.every = i % KINDS == NONE ? 2 * STEPS : EVERY;
        life.background = i % KINDS == BEHIND;
        stalls = 0;
        code = live(&life);
        if (code)
            return code;
        if (whole() < best[i % KINDS])
            best[i % KINDS] = whole();
    }
    lost_out[0] = (best[AT_ONCE] - best[NONE]) / ROUNDS;
    lost_out[1] = (best[BEHIND] - best[NONE]) / ROUNDS;
    return 0;
}

int main(int argc, char **argv)
{
    const int64_t rows = (argc > 1 ? atoll(argv[1]) : 256) * 1000000 / (4 * COLS);
    const size_t bytes = (size_t)rows * COLS * sizeof(float);
    const struct saves_life life = {
        .ranks = 1, .steps = STEPS, .rows = rows, .keep = 1, .after = note
    };
    double copy, plain, wait, lost[2];
    int code;

    if (rows < 1)
        return 64;
    copy = copy_time(bytes);
    code = compare(life, lost);
    if (code)
        return code;
    /* of the last life, which saved in the background */
    plain = step_time(EVERY - 1);
    wait = median(stall, stalls);
    printf("weights            %zu bytes\n", bytes);
    printf("memcpy             %.1f ms\n", copy * 1e3);
    printf("step               %.1f ms\n", plain * 1e3);
    printf("wait of a save     %.1f ms, %.2f of the memcpy (%d saves)\n", wait * 1e3,
           wait / copy, stalls);
    printf("the step after it  %+.1f %%\n", (step_time(1) / plain - 1) * 100);
    printf("and the next       %+.1f %%\n", (step_time(2) / plain - 1) * 100);
    printf("lost per save      %.1f ms in the background, %.1f ms at once\n",
           lost[1] * 1e3, lost[0] * 1e3);
    return 0;
}
