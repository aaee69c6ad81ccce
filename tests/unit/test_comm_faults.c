/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that goes wrong between two collectives, whichever they are: killed, closed, given
 * up, or late. The others learn it in the next call, from what has happened and not from
 * the clock, are told which rank, and stay failed.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/tap.h"
#include "tests/unit/fork_world.h"

enum { RANKS = 3, WRONG = 1, LARGE = 100000 };

/* Far beyond the harness's patience: who only notices by the clock does not pass. */
#define NEVER_MS 3600000
#define PATIENCE 60

enum way { KILLED, CLOSED };

struct job {
    const char *backend;
    int first, second; /* of calls[] */
    enum way way;
    char (*text)[sizeof(((accel_error_t *)0)->text)]; /* shared: [rank] */
};

struct buffers {
    float *in, *out;
};

static accel_status_t barrier(struct comm *c, struct buffers *m, accel_error_t *err)
{
    (void)m;
    return comm_barrier(c, err);
}

static accel_status_t gather_few(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_all_gather(c, m->in, 8, ACCEL_F32, err);
}

static accel_status_t gather_many(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_all_gather(c, m->in, LARGE, ACCEL_F32, err);
}

static accel_status_t scatter_few(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_reduce_scatter(c, m->in, m->out, 8, ACCEL_F32, 1, false, err);
}

static accel_status_t scatter_many(struct comm *c, struct buffers *m,
                                   accel_error_t *err)
{
    return comm_reduce_scatter(c, m->in, m->out, LARGE, ACCEL_F32, 1, false, err);
}

static accel_status_t reduce_few(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_all_reduce(c, m->in, 8, ACCEL_F32, COMM_MAX, err);
}

static accel_status_t reduce_many(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_all_reduce(c, m->in, LARGE, ACCEL_F32, COMM_SUM, err);
}

static accel_status_t broadcast(struct comm *c, struct buffers *m, accel_error_t *err)
{
    return comm_broadcast(c, m->in, LARGE, WRONG, err);
}

static accel_status_t gather(struct comm *c, struct buffers *m, accel_error_t *err)
{
    size_t sizes[RANKS];
    void *all = NULL;
    accel_status_t s = comm_gather(c, m->in, 100, 0, &all, sizes, err);

    free(all);
    return s;
}

static accel_status_t alloc(struct comm *c, struct buffers *m, accel_error_t *err)
{
    void *p;

    (void)m;
    return comm_alloc(c, MEMORY_WORK, 4096, &p, err);
}

static accel_status_t split(struct comm *c, struct buffers *m, accel_error_t *err)
{
    struct comm *group = NULL;
    accel_status_t s = comm_split(c, 0, 0, &group, err);

    (void)m;
    comm_close(group);
    return s;
}

static const struct {
    const char *name;
    accel_status_t (*call)(struct comm *c, struct buffers *m, accel_error_t *err);
    bool alone; /* over the network some ranks need no other for it */
} calls[] = {
    { "barrier", barrier, false },
    { "all_gather", gather_few, false },
    { "all_gather of much", gather_many, false },
    { "reduce_scatter", scatter_few, false },
    { "reduce_scatter of much", scatter_many, false },
    { "all_reduce", reduce_few, false },
    { "all_reduce of much", reduce_many, false },
    { "broadcast", broadcast, false },
    { "gather", gather, true },
    { "alloc", alloc, true },
    { "split", split, false },
};

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
    struct buffers m = { calloc(RANKS * LARGE, sizeof(float)),
                         calloc(RANKS * LARGE, sizeof(float)) };
    struct comm *c = open_comm(b, job->backend, NEVER_MS);
    accel_error_t err = { 0 }, again = { 0 };
    accel_status_t s;

    if (!c || !m.in || !m.out)
        return 2;
    if (calls[job->first].call(c, &m, &err) != ACCEL_OK && b->rank == WRONG)
        return 3;
    if (b->rank == WRONG) {
        if (job->way == KILLED)
            raise(SIGKILL);
        comm_close(c);
        return 0;
    }
    /* Who is slow may find the peer gone in the first call already. */
    s = err.code ? err.code : calls[job->second].call(c, &m, &err);
    if (s != ACCEL_EPEER)
        return 4;
    snprintf(job->text[b->rank], sizeof(job->text[b->rank]), "%s", err.text);
    if (comm_barrier(c, &again) != s || strcmp(again.text, err.text) != 0)
        return 5;
    comm_close(c);
    free(m.in);
    free(m.out);
    return 0;
}

/* Who is told second may blame the first who gave up. */
static bool one_case(struct job *job, const char *what)
{
    char want[64];
    int status[RANKS];

    snprintf(want, sizeof(want), "rank %d %s", WRONG, what);
    memset(job->text, 0, RANKS * sizeof(*job->text));
    fork_world_nodes(RANKS, 1, rank_main, job, PATIENCE, status);
    if (status[0] == 0 && status[2] == 0 &&
        status[WRONG] == (job->way == KILLED ? 128 + SIGKILL : 0) &&
        (strstr(job->text[0], want) || strstr(job->text[2], want)))
        return true;
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

/* ---- a rank that is only late ------------------------------------------------------------ */

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
    for (job->late = 1; job->late < RANKS; job->late++) {
        atomic_store(job->gone, 0);
        tap_is_int(fork_world(RANKS, late_rank, job, PATIENCE), 0,
                   "%d ranks that come late", job->late);
        tap_is_str(job->text[0],
                   job->late == 1
                       ? "barrier #2: rank 2 did not arrive within 0.3 s"
                       : "barrier #2: ranks 1, 2 did not arrive within 0.3 s",
                   "are given up, and named");
        tap_is_str(job->text[2], "barrier #3: rank 0 gave up after an error of its own",
                   "and learn that the others have given up");
    }
}

int main(void)
{
    char *shared =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job job = { .backend = "shm" };
    struct late late;

    if (shared == MAP_FAILED)
        return 1;
    late.gone = (_Atomic int *)(void *)shared;
    job.text = late.text = (char(*)[sizeof(*job.text)])(void *)(shared + 256);
    setenv("UCX_NET_DEVICES", "lo", 0);
    test_between(&job, KILLED, "is killed", "died");
    test_between(&job, CLOSED, "closes", "has closed the communicator already");
    test_late(&late);
#ifdef HAVE_UCX
    job.backend = "ucx";
    job.first = 0;
    job.way = KILLED;
    for (job.second = 0; job.second < (int)ACCEL_ARRAY_SIZE(calls); job.second++)
        if (!calls[job.second].alone)
            tap_ok(one_case(&job, ""), "ucx: a rank is killed, then %s",
                   calls[job.second].name);
#endif
    munmap(shared, 8192);
    return tap_done();
}
