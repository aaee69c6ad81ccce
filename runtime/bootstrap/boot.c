/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the way of starting from the environment and dispatches to it.
 * In: the environment and a deadline. Out: struct boot. Never guesses a world: several
 * tasks without PMIx are an error, not several worlds of one.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/boot_impl.h"

#define DEFAULT_TIMEOUT_MS 60000

/* Variables by which launchers tell the number of tasks, with the cure if
 * PMIx is missing. */
static const struct {
    const char *name, *hint;
} task_counts[] = {
    { "SLURM_STEP_NUM_TASKS",
      "start with srun --mpi=pmix, or with srun --accel-config=FILE, which sets it" },
    { "OMPI_COMM_WORLD_SIZE", "use an mpirun whose Open MPI was built with PMIx" },
    { "PMI_SIZE", "PMI-1 and PMI-2 are not supported: start with srun --mpi=pmix or "
                  "Open MPI's mpirun" },
};

/* Without PMIx every task would train alone, on all data, and write the same
 * checkpoints. So this is an error as soon as any launcher says that there
 * are more tasks. */
static accel_status_t refuse_lost_tasks(accel_error_t *err)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(task_counts); i++) {
        long tasks = env_long(task_counts[i].name, 1);
        const char *hint = task_counts[i].hint;

#ifndef HAVE_PMIX
        hint = "this accel was built without PMIx: install libpmix-dev (Debian) or "
               "pmix-devel (RHEL), build accel again, and start with srun --mpi=pmix";
#endif
        if (tasks > 1)
            return accel_fail_at(err, A0401, "bootstrap", hint,
                                 "%s reports %ld tasks, but this process has no PMIx "
                                 "server to find the others",
                                 task_counts[i].name, tasks);
    }
    return ACCEL_OK;
}

/* Has a launcher offered PMIx? A build without it may still be the only task of such a
 * launcher, and starts alone then. */
static bool needs_pmix(void)
{
    if (!getenv("PMIX_NAMESPACE") || !getenv("PMIX_RANK"))
        return false;
#ifndef HAVE_PMIX
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(task_counts); i++)
        if (env_long(task_counts[i].name, 0) == 1)
            return false;
#endif
    return true;
}

/* The clock starts here: the deadline covers opening, all exchanges and the first
 * contact of the communicator (ucx_wire.c). */
accel_status_t boot_open(struct boot *b, int timeout_ms, accel_error_t *err)
{
    accel_status_t st;

    memset(b, 0, sizeof(*b));
    if (timeout_ms <= 0)
        timeout_ms = DEFAULT_TIMEOUT_MS;
    b->deadline_ns = clock_ns() + (int64_t)timeout_ms * 1000000;
    if (gethostname(b->host, sizeof(b->host) - 1) != 0)
        strcpy(b->host, "localhost");
    if (needs_pmix()) {
        st = boot_open_pmix(b, err);
    } else {
        st = refuse_lost_tasks(err);
        if (st == ACCEL_OK)
            st = boot_open_single(b, err);
    }
    if (st != ACCEL_OK)
        boot_free(b);
    return st;
}

accel_status_t boot_exchange(struct boot *b, const void *mine, size_t bytes,
                             struct boot_blobs *all_out, accel_error_t *err)
{
    if (!b->impl)
        return accel_fail(err, A0406, "open it first", "the bootstrap is not open");
    if (bytes > BOOT_BLOB_MAX)
        return accel_fail(err, A0406, "exchange less: an address, not data",
                          "bootstrap exchange of %zu bytes: the limit is %d", bytes,
                          BOOT_BLOB_MAX);
    return b->impl->exchange(b, mine, bytes, all_out, err);
}

accel_status_t boot_leave(struct boot *b, accel_error_t *err)
{
    return b->impl ? b->impl->leave(b, err) : ACCEL_OK;
}

void boot_free(struct boot *b)
{
    if (!b)
        return;
    if (b->impl)
        b->impl->free(b);
    free(b->node_of);
    free(b->local_rank_of);
    b->impl = NULL;
    b->node_of = NULL;
    b->local_rank_of = NULL;
}

/* Layout of the one malloc: data[count], bytes[count], then the blobs' bytes. */
accel_status_t boot_blobs_alloc(struct boot_blobs *blobs, int count, size_t total,
                                accel_error_t *err)
{
    size_t n = (size_t)count;
    size_t head = n * (sizeof(void *) + sizeof(size_t));
    char *p = malloc(head + total + 1);

    if (!p)
        return accel_fail_nomem(err, "bootstrap exchange", head + total);
    blobs->data = (void **)(void *)p;
    blobs->bytes = (size_t *)(void *)(p + n * sizeof(void *));
    blobs->count = count;
    blobs->data[0] = p + head;
    return ACCEL_OK;
}

void boot_blobs_free(struct boot_blobs *blobs)
{
    if (!blobs)
        return;
    free(blobs->data);
    memset(blobs, 0, sizeof(*blobs));
}

accel_status_t boot_alloc_ranks(struct boot *b, accel_error_t *err)
{
    size_t n = (size_t)b->size;

    b->node_of = calloc(n, sizeof(int));
    b->local_rank_of = calloc(n, sizeof(int));
    if (!b->node_of || !b->local_rank_of)
        return accel_fail_nomem(err, "bootstrap rank table", 2 * n * sizeof(int));
    return ACCEL_OK;
}

/* By node, then by rank. */
static int compare_pairs(const void *a, const void *b)
{
    const int *x = a, *y = b;

    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Sorting by (node, rank) puts the ranks of a node side by side, in rank order: the
 * position in the group is the local rank, its first member the node's lowest rank. A
 * rank that is its node's lowest opens the next number; the others look theirs up at
 * that rank, which comes before them. */
accel_status_t boot_number_nodes(struct boot *b, accel_error_t *err)
{
    size_t n = (size_t)b->size;
    int(*pair)[2] = malloc(n * sizeof(*pair)); /* (raw node, rank), sorted */
    int *first = malloc(n * sizeof(*first));   /* [rank] lowest rank of its node */

    if (!pair || !first) {
        free(pair);
        free(first);
        return accel_fail_nomem(err, "bootstrap rank table", 3 * n * sizeof(int));
    }
    for (size_t r = 0; r < n; r++) {
        pair[r][0] = b->node_of[r];
        pair[r][1] = (int)r;
    }
    qsort(pair, n, sizeof(*pair), compare_pairs);
    for (size_t i = 0, start = 0; i < n; i++) {
        if (pair[i][0] != pair[start][0])
            start = i;
        first[pair[i][1]] = pair[start][1];
        b->local_rank_of[pair[i][1]] = (int)(i - start);
    }
    b->nodes = 0;
    for (size_t r = 0; r < n; r++)
        b->node_of[r] = first[r] == (int)r ? b->nodes++ : b->node_of[first[r]];
    b->node = b->node_of[b->rank];
    b->local_rank = b->local_rank_of[b->rank];
    b->local_size = 0;
    for (size_t r = 0; r < n; r++)
        b->local_size += b->node_of[r] == b->node;
    free(pair);
    free(first);
    return ACCEL_OK;
}
