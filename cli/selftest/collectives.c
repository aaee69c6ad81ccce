/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of the self-test. Every value is compared with its closed form: sums
 * of small integers, exact in float32 at any world size, and small enough for bfloat16
 * inputs. One size is odd, one is as large as the units of a training run. In: the
 * run's communicator. Out: time, rate, the first wrong element.
 */
#include <stdio.h>
#include <string.h>

#include "numbers/bf16.h"
#include "cli/selftest/selftest.h"

/* Timed calls, of which the median counts; bytes of the large buffer on each rank;
 * elements per rank of the odd size, which no vector width divides. */
enum { REPEATS = 5, WHOLE_BYTES = 4 << 20, ODD_ELEMS = 129 };

/* One call of one collective, and what it works on. */
struct round {
    const struct collective *op;
    struct comm *comm;
    /* `turn` counts the calls and enters all values, so that what a former call left
     * behind is never taken for a result. */
    int rank, size, turn;
    /* Elements per rank. */
    size_t elems;
    /* Of `in`; `out` is always float32. */
    accel_dtype_t dtype;
    /* [size][elems] */
    void *in;
    /* [elems] */
    float *out;
};

struct collective {
    /* The check's. */
    const char *name;
    /* It takes bfloat16 as well. */
    bool bfloat16;
    /* Bytes a rank sends: this times the whole buffer times (size - 1) / size. */
    double sent;
    void (*fill)(struct round *r);
    accel_status_t (*call)(struct round *r, accel_error_t *err);
    accel_status_t (*verify)(const struct round *r, accel_error_t *err);
};

/* Rank r contributes rank_share(r) * weight(i) at place i, so the sum is weight(i)
 * times the sum of all shares: exact, and different for neighbouring elements, which
 * finds shifted blocks. */
static float weight(size_t i, int turn)
{
    return (float)((i + (size_t)turn) % 7 + 1);
}

static float rank_share(int rank)
{
    return (float)(rank % 16 + 1);
}

/* The sum of all shares: 136 = 1 + 2 + ... + 16 for each full sixteen
 * ranks, and the rest. */
static float share_sum(int size)
{
    int full = size / 16, rest = size % 16;

    return (float)(full * 136 + rest * (rest + 1) / 2);
}

/* The error for one wrong element. It names index and both values: a power of two
 * between them points at memory, a neighbour's value at an offset. */
static accel_status_t wrong_value(const struct round *r, size_t at, double got,
                                  double want, accel_error_t *err)
{
    return accel_fail(
        err, A0062,
        "run it again: if the error persists, report it with the output of `accel "
        "env`; if it comes and goes, test memory and network of this node",
        "%s of %zu %s per rank: element %zu is %.9g, must be %.9g", r->op->name,
        r->elems, accel_dtype_name(r->dtype), at, got, want);
}

/* This rank's contribution to a sum, in the dtype of the round. */
static void fill_weights(struct round *r)
{
    size_t n = r->elems * (size_t)r->size;

    for (size_t i = 0; i < n; i++) {
        float v = rank_share(r->rank) * weight(i, r->turn);

        if (r->dtype == ACCEL_BF16)
            ((bf16_t *)r->in)[i] = f32_to_bf16(v);
        else
            ((float *)r->in)[i] = v;
    }
}

/* Compares got[n], which starts at place `first` of the whole, with the sums. */
static accel_status_t verify_sums(const struct round *r, const float *got, size_t n,
                                  size_t first, accel_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        float want = share_sum(r->size) * weight(first + i, r->turn);

        if (got[i] != want)
            return wrong_value(r, first + i, got[i], want, err);
    }
    return ACCEL_OK;
}

/* ---- all_gather ------------------------------------------------------------------ */

/* The value at place i of a gathered buffer; below 2^24, so
 * float32 holds it exactly. */
static float gathered(size_t i, int turn)
{
    return (float)((i * 31 + (size_t)turn * 7) & 0xffffff);
}

/* Each rank fills its own part; -1 in the others shows what was not received. */
static void fill_gather(struct round *r)
{
    float *buf = r->in;
    size_t n = r->elems * (size_t)r->size, mine = r->elems * (size_t)r->rank;

    for (size_t i = 0; i < n; i++)
        buf[i] = i >= mine && i < mine + r->elems ? gathered(i, r->turn) : -1.0f;
}

static accel_status_t call_gather(struct round *r, accel_error_t *err)
{
    return comm_all_gather(r->comm, r->in, r->elems, ACCEL_F32, err);
}

/* Also after a broadcast: every rank has all values. */
static accel_status_t verify_gather(const struct round *r, accel_error_t *err)
{
    const float *buf = r->in;

    for (size_t i = 0; i < r->elems * (size_t)r->size; i++)
        if (buf[i] != gathered(i, r->turn))
            return wrong_value(r, i, buf[i], gathered(i, r->turn), err);
    return ACCEL_OK;
}

/* ---- reduce_scatter, all_reduce, broadcast, barrier ------------------------------ */

static accel_status_t call_scatter(struct round *r, accel_error_t *err)
{
    return comm_reduce_scatter(r->comm, r->in, r->out, r->elems, r->dtype, 1.0f, false,
                               err);
}

static accel_status_t verify_scatter(const struct round *r, accel_error_t *err)
{
    return verify_sums(r, r->out, r->elems, r->elems * (size_t)r->rank, err);
}

static accel_status_t call_reduce(struct round *r, accel_error_t *err)
{
    return comm_all_reduce(r->comm, r->in, r->elems * (size_t)r->size, ACCEL_F32,
                           COMM_SUM, err);
}

static accel_status_t verify_reduce(const struct round *r, accel_error_t *err)
{
    return verify_sums(r, r->in, r->elems * (size_t)r->size, 0, err);
}

/* Each rank is the root once in `size` turns. */
static int root_of(const struct round *r)
{
    return (r->size - 1 + r->turn) % r->size;
}

/* The root has the values, the others -1. */
static void fill_broadcast(struct round *r)
{
    float *buf = r->in;

    for (size_t i = 0; i < r->elems * (size_t)r->size; i++)
        buf[i] = r->rank == root_of(r) ? gathered(i, r->turn) : -1.0f;
}

static accel_status_t call_broadcast(struct round *r, accel_error_t *err)
{
    return comm_broadcast(r->comm, r->in, r->elems * (size_t)r->size * sizeof(float),
                          root_of(r), err);
}

static const struct collective collectives[] = {
    { "all_gather", false, 1, fill_gather, call_gather, verify_gather },
    { "reduce_scatter", true, 1, fill_weights, call_scatter, verify_scatter },
    { "all_reduce", false, 2, fill_weights, call_reduce, verify_reduce },
    { "broadcast", false, 1, fill_broadcast, call_broadcast, verify_gather },
};

/* ---- the rounds ------------------------------------------------------------------ */

/* One call of the collective. *ms_out is the time of the slowest rank, measured after
 * a barrier. Wrong values are kept in `bad`, so that this rank still makes the calls
 * its peers make; a call that failed is returned. */
static accel_status_t play_round(struct round *r, double *ms_out, accel_error_t *bad,
                                 accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_status_t st;
    int64_t start;

    /* The barrier keeps a late rank's filling out of the others' time. */
    r->op->fill(r);
    st = comm_barrier(r->comm, err);
    start = clock_ns();
    ACCEL_TRY(st, r->op->call(r, err));
    *ms_out = (double)(clock_ns() - start) / 1e6;
    ACCEL_TRY(st, comm_all_reduce(r->comm, ms_out, 1, ACCEL_F64, COMM_MAX, err));
    if (st == ACCEL_OK && r->op->verify(r, &why) != ACCEL_OK && !bad->code)
        *bad = why;
    return st;
}

/* The odd size once per dtype, then the large size REPEATS times. The median counts,
 * kept by insertion into a sorted list. */
static accel_status_t play_rounds(struct round *r, double *ms_out, accel_error_t *bad,
                                  accel_error_t *err)
{
    size_t large = WHOLE_BYTES / sizeof(float) / (size_t)r->size;
    double ms[REPEATS] = { 0 };
    accel_status_t st = ACCEL_OK;

    large = large > ODD_ELEMS ? large : ODD_ELEMS;
    for (int k = 0; st == ACCEL_OK && k <= (int)r->op->bfloat16; k++) {
        r->elems = ODD_ELEMS;
        r->dtype = k ? ACCEL_BF16 : ACCEL_F32;
        st = play_round(r, &ms[0], bad, err);
        r->turn++;
    }
    r->elems = large;
    r->dtype = ACCEL_F32;
    for (int k = 0; st == ACCEL_OK && k < REPEATS; k++) {
        double one = 0;
        int at = k;

        st = play_round(r, &one, bad, err);
        for (; at > 0 && ms[at - 1] > one; at--)
            ms[at] = ms[at - 1];
        ms[at] = one;
        r->turn++;
    }
    /* The median: one call in five may meet another job's burst. */
    *ms_out = ms[REPEATS / 2];
    return st;
}

/* Allocates both buffers in the communicator's memory, plays all rounds and derives the
 * rate. A wrong value is returned only after the last call. */
accel_status_t check_collective(struct selftest *t, struct check *c, accel_error_t *err)
{
    struct round r = { .op = collectives,
                       .comm = t->run->comm,
                       .rank = t->run->boot.rank,
                       .size = t->run->boot.size };
    size_t most = (size_t)ODD_ELEMS * (size_t)r.size * sizeof(float);
    accel_error_t bad = { 0 };
    accel_status_t st;
    double bytes;

    while (strcmp(r.op->name, c->name) != 0)
        r.op++;
    most = most > WHOLE_BYTES ? most : WHOLE_BYTES;
    st = comm_alloc(r.comm, MEMORY_WORK, most, &r.in, err);
    ACCEL_TRY(st, comm_alloc(r.comm, MEMORY_WORK, most, (void **)&r.out, err));
    ACCEL_TRY(st, play_rounds(&r, &c->ms, &bad, err));
    if (st == ACCEL_OK && bad.code) {
        *err = bad;
        return bad.code;
    }
    bytes = (double)r.elems * r.size * sizeof(float);
    /* One rank sends nothing, so it has no rate. */
    if (r.size > 1 && c->ms > 0)
        c->gb_per_s = r.op->sent * bytes * (r.size - 1) / r.size / c->ms / 1e6;
    snprintf(c->found, sizeof(c->found), "%zu float32 per rank%s", r.elems,
             r.op->bfloat16 ? ", and bfloat16" : "");
    return st;
}

/* Latency of a barrier: the mean of BARRIERS calls in a row. */
accel_status_t check_barrier(struct selftest *t, struct check *c, accel_error_t *err)
{
    enum { BARRIERS = 100 };
    int64_t start = clock_ns();
    accel_status_t st = ACCEL_OK;

    for (int i = 0; st == ACCEL_OK && i < BARRIERS; i++)
        st = comm_barrier(t->run->comm, err);
    c->ms = (double)(clock_ns() - start) / 1e6 / BARRIERS;
    snprintf(c->found, sizeof(c->found), "mean time of %d in a row", BARRIERS);
    return st;
}
