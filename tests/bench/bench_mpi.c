/* SPDX-License-Identifier: Apache-2.0
 *
 * The same table as bench_comm for an MPI library; compiled by comm_vs_mpi.sh with
 * mpicc, no part of the normal build.
 *   bench_mpi [REPEATS [MAX_BYTES]]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "median.h"

static char *buf, *out;
static int ranks, *counts;

static void run(int op, int elems)
{
    int part = elems / ranks;

    if (op == 0) {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, buf, part, MPI_FLOAT, MPI_COMM_WORLD);
    } else if (op == 1) {
        for (int r = 0; r < ranks; r++)
            counts[r] = part;
        MPI_Reduce_scatter(buf, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Allreduce(MPI_IN_PLACE, buf, elems, MPI_FLOAT, op == 2 ? MPI_SUM : MPI_MAX,
                      MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "all_gather", "reduce_scatter", "all_reduce",
                                         "all_reduce_max" };
    const size_t room = (size_t)64 << 20;
    size_t max = argc > 2 ? strtoul(argv[2], NULL, 10) : room;
    int repeats = argc > 1 ? atoi(argv[1]) : 21, rank;
    double *us = calloc((size_t)repeats, sizeof(*us));

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    buf = malloc(room);
    out = malloc(room);
    counts = calloc((size_t)ranks, sizeof(*counts));
    /* Not 0: the compiler would make that calloc, and no page would be there. */
    memset(buf, 1, room);
    memset(out, 1, room);
    if (rank == 0)
        printf("# %d ranks, MPI\n# op                bytes     min us  median us     "
               "GB/s\n",
               ranks);
    for (size_t bytes = 1024; bytes <= max && bytes <= room; bytes *= 4)
        for (int op = 0; op < 4; op++) {
            int batch = bytes <= 65536 ? 50 : bytes <= 1 << 20 ? 10 : 1;

            for (int k = -2; k < repeats; k++) {
                double t;

                MPI_Barrier(MPI_COMM_WORLD);
                t = MPI_Wtime();
                for (int i = 0; i < batch; i++)
                    run(op, (int)(bytes / 4));
                t = (MPI_Wtime() - t) * 1e6 / batch;
                MPI_Allreduce(MPI_IN_PLACE, &t, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
                if (k >= 0)
                    us[k] = t;
            }
            median_sort(us, repeats);
            if (rank == 0)
                printf("%-15s %9zu %10.1f %10.1f %8.2f\n", names[op], bytes, us[0],
                       us[repeats / 2], (double)bytes / us[repeats / 2] / 1e3);
        }
    MPI_Finalize();
    free(counts);
    free(out);
    free(buf);
    free(us);
    return 0;
}
