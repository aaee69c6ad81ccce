/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps recorded and launched as graphs give the bits of steps run call by call: over
 * several queues, with scratch, with arguments that change, and when the host waits in
 * the middle. The stand-in counts what was recorded and launched.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_load.h"
#include "tests/tap.h"
#include "tests/unit/cuda_counts.h"
#include "tests/world/cuda_device.h"
#include "tests/unit/cuda_rig.h"

enum { N = 24, ELEMS = N * N, STEPS = 6 };

/* What a step works on; x grows from step to step. */
struct work {
    struct backend *be;
    void *x, *weight, *y, *gathered, *total;
    struct backend_event *moved, *used;
    int steps;
};

static void *device_array(struct backend *be, const float *values)
{
    void *p = NULL;

    if (be->alloc(be, MEMORY_BUFFERS, ELEMS * sizeof(float), &p, NULL))
        exit(1);
    if (values)
        be->from_host(be, p, values, ELEMS * sizeof(float));
    return p;
}

static void work_open(struct work *w, struct backend *be)
{
    float x[ELEMS], weight[ELEMS];

    for (int i = 0; i < ELEMS; i++) {
        x[i] = (float)(i % 17 - 8) / 16.0f;
        weight[i] = (float)(i % 23 - 11) / 64.0f;
    }
    *w = (struct work){ .be = be,
                        .x = device_array(be, x),
                        .weight = device_array(be, weight),
                        .y = device_array(be, NULL),
                        .gathered = device_array(be, NULL),
                        .total = device_array(be, NULL),
                        .moved = be->event_new(be),
                        .used = be->event_new(be) };
}

static void work_close(struct work *w)
{
    struct backend *be = w->be;

    be->event_free(be, w->moved);
    be->event_free(be, w->used);
    be->free(be, w->x);
    be->free(be, w->weight);
    be->free(be, w->y);
    be->free(be, w->gathered);
    be->free(be, w->total);
}

/* The weights cross on another queue, which waits until the step before has used
 * them. */
static void gather(struct work *w)
{
    struct backend *be = w->be;

    be->wait(be, QUEUE_GATHER, w->used);
    be->use(be, QUEUE_GATHER);
    be->copy(be, w->gathered, w->weight, ELEMS * sizeof(float));
    be->record(be, w->moved, QUEUE_GATHER);
    be->use(be, QUEUE_COMPUTE);
    be->wait(be, QUEUE_COMPUTE, w->moved);
}

/* bfloat16 results need float32 scratch; `by` is an argument that changes. */
static void step(struct work *w, float *middle)
{
    struct backend *be = w->be;
    struct gemm p = { .m = N, .n = N, .k = N, .lda = N, .ldb = N, .ldc = N };

    be->step_begin(be);
    gather(w);
    p.a = w->x;
    p.b = w->gathered;
    p.c = w->y;
    p.c_type = ACCEL_BF16;
    p.act = ACCEL_ACT_SILU;
    be->gemm(be, &p);
    be->record(be, w->used, QUEUE_COMPUTE);
    if (middle)
        be->to_host(be, middle, w->y, ACCEL_BF16, ELEMS);
    be->cast(be, w->total, ACCEL_F32, true, w->y, ACCEL_BF16, ELEMS);
    be->scale(be, w->weight, ELEMS, 1.0f + 0.25f * (float)++w->steps);
    be->step_end(be);
}

static void read_back(struct work *w, float *total, float *weight)
{
    w->be->to_host(w->be, total, w->total, ACCEL_F32, ELEMS);
    w->be->to_host(w->be, weight, w->weight, ACCEL_F32, ELEMS);
}

static bool equal(struct work *a, struct work *b)
{
    float total[2][ELEMS], weight[2][ELEMS];

    read_back(a, total[0], weight[0]);
    read_back(b, total[1], weight[1]);
    return !memcmp(total[0], total[1], sizeof(total[0])) &&
           !memcmp(weight[0], weight[1], sizeof(weight[0])) && total[0][1] != 0.0f;
}

static void test_steps(struct work *with, struct work *without)
{
    const struct fakecuda_counts begin = counted(NULL);
    struct fakecuda_counts late, all;

    for (int i = 0; i < STEPS; i++) {
        if (i == 3)
            late = counted(NULL);
        step(with, NULL);
    }
    all = counted(&begin);
    late = counted(&late);
    is_count(all.captures, STEPS - 1, "every step but the first recorded");
    is_count(all.graph_launches, STEPS - 1, "and launched");
    is_count(all.instantiations, 1, "one graph is built");
    is_count(all.graph_updates, STEPS - 2, "and updated from then on");
    is_count(late.mallocs, 0, "scratch of the step before is used again");
    is_count(all.host_waits, 0, "the host waits for nothing");
    for (int i = 0; i < STEPS; i++)
        step(without, NULL);
    is_count(counted(&begin).captures, STEPS - 1, "ACCEL_CUDA_GRAPHS=0: none recorded");
    tap_ok(equal(with, without), "the same bits with graphs and without");
}

/* The stand-in copies when somebody waits for it: behind a step that is recorded, whose
 * queues meet, nobody has. */
static void test_save(struct work *with)
{
    const size_t bytes = ELEMS * sizeof(float);
    struct backend *be = with->be;
    float *saved = be->host_alloc(be, bytes), first;

    be->use(be, QUEUE_SAVE);
    be->copy(be, saved, with->x, bytes);
    be->use(be, QUEUE_COMPUTE);
    step(with, NULL);
    be->to_host(be, &first, with->total, ACCEL_F32, 1);
    is_count(saved[0] == 0.0f, 1, "a step does not wait for what a checkpoint copies");
    tap_is_int(be->sync(be, NULL), ACCEL_OK, "who waits for all queues does");
    tap_ok(saved[0] == -0.5f, "and has the copy: %g", (double)saved[0]);
    be->host_free(be, saved, bytes);
}

/* What is read in the middle is there; after some such steps no more are recorded. */
static void test_middle(struct work *with, struct work *without)
{
    const struct fakecuda_counts begin = counted(NULL);
    float a[ELEMS], b[ELEMS];
    bool same = true;

    for (int i = 0; i < STEPS; i++) {
        memset(a, 0, sizeof(a));
        step(with, a);
        step(without, b);
        same = same && !memcmp(a, b, sizeof(a));
    }
    tap_ok(same, "values read in the middle of a step");
    tap_ok(equal(with, without), "and the rest of it");
    is_count(counted(&begin).captures, 3,
             "steps that always end early are not recorded for ever");
}

static void test_native(struct work *with)
{
    const struct fakecuda_counts begin = counted(NULL);

    step(with, NULL);
    step(with, NULL);
    is_count(counted(&begin).captures, 1, "a second run records");
    tap_ok(with->be->native(with->be, QUEUE_COMPUTE) != NULL, "a queue is handed out");
    step(with, NULL);
    is_count(counted(&begin).captures, 1,
             "whoever has a queue's handle may wait for it: no more recordings");
}

int main(void)
{
    struct backend *other = NULL, *third = NULL;
    struct work with, without, handed;
    struct cuda_rig rig;

    cuda_rig_open(&rig);
    work_open(&with, rig.device);
    if (backend_cuda_open(&third, 0, NULL))
        return 1;
    setenv("ACCEL_CUDA_GRAPHS", "0", 1);
    if (backend_cuda_open(&other, 0, NULL))
        return 1;
    work_open(&without, other);
    work_open(&handed, third);
    test_steps(&with, &without);
    test_save(&with);
    step(&without, NULL);
    test_middle(&with, &without);
    test_native(&handed);
    work_close(&with);
    work_close(&without);
    work_close(&handed);
    backend_close(other);
    backend_close(third);
    cuda_rig_close(&rig);
    is_count(counted(NULL).alive, 0, "what is closed leaves nothing on the device");
    return tap_done();
}
