/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/: every collective, dtype and size against a scalar reference on forked ranks, in
 * private and in window memory; the same bits from every backend; failures.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tests/tap.h"
#include "tests/unit/comm_ref.h"
#include "tests/unit/fork_world.h"

struct job {
    const char *backend;
    size_t max_elems;
    int timeout_ms;
    _Atomic uint64_t *hash; /* shared: sum over the ranks */
    char (*text)[1024];     /* shared: [rank] error text */
};

static int open_comm(struct comm **c, struct boot *b, const struct job *job)
{
    struct comm_options o = { .backend = job->backend, .timeout_ms = job->timeout_ms };
    accel_error_t err = { 0 };

    if (comm_open(c, b, &o, &err) == ACCEL_OK)
        return 0;
    fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return 1;
}

/* ---- results ------------------------------------------------------------------------------ */

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int run_reference(struct boot *b, void *arg)
{
    const struct job *job = arg;
    int fds = count_fds();

    for (int round = 0; round < 2; round++) { /* two communicators in sequence */
        uint64_t hash = 0xcbf29ce484222325u;
        struct comm *c;

        if (open_comm(&c, b, job) != 0)
            return 2;
        if (strcmp(comm_backend(c), job->backend) != 0)
            return 3;
        if (comm_ref_check(c, round ? 1000 : job->max_elems, &hash) != 0)
            return 1;
        comm_close(c);
        atomic_fetch_add(job->hash, hash);
        if (strcmp(job->backend, "shm") == 0 && count_fds() != fds)
            return 4;
    }
    return 0;
}

static void test_results(struct job *job)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 8 };
    uint64_t shm_hash;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ranks); i++) {
        int n = ranks[i];

        job->max_elems = n <= 2 ? 1u << 20 : n <= 4 ? 70001 : 4099;
        job->backend = "shm";
        atomic_store(job->hash, 0);
        tap_is_int(fork_world(n, run_reference, job, 120), 0, "shm, %d ranks", n);
        shm_hash = atomic_load(job->hash);
        job->backend = "ucx";
        atomic_store(job->hash, 0);
        tap_is_int(fork_world(n, run_reference, job, 120), 0, "ucx, %d ranks", n);
        tap_ok(shm_hash == atomic_load(job->hash), "the same bits from shm and ucx");
    }
}

int main(void)
{
    size_t bytes = 4096 + 64 * 1024;
    char *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job job = { .timeout_ms = 60000 };

    if (shared == MAP_FAILED)
        return 1;
    job.hash = (_Atomic uint64_t *)(void *)shared;
    job.text = (char(*)[1024])(void *)(shared + 4096);
    test_results(&job);
    munmap(shared, bytes);
    return tap_done();
}
