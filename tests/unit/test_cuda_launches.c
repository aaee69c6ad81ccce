/* SPDX-License-Identifier: Apache-2.0
 *
 * A step is launched while it is recorded: a first segment after a few ops, so that the
 * device has work, then longer ones. Copies on other queues cross the segments' ends.
 * The bits are those of steps run call by call, in whatever order the queues run. The
 * stand-in counts what was launched.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_load.h"
#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/unit/cuda_counts.h"
#include "tests/world/cuda_device.h"

enum { N = 8, ELEMS = N * N, SLOTS = 2, UNIT = 10, OPS = 240, WARM = 2, MOST = 8 };

static void (*fake_reset)(void); /* NULL: a GPU */

/* The weights of a unit of ops are gathered while the unit before is computed, the
 * first one's before the step; its result is copied away while the next one is, and one
 * again behind the step. */
struct work {
    struct backend *be;
    float *weight, *saved, *slot[SLOTS], *total[SLOTS], *kept[SLOTS];
    struct backend_event *ready[SLOTS], *read[SLOTS], *computed[SLOTS], *copied[SLOTS];
    struct backend_event *moved;
    int ops, unit, steps;
    bool lends;        /* queues but compute are lent, as to collectives */
    int reads;         /* the host reads a total at this op; 0: at none */
    float middle;      /* what it read */
    int launches;      /* of the step's graphs so far */
    int from[MOST];    /* the op that each launch came before */
    uint64_t launched; /* graphs, when the last op was marked */
};

static void work_open(struct work *w, bool graphs, bool lends)
{
    accel_error_t err = { .text = "" };

    *w = (struct work){ .ops = OPS, .unit = UNIT, .lends = lends };
    setenv(ENV_CUDA_GRAPHS, graphs ? "1" : "0", 1);
    if (backend_cuda_open(&w->be, 0, &err)) {
        tap_ok(false, "the device opens: %s", err.text);
        exit(tap_done());
    }
    w->weight = cuda_device_array(w->be, ELEMS, 1.0f);
    w->saved = cuda_device_array(w->be, ELEMS, 0.0f);
    w->moved = w->be->event_new(w->be);
    for (int i = 0; i < SLOTS; i++) {
        w->slot[i] = cuda_device_array(w->be, ELEMS, 100.0f);
        w->total[i] = cuda_device_array(w->be, ELEMS, 0.0f);
        w->kept[i] = cuda_device_array(w->be, ELEMS, 0.0f);
        w->ready[i] = w->be->event_new(w->be);
        w->read[i] = w->be->event_new(w->be);
        w->computed[i] = w->be->event_new(w->be);
        w->copied[i] = w->be->event_new(w->be);
    }
    if (lends)
        w->be->lend(w->be, QUEUE_GATHER);
}

static void work_close(struct work *w)
{
    struct backend *be = w->be;
    accel_error_t err = { .text = "" };

    tap_ok(!be->sync(be, &err), "no call failed %s", err.text);
    be->free(be, w->weight);
    be->free(be, w->saved);
    be->event_free(be, w->moved);
    for (int i = 0; i < SLOTS; i++) {
        be->free(be, w->slot[i]);
        be->free(be, w->total[i]);
        be->free(be, w->kept[i]);
        be->event_free(be, w->ready[i]);
        be->event_free(be, w->read[i]);
        be->event_free(be, w->computed[i]);
        be->event_free(be, w->copied[i]);
    }
    backend_close(be);
}

/* A copy by another queue, once `after` is reached. */
static void move(struct work *w, enum backend_queue q, struct backend_event *after,
                 float *to, const float *from, struct backend_event *done)
{
    const struct backend *be = w->be;

    be->wait(be, q, after);
    be->use(be, q);
    be->copy(be, to, from, ELEMS * sizeof(float));
    be->record(be, done, q);
    be->use(be, QUEUE_COMPUTE);
}

static void gather(struct work *w, int i)
{
    move(w, QUEUE_GATHER, w->read[i], w->slot[i], w->weight, w->ready[i]);
}

/* Says that an op begins, and notes whether that launched a graph. */
static void mark(struct work *w, int op)
{
    w->be->mark(w->be, &(struct backend_mark){ .op = "add", .path = "unit" });
    if (counted(NULL).graph_launches > w->launched && w->launches < MOST)
        w->from[w->launches++] = op;
    w->launched = counted(NULL).graph_launches;
}

/* A product with bfloat16 results, which needs scratch. */
static void product(struct work *w, int i)
{
    struct gemm p = { .m = N, .n = N, .k = N, .lda = N, .ldb = N, .ldc = N };

    p.a = w->slot[i];
    p.b = w->weight;
    p.c = w->kept[i];
    p.c_type = ACCEL_BF16;
    p.act = ACCEL_ACT_SILU;
    w->be->gemm(w->be, &p);
    w->be->cast(w->be, w->total[i], ACCEL_F32, true, w->kept[i], ACCEL_BF16, ELEMS);
}

static void compute(struct work *w, int op, int i)
{
    const struct backend *be = w->be;

    if (op % w->unit == 1)
        product(w, i);
    be->cast(be, w->total[i], ACCEL_F32, true, w->slot[i], ACCEL_F32, ELEMS);
    /* near 1: what the first ops did is still seen at the end */
    be->scale(be, w->total[i], ELEMS, 0.97f + 0.001f * (float)(op % 7));
    if (w->reads && op == w->reads)
        be->to_host(be, &w->middle, w->total[i], ACCEL_F32, 1);
}

static void step(struct work *w)
{
    const struct backend *be = w->be;

    w->steps++;
    w->launches = 0;
    w->launched = counted(NULL).graph_launches;
    be->mark(be, NULL);
    gather(w, 0);
    be->step_begin(be);
    for (int op = 0; op < w->ops; op++) {
        const int i = op / w->unit % SLOTS;

        mark(w, op);
        if (op % w->unit == 0) {
            if (op + w->unit < w->ops)
                gather(w, (i + 1) % SLOTS);
            be->wait(be, QUEUE_COMPUTE, w->ready[i]);
            be->wait(be, QUEUE_COMPUTE, w->copied[i]);
        }
        compute(w, op, i);
        if ((op + 1) % w->unit)
            continue;
        be->record(be, w->read[i], QUEUE_COMPUTE);
        be->record(be, w->computed[i], QUEUE_COMPUTE);
        move(w, QUEUE_REDUCE, w->computed[i], w->kept[i], w->total[i], w->copied[i]);
    }
    be->scale(be, w->weight, ELEMS, 1.0f + 0.0625f * (float)(w->steps % 3 - 1));
    be->record(be, w->read[0], QUEUE_COMPUTE); /* the next gather follows that, too */
    be->step_end(be);
    move(w, QUEUE_SAVE, w->copied[0], w->saved, w->kept[0], w->moved);
    be->wait(be, QUEUE_COMPUTE, w->moved);
}

static void steps(struct work *w, int count)
{
    for (int i = 0; i < count; i++)
        step(w);
}

static bool same(struct work *a, const float *of_a, struct work *b, const float *of_b)
{
    float x[2][ELEMS];

    a->be->to_host(a->be, x[0], of_a, ACCEL_F32, ELEMS);
    b->be->to_host(b->be, x[1], of_b, ACCEL_F32, ELEMS);
    return !memcmp(x[0], x[1], sizeof(x[0])) && x[0][1] > 0.1f;
}

/* What the queue of checkpoints copied is read from there first: nothing else was waited
 * for. */
static bool equal(struct work *a, struct work *b)
{
    bool saved;

    a->be->use(a->be, QUEUE_SAVE);
    b->be->use(b->be, QUEUE_SAVE);
    saved = same(a, a->saved, b, b->saved);
    a->be->use(a->be, QUEUE_COMPUTE);
    b->be->use(b->be, QUEUE_COMPUTE);
    return saved && same(a, a->total[1], b, b->total[1]);
}

/* Each segment is as long as all before it, the last ends with the step. */
static void test_steps(const char *order)
{
    struct fakecuda_counts begin, all;
    struct work with, without;

    setenv("FAKE_CUDA_ORDER", order, 1);
    if (fake_reset) /* reads the order */
        fake_reset();
    tap_diag("queues in order %s", order);
    work_open(&with, true, false);
    work_open(&without, false, false);
    steps(&with, WARM);
    begin = counted(NULL);
    steps(&with, 3);
    all = counted(&begin);
    is_count((uint64_t)with.launches, 3, "a step is launched before it is recorded");
    for (int i = 0; i < 3; i++)
        is_count((uint64_t)with.from[i], 32u << i, "each is as long as all before");
    is_count(all.graph_launches, 3 * 4, "the rest of it at its end");
    is_count(all.graph_updates, 3 * 4, "each takes over the graph of the step before");
    is_count(all.instantiations, 0, "none is built again");
    is_count(all.mallocs, 0, "scratch of the step before is used again");
    is_count(all.host_waits, 0, "the host waits for nothing");
    steps(&without, WARM + 3);
    tap_ok(equal(&with, &without), "the same bits with graphs and without");
    work_close(&with);
    work_close(&without);
}

/* No segment has more than 512 ops. */
static void test_long(void)
{
    static const int from[] = { 32, 64, 128, 256, 512, 1024, 1536 };
    const int count = (int)(sizeof(from) / sizeof(from[0]));
    struct work w;

    work_open(&w, true, false);
    w.ops = 1600;
    steps(&w, WARM);
    is_count((uint64_t)w.launches, (uint64_t)count, "a long step");
    for (int i = 0; i < count; i++)
        is_count((uint64_t)w.from[i], (uint64_t)from[i], "has segments of 512 ops");
    work_close(&w);
}

/* What the host reads behind the first segments is there; steps that always end early are
 * not recorded for ever. */
static void test_early(void)
{
    struct work with, without;
    struct fakecuda_counts begin;
    bool read = true;

    work_open(&with, true, false);
    work_open(&without, false, false);
    steps(&with, WARM);
    steps(&without, WARM);
    with.reads = without.reads = 100;
    begin = counted(NULL);
    for (int i = 0; i < 5; i++) {
        step(&with);
        step(&without);
        read = read && with.middle == without.middle && with.middle > 0.0f;
    }
    tap_ok(read, "a value read behind the first segments of a step");
    is_count(counted(&begin).captures, 3 * 3, "three such steps are recorded so far");
    tap_ok(equal(&with, &without), "and the rest of them has the same bits");
    work_close(&with);
    work_close(&without);
}

/* Between two collectives, too, whose calls end segments as well. */
static void test_lent(void)
{
    /* the gather of the next unit is within the first op */
    static const uint64_t from[] = { 33, 66, 120 };
    struct work with, without;
    struct fakecuda_counts begin, all;

    work_open(&with, true, true);
    work_open(&without, false, true);
    with.unit = without.unit = 120;
    steps(&with, WARM + 2); /* until small ones are known */
    begin = counted(NULL);
    steps(&with, 2);
    all = counted(&begin);
    is_count((uint64_t)with.launches, 3, "a first unit of 120 ops");
    for (int i = 0; i < 3; i++)
        is_count((uint64_t)with.from[i], from[i], "has segments, and ends one");
    is_count(all.instantiations, 0, "none is built again");
    is_count(all.graph_updates, all.graph_launches, "each is updated");
    steps(&without, WARM + 4);
    tap_ok(equal(&with, &without), "the same bits where queues are lent");
    work_close(&with);
    work_close(&without);
}

int main(void)
{
    struct backend *first = cuda_device(); /* loads the stand-in, or not */

    first->close(first);
    cuda_stand_in("fakecuda_reset", &fake_reset);
    test_steps("eager");
    test_steps("7");
    test_steps("23");
    test_steps("lazy");
    test_long();
    test_early();
    test_lent();
    return tap_done();
}
