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
#include "common/env_names.h"

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

        /* accel's srun chooses pmix, so somebody has chosen otherwise. */
        if (getenv(ENV_RESOLVED) && i == 0)
            hint = "this step has another MPI type: leave --mpi out of the command and "
                   "unset SLURM_MPI_TYPE, then srun --accel-config uses pmix";
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
        ACCEL_TRY(st, boot_open_single(b, err));
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
    return b->impl && b->impl->leave ? b->impl->leave(b, err) : ACCEL_OK;
}

void boot_free(struct boot *b)
{
    if (!b)
        return;
    if (b->impl && b->impl->free)
        b->impl->free(b);
    free(b->node_of);
    free(b->local_rank_of);
    b->impl = NULL;
    b->node_of = NULL;
    b->local_rank_of = NULL;
}
