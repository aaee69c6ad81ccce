/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the bootstrap; one rank per process: srun -n64 --overcommit --mpi=pmix
 * bench_boot. Prints the median and the maximum over the ranks of each phase, in
 * milliseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "tests/bench/median.h"

enum { OPEN, EXCHANGE, COMM, LEAVE, TOTAL, PHASES };

static void print_phases(const double *all, int ranks)
{
    static const char *const names[PHASES] = { "open (PMIx_Init + keys)",
                                               "exchange 240 B", "comm_open", "leave",
                                               "total" };
    double *column = calloc((size_t)ranks, sizeof(*column));

    for (int p = 0; column && p < PHASES; p++) {
        for (int r = 0; r < ranks; r++)
            column[r] = all[r * PHASES + p];
        median_sort(column, ranks);
        printf("%-24s median %8.1f ms  max %8.1f ms\n", names[p], column[ranks / 2],
               column[ranks - 1]);
    }
    free(column);
}

int main(void)
{
    double ms[PHASES];
    int64_t at[PHASES + 1];
    char mine[240] = "";
    struct boot_blobs blobs;
    struct boot b;
    struct comm *c;
    accel_error_t err = { 0 };
    size_t *sizes = NULL;
    void *all = NULL;

    at[0] = clock_ns();
    if (boot_open(&b, 60000, &err) != ACCEL_OK)
        goto fail;
    at[1] = clock_ns();
    if (boot_exchange(&b, mine, sizeof(mine), &blobs, &err) != ACCEL_OK)
        goto fail;
    boot_blobs_free(&blobs);
    at[2] = clock_ns();
    if (comm_open(&c, &b, NULL, &err) != ACCEL_OK)
        goto fail;
    at[3] = clock_ns();
    if (boot_leave(&b, &err) != ACCEL_OK)
        goto fail;
    at[4] = clock_ns();
    for (int p = 0; p < TOTAL; p++)
        ms[p] = (double)(at[p + 1] - at[p]) / 1e6;
    ms[TOTAL] = (double)(at[4] - at[0]) / 1e6;
    sizes = calloc((size_t)b.size, sizeof(*sizes));
    if (!sizes || comm_gather(c, ms, sizeof(ms), 0, &all, sizes, &err) != ACCEL_OK)
        goto fail;
    if (b.rank == 0) {
        printf("# %d ranks, %d nodes, %s, %s\n", b.size, b.nodes, b.method,
               comm_backend(c));
        print_phases(all, b.size);
    }
    free(all);
    free(sizes);
    comm_close(c);
    boot_free(&b);
    return 0;
fail:
    fprintf(stderr, "%s\n", err.text);
    free(sizes);
    return 1;
}
