/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl on forked ranks with a stand-in for NCCL, found the way the real one is:
 * all collectives with the bits of shared memory, NCCL's own sums, and every way to
 * fail. The device is the CPU backend: its queues are done at once, what is late is
 * NCCL.
 */
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl.h"
#include "comm/reduce.h"
#include "common/env_names.h"
#include "numbers/wire.h"
#include "plan/exchange.h"
#include "tests/tap.h"
#include "tests/unit/comm_ref.h"
#include "tests/world/fork_world.h"

/* What the ranks do after a first barrier. */
enum act {
    ACT_GATHER,
    ACT_COLLECT,
    ACT_LAST_STAYS_AWAY,
    ACT_SECOND_DIES,
    ACT_DIFFER,
    ACT_SPLIT
};

struct job {
    const char *backend;
    size_t max_elems, scratch;
    bool library_sums;
    int timeout_ms;
    enum act act;
    struct comm *root;           /* of the rank itself */
    const char *const *rank_env; /* name, value, for rank 1; or NULL */
    const char *bus_id[4];
    _Atomic uint64_t *hash; /* shared: sum over the ranks */
    char (*text)[1024];     /* shared: [rank] error text */
};

static accel_status_t try_open(struct comm **c, struct backend **be, struct boot *b,
                               const struct job *job, accel_error_t *err)
{
    struct comm_options o = { .backend = job->backend,
                              .root = job->root,
                              .timeout_ms = job->timeout_ms,
                              .library_sums = job->library_sums,
                              .scratch_bytes = job->scratch };

    if (backend_cpu_open(be, 1, err) != ACCEL_OK)
        return ACCEL_EBUG;
    (*be)->bus_id = job->bus_id[b->rank % 4];
    o.device = *be;
    if (job->rank_env && b->rank == 1)
        setenv(job->rank_env[0], job->rank_env[1], 1);
    return comm_open(c, b, &o, err);
}

static int open_comm(struct comm **c, struct backend **be, struct boot *b,
                     const struct job *job)
{
    accel_error_t err = { 0 };

    if (try_open(c, be, b, job, &err) == ACCEL_OK)
        return 0;
    fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return 1;
}

static void close_comm(struct comm *c, struct backend *be)
{
    comm_close(c);
    backend_close(be);
}

/* ---- results --------------------------------------------------------------------- */

static int run_reference(struct boot *b, void *arg)
{
    const struct job *job = arg;
    uint64_t hash = 0xcbf29ce484222325u;
    int fds = tap_open_files();
    struct backend *be;
    struct comm *c;

    if (open_comm(&c, &be, b, job) != 0)
        return 2;
    if (strcmp(comm_backend(c), job->backend) != 0)
        return 3;
    if (comm_ref_check(c, job->max_elems, &hash) != 0)
        return 1;
    if (comm_ref_groups(c) != 0)
        return 7;
    if (!be->watch != (strcmp(job->backend, "nccl") != 0))
        return 5;
    comm_close(c);
    if (be->watch)
        return 6;
    backend_close(be);
    atomic_fetch_add(job->hash, hash);
    return tap_open_files() == fds ? 0 : 4;
}

static uint64_t reference(struct job *job, const char *backend, size_t scratch, int n)
{
    job->backend = backend;
    job->scratch = scratch;
    atomic_store(job->hash, 0);
    tap_is_int(fork_world(n, run_reference, job, 240), 0,
               "%s, %d rank%s: every operation, type and size", backend, n,
               n == 1 ? "" : "s");
    return atomic_load(job->hash);
}

static void test_results(struct job *job)
{
    static const int ranks[] = { 1, 2, 4 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ranks); i++) {
        int n = ranks[i];
        uint64_t hash;

        job->max_elems = n <= 2 ? 70001 : 4099;
        hash = reference(job, "shm", 0, n);
        tap_ok(reference(job, "nccl", 0, n) == hash, "  the bits of shared memory");
        tap_ok(reference(job, "nccl", 5000, n) == hash,
               "  and piece by piece, with little scratch");
    }
    setenv("FAKE_NCCL", "nomem", 1);
    reference(job, "nccl", 0, 2);
    setenv("FAKE_NCCL", "version=21805", 1);
    reference(job, "nccl", 0, 2);
    unsetenv("FAKE_NCCL");
}

/* ---- NCCL's own sums ------------------------------------------------------------- */

#define SUMS 1000

/* Blocks with a scale each are added in rank order even so. */
static bool scaled_sums(struct comm *c, int rank, int n, accel_dtype_t t)
{
    static float x[SUMS], out[SUMS], want[SUMS];
    const size_t part = wire_bytes(SUMS, t);
    char *in = calloc((size_t)n, part), *all = calloc((size_t)n, part);
    const void *src[4];
    accel_error_t err = { 0 };
    bool good;

    for (int r = 0; r < n; r++) {
        for (int i = 0; i < SUMS; i++)
            x[i] = 1.0f / (float)(1 + (i * 7 + r * 31) % 97);
        src[r] = all + (size_t)r * part;
        wire_narrow(all + (size_t)r * part, x, SUMS, t);
    }
    for (int r = 0; r < n; r++)
        memcpy(in + (size_t)r * part, src[rank], part);
    reduce_scaled_sum(want, src, n, SUMS, t, 0.5f, false);
    good = comm_reduce_scatter(c, in, out, SUMS, t, 0.5f, false, &err) == ACCEL_OK &&
           memcmp(out, want, sizeof(want)) == 0;
    free(in);
    free(all);
    return good;
}

/* Sums of numbers of mixed size, near enough to those in rank order, but not all the
 * same. */
static int library_sums(struct boot *b, void *arg)
{
    const struct job *job = arg;
    static float in[4 * SUMS], out[SUMS], all[SUMS];
    int n = b->size, differ = 0;
    accel_error_t err = { 0 };
    struct backend *be;
    struct comm *c;

    if (open_comm(&c, &be, b, job) != 0)
        return 2;
    for (int i = 0; i < n * SUMS; i++)
        in[i] = 1.0f / (float)(1 + (i * 7 + b->rank * 31) % 97);
    for (int i = 0; i < SUMS; i++) {
        out[i] = 2;
        all[i] = in[i];
    }
    if (comm_reduce_scatter(c, in, out, SUMS, ACCEL_F32, 0.5f, true, &err) !=
            ACCEL_OK ||
        comm_all_reduce(c, all, SUMS, ACCEL_F32, COMM_SUM, &err) != ACCEL_OK)
        return 3;
    for (int i = 0; i < SUMS; i++) {
        float sum = 0, whole = 0;

        for (int r = 0; r < n; r++) {
            sum += 1.0f / (float)(1 + ((b->rank * SUMS + i) * 7 + r * 31) % 97);
            whole += 1.0f / (float)(1 + (i * 7 + r * 31) % 97);
        }
        if (fabsf(out[i] - (2 + 0.5f * sum)) > 1e-6f * out[i] ||
            fabsf(all[i] - whole) > 1e-6f * whole)
            return 4;
        differ += all[i] != whole;
    }
    if (!scaled_sums(c, b->rank, n, ACCEL_F16) ||
        !scaled_sums(c, b->rank, n, ACCEL_F8E4M3))
        return 6;
    close_comm(c, be);
    return job->library_sums == (differ > 0) ? 0 : 5;
}

/* What is planned is taken, no byte more; of less than there is, nothing. */
static int reserves(struct boot *b, void *arg)
{
    static const struct {
        bool scatter;
        size_t elems;
        accel_dtype_t type;
    } rows[] = {
        { false, 0, ACCEL_F32 },    { false, 1, ACCEL_F32 },
        { false, 4099, ACCEL_F32 }, { true, 4099, ACCEL_BF16 },
        { true, 70001, ACCEL_F32 }, { true, 70001, ACCEL_F16 },
        { true, 7, ACCEL_F32 },     { true, 70001, ACCEL_F8E4M3 },
    };
    int bad = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows) && !bad; i++) {
        const size_t es = accel_dtype_bytes(rows[i].type), n = (size_t)b->size;
        const struct nccl_state *s;
        accel_error_t err = { 0 };
        struct backend *be;
        struct comm *c;
        size_t want;

        if (open_comm(&c, &be, b, arg) != 0)
            return 2;
        s = c->impl;
        want = rows[i].scatter
                   ? exchange_scatter_bytes(rows[i].elems, rows[i].type, n,
                                            s->scratch_most)
                   : exchange_reduce_bytes(rows[i].elems, es, n, s->scratch_most);
        bad = comm_reserve(c, rows[i].scatter, rows[i].elems, rows[i].type, &err) ||
              s->scratch_bytes != want ||
              comm_reserve(c, rows[i].scatter, 0, rows[i].type, &err) ||
              s->scratch_bytes != want;
        if (bad)
            fprintf(stderr, "# reserve %zu: %zu bytes, not %zu%s\n", i,
                    s->scratch_bytes, want, err.text);
        close_comm(c, be);
    }
    return bad;
}

static void test_library_sums(struct job *job)
{
    job->backend = "nccl";
    tap_is_int(fork_world(4, library_sums, job, 240), 0, "sums in rank order");
    tap_is_int(fork_world(4, reserves, job, 240), 0, "what is planned is reserved");
    job->library_sums = true;
    tap_is_int(fork_world(4, library_sums, job, 240), 0,
               "NCCL's own sums, in an order of its own");
    job->library_sums = false;
}

/* ---- failures on the way --------------------------------------------------------- */

static void keep_text(const struct job *job, int rank, const accel_error_t *err)
{
    snprintf(job->text[rank], sizeof(job->text[rank]), "A%04d %s", err->message,
             err->text);
}

/* The call that is to fail. Same traffic of another operation shows at the next
 * barrier. */
static accel_status_t failing_call(struct comm *c, enum act act, accel_error_t *err)
{
    float x[8] = { 0 };
    struct comm *group;
    accel_status_t s;
    size_t sizes[4];
    void *all;

    if (act == ACT_SPLIT)
        return comm_split(c, 0, 0, &group, err);
    if (act == ACT_COLLECT)
        return comm_gather(c, x, sizeof(x), 0, &all, sizes, err);
    if (act != ACT_DIFFER)
        return comm_all_gather(c, x, 1, ACCEL_F32, err);
    s = comm_all_reduce(c, x, 8, ACCEL_F32, comm_rank(c) ? COMM_MAX : COMM_MIN, err);
    return s == ACCEL_OK ? comm_barrier(c, err) : ACCEL_OK;
}

/* A failed communicator gives the same error again, at once, and so do waits for its
 * device; and it closes. */
static int fails(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 }, again = { 0 };
    struct backend *be;
    struct comm *c;

    if (open_comm(&c, &be, b, job) != 0 || comm_barrier(c, &err) != ACCEL_OK)
        return 2;
    if (job->act == ACT_SECOND_DIES && b->rank == 1)
        raise(SIGKILL);
    if (job->act == ACT_LAST_STAYS_AWAY && b->rank == b->size - 1) {
        while (atomic_load(job->hash) != (uint64_t)b->size - 1)
            sched_yield();
        close_comm(c, be);
        return 0;
    }
    if (failing_call(c, job->act, &err) == ACCEL_OK)
        return 3;
    keep_text(job, b->rank, &err);
    atomic_fetch_add(job->hash, 1);
    if (comm_barrier(c, &again) != err.code || strcmp(again.text, err.text) != 0)
        return 5;
    memset(&again, 0, sizeof(again));
    if (be->watch->poll(be->watch->user, false, &again) != err.code ||
        strcmp(again.text, err.text) != 0)
        return 6;
    close_comm(c, be);
    return 0;
}

static void test_act(struct job *job, enum act act, int ranks, const char *wish,
                     const char *what)
{
    job->act = act;
    atomic_store(job->hash, 0);
    if (wish)
        setenv("FAKE_NCCL", wish, 1);
    tap_is_int(fork_world(ranks, fails, job, 240), 0, "%s", what);
    unsetenv("FAKE_NCCL");
}

static int group_answer;

static int answer_send(const void *buf, size_t elems, int type, int peer,
                       nccl_comm_t *comm, nccl_stream_t *stream)
{
    (void)buf, (void)elems, (void)type, (void)peer, (void)comm, (void)stream;
    return group_answer;
}

/* NCCL may say of a call in a group that it is under way, which is no error yet. */
static void test_answers(void)
{
    static const int want[][2] = { { NCCL_SUCCESS, NCCL_SUCCESS },
                                   { NCCL_IN_PROGRESS, NCCL_SUCCESS },
                                   { NCCL_INVALID_USAGE, NCCL_INVALID_USAGE } };
    struct nccl_state n = { .api.send = answer_send };
    struct comm c = { .impl = &n };
    struct backend *be;

    backend_cpu_open(&be, 1, NULL);
    n.be = be;
    for (int i = 0; i < 3; i++) {
        int rc = NCCL_SUCCESS;

        group_answer = want[i][0];
        nccl_group_send(&c, &rc, 1, &n, 1);
        tap_is_int(rc, want[i][1], "a send in a group that answers %d", group_answer);
    }
    backend_close(be);
}

static void test_failures(struct job *job)
{
    int status[3];

    job->timeout_ms = 700;
    test_act(job, ACT_LAST_STAYS_AWAY, 3, NULL, "a silent rank");
    tap_ok(strncmp(job->text[0], "A050", 4) == 0 &&
               strstr(job->text[0], " all_gather #2: ") != NULL,
           "  %s", job->text[0]);
    job->act = ACT_SECOND_DIES;
    fork_world_nodes(3, 1, fails, job, 240, status);
    tap_ok(status[0] == 0 && status[1] == 137 && status[2] == 0,
           "a dead rank ends the others' wait (%d %d %d)", status[0], status[1],
           status[2]);
    tap_diag("  %s", job->text[2]);
    job->timeout_ms = HANG_S * 1000;
    test_act(job, ACT_GATHER, 2, "async=2:6", "a remote error");
    tap_is_str(
        job->text[0],
        "A0502 all_gather #2: another rank has ended (NCCL: remote process exited or "
        "there was a network error)",
        "  with the call");
    test_act(job, ACT_GATHER, 1, "async=2:3", "an error of NCCL");
    tap_is_str(
        job->text[0],
        "A0515 all_gather #2: ncclAllGather: internal error: the stand-in was asked "
        "to fail",
        "  with the call, NCCL's name for it and its reasons");
    test_act(job, ACT_COLLECT, 2, "async=2:6", "an error before bytes are collected");
    tap_is_str(job->text[0],
               "A0502 gather #2: another rank has ended (NCCL: remote process exited "
               "or there was a network error)",
               "  with the call");
    test_act(job, ACT_COLLECT, 2, "async=3:3", "an error while they are");
    tap_ok(strncmp(job->text[0], "A0515 gather #2: ", 17) == 0, "  %s", job->text[0]);
    test_act(job, ACT_SPLIT, 2, "split=3", "an error of a split");
    tap_is_str(job->text[0], "A0515 split #2: ncclCommSplit: internal error",
               "  is one of the communicator it was split from");
    test_act(job, ACT_DIFFER, 2, NULL, "differing calls");
    tap_is_str(job->text[0], "A0503 the ranks made different calls before barrier #3",
               "  are told");
}

/* Rank 1 says in host memory why it gives up: NCCL cannot say it. */
static int told(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 };
    struct backend *be;
    struct comm *c;

    if (comm_open(&job->root, b, NULL, &err) != ACCEL_OK ||
        open_comm(&c, &be, b, job) != 0)
        return 2;
    if (b->rank == 1) {
        accel_fail(&err, A0801, NULL, "the disk is gone");
        comm_abandon(c, &err);
        while (atomic_load(job->hash) != (uint64_t)b->size - 1)
            sched_yield();
    } else if (comm_barrier(c, &err) != ACCEL_EIO) {
        return 3;
    }
    keep_text(job, b->rank, &err);
    atomic_fetch_add(job->hash, 1);
    close_comm(c, be);
    comm_close(job->root);
    return 0;
}

static void test_told(struct job *job)
{
    job->timeout_ms = HANG_S * 1000;
    atomic_store(job->hash, 0);
    tap_is_int(fork_world(3, told, job, 240), 0, "a rank that gives up");
    tap_is_str(job->text[0], "A0801 rank 1: the disk is gone",
               "  says why where there is host memory for it");
}

/* ---- failures to open ------------------------------------------------------------ */

static int open_fails(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 };
    int fds = tap_open_files();
    struct backend *be;
    struct comm *c;

    if (try_open(&c, &be, b, job, &err) == ACCEL_OK)
        return 1;
    keep_text(job, b->rank, &err);
    backend_close(be);
    fds += b->rank == 0; /* an id that nobody used is NCCL's to the end */
    return !err.hint[0] ? 2 : tap_open_files() > fds ? 3 : 0;
}

static void refused(struct job *job, int ranks, const char *what, const char *first,
                    const char *second)
{
    memset(job->text, 0, 2 * sizeof(*job->text));
    tap_is_int(fork_world(ranks, open_fails, job, 240), 0, "refused: %s", what);
    tap_ok(strncmp(job->text[0], first, strlen(first)) == 0, "  %s", job->text[0]);
    if (second)
        tap_ok(strncmp(job->text[1], second, strlen(second)) == 0, "  %s",
               job->text[1]);
    job->rank_env = NULL;
    unsetenv("FAKE_NCCL");
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
}

static void test_openings(struct job *job)
{
    static const char *const lacks[] = { ENV_NCCL_LIBRARY,
                                         "/nonexistent/libnccl.so.2" };
    static const char late[] = "A0501 open #0: not under way within 0.7 s: some of 2 "
                               "ranks did not arrive";
    static const char *const older[] = { "FAKE_NCCL", "version=21903" };

    job->timeout_ms = HANG_S * 1000;
    setenv(ENV_NCCL_LIBRARY, "/nonexistent/libnccl.so.2", 1);
    refused(job, 1, "no library", "A0513 several GPUs need NCCL: /nonexistent/libnccl",
            NULL);
    setenv(ENV_NCCL_LIBRARY, "libm.so.6", 1);
    refused(job, 1, "another library",
            "A0514 libm.so.6 does not report an NCCL version", NULL);
    setenv("FAKE_NCCL", "version=21703", 1);
    refused(job, 1, "too old", "A0514 " NCCL_STANDIN " is NCCL 2.17.3; 2.18 or newer",
            NULL);
    setenv(ENV_NCCL_LIBRARY, NCCL_INCOMPLETE, 1);
    refused(job, 1, "a function is missing",
            "A0514 " NCCL_INCOMPLETE " is NCCL 2.28.9 but has no ncclCommRegister",
            NULL);
    job->rank_env = lacks;
    refused(job, 2, "one rank has no library",
            "A0513 rank 1: several GPUs need NCCL: /nonexistent/libnccl",
            "A0513 several GPUs need NCCL: /nonexistent/libnccl");
    job->rank_env = older;
    refused(job, 2, "two versions", "A0514 rank 1 has NCCL 2.19.3, rank 0 has 2.28.9",
            "A0514 rank 1 has NCCL 2.19.3, rank 0 has 2.28.9");
    setenv("FAKE_NCCL", "init=2", 1);
    refused(job, 2, "no connection",
            "A0515 open #0: ncclCommInitRankConfig: unhandled system error", "A0515 ");
    job->bus_id[0] = job->bus_id[1] = "0000:17:00.0";
    refused(job, 2, "two ranks with one GPU",
            "A0425 ranks 0 and 1 share GPU 0000:17:00.0",
            "A0425 ranks 0 and 1 share GPU");
    job->bus_id[0] = job->bus_id[1] = NULL;
    job->timeout_ms = 700;
    setenv("FAKE_NCCL", "silent=1", 1);
    refused(job, 2, "a rank never arrives", "A050", "A050");
    /* Who gives up first is seen by the other. */
    tap_ok(strstr(job->text[0], late) || strstr(job->text[1], late), "  %s", late);
    job->timeout_ms = HANG_S * 1000;
}

/* ---- the header, the library ----------------------------------------------------- */

/* Run-time half of the comparison with NCCL's own header (nccl_header.c): all functions
 * are there in the real library. */
static void test_real_library(void)
{
    struct nccl n;
    accel_error_t err = { 0 };
    void *lib = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    accel_status_t s;
    char text[16];

    if (!lib) {
        tap_skip(1, "there is no " NCCL_LIBRARY " here");
        return;
    }
    unsetenv(ENV_NCCL_LIBRARY);
    s = nccl_open(&n, &err);
    tap_is_int(s, ACCEL_OK, "NCCL %s has every function%s%s",
               nccl_version_text(n.version, text), s ? ": " : "", err.text);
    nccl_close(&n);
    dlclose(lib);
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
}

/* Threads of NCCL may still run when its last communicator is closed. */
static void test_stays(void)
{
    accel_error_t err = { 0 };
    struct nccl n;
    void *lib;

    if (nccl_open(&n, &err) != ACCEL_OK) {
        tap_ok(false, "NCCL: %s", err.text);
        return;
    }
    nccl_close(&n);
    lib = dlopen(NCCL_STANDIN, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    tap_ok(lib != NULL, "the library stays when nobody uses it any more");
    if (lib)
        dlclose(lib);
}

static void test_versions(void)
{
    char text[16];

    tap_is_str(nccl_version_text(22809, text), "2.28.9", "version 22809");
    tap_is_str(nccl_version_text(2708, text), "2.7.8", "version 2708, as before 2.9");
}

int main(void)
{
    struct job job = { .backend = "nccl",
                       .timeout_ms = HANG_S * 1000,
                       .hash = fork_shared(sizeof(*job.hash)),
                       .text = fork_shared(4 * sizeof(*job.text)) };

    setenv("OMP_NUM_THREADS", "1", 1);
    setenv(ENV_NCCL_LIBRARY, NCCL_STANDIN, 1);
    unsetenv("FAKE_NCCL");
    test_versions();
    test_results(&job);
    test_library_sums(&job);
    test_told(&job);
    test_answers();
    test_failures(&job);
    test_openings(&job);
    test_real_library();
    test_stays();
    return tap_done();
}
