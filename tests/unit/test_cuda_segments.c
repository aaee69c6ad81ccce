/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps whose queues are lent to collectives are recorded in segments around them: the
 * bits of steps run call by call, in whatever order the queues run; the device is given
 * everything in the program's order; small segments are not recorded; one whose shape
 * changes is built again. The stand-in counts what was recorded and launched.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_load.h"
#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/unit/cuda_counts.h"
#include "tests/world/cuda_device.h"

enum { ELEMS = 64, UNITS = 3, SLOTS = 2, LONG = 10, SHORT = 2, WARM = 4 };

static void (*fake_reset)(void); /* NULL: a GPU */

/* Units are gathered into slots, computed with and reduced, as where they are
 * sharded. */
struct work {
    struct backend *be;
    float *weight[UNITS], *slot[SLOTS], *total, *sum;
    struct backend_event *ready[SLOTS], *read[SLOTS], *computed, *reduced;
    int ops[UNITS];     /* of a unit */
    bool copies;        /* one of the first unit's kernels is a copy */
    bool reads;         /* the host reads the total in mid-step */
    float middle;       /* what it read */
    uint64_t graphs[8]; /* launched when collective i of the step is made */
    int lent, steps;
};

static void work_open(struct work *w, bool graphs)
{
    accel_error_t err = { .text = "" };

    *w = (struct work){ .ops = { LONG, LONG, LONG } };
    setenv(ENV_CUDA_GRAPHS, graphs ? "1" : "0", 1);
    if (backend_cuda_open(&w->be, 0, &err)) {
        tap_ok(false, "the device opens: %s", err.text);
        exit(tap_done());
    }
    for (int u = 0; u < UNITS; u++)
        w->weight[u] = cuda_device_array(w->be, ELEMS, (float)(u + 1));
    for (int i = 0; i < SLOTS; i++) {
        w->slot[i] = cuda_device_array(w->be, ELEMS, 100.0f);
        w->ready[i] = w->be->event_new(w->be);
        w->read[i] = w->be->event_new(w->be);
    }
    w->total = cuda_device_array(w->be, ELEMS, 0.0f);
    w->sum = cuda_device_array(w->be, ELEMS, 0.0f);
    w->computed = w->be->event_new(w->be);
    w->reduced = w->be->event_new(w->be);
    w->be->lend(w->be, QUEUE_GATHER); /* as a communicator does when it is opened */
}

static void work_close(struct work *w)
{
    struct backend *be = w->be;
    accel_error_t err = { .text = "" };

    tap_ok(!be->sync(be, &err), "no call failed %s", err.text);
    for (int u = 0; u < UNITS; u++)
        be->free(be, w->weight[u]);
    for (int i = 0; i < SLOTS; i++) {
        be->free(be, w->slot[i]);
        be->event_free(be, w->ready[i]);
        be->event_free(be, w->read[i]);
    }
    be->free(be, w->total);
    be->free(be, w->sum);
    be->event_free(be, w->computed);
    be->event_free(be, w->reduced);
    backend_close(be);
}

/* A collective of one rank: a copy, by the lent queue. */
static void collective(struct work *w, enum backend_queue q, float *to,
                       const float *from)
{
    const struct backend *be = w->be;

    be->use(be, q);
    if (!be->lend(be, q))
        exit(1);
    w->graphs[w->lent++] = counted(NULL).graph_launches;
    be->copy(be, to, from, ELEMS * sizeof(float));
}

static void gather(struct work *w, int unit)
{
    const struct backend *be = w->be;
    const int i = unit % SLOTS;

    be->wait(be, QUEUE_GATHER, w->read[i]);
    collective(w, QUEUE_GATHER, w->slot[i], w->weight[unit]);
    be->record(be, w->ready[i], QUEUE_GATHER);
    be->use(be, QUEUE_COMPUTE);
    be->wait(be, QUEUE_COMPUTE, w->ready[i]);
}

/* Two kernels an op. */
static void compute(struct work *w, int unit)
{
    const struct backend *be = w->be;
    const int i = unit % SLOTS;

    for (int op = 0; op < w->ops[unit]; op++) {
        be->mark(be, &(struct backend_mark){ .op = "add", .path = "unit" });
        be->cast(be, w->total, ACCEL_F32, true, w->slot[i], ACCEL_F32, ELEMS);
        if (w->copies && unit == 0 && op == 0)
            be->copy(be, w->total + 1, w->total, sizeof(float));
        else
            be->scale(be, w->total, ELEMS, 0.5f + 0.01f * (float)w->steps);
    }
    be->record(be, w->read[i], QUEUE_COMPUTE);
}

static void step(struct work *w)
{
    const struct backend *be = w->be;

    w->lent = 0;
    w->steps++;
    be->mark(be, NULL);
    be->step_begin(be);
    for (int u = 0; u < UNITS; u++) {
        gather(w, u);
        compute(w, u);
        if (w->reads && u == 1)
            be->to_host(be, &w->middle, w->total, ACCEL_F32, 1);
    }
    be->record(be, w->computed, QUEUE_COMPUTE);
    be->wait(be, QUEUE_REDUCE, w->computed);
    collective(w, QUEUE_REDUCE, w->sum, w->total);
    be->record(be, w->reduced, QUEUE_REDUCE);
    be->use(be, QUEUE_COMPUTE);
    be->wait(be, QUEUE_COMPUTE, w->reduced);
    be->cast(be, w->weight[0], ACCEL_F32, true, w->sum, ACCEL_F32, ELEMS);
    be->step_end(be);
}

static void steps(struct work *w, int count)
{
    for (int i = 0; i < count; i++)
        step(w);
}

static bool equal(struct work *a, struct work *b)
{
    float x[2][ELEMS];

    a->be->to_host(a->be, x[0], a->weight[0], ACCEL_F32, ELEMS);
    b->be->to_host(b->be, x[1], b->weight[0], ACCEL_F32, ELEMS);
    return !memcmp(x[0], x[1], sizeof(x[0])) && x[0][1] > 3.0f;
}

/* Once small ones are known, a step is a recording per unit, each launched before the
 * next unit is gathered and the last before the reduction. */
static void test_steps(const char *order)
{
    struct fakecuda_counts begin, all;
    struct work with, without;

    setenv("FAKE_CUDA_ORDER", order, 1);
    if (fake_reset) /* reads the order */
        fake_reset();
    work_open(&with, true);
    work_open(&without, false);
    steps(&with, WARM);
    begin = counted(NULL);
    steps(&with, 5);
    all = counted(&begin);
    tap_diag("queues in order %s", order);
    is_count(all.captures, 5 * UNITS, "a recording per unit, none in between");
    is_count(all.graph_launches, 5 * UNITS, "each is launched");
    is_count(all.graph_updates, 5 * UNITS, "and none is built again");
    for (int i = 0; i < with.lent; i++)
        is_count(with.graphs[i] - with.graphs[0], (uint64_t)i,
                 "before a collective the device has what was recorded before it");
    begin = counted(NULL);
    steps(&without, WARM + 5);
    is_count(counted(&begin).captures, 0, ENV_CUDA_GRAPHS "=0: none recorded");
    tap_ok(equal(&with, &without), "the same bits with graphs and without");
    work_close(&with);
    work_close(&without);
}

/* A unit of few kernels is run call by call, until it grows. */
static void test_small(struct work *with, struct work *without)
{
    struct fakecuda_counts begin;

    with->ops[1] = without->ops[1] = SHORT;
    steps(with, WARM);
    begin = counted(NULL);
    step(with);
    is_count(counted(&begin).captures, UNITS - 1, "a small unit is not recorded");
    with->ops[1] = LONG;
    step(with);
    begin = counted(NULL);
    step(with);
    is_count(counted(&begin).captures, UNITS, "once it has grown it is");
    steps(without, WARM + 1);
    without->ops[1] = LONG;
    steps(without, 2);
    tap_ok(equal(with, without), "the same bits");
}

/* Micro-batches that take turns keep a graph each; what cannot be updated is rebuilt. */
static void test_shapes(struct work *with, struct work *without)
{
    struct fakecuda_counts begin;

    for (int i = 0; i < 4; i++) {
        if (i == 2)
            begin = counted(NULL);
        with->ops[2] = without->ops[2] = i % 2 ? LONG + 2 : LONG;
        step(with);
        step(without);
    }
    is_count(counted(&begin).instantiations, 0, "two shapes in turn have a graph each");
    with->ops[2] = without->ops[2] = LONG;
    with->copies = without->copies = true;
    begin = counted(NULL);
    step(with);
    is_count(counted(&begin).instantiations, 1, "another kind of node: built again");
    step(with);
    is_count(counted(&begin).instantiations, 1, "once");
    steps(without, 2);
    tap_ok(equal(with, without), "the same bits");
    with->copies = without->copies = false;
}

/* What the host reads in mid-step is there, and ends the recording of that step; after
 * some such steps in a row no more are recorded. */
static void test_early(struct work *with, struct work *without)
{
    struct fakecuda_counts begin = counted(NULL);

    with->reads = without->reads = true;
    step(with);
    step(without);
    tap_ok(with->middle == without->middle && with->middle > 0.0f,
           "a value read in mid-step");
    is_count(counted(&begin).captures, 2, "nothing behind it is recorded");
    with->reads = without->reads = false;
    begin = counted(NULL);
    step(with);
    is_count(counted(&begin).captures, UNITS, "the next step is");
    with->reads = true;
    steps(with, 3);
    with->reads = false;
    begin = counted(NULL);
    step(with);
    is_count(counted(&begin).captures, 0, "steps that always end early are not");
    steps(without, 5);
    tap_ok(equal(with, without), "the same bits");
}

int main(void)
{
    struct backend *first = cuda_device(); /* loads the stand-in, or not */
    struct work with, without;

    first->close(first);
    cuda_stand_in("fakecuda_reset", &fake_reset);
    test_steps("eager");
    test_steps("7");
    test_steps("lazy");
    work_open(&with, true);
    work_open(&without, false);
    test_small(&with, &without);
    test_shapes(&with, &without);
    test_early(&with, &without);
    work_close(&with);
    work_close(&without);
    return tap_done();
}
