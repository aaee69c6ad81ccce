/* SPDX-License-Identifier: Apache-2.0
 *
 * powersgd_peer: five steps of PowerSGD on two forked ranks, layer by layer or (argument
 * `batched`) as one square, for the test beside torch. Prints what a step leaves of the
 * gradients, a line per step: a vector of 4, then a matrix [12, 9].
 */
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"
#include "powersgd/powersgd.h"
#include "tests/world/fork_world.h"

enum { STEPS = 5, ALL = 4 + 12 * 9, RANKS = 2 };

/* The sequence that the script has, too. */
static float sequence(uint32_t stream, uint32_t i)
{
    uint32_t x = stream * 1000003u + i * 7919u + 12345u;

    for (int k = 0; k < 3; k++)
        x = x * 1664525u + 1013904223u;
    return (float)((double)(x >> 8) / 8388608.0 - 1.0);
}

static accel_status_t add_by_comm(void *user, float *x, int64_t n, accel_error_t *err)
{
    return comm_all_reduce(user, x, (size_t)n, ACCEL_F32, COMM_SUM, err);
}

static accel_status_t steps(struct powersgd *s, struct comm *c, uint32_t rank,
                            accel_error_t *err)
{
    const struct powersgd_peers peers = { RANKS, add_by_comm, c };
    const struct powersgd_state state = powersgd_state_of(s);
    accel_status_t st = ACCEL_OK;
    float g[ALL];

    for (uint32_t k = 0; k < state.rights; k++)
        state.right[k] = sequence(7, k);
    for (uint32_t t = 0; t < STEPS && st == ACCEL_OK; t++) {
        for (uint32_t i = 0; i < ALL; i++)
            g[i] = sequence(200 + t + 100 * rank, i);
        st = powersgd_reduce(s, g, t, &peers, err);
        for (int i = 0; i < ALL && rank == 0; i++)
            printf("%.9g%c", (double)g[i], i + 1 < ALL ? ' ' : '\n');
    }
    fflush(stdout);
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    static const struct powersgd_shape shapes[] = { { 4, 1, 0 }, { 12, 9, 0 } };
    struct backend *be = NULL;
    struct powersgd *s = NULL;
    struct comm *c = NULL;
    accel_error_t err = { 0 };
    accel_status_t st = backend_cpu_open(&be, 1, &err);

    if (st == ACCEL_OK)
        st = comm_open(&c, b, NULL, &err);
    if (st == ACCEL_OK)
        st = powersgd_open(&s, be, arg, 0, shapes, 2, &err);
    if (st == ACCEL_OK)
        st = steps(s, c, (uint32_t)b->rank, &err);
    if (st != ACCEL_OK)
        fprintf(stderr, "rank %d: %s\n", b->rank, err.text);
    powersgd_close(s);
    comm_close(c);
    backend_close(be);
    return st != ACCEL_OK;
}

int main(int argc, char **argv)
{
    accel_powersgd_t rule = { .rank = 2,
                              .start = -1,
                              .batched = argc > 1 && !strcmp(argv[1], "batched") };

    return fork_world(RANKS, rank_main, &rule, HANG_S) != 0;
}
