/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of forked ranks, made by hand. See ranks_world.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_load.h"
#include "backend/device.h"
#include "numbers/floats.h"
#include "tests/world/ranks_world.h"

static int failures;

/* What both forms open: communicators, backend and graph, in accel_open's order. */
static accel_status_t open_world(accel_t *run, struct boot *b, bool device,
                                 accel_error_t *err)
{
    struct comm_options o = { .timeout_ms = HANG_S * 1000 };
    accel_status_t st = comm_open(&run->comm, b, &o, err);

    if (st == ACCEL_OK)
        st = device ? backend_cuda_open(&run->backend, b->rank, err)
                    : backend_cpu_open(&run->backend, 1, err);
    if (st == ACCEL_OK && device && b->size > 1) {
        o.backend = "nccl";
        o.device = run->backend;
        st = comm_open(&run->data, b, &o, err);
    }
    if (st == ACCEL_OK)
        st = graph_open(&run->graph, run->backend, ACCEL_F32, false, err);
    return st;
}

static accel_t *open_run(struct boot *b, bool debug, bool device)
{
    accel_t *run = calloc(1, sizeof(*run));
    accel_error_t err = { 0 };

    failures = 0;
    if (!run)
        return NULL;
    run->boot = *b;
    run->mesh.data.rank = b->rank;
    run->mesh.data.size = b->size;
    run->config.debug = debug;
    run->prepared = true;
    if (open_world(run, b, device, &err) != ACCEL_OK) {
        fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
        free(run);
        return NULL;
    }
    run->graph.run = run;
    return run;
}

accel_t *ranks_open(struct boot *b, bool debug)
{
    return open_run(b, debug, false);
}

accel_t *ranks_open_device(struct boot *b)
{
    return open_run(b, false, true);
}

int ranks_close(accel_t *run)
{
    comm_close(run->data);
    graph_close(&run->graph);
    backend_close(run->backend);
    comm_close(run->comm);
    free(run);
    return failures > 100 ? 100 : failures;
}

struct opened {
    bool debug;
    void (*fn)(accel_t *run, void *arg);
    void *arg;
};

static int opened_rank(struct boot *b, void *arg)
{
    const struct opened *o = arg;
    accel_t *run = ranks_open(b, o->debug);

    if (!run)
        return 1;
    o->fn(run, o->arg);
    return ranks_close(run);
}

int ranks_world(int n, bool debug, void (*fn)(accel_t *run, void *arg), void *arg)
{
    struct opened o = { debug, fn, arg };

    return fork_world(n, opened_rank, &o, HANG_S);
}

bool ranks_check(accel_t *run, bool pass, const char *fmt, ...)
{
    va_list ap;

    if (pass)
        return true;
    failures++;
    fprintf(stderr, "# rank %d of %d: ", run->boot.rank, run->boot.size);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    return false;
}

accel_tensor_t *ranks_tensor(accel_t *run, accel_dtype_t dtype, int64_t n,
                             const int *values)
{
    accel_tensor_t *t = graph_tensor(&run->graph, dtype, 1, &n);
    float one;

    for (int64_t i = 0; t && i < n; i++) {
        one = (float)values[i];
        run->backend->from_host(run->backend, (char *)t->data + i * 4,
                                dtype == ACCEL_I32 ? (const void *)&values[i] : &one,
                                4);
    }
    return t;
}

void ranks_put(void *data, accel_dtype_t dtype, int64_t i, int v)
{
    const size_t bytes = accel_dtype_bytes(dtype);
    char *to = (char *)data + (size_t)i * bytes;
    const double wide = v;
    const float single = (float)v;
    const int64_t whole = v; /* begins with the bytes of a shorter number */

    if (dtype == ACCEL_F32 || dtype == ACCEL_BF16)
        floats_narrow(to, dtype, &single, 1);
    else if (dtype == ACCEL_F64)
        memcpy(to, &wide, bytes);
    else
        memcpy(to, &whole, bytes);
}
