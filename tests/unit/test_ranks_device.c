/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls between ranks with tensors on devices, one for each of 1 to 3 forked ranks: the
 * values of the same calls in host memory, and one error where shapes differ, which NCCL
 * by itself would not find. With stand-ins for driver, toolkit and NCCL; on one rank
 * with the GPU where ACCEL_CUDA_MODULE names the module for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"
#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/world/ranks_world.h"

enum { ROWS = 3, COLS = 5, ELEMS = ROWS * COLS, MOST = 4 * ELEMS };

static const accel_dtype_t dtypes[] = { ACCEL_F32, ACCEL_BF16, ACCEL_I32, ACCEL_U8,
                                        ACCEL_F64, ACCEL_I64,  ACCEL_I8 };

/* This rank's values, [ROWS, COLS]: small whole numbers, which every dtype holds. */
static void make_values(const accel_t *run, accel_dtype_t t, void *host)
{
    for (int i = 0; i < ELEMS; i++)
        ranks_put(host, t, i, 10 * run->boot.rank + i);
}

/* The tensor has the shape and the bytes of the array. */
static void check_same(accel_t *run, const accel_tensor_t *t, const accel_array_t *a,
                       const char *what, const accel_error_t *err)
{
    char host[MOST * 8];
    accel_error_t e = { 0 };
    bool same;

    if (!ranks_check(run, t && t->ndim == a->ndim && t->elems <= MOST, "%s: %s", what,
                     err->text))
        return;
    same = !memcmp(t->dim, a->dims, (size_t)t->ndim * sizeof(*t->dim));
    run->backend->to_host_bytes(run->backend, host, t->data,
                                (size_t)t->elems * accel_dtype_bytes(t->dtype));
    ranks_check(
        run,
        same && !run->backend->check(run->backend, &e) &&
            !memcmp(host, a->data, (size_t)t->elems * accel_dtype_bytes(t->dtype)),
        "%s of %s %s", what, accel_dtype_name(t->dtype), e.text);
}

/* Every call on the device and in host memory. */
static void every_call(accel_t *run, accel_dtype_t t)
{
    int64_t dims[2] = { ROWS, COLS };
    char host[ELEMS * 8], to[MOST * 8];
    accel_array_t mine = { t, 2, { ROWS, COLS }, ELEMS, host }, got;
    accel_tensor_t *x = graph_tensor(&run->graph, t, 2, dims), *y;
    accel_batch_end_t end = { .counted = 1, .count = 1 + run->boot.rank % ROWS };
    bool whole = t == ACCEL_I32 || t == ACCEL_U8 || t == ACCEL_I64 || t == ACCEL_I8;
    accel_error_t err = { 0 };

    make_values(run, t, host);
    run->backend->from_host(run->backend, x->data, host, ELEMS * accel_dtype_bytes(t));
    got = (accel_array_t){ .elems = MOST, .data = to };
    accel_gather_array(run, &mine, &got, &err);
    y = accel_gather(run, x, &err);
    check_same(run, y, &got, "gather", &err);
    got = (accel_array_t){ .elems = MOST, .data = to };
    accel_gather_for_metrics_array(run, &mine, &end, &got, &err);
    check_same(run, accel_gather_for_metrics(run, x, &end, &err), &got, "metrics",
               &err);
    got = (accel_array_t){ .elems = MOST, .data = to };
    accel_pad_across_ranks_array(run, &mine, 0, 7, 1, &got, &err);
    check_same(run, accel_pad_across_ranks(run, x, 0, 7, 1, &err), &got, "pad", &err);
    mine.dims[0] = run->boot.rank % 2 + 1;
    got = (accel_array_t){ .elems = MOST, .data = to };
    accel_pad_across_ranks_array(run, &mine, 0, 7, 1, &got, &err);
    y = graph_view(&run->graph, x, 2, mine.dims);
    check_same(run, accel_pad_across_ranks(run, y, 0, 7, 1, &err), &got, "pad", &err);
    mine.dims[0] = ROWS;
    accel_broadcast_array(run, &mine, run->boot.size - 1, &err);
    y = accel_broadcast(run, x, run->boot.size - 1, &err);
    check_same(run, y, &mine, "broadcast", &err);
    for (int how = 0; how <= ACCEL_REDUCE_MAX; how++)
        if (how != ACCEL_REDUCE_MEAN || !whole) {
            double scale = whole ? 1 : 0.5;

            make_values(run, t, host);
            accel_reduce_array(run, &mine, (accel_reduction_t)how, scale, &err);
            y = accel_reduce(run, x, (accel_reduction_t)how, scale, &err);
            check_same(run, y, &mine, "reduction", &err);
        }
    graph_reset(&run->graph);
}

static int device_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open_device(b);
    static const int values[4] = { 1, 2, 3, 4 };
    accel_error_t err = { 0 };
    accel_tensor_t *x;

    (void)arg;
    if (!run)
        return 1;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(dtypes); i++)
        every_call(run, dtypes[i]);
    x = ranks_tensor(run, ACCEL_F32, b->rank == 1 ? 3 : 4, values);
    if (b->size > 1)
        ranks_check(run,
                    !accel_gather(run, x, &err) && err.code == ACCEL_EMISMATCH &&
                        strstr(err.text, "rank 1: accel_gather of float32 [3]"),
                    "shapes: %s", err.text);
    ranks_check(run, !accel_barrier(run, &err) && run->status == ACCEL_OK,
                "the run goes on: %s", err.text);
    return ranks_close(run);
}

int main(void)
{
    const char *module = getenv("ACCEL_CUDA_MODULE");
    bool stand_in = !module || !strcmp(module, CUDA_STANDIN);

    setenv("OMP_NUM_THREADS", "1", 1);
    if (stand_in) {
        if (access(CUDA_STANDIN, R_OK))
            tap_skip_all("no C++ compiler: the stand-in for CUDA is not built");
        setenv("ACCEL_CUDA_MODULE", CUDA_STANDIN, 1);
        setenv("FAKE_CUDA_DEVICES", "4", 1);
        unsetenv("CUDA_VISIBLE_DEVICES");
        setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
        unsetenv("FAKE_NCCL");
    }
    /* Not asked of CUDA here: a process that has must not fork. */
    if (!stand_in && access(module, R_OK))
        tap_skip_all("the CUDA module of ACCEL_CUDA_MODULE does not exist");
    if (!stand_in && access("/dev/nvidiactl", F_OK))
        tap_skip_all("no NVIDIA driver here");
    for (int n = 1; n <= (stand_in ? 3 : 1); n++)
        tap_is_int(fork_world(n, device_rank, NULL, HANG_S), 0,
                   "%d ranks with a device each", n);
    return tap_done();
}
