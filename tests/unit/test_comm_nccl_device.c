/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl on the CUDA module, one device for each forked rank: collectives run when
 * their queue reaches them and no sooner, sums have the bits of rank order, and a wait
 * for the device ends when a peer does not come. Steps recorded around collectives have
 * the bits of steps run call by call. With stand-ins for driver, toolkit and NCCL; with
 * NCCL itself where ACCEL_CUDA_MODULE names the module for GPUs.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda_load.h"
#include "comm/nccl/nccl.h"
#include "comm/reduce.h"
#include "numbers/bf16.h"
#include "common/env_names.h"
#include "numbers/wire.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"
#include "tests/world/fork_world.h"

#define ELEMS 1000

/* What a rank has after some steps. */
struct outcome {
    float weight[ELEMS];
    uint64_t calls;              /* hash of its collectives in their order */
    uint64_t recorded, launched; /* graphs of the last three steps */
};

struct job {
    int timeout_ms;
    bool one_device;
    char (*text)[1024];      /* shared: [rank] error text */
    struct outcome *outcome; /* shared: [rank] */
};

struct rank {
    struct backend *be;
    struct comm *comm;
    int me, size;
    accel_error_t err;
};

static accel_status_t open_rank(struct rank *k, struct boot *b, const struct job *job)
{
    struct comm_options o = { .backend = "nccl",
                              .timeout_ms = job->timeout_ms,
                              .scratch_bytes = 4096 };
    accel_status_t s;

    k->me = b->rank;
    k->size = b->size;
    s = backend_cuda_open(&k->be, job->one_device ? 0 : b->rank, &k->err);
    o.device = k->be;
    return s == ACCEL_OK ? comm_open(&k->comm, b, &o, &k->err) : s;
}

static void close_rank(struct rank *k)
{
    comm_close(k->comm);
    backend_close(k->be);
}

static int fails(const struct rank *k, int line)
{
    fprintf(stderr, "# rank %d, line %d: %s\n", k->me, line, k->err.text);
    return 1;
}
#define FAILS(k) fails(k, __LINE__)

static float number(int rank, int i)
{
    return 1.0f / (float)(1 + (i * 7 + rank * 31) % 97) - 0.3f;
}

/* [size][ELEMS] of every rank, as it would hold them; of a scaled type as they
 * travel. */
static void make(void *out, accel_dtype_t t, int rank, int count)
{
    static float wide[4 * ELEMS];

    if (wire_is_scaled(t)) {
        make(wide, ACCEL_F32, rank, count);
        for (int at = 0; at < count; at += ELEMS)
            wire_narrow((char *)out + (size_t)(at / ELEMS) * wire_bytes(ELEMS, t),
                        wide + at, ELEMS, t);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (t == ACCEL_F32)
            ((float *)out)[i] = number(rank, i);
        else
            ((bf16_t *)out)[i] = f32_to_bf16(number(rank, i));
    }
}

static void *on_device(struct rank *k, const void *host, size_t bytes)
{
    void *p = NULL;

    if (k->be->alloc(k->be, MEMORY_WORK, bytes, &p, &k->err) != ACCEL_OK)
        return NULL;
    k->be->from_host(k->be, p, host, bytes);
    return p;
}

/* out = 1 * i + 0.5 * (sum in rank order), on the host and on the device. */
static int scatter(struct rank *k, accel_dtype_t t)
{
    static char host[4][4 * ELEMS * sizeof(float)];
    static float want[ELEMS], got[ELEMS];
    const size_t part = wire_bytes(ELEMS, t), own = (size_t)k->me * part;
    const void *src[4];
    void *in, *out;

    for (int r = 0; r < k->size; r++) {
        make(host[r], t, r, k->size * ELEMS);
        src[r] = host[r] + own;
    }
    for (int i = 0; i < ELEMS; i++)
        want[i] = (float)i;
    in = on_device(k, host[k->me], (size_t)k->size * part);
    out = on_device(k, want, sizeof(want));
    if (!in || !out || k->be->sync(k->be, &k->err) != ACCEL_OK)
        return FAILS(k);
    reduce_scaled_sum(want, src, k->size, ELEMS, t, 0.5f, true);
    k->be->use(k->be, QUEUE_REDUCE);
    if (comm_reduce_scatter(k->comm, in, out, ELEMS, t, 0.5f, true, &k->err) ||
        k->be->sync(k->be, &k->err))
        return FAILS(k);
    k->be->use(k->be, QUEUE_COMPUTE);
    k->be->to_host_bytes(k->be, got, out, sizeof(got));
    k->be->free(k->be, in);
    k->be->free(k->be, out);
    return memcmp(got, want, sizeof(want)) ? FAILS(k) : 0;
}

static int reduce(struct rank *k, accel_dtype_t t)
{
    static char host[4][ELEMS * sizeof(float)], want[ELEMS * sizeof(float)];
    static char got[ELEMS * sizeof(float)];
    size_t bytes = ELEMS * accel_dtype_bytes(t);
    const void *src[4];
    void *buf;

    for (int r = 0; r < k->size; r++) {
        make(host[r], t, r, ELEMS);
        src[r] = host[r];
    }
    reduce_op(want, src, k->size, ELEMS, t, COMM_SUM);
    buf = on_device(k, host[k->me], bytes);
    if (!buf || k->be->sync(k->be, &k->err) != ACCEL_OK)
        return FAILS(k);
    k->be->use(k->be, QUEUE_REDUCE);
    if (comm_all_reduce(k->comm, buf, ELEMS, t, COMM_SUM, &k->err) ||
        k->be->sync(k->be, &k->err))
        return FAILS(k);
    k->be->use(k->be, QUEUE_COMPUTE);
    k->be->to_host_bytes(k->be, got, buf, bytes);
    k->be->free(k->be, buf);
    return memcmp(got, want, bytes) ? FAILS(k) : 0;
}

/* The own part is written on the compute queue, gathered on another, read on the first:
 * only the events order them. Twice, so that a forgotten wait would show the first
 * round. */
static int gather(struct rank *k)
{
    struct backend_event *written = k->be->event_new(k->be);
    struct backend_event *gathered = k->be->event_new(k->be);
    const struct backend *be = k->be;
    static float got[4 * ELEMS];
    const size_t bytes = (size_t)k->size * ELEMS * sizeof(float);
    struct backend_usage before, after;
    void *all = NULL;

    be->usage(be, &before);
    if (comm_alloc(k->comm, MEMORY_GATHERED, bytes, &all, &k->err))
        return FAILS(k);
    be->usage(be, &after); /* NCCL's own kind of memory is in the books */
    if (after.held[MEMORY_GATHERED] != before.held[MEMORY_GATHERED] + bytes)
        return FAILS(k);
    be->to_host_bytes(be, got, all, (size_t)k->size * ELEMS * sizeof(float));
    for (int i = 0; i < k->size * ELEMS; i++)
        if (got[i] != 0)
            return FAILS(k);
    for (int round = 1; round < 3; round++) {
        float *own = (float *)all + k->me * ELEMS;

        be->fill(be, own, ACCEL_F32, ELEMS, (float)(10 * k->me + round));
        be->record(be, written, QUEUE_COMPUTE);
        be->wait(be, QUEUE_GATHER, written);
        be->use(be, QUEUE_GATHER);
        if (comm_all_gather(k->comm, all, ELEMS, ACCEL_F32, &k->err))
            return FAILS(k);
        be->record(be, gathered, QUEUE_GATHER);
        be->use(be, QUEUE_COMPUTE);
        be->wait(be, QUEUE_COMPUTE, gathered);
        be->to_host_bytes(be, got, all, (size_t)k->size * ELEMS * sizeof(float));
        if (be->check(be, &k->err))
            return FAILS(k);
        for (int i = 0; i < k->size * ELEMS; i++)
            if (got[i] != (float)(10 * (i / ELEMS) + round))
                return FAILS(k);
    }
    be->event_free(be, written);
    be->event_free(be, gathered);
    return 0;
}

/* A broadcast from the last rank; every rank's own bytes to rank 0; a barrier. */
static int others(struct rank *k)
{
    const char word[] = "all ranks";
    char got[sizeof(word)] = "";
    size_t sizes[4], mine = (size_t)(k->me + 1);
    void *p = on_device(k, k->me == k->size - 1 ? word : got, sizeof(word));
    void *all = NULL;

    if (!p || comm_broadcast(k->comm, p, sizeof(word), k->size - 1, &k->err))
        return FAILS(k);
    k->be->to_host_bytes(k->be, got, p, sizeof(got));
    if (strcmp(got, word) != 0)
        return FAILS(k);
    if (comm_gather(k->comm, p, mine, 0, &all, k->me == 0 ? sizes : NULL, &k->err))
        return FAILS(k);
    if (k->me == 0 && k->size == 2 && (sizes[1] != 2 || memcmp(all, "aal", 3) != 0))
        return FAILS(k);
    free(all);
    k->be->free(k->be, p);
    return comm_barrier(k->comm, &k->err) ? FAILS(k) : 0;
}

/* One number of every rank summed in the reduce queue, and its result awaited there. */
static int sum_now(struct rank *k, struct comm *c, void *p)
{
    const struct backend *be = k->be;
    float got = 0;

    be->use(be, QUEUE_REDUCE);
    be->fill(be, p, ACCEL_F32, 1, 3);
    if (comm_all_reduce(c, p, 1, ACCEL_F32, COMM_SUM, &k->err))
        return FAILS(k);
    be->to_host_bytes(be, &got, p, sizeof(got));
    be->use(be, QUEUE_COMPUTE);
    return be->check(be, &k->err) || got != 3 * (float)k->size ? FAILS(k) : 0;
}

/* All ranks but the first wait for the sum before they gather; the first gathers first.
 * In one communicator the sum would be behind the gather, and never come. */
static int side_by_side(struct rank *k)
{
    const struct backend *be = k->be;
    static float all[4];
    struct comm *other;
    void *p, *q;
    int bad = 0;

    if (comm_split(k->comm, 0, k->me, &other, &k->err))
        return FAILS(k);
    p = on_device(k, all, sizeof(all));
    q = on_device(k, all, sizeof(all));
    if (!p || !q || be->sync(be, &k->err))
        return FAILS(k);
    for (int turn = 0; turn < 2 && !bad; turn++) {
        if ((k->me == 0) == (turn == 1)) {
            bad = sum_now(k, other, q);
            continue;
        }
        be->use(be, QUEUE_GATHER);
        be->fill(be, (float *)p + k->me, ACCEL_F32, 1, (float)k->me);
        bad = comm_all_gather(k->comm, p, 1, ACCEL_F32, &k->err) ? FAILS(k) : 0;
        be->use(be, QUEUE_COMPUTE);
    }
    if (bad || be->sync(be, &k->err))
        return FAILS(k);
    be->to_host_bytes(be, all, p, sizeof(all));
    for (int r = 0; r < k->size; r++)
        if (all[r] != (float)r)
            return FAILS(k);
    comm_close(other);
    be->free(be, p);
    be->free(be, q);
    return 0;
}

/* Memory of NCCL is in the device's books until its communicator is closed. */
static int books(struct rank *k)
{
    const size_t bytes = (size_t)3 << 20;
    struct backend_usage before, with, after;
    struct comm *other;
    void *p;

    k->be->usage(k->be, &before);
    if (comm_split(k->comm, 0, k->me, &other, &k->err) ||
        comm_alloc(other, MEMORY_REDUCE, bytes, &p, &k->err))
        return FAILS(k);
    k->be->usage(k->be, &with);
    comm_close(other);
    k->be->usage(k->be, &after);
    return with.held[MEMORY_REDUCE] != before.held[MEMORY_REDUCE] + bytes ||
                   memcmp(after.held, before.held, sizeof(before.held)) != 0
               ? FAILS(k)
               : 0;
}

static int run_all(struct boot *b, void *arg)
{
    struct rank k = { 0 };
    int bad;

    if (open_rank(&k, b, arg) != ACCEL_OK)
        return FAILS(&k);
    bad = books(&k) || gather(&k) || side_by_side(&k) || scatter(&k, ACCEL_F32) ||
          scatter(&k, ACCEL_BF16) || scatter(&k, ACCEL_F16) ||
          scatter(&k, ACCEL_F8E4M3) || scatter(&k, ACCEL_F8E5M2) ||
          reduce(&k, ACCEL_F32) || reduce(&k, ACCEL_BF16) || others(&k);
    close_rank(&k);
    return bad;
}

static void test_results(struct job *job)
{
    static const char *const orders[] = { "lazy", "eager", "1", "7" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(orders); i++) {
        setenv("FAKE_CUDA_ORDER", orders[i], 1);
        tap_is_int(fork_world(2, run_all, job, 240), 0,
                   "two devices, queues in order %s", orders[i]);
    }
    setenv("FAKE_CUDA_ORDER", "lazy", 1);
    tap_is_int(fork_world(4, run_all, job, 240), 0, "four devices");
    tap_is_int(fork_world(1, run_all, job, 240), 0, "one device");
}

/* ---- recorded steps -------------------------------------------------------------- */

enum { UNITS = 3, OPS = 6, STEPS = 7 };

/* A sharded model whose units have the same weights. */
struct model {
    struct comm *reduce; /* k->comm gathers */
    struct backend_event *gathered, *used, *computed, *reduced;
    float *own, *all, *grad; /* [ELEMS], [size][ELEMS], [size][ELEMS] */
};

static int model_open(struct model *m, struct rank *k)
{
    static float values[4 * ELEMS];
    const struct backend *be = k->be;
    const size_t bytes = (size_t)k->size * ELEMS * sizeof(float);

    make(values, ACCEL_F32, k->me, ELEMS);
    m->own = on_device(k, values, ELEMS * sizeof(float));
    m->all = on_device(k, values, bytes);
    m->grad = on_device(k, values, bytes);
    m->gathered = be->event_new(be);
    m->used = be->event_new(be);
    m->computed = be->event_new(be);
    m->reduced = be->event_new(be);
    return !m->own || !m->all || !m->grad ||
                   comm_split(k->comm, 0, k->me, &m->reduce, &k->err)
               ? FAILS(k)
               : 0;
}

static void model_close(struct model *m, struct rank *k)
{
    comm_close(m->reduce);
    k->be->free(k->be, m->own);
    k->be->free(k->be, m->all);
    k->be->free(k->be, m->grad);
    k->be->event_free(k->be, m->gathered);
    k->be->event_free(k->be, m->used);
    k->be->event_free(k->be, m->computed);
    k->be->event_free(k->be, m->reduced);
}

/* Only events order the three queues, as in shard/. */
static int unit(struct model *m, struct rank *k, float by)
{
    const struct backend *be = k->be;
    const int64_t n = (int64_t)k->size * ELEMS;

    be->wait(be, QUEUE_GATHER, m->used);
    be->wait(be, QUEUE_GATHER, m->reduced);
    be->use(be, QUEUE_GATHER);
    be->copy(be, m->all + k->me * ELEMS, m->own, ELEMS * sizeof(float));
    if (comm_all_gather(k->comm, m->all, ELEMS, ACCEL_F32, &k->err))
        return FAILS(k);
    be->record(be, m->gathered, QUEUE_GATHER);
    be->use(be, QUEUE_COMPUTE);
    be->wait(be, QUEUE_COMPUTE, m->gathered);
    be->wait(be, QUEUE_COMPUTE, m->reduced);
    for (int op = 0; op < OPS; op++) {
        be->mark(be, &(struct backend_mark){ .op = "add", .path = "unit" });
        be->cast(be, m->grad, ACCEL_F32, op > 0, m->all, ACCEL_F32, n);
        be->scale(be, m->grad, n, by);
    }
    be->record(be, m->used, QUEUE_COMPUTE);
    be->record(be, m->computed, QUEUE_COMPUTE);
    be->wait(be, QUEUE_REDUCE, m->computed);
    be->use(be, QUEUE_REDUCE);
    if (comm_reduce_scatter(m->reduce, m->grad, m->own, ELEMS, ACCEL_F32, 0.01f, true,
                            &k->err))
        return FAILS(k);
    be->record(be, m->reduced, QUEUE_REDUCE);
    be->use(be, QUEUE_COMPUTE);
    return 0;
}

static int train(struct boot *b, void *arg)
{
    struct outcome *out = &((struct job *)arg)->outcome[b->rank];
    void (*counts)(struct fakecuda_counts * out) = NULL;
    struct fakecuda_counts begin = { 0 }, end = { 0 };
    struct rank k = { 0 };
    struct model m = { 0 };
    int bad;

    if (open_rank(&k, b, arg) != ACCEL_OK)
        return FAILS(&k);
    cuda_stand_in("fakecuda_counts_get", &counts);
    bad = model_open(&m, &k);
    for (int step = 0; !bad && step < STEPS; step++) {
        if (counts && step == STEPS - 3)
            counts(&begin);
        k.be->mark(k.be, NULL);
        k.be->step_begin(k.be);
        for (int u = 0; !bad && u < UNITS; u++)
            bad = unit(&m, &k, 0.5f + 0.01f * (float)step);
        k.be->step_end(k.be);
    }
    if (counts)
        counts(&end);
    if (bad || comm_barrier(k.comm, &k.err) || comm_barrier(m.reduce, &k.err))
        return FAILS(&k);
    k.be->to_host_bytes(k.be, out->weight, m.own, sizeof(out->weight));
    out->calls = ((struct nccl_state *)k.comm->impl)->agreed ^
                 ((struct nccl_state *)m.reduce->impl)->agreed << 1;
    out->recorded = end.captures - begin.captures;
    out->launched = end.graph_launches - begin.graph_launches;
    model_close(&m, &k);
    close_rank(&k);
    return 0;
}

/* With graphs and without, `ranks` ranks have the same weights and made the same calls
 * in the same order; a segment lies between two collectives. */
static void test_recorded(struct job *job, int ranks, const char *order)
{
    static struct outcome plain[4];
    bool same = true, calls = true;

    setenv("FAKE_CUDA_ORDER", order, 1);
    for (int graphs = 0; graphs < 2; graphs++) {
        setenv(ENV_CUDA_GRAPHS, graphs ? "1" : "0", 1);
        memset(job->outcome, 0, 4 * sizeof(*job->outcome));
        tap_is_int(fork_world(ranks, train, job, 240), 0,
                   "%d ranks, queues in order %s, " ENV_CUDA_GRAPHS "=%d", ranks, order,
                   graphs);
        if (!graphs)
            memcpy(plain, job->outcome, sizeof(plain));
    }
    unsetenv(ENV_CUDA_GRAPHS);
    for (int r = 0; r < ranks; r++) {
        const struct outcome *o = &job->outcome[r];

        same = same && !memcmp(o->weight, plain[r].weight, sizeof(o->weight)) &&
               o->weight[0] != 0.0f;
        calls = calls && o->calls && o->calls == plain[0].calls &&
                o->calls == plain[r].calls;
    }
    tap_ok(same, "the same bits with graphs and without");
    tap_ok(calls, "all ranks make the same collectives in one order");
    tap_is_int((long long)plain[0].recorded, 0, "nothing is recorded without");
    tap_is_int((long long)job->outcome[0].recorded, 3 * UNITS,
               "a recording per unit with them");
    tap_is_int((long long)job->outcome[ranks - 1].launched, 3 * UNITS,
               "and a launch, on the last rank too");
}

/* ---- failures -------------------------------------------------------------------- */

/* The call goes well and what waits for the device later tells, or, where the other
 * rank was quick, the call tells. */
static int fails_later(struct boot *b, void *arg)
{
    const struct job *job = arg;
    accel_error_t again = { 0 };
    struct rank k = { 0 };
    struct comm *group;
    accel_status_t s;
    float x[8];
    void *p;

    if (open_rank(&k, b, job) != ACCEL_OK || comm_barrier(k.comm, &k.err) != ACCEL_OK ||
        comm_split(k.comm, 0, 0, &group, &k.err) != ACCEL_OK)
        return FAILS(&k);
    p = on_device(&k, x, sizeof(x));
    if (!p)
        return FAILS(&k);
    s = comm_all_gather(k.comm, p, 1, ACCEL_F32, &k.err);
    if (s == ACCEL_OK) {
        k.be->to_host_bytes(k.be, x, p, sizeof(x)); /* ends, though nothing comes */
        s = k.be->check(k.be, &k.err);
        if (k.be->sync(k.be, &again) != s)
            return FAILS(&k);
    }
    snprintf(job->text[b->rank], sizeof(job->text[0]), "A%04d %s", k.err.message,
             k.err.text);
    if (s == ACCEL_OK || comm_all_gather(k.comm, p, 1, ACCEL_F32, &again) != s ||
        strcmp(again.text, k.err.text) != 0)
        return FAILS(&k);
    /* The group of the same device fails with it. */
    again.text[0] = '\0';
    if (comm_barrier(group, &again) != s || strcmp(again.text, k.err.text) != 0)
        return FAILS(&k);
    comm_close(group);
    k.be->free(k.be, p);
    close_rank(&k);
    return 0;
}

static int open_fails(struct boot *b, void *arg)
{
    const struct job *job = arg;
    struct rank k = { 0 };

    if (open_rank(&k, b, job) == ACCEL_OK)
        return 1;
    snprintf(job->text[b->rank], sizeof(job->text[0]), "A%04d %s", k.err.message,
             k.err.text);
    backend_close(k.be);
    return 0;
}

static void test_shared(struct job *job)
{
    job->one_device = true;
    tap_is_int(fork_world(2, open_fails, job, 240), 0, "two ranks on one device");
    tap_ok(strncmp(job->text[1], "A0425 ranks 0 and 1 share GPU 0000", 34) == 0, "  %s",
           job->text[1]);
}

static void test_failures(struct job *job)
{
    static const char late[] =
        "A0501 all_gather #3: not done on the device within 0.7 s: "
        "some of 2 ranks did not arrive";
    static const char remote[] =
        "A0502 all_gather #3: another rank has ended (NCCL: remote "
        "process exited or there was a network error)";

    job->timeout_ms = 700;
    setenv("FAKE_NCCL", "stuck=1:3", 1);
    tap_is_int(fork_world(2, fails_later, job, 240), 0,
               "a wait for the device ends when a peer does not come");
    tap_ok(strcmp(job->text[0], late) == 0 || strcmp(job->text[0], remote) == 0, "  %s",
           job->text[0]);
    tap_ok(strcmp(job->text[0], late) == 0 || strcmp(job->text[1], late) == 0, "  %s",
           job->text[1]);
    job->timeout_ms = HANG_S * 1000;
    setenv("FAKE_NCCL", "async=3:6", 1);
    tap_is_int(fork_world(2, fails_later, job, 240), 0, "and when NCCL tells of it");
    tap_is_str(job->text[0], remote, "  with the call");
    unsetenv("FAKE_NCCL");
}

/* ---- on GPUs --------------------------------------------------------------------- */

enum { ABSENT = 2 };

/* Is there a GPU for every rank? In processes of their own: one that has used a device
 * cannot fork. */
static int try_gpus(struct boot *b, void *arg)
{
    const struct job *job = arg;
    struct backend *be = NULL;
    accel_error_t err = { 0 };
    accel_status_t s = backend_cuda_open(&be, b->rank, &err);

    snprintf(job->text[b->rank], sizeof(job->text[0]), "%s", err.text);
    backend_close(be);
    return s == ACCEL_OK ? 0 : cuda_is_absent(&err) ? ABSENT : 1;
}

static int try_nccl(struct boot *b, void *arg)
{
    const struct job *job = arg;
    accel_error_t err = { 0 };
    struct nccl n;

    (void)b;
    if (nccl_open(&n, &err) == ACCEL_OK) {
        nccl_close(&n);
        return 0;
    }
    snprintf(job->text[0], sizeof(job->text[0]), "%s", err.text);
    return ABSENT;
}

static int test_gpus(struct job *job)
{
    const int here = fork_world(1, try_gpus, job, 240);

    if (here == ABSENT || (here == 0 && fork_world(1, try_nccl, job, 240) == ABSENT))
        tap_skip_all(job->text[0]);
    if (!tap_ok(here == 0, "a GPU: %s", job->text[0]))
        return tap_done();
    tap_is_int(fork_world(1, run_all, job, 240), 0, "one GPU");
    if (fork_world(2, try_gpus, job, 240) == 0)
        tap_is_int(fork_world(2, run_all, job, 240), 0, "two GPUs");
    else
        tap_skip(1, "one GPU, and NCCL takes one for each rank");
    test_shared(job);
    return tap_done();
}

int main(void)
{
    const char *module = getenv("ACCEL_CUDA_MODULE");
    struct job job = { .timeout_ms = HANG_S * 1000,
                       .text = fork_shared(4 * sizeof(*job.text)),
                       .outcome = fork_shared(4 * sizeof(*job.outcome)) };

    setenv("OMP_NUM_THREADS", "1", 1);
    if (module && strcmp(module, CUDA_STANDIN) != 0)
        return test_gpus(&job);
    if (access(CUDA_STANDIN, R_OK))
        tap_skip_all("no C++ compiler: the stand-in for CUDA is not built");
    setenv("ACCEL_CUDA_MODULE", CUDA_STANDIN, 1);
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
    unsetenv("FAKE_NCCL");
    test_results(&job);
    test_recorded(&job, 2, "lazy");
    test_recorded(&job, 2, "3");
    test_recorded(&job, 4, "lazy");
    test_failures(&job);
    test_shared(&job);
    return tap_done();
}
