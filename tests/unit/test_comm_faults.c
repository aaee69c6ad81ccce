/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that goes wrong between two collectives, whichever they are: killed, closed,
 * late, or in another call. The others learn it in the next call, from what has
 * happened and not from the clock, are told which rank, and stay failed.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_impl.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

enum { RANKS = 3, WRONG = 1, FEW = 8, LARGE = 100000 };

/* Far beyond the harness's patience: who only notices by the clock does not pass. */
#define NEVER_MS 3600000

/* One that hangs is enough: the others would, too, each as long as that. */
static bool hung;

enum way { KILLED, CLOSED };

struct job {
    const char *backend;
    int first, second; /* of calls[] */
    enum way way;
    char (*text)[sizeof(((accel_error_t *)0)->text)]; /* shared: [rank] */
};

enum kind { BARRIER, ALL_GATHER, SCATTER, REDUCE, BROADCAST, GATHER, ALLOC, SPLIT };

static const struct call {
    const char *name;
    enum kind kind;
    size_t elems; /* of a broadcast and an allocation the bytes */
    enum comm_op op;
    int root;
    accel_dtype_t type;
} calls[] = {
    { "barrier", .kind = BARRIER },
    { "all_gather", ALL_GATHER, .elems = FEW },
    { "all_gather of much", ALL_GATHER, .elems = LARGE },
    { "reduce_scatter", SCATTER, .elems = FEW },
    { "reduce_scatter of much", SCATTER, .elems = LARGE },
    { "all_reduce", REDUCE, FEW, .op = COMM_MAX },
    { "all_reduce of much", REDUCE, LARGE, .op = COMM_SUM },
    { "broadcast", BROADCAST, LARGE, .root = WRONG },
    { "gather", GATHER, .elems = 100 },
    { "alloc", ALLOC, .elems = 4096 },
    { "split", .kind = SPLIT },
};

static accel_status_t make_call(struct comm *c, const struct call *k,
                                accel_error_t *err)
{
    static float in[RANKS * LARGE], out[RANKS * LARGE];
    struct comm *group = NULL;
    size_t sizes[RANKS];
    void *p = NULL;
    accel_status_t st;

    switch (k->kind) {
    case BARRIER:
        return comm_barrier(c, err);
    case ALL_GATHER:
        return comm_all_gather(c, in, k->elems, ACCEL_F32, err);
    case SCATTER:
        return comm_reduce_scatter(c, in, out, k->elems, ACCEL_F32, 1, false, err);
    case REDUCE:
        return comm_all_reduce(c, in, k->elems, k->type, k->op, err);
    case BROADCAST:
        return comm_broadcast(c, in, k->elems, k->root, err);
    case ALLOC:
        return comm_alloc(c, MEMORY_WORK, k->elems, &p, err);
    case GATHER:
        st = comm_gather(c, in, k->elems, 0, &p, sizes, err);
        free(p);
        return st;
    case SPLIT:
        st = comm_split(c, 0, 0, &group, err);
        comm_close(group);
        return st;
    }
    return ACCEL_EBUG;
}

/* Over the network some ranks need no other for it. */
static bool made_alone(const struct call *k)
{
    return k->kind == GATHER || k->kind == ALLOC;
}

static struct comm *open_comm(struct boot *b, const char *backend, int timeout_ms)
{
    struct comm_options o = { .backend = backend,
                              .timeout_ms = timeout_ms,
                              .window_bytes = (size_t)8 << 20 };
    accel_error_t err = { 0 };
    struct comm *c = NULL;

    if (comm_open(&c, b, &o, &err) != ACCEL_OK)
        fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return c;
}

/* All make the first call; then one goes wrong, and the others make the second. */
static int rank_main(struct boot *b, void *arg)
{
    const struct job *job = arg;
    struct comm *c = open_comm(b, job->backend, NEVER_MS);
    accel_error_t err = { 0 }, again = { 0 };
    accel_status_t s;

    if (!c)
        return 2;
    if (make_call(c, &calls[job->first], &err) != ACCEL_OK && b->rank == WRONG)
        return 3;
    if (b->rank == WRONG) {
        if (job->way == KILLED)
            raise(SIGKILL);
        comm_close(c);
        return 0;
    }
    /* Who is slow may find the peer gone in the first call already. */
    s = err.code ? err.code : make_call(c, &calls[job->second], &err);
    if (s != ACCEL_EPEER)
        return 4;
    snprintf(job->text[b->rank], sizeof(job->text[b->rank]), "%s", err.text);
    if (comm_barrier(c, &again) != s || strcmp(again.text, err.text) != 0)
        return 5;
    comm_close(c);
    return 0;
}

/* Who is told second may blame the first who gave up. */
static bool one_case(struct job *job, const char *what)
{
    char want[64];
    int status[RANKS];

    if (hung)
        return false;

    snprintf(want, sizeof(want), "rank %d %s", WRONG, what);
    memset(job->text, 0, RANKS * sizeof(*job->text));
    fork_world_nodes(RANKS, 1, rank_main, job, HANG_S, status);
    if (status[0] == 0 && status[2] == 0 &&
        status[WRONG] == (job->way == KILLED ? 128 + SIGKILL : 0) &&
        (strstr(job->text[0], want) || strstr(job->text[2], want)))
        return true;
    hung = status[0] == 128 + SIGKILL || status[2] == 128 + SIGKILL;
    tap_diag("%s: %s, %s: ended %d %d %d: %s; %s", job->backend, calls[job->first].name,
             calls[job->second].name, status[0], status[1], status[2], job->text[0],
             job->text[2]);
    return false;
}

static void test_between(struct job *job, enum way way, const char *words,
                         const char *what)
{
    const int count = (int)ACCEL_ARRAY_SIZE(calls);

    job->way = way;
    for (job->second = 0; job->second < count; job->second++) {
        bool good = true;

        /* Each call comes before each other once over the table. */
        for (job->first = 0; job->first < count && good;
             job->first += way == KILLED ? 1 : count - 1)
            good = one_case(job, what);
        tap_ok(good, "%s: a rank %s, then %s", job->backend, words,
               calls[job->second].name);
    }
}

/* ---- a rank that is only late ---------------------------------------------------- */

struct late {
    _Atomic int *gone; /* shared: how many gave up */
    int late;          /* this many ranks, the last ones, come late */
    char (*text)[sizeof(((accel_error_t *)0)->text)];
};

/* Who comes in time gives up; who is late then finds the others gone. */
static int late_rank(struct boot *b, void *arg)
{
    const struct late *job = arg;
    bool late = b->rank >= RANKS - job->late;
    struct comm *c = open_comm(b, "shm", late ? NEVER_MS : 300);
    accel_error_t err = { 0 };
    accel_status_t s;

    if (!c || comm_barrier(c, &err) != ACCEL_OK)
        return 2;
    while (late && atomic_load(job->gone) < RANKS - job->late)
        usleep(1000);
    s = comm_barrier(c, &err);
    if (late && s == ACCEL_OK) /* the others had come, after all */
        s = comm_barrier(c, &err);
    if (s != ACCEL_EPEER)
        return 3;
    snprintf(job->text[b->rank], sizeof(job->text[b->rank]), "%s", err.text);
    atomic_fetch_add(job->gone, 1);
    while (!late && atomic_load(job->gone) < RANKS)
        usleep(1000); /* it has given up, and is still there */
    comm_close(c);
    return 0;
}

static void test_late(struct late *job)
{
    for (job->late = 1; job->late < RANKS && !hung; job->late++) {
        atomic_store(job->gone, 0);
        tap_is_int(fork_world(RANKS, late_rank, job, HANG_S), 0,
                   "%d ranks that come late", job->late);
        tap_is_str(job->text[0],
                   job->late == 1
                       ? "barrier #2: rank 2 did not arrive within 0.3 s"
                       : "barrier #2: ranks 1, 2 did not arrive within 0.3 s",
                   "are given up, and named");
        tap_ok(strstr(job->text[2], ": barrier #2: rank") &&
                   strstr(job->text[2], "2 did not arrive within 0.3 s"),
               "and learn why the others have given up: %s", job->text[2]);
    }
}

/* ---- a rank that says why -------------------------------------------------------- */

#ifdef HAVE_UCX
/* Rank 1 has no transport: it says what UCX says, and the others that it was rank 1. */
static int no_transport(struct boot *b, void *arg)
{
    const struct comm_options o = { .backend = "ucx", .timeout_ms = NEVER_MS };
    accel_error_t err = { 0 };
    struct comm *c = NULL;

    (void)arg;
    if (b->rank == 1)
        setenv("UCX_TLS", "nonesuch", 1);
    if (comm_open(&c, b, &o, &err) == ACCEL_OK) {
        comm_close(c);
        return 2;
    }
    if (message_of(&err) != A0509 || !err.hint[0])
        return 3;
    return !strncmp(err.text,
                    b->rank == 1 ? "UCX: initialization: " : "rank 1 could not start",
                    21)
               ? 0
               : 4;
}
#endif

/* Rank 3 gives up. Rank 2 waits for it in their group, ranks 0 and 1 wait in theirs and
 * in the whole, for others that wait. */
static int told_rank(struct boot *b, void *arg)
{
    const char *backend = arg;
    struct comm *c = open_comm(b, backend, NEVER_MS), *group = NULL;
    accel_error_t err = { 0 }, again = { 0 };
    accel_status_t s;

    if (!c || comm_split(c, b->rank / 2, 0, &group, &err) != ACCEL_OK)
        return 2;
    if (b->rank == 3) {
        accel_fail_at(&err, A0801, "disk 7", "buy another", "the disk is full");
        comm_abandon(group, &err);
        /* what follows from the first reason is none */
        accel_fail_at(&again, A0801, "disk 8", "buy none", "that one as well");
        comm_abandon(group, &again);
        s = comm_barrier(c, &again);
    } else {
        s = comm_barrier(b->rank == 1 ? c : group, &err);
    }
    if (s != ACCEL_EIO || strcmp(err.where, "disk 7") ||
        strcmp(err.hint, "buy another"))
        return 3;
    if (strcmp(err.text,
               b->rank == 3 ? "the disk is full" : "rank 3: the disk is full"))
        return 4;
    comm_close(group);
    comm_close(c);
    return 0;
}

/* ---- calls that do not fit each other -------------------------------------------- */

static const struct pair {
    const char *what;
    struct call one, others;
} pairs[] = {
    { "another operation",
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX },
      { .kind = REDUCE, .elems = FEW, .op = COMM_MIN } },
    { "another number of elements",
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX },
      { .kind = REDUCE, .elems = 9, .op = COMM_MAX } },
    { "another type",
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX },
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX, .type = ACCEL_F64 } },
    { "another call of the same size",
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX },
      { .kind = ALL_GATHER, .elems = FEW } },
    { "another slice",
      { .kind = ALL_GATHER, .elems = FEW },
      { .kind = ALL_GATHER, .elems = 9 } },
    { "another root",
      { .kind = BROADCAST, .elems = 32, .root = 0 },
      { .kind = BROADCAST, .elems = 32, .root = RANKS - 1 } },
    { "a barrier instead",
      { .kind = BARRIER },
      { .kind = REDUCE, .elems = FEW, .op = COMM_MAX } },
    { "another allocation",
      { .kind = ALLOC, .elems = 4096 },
      { .kind = ALLOC, .elems = 8192 } },
};

struct differ {
    const char *backend;
    const struct pair *pair;
};

/* Rank 1 makes another call than the others: an error on all, and no result. */
static int differing(struct boot *b, void *arg)
{
    const struct differ *d = arg;
    struct comm *c = open_comm(b, d->backend, NEVER_MS);
    accel_error_t err = { 0 };
    accel_status_t s;

    if (!c)
        return 2;
    s = make_call(c, b->rank == WRONG ? &d->pair->one : &d->pair->others, &err);
    if (s != ACCEL_EMISMATCH && s != ACCEL_EPEER)
        return 3;
    comm_close(c);
    return s == ACCEL_EPEER ? 0 : 100; /* who was told by a peer, or saw it himself */
}

static void test_differing(const char *backend)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pairs) && !hung; i++) {
        struct differ d = { backend, &pairs[i] };
        int status[RANKS], saw = 0, other = 0;

        if (strcmp(backend, "shm") != 0 &&
            (pairs[i].one.kind == ALLOC || pairs[i].one.kind == BROADCAST))
            continue; /* over the network memory is a rank's own, and so is the root */
        fork_world_nodes(RANKS, 1, differing, &d, HANG_S, status);
        for (int r = 0; r < RANKS; r++) {
            hung = hung || status[r] == 128 + SIGKILL;
            saw += status[r] == 100;
            other += status[r] != 100 && status[r] != 0;
        }
        tap_ok(saw >= 1 && other == 0, "%s: %s is noticed (%d %d %d)", backend,
               pairs[i].what, status[0], status[1], status[2]);
    }
}

/* ---- limits ---------------------------------------------------------------------- */

/* What a window gives does not overlap, is there on all ranks, and ends with the
 * window. */
static int window_of(struct boot *b, void *arg)
{
    static const size_t sizes[] = { 1, 4095, 4096, 4097, 100000, 1 };
    struct comm *c = open_comm(b, arg, NEVER_MS);
    char *p[ACCEL_ARRAY_SIZE(sizes)];
    accel_error_t err = { 0 };
    void *none = NULL;

    if (!c)
        return 2;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sizes); i++) {
        void *got;

        if (comm_alloc(c, MEMORY_WORK, sizes[i], &got, &err) != ACCEL_OK)
            return 3;
        p[i] = got;
        memset(p[i], (int)('a' + i), sizes[i]);
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sizes); i++)
        for (size_t k = 0; k < sizes[i]; k++)
            if (p[i][k] != (char)('a' + i))
                return 4;
    if (comm_alloc(c, MEMORY_WORK, (size_t)64 << 20, &none, &err) != ACCEL_ENOMEM ||
        none)
        return 5;
    comm_close(c);
    return 0;
}

/* Refused by the rank itself, before anybody else hears of it. */
static int refused(struct boot *b, void *arg)
{
    const size_t half = SIZE_MAX / 2 + 1;
    struct comm *c = open_comm(b, arg, NEVER_MS);
    float x[8] = { 0 };
    size_t sizes[RANKS];
    void *all;
    int wrong = 0;

    if (!c)
        return 2;
    wrong += comm_broadcast(c, x, 4, RANKS, NULL) != ACCEL_EINVAL;
    wrong += comm_broadcast(c, x, 4, -1, NULL) != ACCEL_EINVAL;
    wrong += comm_gather(c, x, 4, RANKS, &all, sizes, NULL) != ACCEL_EINVAL;
    wrong += comm_gather(c, x, 4, b->rank, NULL, sizes, NULL) != ACCEL_EINVAL;
    wrong += comm_gather(c, x, 4, b->rank, &all, NULL, NULL) != ACCEL_EINVAL;
    wrong +=
        comm_all_gather(c, x, half / 4 / RANKS + 1, ACCEL_F32, NULL) != ACCEL_EINVAL;
    wrong += comm_all_gather(c, x, SIZE_MAX, ACCEL_F32, NULL) != ACCEL_EINVAL;
    wrong += comm_all_gather(c, x, 1, (accel_dtype_t)99, NULL) != ACCEL_EINVAL;
    wrong += comm_reduce_scatter(c, x, x, 1, ACCEL_I64, 1, false, NULL) != ACCEL_EINVAL;
    wrong +=
        comm_reduce_scatter(c, x, NULL, 1, ACCEL_F64, 1, false, NULL) != ACCEL_EINVAL;
    wrong += comm_all_reduce(c, x, 1, ACCEL_U8, COMM_SUM, NULL) != ACCEL_EINVAL;
    wrong += comm_all_reduce(c, x, 1, ACCEL_I32, COMM_SUM, NULL) != ACCEL_EINVAL;
    wrong += comm_alloc(c, MEMORY_WORK, half, &all, NULL) != ACCEL_EINVAL;
    wrong += comm_barrier(c, NULL) != ACCEL_OK;
    comm_close(c);
    return wrong;
}

/* Each rank brings as many bytes as no other, the first one the most. */
static int gathered(struct boot *b, void *arg)
{
    struct comm *c = open_comm(b, arg, NEVER_MS);
    const size_t mine = (size_t)(RANKS - b->rank) * 70000 + 1;
    char *x = malloc(mine), *all = NULL;
    size_t sizes[RANKS] = { 0 }, at = 0, wrong = 0;

    if (!c || !x)
        return 2;
    memset(x, 'a' + b->rank, mine);
    if (comm_gather(c, x, mine, RANKS - 1, (void **)(void *)&all, sizes, NULL) !=
        ACCEL_OK)
        return 3;
    for (int r = 0; r < RANKS && all; r++) {
        wrong += sizes[r] != (size_t)(RANKS - r) * 70000 + 1;
        for (size_t i = 0; i < sizes[r]; i++, at++)
            wrong += all[at] != (char)('a' + r);
    }
    free(all);
    free(x);
    comm_close(c);
    return wrong || (b->rank == RANKS - 1 && at == 0) ? 4 : 0;
}

static void test_limits(void)
{
    if (hung)
        return;
    tap_is_int(fork_world(RANKS, window_of, "shm", HANG_S), 0,
               "what a window gives is one's own, and no more than there is");
    tap_is_int(fork_world(RANKS, gathered, "shm", HANG_S), 0,
               "what ranks bring to a gather lies behind each other");
    tap_is_int(fork_world(RANKS, refused, "shm", HANG_S), 0,
               "what cannot be is refused, and the rest goes on");
#ifdef HAVE_UCX
    tap_is_int(fork_world(RANKS, refused, "ucx", HANG_S), 0,
               "ucx: what cannot be is refused, and the rest goes on");
#endif
}

/* A rank that was stopped itself has as much time as before; the missing are
 * counted. */
static void test_clock(void)
{
    const int64_t second = 1000000000;
    struct comm c = { .size = 40, .timeout_ns = second };
    accel_error_t err = { 0 };
    bool silent[40];

    tap_ok(!comm_expired(&c), "the clock of a call starts when it is first asked");
    c.deadline_ns = clock_ns() - 5 * second;
    c.asked_ns = clock_ns() - 10 * second;
    tap_ok(!comm_expired(&c), "what passed while the job was suspended does not count");
    c.deadline_ns = clock_ns() - 1;
    tap_ok(comm_expired(&c), "what passed while it waited does");
    c.args.call = COMM_CALL_BARRIER;
    for (int r = 0; r < c.size; r++)
        silent[r] = r > 0;
    comm_fail_silent(&c, silent, &err);
    tap_ok(strstr(err.text, "ranks 1, 2,") && strstr(err.text, " 32 and 7 more"), "%s",
           err.text);
    for (int r = 0; r < c.size; r++)
        silent[r] = r < 32;
    comm_fail_silent(&c, silent, &err);
    tap_ok(strstr(err.text, " 31 did not arrive") != NULL, "%s", err.text);
}

int main(void)
{
    struct job job = { .backend = "shm",
                       .text = fork_shared(RANKS * sizeof(*job.text)) };
    struct late late = { .gone = fork_shared(sizeof(*late.gone)), .text = job.text };

    test_between(&job, KILLED, "is killed", "died");
    test_between(&job, CLOSED, "closes", "has already closed the communicator");
    test_late(&late);
    tap_is_int(fork_world(4, told_rank, "shm", HANG_S), 0,
               "shm: a rank that gives up says why, in all groups");
    test_clock();
    test_differing("shm");
    test_limits();
#ifdef HAVE_UCX
    tap_is_int(fork_world(4, told_rank, "ucx", HANG_S), 0,
               "ucx: a rank that gives up says why, in all groups");
    tap_is_int(fork_world(3, no_transport, NULL, HANG_S), 0,
               "ucx: a rank without a transport says so");
    test_differing("ucx");
    job.backend = "ucx";
    job.first = 0;
    job.way = KILLED;
    for (job.second = 0; job.second < (int)ACCEL_ARRAY_SIZE(calls); job.second++)
        if (!made_alone(&calls[job.second]))
            tap_ok(one_case(&job, ""), "ucx: a rank is killed, then %s",
                   calls[job.second].name);
#endif
    return tap_done();
}
