/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer that is lost while memory is allocated or given back: the wait ends with the
 * peer's error, and closing does not wait for ever for a collective that never ends.
 * Also threads other than the opener's, which use their own device, priorities of
 * queues, and the pool of scratch. On the stand-in only.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda_load.h"
#include "backend/cuda_sizes.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

#define MIB  ((size_t)1 << 20)
#define ROOM (CUDA_STAGING_BYTES + 1)

static struct {
    void (*reset)(void);
    cudaError_t (*enqueue)(cudaStream_t stream, int (*poll)(void *data), void *data);
    void (*counts)(struct fakecuda_counts *out);
    cudaError_t (*priority)(cudaStream_t stream, int *out);
    cudaError_t (*device)(int *out);
    cudaError_t (*pool)(cudaMemPool_t *out, int device);
    cudaError_t (*pool_says)(cudaMemPool_t pool, enum cudaMemPoolAttr what, void *out);
} fake;

/* A collective whose peer is gone: known after some polls. */
struct lost {
    struct backend_watch watch;
    int polls, firsts; /* firsts: said to begin a wait, before it is known */
    bool can_abort;    /* the collective ends when that is known */
    bool ended;
};

static accel_status_t poll_lost(void *user, bool first, accel_error_t *err)
{
    struct lost *lost = user;

    lost->firsts += first && lost->polls < 20;
    if (++lost->polls < 20)
        return ACCEL_OK;
    lost->ended = lost->can_abort;
    return accel_fail(err, A0502, "see the other ranks", "another rank has ended");
}

static int has_ended(void *data)
{
    return ((struct lost *)data)->ended;
}

static struct backend *open_device(int device)
{
    struct backend *be = NULL;
    accel_error_t err = { .text = "" };

    if (!tap_ok(!backend_cuda_open(&be, device, &err), "device %d opens %s", device,
                err.text))
        exit(tap_done());
    return be;
}

/* A device of 256 MiB, with that collective on a queue. */
static struct backend *open_lost(struct lost *lost, bool can_abort)
{
    struct backend *be;

    fake.reset();
    be = open_device(0);
    *lost = (struct lost){ .watch = { NULL, poll_lost, lost }, .can_abort = can_abort };
    return be;
}

static void lose(struct backend *be, struct lost *lost)
{
    fake.enqueue(be->native(be, QUEUE_GATHER), has_ended, lost);
    be->watch = &lost->watch;
}

static void is_lost(const struct backend *be, const char *what)
{
    accel_error_t err = { .text = "" };

    tap_ok(be->check(be, &err) != ACCEL_OK && err.message == 502, "%s: %s", what,
           err.text);
}

/* Calls that wait for the device, and what they return or leave. */
static accel_status_t by_sync(struct backend *be, void *p, accel_error_t *err)
{
    (void)p;
    return be->sync(be, err);
}

static accel_status_t by_fill_and_sync(struct backend *be, void *p, accel_error_t *err)
{
    be->fill(be, p, ACCEL_F32, 4, 1.0f);
    return be->sync(be, err);
}

static accel_status_t by_bytes(struct backend *be, void *p, accel_error_t *err)
{
    float got[4];

    be->to_host_bytes(be, got, p, sizeof(got));
    return be->sync(be, err);
}

/* More than the staging buffers hold, behind the collective. */
static accel_status_t by_staging(struct backend *be, void *p, accel_error_t *err)
{
    void *host = calloc(1, ROOM);

    be->use(be, QUEUE_GATHER);
    be->from_host(be, p, host, ROOM);
    free(host);
    return be->sync(be, err);
}

static void test_wait(void)
{
    static const struct {
        const char *what;
        accel_status_t (*wait)(struct backend *be, void *p, accel_error_t *err);
    } rows[] = { { "a sync", by_sync },
                 { "a sync behind a kernel", by_fill_and_sync },
                 { "a copy to the host", by_bytes },
                 { "a long copy from the host", by_staging } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { .text = "" };
        struct backend *be;
        struct lost lost;
        void *p = NULL;

        be = open_lost(&lost, true);
        be->alloc(be, MEMORY_WORK, ROOM, &p, NULL);
        lose(be, &lost);
        tap_ok(rows[i].wait(be, p, &err) != ACCEL_OK && err.message == 502,
               "%s ends with the peer's error: %s", rows[i].what, err.text);
        tap_ok(lost.firsts <= 2, "after %d waits", lost.firsts);
        is_lost(be, "which stays");
        be->free(be, p);
        be->close(be);
    }
}

/* More than there is: the second try waits for the device. */
static void test_alloc(void)
{
    accel_error_t err = { .text = "" };
    struct backend *be;
    struct lost lost;
    void *p = NULL;

    be = open_lost(&lost, true);
    lose(be, &lost);
    tap_ok(be->alloc(be, MEMORY_WORK, 1024 * MIB, &p, &err) != ACCEL_OK && !p,
           "an allocation that has to wait ends");
    tap_is_int(err.message, 502, "with the peer's error, not with a lack of memory");
    is_lost(be, "which stays");
    be->close(be);
}

/* What an aborted collective leaves free is given back. */
static void test_free(void)
{
    struct fakecuda_counts before, after;
    struct backend_usage usage;
    struct backend *be;
    struct lost lost;
    char *range;
    void *p = NULL;

    be = open_lost(&lost, true);
    be->alloc(be, MEMORY_WORK, MIB, &p, NULL);
    lose(be, &lost);
    fake.counts(&before);
    be->free(be, p);
    fake.counts(&after);
    is_lost(be, "a free ends");
    tap_is_int((long long)(after.frees - before.frees), 1, "and frees");
    be->close(be);
    be = open_lost(&lost, true);
    range = be->reserve(be, 64 * MIB);
    tap_ok(range && be->commit(be, range, 0, 32 * MIB), "a range");
    lose(be, &lost);
    be->release(be, range, 64 * MIB, 32 * MIB);
    be->usage(be, &usage);
    is_lost(be, "a release ends");
    tap_is_int((long long)usage.held[MEMORY_ACTIVATIONS], 0, "and releases");
    be->close(be);
}

/* Nothing that the collective may use is given back, and nobody waits for it twice. */
static void test_stuck(void)
{
    static struct backend *be; /* never freed: for the leak checker */
    struct backend_usage usage;
    struct lost lost;
    int64_t begin;
    char *range;
    void *p = NULL;

    be = open_lost(&lost, false);
    range = be->reserve(be, 64 * MIB);
    tap_ok(range && be->commit(be, range, 0, 32 * MIB), "a range");
    be->alloc(be, MEMORY_WORK, MIB, &p, NULL);
    lose(be, &lost);
    be->free(be, p);
    is_lost(be, "a collective that no abort ends: a free ends");
    begin = clock_ns();
    be->release(be, range, 64 * MIB, 32 * MIB);
    be->usage(be, &usage);
    tap_ok(usage.held[MEMORY_WORK] >= MIB && usage.held[MEMORY_ACTIVATIONS] == 32 * MIB,
           "what it may use stays");
    be->close(be);
    tap_ok(clock_ns() - begin < 1000000000, "release and close do not wait again");
    fake.reset();
}

/* What a thread calls goes to the backend's device, whatever the thread's was. */
static bool use_device(const struct backend *be, int device)
{
    float got[4] = { 0 };
    void *p = NULL;
    int now = -1;

    if (!be->alloc(be, MEMORY_WORK, sizeof(got), &p, NULL)) {
        be->fill(be, p, ACCEL_F32, 4, 7.0f);
        be->to_host(be, got, p, ACCEL_F32, 4);
        be->free(be, p);
    }
    fake.device(&now);
    return now == device && got[3] == 7.0f && !be->check(be, NULL);
}

/* For a thread of its own; NULL: it failed. */
static void *use_second(void *be)
{
    return use_device(be, 1) ? be : NULL;
}

static void test_threads(void)
{
    struct backend *one, *two;
    pthread_t thread;
    void *done = NULL;

    fake.reset();
    two = open_device(1);
    if (pthread_create(&thread, NULL, use_second, two))
        exit(1);
    pthread_join(thread, &done);
    tap_ok(done != NULL, "a thread that has not opened the device");
    one = open_device(0);
    tap_ok(use_device(two, 1) && use_device(one, 0) && use_device(two, 1),
           "a thread that uses two in turn");
    one->close(one);
    two->close(two);
}

static void test_priorities(void)
{
    static const bool urgent[] = {
        [QUEUE_GATHER] = true, [QUEUE_REDUCE] = true, [QUEUE_SAVE] = false
    };
    struct backend *be;

    fake.reset();
    be = open_device(0);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        int priority = 1;

        fake.priority(be->native(be, (enum backend_queue)q), &priority);
        tap_is_int(priority, urgent[q] ? -5 : 0, "priority of queue %d", q);
    }
    be->close(be);
}

static void test_pool(void)
{
    cudaMemPool_t pool;
    struct backend *be;
    uint64_t kept = 0;

    fake.reset();
    be = open_device(0);
    fake.pool(&pool, 0);
    fake.pool_says(pool, cudaMemPoolAttrReleaseThreshold, &kept);
    tap_ok(kept == UINT64_MAX, "the pool keeps all that is freed");
    be->close(be);
}

int main(void)
{
    struct backend *first;

    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("FAKE_CUDA_MEMORY", "268435456", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    first = cuda_device(); /* loads the stand-in, or not */
    first->close(first);
    if (!cuda_stand_in("fakecuda_reset", &fake.reset))
        tap_skip_all("a GPU loses no peers at will");
    cuda_stand_in("fakecuda_enqueue", &fake.enqueue);
    cuda_stand_in("fakecuda_counts_get", &fake.counts);
    cuda_stand_in("cudaStreamGetPriority", &fake.priority);
    cuda_stand_in("cudaGetDevice", &fake.device);
    cuda_stand_in("cudaDeviceGetDefaultMemPool", &fake.pool);
    cuda_stand_in("cudaMemPoolGetAttribute", &fake.pool_says);
    alarm(HANG_S); /* a wait that does not end fails */
    test_wait();
    test_alloc();
    test_free();
    test_stuck();
    test_threads();
    test_priorities();
    test_pool();
    return tap_done();
}
