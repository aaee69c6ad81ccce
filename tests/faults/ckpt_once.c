/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt_once save|load DIR STEP RANKS: one save of the known test state, or a load of
 * the newest checkpoint that must be STEP. Prints the error; exits with its code.
 * Driven by shell tests and by the fault shim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/ckpt_world.h"

int main(int argc, char **argv)
{
    accel_error_t err = { 0 };
    accel_status_t s;
    struct world w;
    int64_t step;
    int ranks, bad;

    if (argc != 5)
        return 64;
    step = atoll(argv[3]);
    ranks = atoi(argv[4]);
    if (ranks < 1 || ranks > WORLD_MAX)
        return 64;
    if (strcmp(argv[1], "load") == 0) {
        int64_t found = world_load_newest(argv[2], 0, ranks, &err);

        printf("step %lld %s %s\n", (long long)found, err.where, err.text);
        return found != step;
    }
    world_start(&w, ranks);
    s = world_save(&w, argv[2], step, 3, &err);
    if (s && w.rank == 0)
        fprintf(stderr, "%s: %s (%s)\n", err.where, err.text, err.hint);
    bad = world_end(&w, s ? accel_exit_code(s) : 0);
    return s ? accel_exit_code(s) : bad;
}
