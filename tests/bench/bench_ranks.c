/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the small calls between ranks of one node: an agreement where all are well and
 * where one failed, a sign, a barrier, and a gather with and without debug. Prints the
 * median and the fastest of the calls on rank 0, in microseconds, on 2 and 4 forked
 * ranks.
 *   bench_ranks [CALLS]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/median.h"
#include "tests/world/ranks_world.h"

static int calls = 2000;

enum timed { AGREE, AGREE_FAILED, TRIGGER, BARRIER, GATHER, GATHER_DEBUG, TIMED };

static const char *const names[TIMED] = {
    "agreement, all well", "agreement, one failed", "trigger check", "barrier",
    "gather of 64",        "gather of 64, debug"
};

static accel_status_t one_call(accel_t *run, enum timed what)
{
    float own[64] = { 0 }, all[4 * 64];
    accel_array_t mine = { ACCEL_F32, 1, { 64 }, 64, own };
    accel_array_t to = { .elems = 4 * 64, .data = all };
    accel_error_t err = { 0 };
    accel_status_t st;

    switch (what) {
    case AGREE:
        return accel_agree(run, ACCEL_OK, &err);
    case AGREE_FAILED:
        st = accel_agree(run, run->boot.rank == 1 ? ACCEL_EIO : ACCEL_OK, &err);
        return st == ACCEL_EIO ? ACCEL_OK : ACCEL_EBUG;
    case TRIGGER:
        return accel_trigger_check(run, NULL, &err);
    case BARRIER:
        return accel_barrier(run, &err);
    default:
        run->config.debug = what == GATHER_DEBUG;
        return accel_gather_array(run, &mine, &to, &err);
    }
}

/* Each rank on a core of its own, as in a run: two that spin on one core would wait for
 * each other's turn. */
static void bind_rank(int rank)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)(rank % (cores > 0 ? cores : 1)), &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static int bench_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);
    double *us = calloc((size_t)calls, sizeof(*us));

    (void)arg;
    if (!run || !us)
        return 1;
    bind_rank(b->rank);
    for (int what = 0; what < TIMED; what++) {
        for (int i = 0; i < calls; i++) {
            int64_t from = clock_ns();

            if (one_call(run, (enum timed)what) != ACCEL_OK)
                return 1;
            us[i] = (double)(clock_ns() - from) / 1e3;
        }
        median_sort(us, calls);
        if (b->rank == 0)
            printf("%d ranks  %-22s median %8.1f us  fastest %6.1f us\n", b->size,
                   names[what], us[calls / 2], us[0]);
    }
    fflush(stdout);
    free(us);
    return ranks_close(run);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        calls = atoi(argv[1]);
    if (calls < 1)
        return 64;
    return fork_world(2, bench_rank, NULL, 300) || fork_world(4, bench_rank, NULL, 300);
}
