/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: each element of each rank's input is a function of (rank, index), so every
 * rank can compute the right answer alone, one element at a time, in rank order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "numbers/wire.h"
#include "tests/unit/comm_ref.h"

static const accel_dtype_t dtypes[] = { ACCEL_F32, ACCEL_BF16, ACCEL_F64, ACCEL_I64 };

#define LONG ((size_t)100000) /* longer arrays are float32 and summed only */

struct room {
    char *big;  /* size * max_elems * 8 bytes */
    float *out; /* max_elems */
    bool window;
};

static int complain(struct comm *c, const char *what, accel_dtype_t t, size_t elems,
                    size_t at, bool window, const accel_error_t *err)
{
    fprintf(stderr, "# rank %d of %d, %s: %s of %zu %s, %s memory: %s at %zu\n",
            comm_rank(c), comm_size(c), comm_backend(c), what, elems,
            accel_dtype_name(t), window ? "window" : "private",
            err->code != ACCEL_OK ? err->text : "wrong", at);
    return 1;
}

/* Irregular values of mixed magnitude and sign: sums depend on their order. */
static double value(int rank, size_t i)
{
    uint64_t x = (uint64_t)rank * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + 1;

    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return ((double)(x & 0xffffff) - 8388608.0) / (double)(1u << (x >> 40 & 15));
}

static void put(void *buf, accel_dtype_t t, size_t at, double v)
{
    if (t == ACCEL_F32)
        ((float *)buf)[at] = (float)v;
    else if (t == ACCEL_BF16)
        ((bf16_t *)buf)[at] = f32_to_bf16((float)v);
    else if (t == ACCEL_F64)
        ((double *)buf)[at] = v;
    else
        ((int64_t *)buf)[at] = (int64_t)v;
}

/* What rank r holds at i, after rounding to t; exact in a double. */
static double held(int r, size_t i, accel_dtype_t t)
{
    double v = value(r, i);

    if (t == ACCEL_F32)
        return (float)v;
    if (t == ACCEL_BF16)
        return bf16_to_f32(f32_to_bf16((float)v));
    return t == ACCEL_I64 ? (double)(int64_t)v : v;
}

static double reduced(int n, size_t i, accel_dtype_t t, enum comm_op op)
{
    double acc = held(0, i, t);

    for (int r = 1; r < n; r++) {
        double v = held(r, i, t);

        if (op == COMM_MAX)
            acc = v > acc ? v : acc;
        else if (op == COMM_MIN)
            acc = v < acc ? v : acc;
        else if (t == ACCEL_F32 || t == ACCEL_BF16)
            acc = (float)acc + (float)v;
        else
            acc += v;
        if (op == COMM_SUM && (t == ACCEL_F32 || t == ACCEL_BF16))
            acc = (float)acc;
    }
    return acc;
}

static void mix(uint64_t *hash, const void *p, size_t bytes)
{
    const unsigned char *b = p;
    size_t i = 0;

    for (uint64_t word; i + sizeof(word) <= bytes; i += sizeof(word)) {
        memcpy(&word, b + i, sizeof(word));
        *hash = (*hash ^ word) * 0x9e3779b97f4a7c15u;
        *hash ^= *hash >> 32; /* or high bits would never reach low ones */
    }
    for (; i < bytes; i++)
        *hash = (*hash ^ b[i]) * 0x100000001b3u;
}

static int check_all_gather(struct comm *c, struct room *m, accel_dtype_t t,
                            size_t elems, uint64_t *hash)
{
    size_t es = accel_dtype_bytes(t), n = (size_t)comm_size(c);
    accel_error_t err = { 0 };
    char want[8];

    memset(m->big, 0x5a, n * elems * es + 1);
    for (size_t i = 0; i < elems; i++)
        put(m->big, t, (size_t)comm_rank(c) * elems + i, value(comm_rank(c), i));
    if (comm_all_gather(c, m->big, elems, t, &err) != ACCEL_OK)
        return complain(c, "all_gather", t, elems, 0, m->window, &err);
    for (size_t i = 0; i < n * elems; i++) {
        put(want, t, 0, value((int)(i / elems), i % elems));
        if (memcmp(want, m->big + i * es, es) != 0)
            return complain(c, "all_gather", t, elems, i, m->window, &err);
    }
    if (m->big[n * elems * es] != 0x5a)
        return complain(c, "all_gather (overrun)", t, elems, elems, m->window, &err);
    mix(hash, m->big, n * elems * es);
    return 0;
}

static int check_all_reduce(struct comm *c, struct room *m, accel_dtype_t t,
                            size_t elems, enum comm_op op, uint64_t *hash)
{
    size_t es = accel_dtype_bytes(t);
    accel_error_t err = { 0 };
    char want[8];

    m->big[elems * es] = 0x5a;
    for (size_t i = 0; i < elems; i++)
        put(m->big, t, i, value(comm_rank(c), i));
    if (comm_all_reduce(c, m->big, elems, t, op, &err) != ACCEL_OK)
        return complain(c, "all_reduce", t, elems, 0, m->window, &err);
    for (size_t i = 0; i < elems; i++) {
        put(want, t, 0, reduced(comm_size(c), i, t, op));
        if (memcmp(want, m->big + i * es, es) != 0)
            return complain(c, "all_reduce", t, elems, i, m->window, &err);
    }
    if (m->big[elems * es] != 0x5a)
        return complain(c, "all_reduce (overrun)", t, elems, elems, m->window, &err);
    mix(hash, m->big, elems * es);
    return 0;
}

static int check_reduce_scatter(struct comm *c, struct room *m, accel_dtype_t t,
                                size_t elems, bool accumulate, uint64_t *hash)
{
    size_t n = (size_t)comm_size(c), me = (size_t)comm_rank(c);
    uint64_t before = 1, after = 1;
    accel_error_t err = { 0 };
    const float scale = 0.3f;

    for (size_t i = 0; i < n * elems; i++)
        put(m->big, t, i, value((int)me, i));
    for (size_t i = 0; i < elems; i++)
        m->out[i] = (float)i;
    mix(&before, m->big, n * elems * accel_dtype_bytes(t));
    if (comm_reduce_scatter(c, m->big, m->out, elems, t, scale, accumulate, &err) !=
        ACCEL_OK)
        return complain(c, "reduce_scatter", t, elems, 0, m->window, &err);
    for (size_t i = 0; i < elems; i++) {
        float sum = (float)reduced((int)n, me * elems + i, t, COMM_SUM);
        float scaled = scale * sum, want = accumulate ? (float)i + scaled : scaled;

        if (memcmp(&want, &m->out[i], sizeof(want)) != 0)
            return complain(c, "reduce_scatter", t, elems, i, m->window, &err);
    }
    mix(&after, m->big, n * elems * accel_dtype_bytes(t));
    if (before != after)
        return complain(c, "reduce_scatter (input)", t, elems, 0, m->window, &err);
    mix(hash, m->out, elems * sizeof(float));
    return 0;
}

/* Rank r's part for this rank, as it arrives. */
static void arrived(float *to, int r, size_t first, size_t elems, accel_dtype_t t,
                    char *room)
{
    for (size_t i = 0; i < elems; i++)
        to[i] = (float)value(r, first + i);
    wire_narrow(room, to, elems, t);
    wire_widen(to, room, elems, t);
}

/* The same of types that travel in blocks. */
static int check_scaled_scatter(struct comm *c, struct room *m, accel_dtype_t t,
                                size_t elems, uint64_t *hash)
{
    size_t n = (size_t)comm_size(c), me = (size_t)comm_rank(c);
    size_t part = wire_bytes(elems, t), all = n * part, wrong = elems;
    float *sum = malloc((elems + 1) * sizeof(float)), *one = malloc((elems + 1) * 4);
    char *room = malloc(part + 4);
    accel_error_t err = { 0 };
    uint64_t before = 1, after = 1;
    const float scale = 0.3f;

    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < elems; i++)
            one[i] = (float)value((int)me, r * elems + i);
        wire_narrow(m->big + r * part, one, elems, t);
    }
    mix(&before, m->big, all);
    for (size_t i = 0; i < elems; i++)
        m->out[i] = (float)i;
    if (comm_reduce_scatter(c, m->big, m->out, elems, t, scale, true, &err) == ACCEL_OK)
        wrong = 0;
    for (size_t r = 0; r < n; r++) {
        arrived(one, (int)r, me * elems, elems, t, room);
        for (size_t i = 0; i < elems; i++)
            sum[i] = r ? sum[i] + one[i] : one[i];
    }
    for (size_t i = 0; i < elems; i++) {
        float scaled = scale * sum[i], want = (float)i + scaled;

        wrong += m->out[i] != want;
    }
    mix(&after, m->big, all);
    mix(hash, m->out, elems * sizeof(float));
    free(sum);
    free(one);
    free(room);
    return wrong || err.code || before != after
               ? complain(c, "reduce_scatter", t, elems, wrong, m->window, &err)
               : 0;
}

static int check_broadcast(struct comm *c, struct room *m, size_t bytes, int root,
                           uint64_t *hash)
{
    accel_error_t err = { 0 };

    for (size_t i = 0; i < bytes; i++)
        m->big[i] = (char)(int)value(comm_rank(c), i);
    m->big[bytes] = 0x5a;
    if (comm_broadcast(c, m->big, bytes, root, &err) != ACCEL_OK)
        return complain(c, "broadcast", ACCEL_U8, bytes, 0, m->window, &err);
    for (size_t i = 0; i < bytes; i++)
        if (m->big[i] != (char)(int)value(root, i))
            return complain(c, "broadcast", ACCEL_U8, bytes, i, m->window, &err);
    if (m->big[bytes] != 0x5a)
        return complain(c, "broadcast (overrun)", ACCEL_U8, bytes, bytes, m->window,
                        &err);
    mix(hash, m->big, bytes);
    return 0;
}

/* Rank r brings (r * bytes) / size + r bytes: all sizes differ. */
static int check_gather(struct comm *c, struct room *m, size_t bytes, int root)
{
    int n = comm_size(c), me = comm_rank(c);
    size_t mine = bytes * (size_t)me / (size_t)n + (size_t)me, sizes[n], at = 0;
    accel_error_t err = { 0 };
    void *all = NULL;

    for (size_t i = 0; i < mine; i++)
        m->big[i] = (char)(int)value(me, i);
    if (comm_gather(c, m->big, mine, root, &all, me == root ? sizes : NULL, &err) !=
        ACCEL_OK)
        return complain(c, "gather", ACCEL_U8, bytes, 0, m->window, &err);
    if (me != root)
        return all == NULL ? 0 : complain(c, "gather", ACCEL_U8, bytes, 0, 0, &err);
    for (int r = 0; r < n; r++) {
        size_t want = bytes * (size_t)r / (size_t)n + (size_t)r;

        for (size_t i = 0; i < want; i++, at++)
            if (sizes[r] != want || ((char *)all)[at] != (char)(int)value(r, i))
                return complain(c, "gather", ACCEL_U8, bytes, i, m->window, &err);
    }
    free(all);
    return 0;
}

/* Types without arithmetic: bytes. */
static int check_gather_bytes(struct comm *c, struct room *m, accel_dtype_t t,
                              size_t elems)
{
    size_t bytes = elems * accel_dtype_bytes(t), wrong = 0;
    accel_error_t err = { 0 };

    for (size_t i = 0; i < bytes; i++)
        m->big[(size_t)comm_rank(c) * bytes + i] = (char)(int)value(comm_rank(c), i);
    if (comm_all_gather(c, m->big, elems, t, &err) != ACCEL_OK)
        return complain(c, "all_gather", t, elems, 0, m->window, &err);
    for (size_t i = 0; i < (size_t)comm_size(c) * bytes; i++)
        wrong += m->big[i] != (char)(int)value((int)(i / bytes), i % bytes);
    return wrong ? complain(c, "all_gather", t, elems, wrong, m->window, &err) : 0;
}

static int check_size(struct comm *c, struct room *m, size_t elems, uint64_t *hash)
{
    size_t types = elems <= LONG ? ACCEL_ARRAY_SIZE(dtypes) : 1;
    int last_op = elems <= LONG ? COMM_MIN : COMM_SUM;
    int bad = 0;

    for (size_t k = 0; !bad && k < types; k++) {
        accel_dtype_t t = dtypes[k];

        bad = check_all_gather(c, m, t, elems, hash);
        for (int op = COMM_SUM; !bad && op <= last_op; op++)
            bad = check_all_reduce(c, m, t, elems, (enum comm_op)op, hash);
        if (!bad && (t == ACCEL_F32 || t == ACCEL_BF16))
            bad = check_reduce_scatter(c, m, t, elems, false, hash) ||
                  check_reduce_scatter(c, m, t, elems, true, hash);
    }
    if (!bad)
        bad = check_scaled_scatter(c, m, ACCEL_F16, elems, hash);
    for (int t = ACCEL_F8E4M3; !bad && elems <= LONG && t <= ACCEL_F8E5M2; t++)
        bad = check_scaled_scatter(c, m, (accel_dtype_t)t, elems, hash);
    for (int t = ACCEL_F16; !bad && elems <= LONG && t <= ACCEL_F8E5M2; t++)
        bad = check_gather_bytes(c, m, (accel_dtype_t)t, elems);
    if (!bad)
        bad = check_broadcast(c, m, elems * 3, 0, hash) ||
              check_broadcast(c, m, elems * 3, comm_size(c) - 1, hash) ||
              check_gather(c, m, elems * 3, comm_size(c) / 2);
    return bad;
}

int comm_ref_check(struct comm *c, size_t max_elems, uint64_t *hash)
{
    static const size_t sizes[] = { 0, 1, 7, 1000, 4099, 70001, 1u << 20 };
    size_t bytes = max_elems * 8 * (size_t)comm_size(c) + 4096;
    struct room room[2] = { { .window = false }, { .window = true } };
    accel_error_t err = { 0 };
    void *big, *out;
    int bad = 0;

    room[0].big = malloc(bytes);
    room[0].out = malloc(max_elems * sizeof(float) + 4);
    if (!room[0].big || !room[0].out)
        return 1;
    if (comm_alloc(c, MEMORY_WORK, bytes, &big, &err) != ACCEL_OK ||
        comm_alloc(c, MEMORY_WORK, max_elems * sizeof(float) + 4, &out, &err) !=
            ACCEL_OK)
        return complain(c, "alloc", ACCEL_U8, bytes, 0, true, &err);
    room[1].big = big;
    room[1].out = out;
    for (size_t i = 0; i < bytes; i += 509)
        if (room[1].big[i] != 0)
            return complain(c, "alloc (not zero)", ACCEL_U8, bytes, i, true, &err);
    for (size_t k = 0; !bad && k < ACCEL_ARRAY_SIZE(sizes); k++)
        for (int w = 0; !bad && w < 3 && sizes[k] <= max_elems; w++) /* 2: mixed */
            bad = check_size(c, &room[w < 2 ? w : comm_rank(c) % 2], sizes[k], hash);
    if (!bad && comm_barrier(c, &err) != ACCEL_OK)
        bad = complain(c, "barrier", ACCEL_U8, 0, 0, false, &err);
    free(room[0].big);
    free(room[0].out);
    return bad;
}
