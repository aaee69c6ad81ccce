/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the collectives; one rank per process, started by srun or mpirun. Bytes are
 * those of the whole buffer (all_gather output, reduce_scatter input). Prints the
 * minimum and the median over the repeats of the slowest rank's time, and memcpy's
 * speed in the same run.
 *   bench_comm [--backend NAME] [--memory window|private] [--bytes N | --max N]
 *              [--repeats N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "tests/bench/median.h"

struct bench {
    struct comm *c;
    char *buf;
    float *out;
    size_t elems; /* float32 of the whole buffer */
};

static accel_status_t run_all_gather(struct bench *b, accel_error_t *err)
{
    return comm_all_gather(b->c, b->buf, b->elems / (size_t)comm_size(b->c), ACCEL_F32,
                           err);
}

static accel_status_t run_reduce_scatter(struct bench *b, accel_error_t *err)
{
    return comm_reduce_scatter(b->c, b->buf, b->out, b->elems / (size_t)comm_size(b->c),
                               ACCEL_F32, 1.0f, false, err);
}

static accel_status_t run_all_reduce(struct bench *b, accel_error_t *err)
{
    return comm_all_reduce(b->c, b->buf, b->elems, ACCEL_F32, COMM_MAX, err);
}

static accel_status_t run_all_reduce_sum(struct bench *b, accel_error_t *err)
{
    return comm_all_reduce(b->c, b->buf, b->elems, ACCEL_F32, COMM_SUM, err);
}

static const struct {
    const char *name;
    accel_status_t (*run)(struct bench *b, accel_error_t *err);
} ops[] = {
    { "all_gather", run_all_gather },
    { "reduce_scatter", run_reduce_scatter },
    { "all_reduce", run_all_reduce_sum },
    { "all_reduce_max", run_all_reduce },
};

/* Each repeat: a barrier, `batch` calls, the slowest rank's time per call. */
static accel_status_t measure(struct bench *b, size_t op, int repeats, double *us,
                              accel_error_t *err)
{
    int batch = b->elems * 4 <= 65536 ? 50 : b->elems * 4 <= 1 << 20 ? 10 : 1;
    accel_status_t s = ACCEL_OK;

    for (int k = -2; s == ACCEL_OK && k < repeats; k++) {
        double t;
        int64_t start;

        memset(b->buf, 1, b->elems * 4 < 4096 ? b->elems * 4 : 4096);
        s = comm_barrier(b->c, err);
        start = clock_ns();
        for (int i = 0; s == ACCEL_OK && i < batch; i++)
            s = ops[op].run(b, err);
        t = (double)(clock_ns() - start) / 1e3 / batch;
        if (s == ACCEL_OK)
            s = comm_all_reduce(b->c, &t, 1, ACCEL_F64, COMM_MAX, err);
        if (k >= 0)
            us[k] = t;
    }
    median_sort(us, repeats);
    return s;
}

/* GB/s read plus written, one thread, while the other ranks wait. */
static double memcpy_speed(struct bench *b, size_t bytes)
{
    double best = 0;

    for (int k = 0; k < 5; k++) {
        int64_t start = clock_ns();
        double speed;

        memcpy(b->buf, b->buf + bytes, bytes);
        speed = 2.0 * (double)bytes / (double)(clock_ns() - start);
        best = speed > best ? speed : best;
    }
    return best;
}

static int report(struct bench *b, size_t only, size_t max, int repeats)
{
    double *us = calloc((size_t)repeats, sizeof(*us));
    accel_error_t err = { 0 };
    accel_status_t s = ACCEL_OK;

    if (!us)
        return 1;
    for (size_t bytes = 1024; s == ACCEL_OK && bytes <= max; bytes *= 4) {
        if (only && bytes != only && bytes * 4 > only && bytes < only)
            bytes = only;
        if (only && bytes != only)
            continue;
        b->elems = bytes / 4;
        for (size_t op = 0; s == ACCEL_OK && op < ACCEL_ARRAY_SIZE(ops); op++) {
            s = measure(b, op, repeats, us, &err);
            if (s == ACCEL_OK && comm_rank(b->c) == 0)
                printf("%-15s %9zu %10.1f %10.1f %8.2f\n", ops[op].name, bytes, us[0],
                       us[repeats / 2], (double)bytes / us[repeats / 2] / 1e3);
            fflush(stdout);
        }
    }
    free(us);
    if (s != ACCEL_OK)
        fprintf(stderr, "%s\n", err.text);
    return s != ACCEL_OK;
}

static const char *argument(int argc, char **argv, const char *name,
                            const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv)
{
    struct comm_options o = { .backend = argument(argc, argv, "--backend", NULL) };
    bool window = strcmp(argument(argc, argv, "--memory", "window"), "window") == 0;
    size_t only = strtoul(argument(argc, argv, "--bytes", "0"), NULL, 10);
    size_t max = strtoul(argument(argc, argv, "--max", "67108864"), NULL, 10);
    int repeats = atoi(argument(argc, argv, "--repeats", "21"));
    const size_t room = (size_t)64 << 20;
    accel_error_t err = { 0 };
    struct bench b = { 0 };
    struct boot boot;
    void *p = NULL, *q = NULL;
    double speed;
    int rc;

    if (repeats < 1 || boot_open(&boot, 60000, &err) != ACCEL_OK ||
        comm_open(&b.c, &boot, &o, &err) != ACCEL_OK ||
        boot_leave(&boot, &err) != ACCEL_OK ||
        (window && (comm_alloc(b.c, MEMORY_WORK, room, &p, &err) != ACCEL_OK ||
                    comm_alloc(b.c, MEMORY_WORK, room, &q, &err) != ACCEL_OK))) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    b.buf = window ? p : calloc(1, room);
    b.out = window ? q : calloc(1, room);
    if (!b.buf || !b.out)
        return 1;
    memset(b.buf, 1, room); /* not 0: every page must be there */
    memset(b.out, 1, room);
    comm_barrier(b.c, &err);
    speed = comm_rank(b.c) == 0 ? memcpy_speed(&b, room / 2) : 0;
    comm_barrier(b.c, &err);
    if (comm_rank(b.c) == 0)
        printf("# %d ranks, %s, %s memory, memcpy %.1f GB/s (read + write, one rank)\n"
               "# op                bytes     min us  median us     GB/s\n",
               comm_size(b.c), comm_backend(b.c), window ? "window" : "private", speed);
    rc = report(&b, only, max < room ? max : room, repeats);
    comm_close(b.c);
    boot_free(&boot);
    if (!window) {
        free(b.buf);
        free(b.out);
    }
    return rc;
}
