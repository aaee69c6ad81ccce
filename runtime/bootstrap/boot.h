/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap/: who am I, who are the others, and an exchange of small blobs. Uses PMIx
 * under srun --mpi=pmix or mpirun, else a single process. PMIx serves for wire-up only
 * and is finalized right after it: a rank that dies before PMIx_Finalize makes Slurm
 * kill the whole step.
 */
#ifndef ACCEL_BOOTSTRAP_BOOT_H
#define ACCEL_BOOTSTRAP_BOOT_H

#include "common/common.h"

/* Bytes that a rank may give to one exchange. Slurm's PMIx servers break above about 8
 * MB, so the cap is low. */
#define BOOT_BLOB_MAX 65536

/* The world as this rank sees it. Filled by boot_open, read by everybody. */
struct boot {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node */
    int node, nodes;
    int *node_of;       /* [size] node index of every rank */
    int *local_rank_of; /* [size] rank among those of its node */
    char job[64];       /* "JOBID.STEP" or a unique word; the same on all ranks */
    char host[64];
    const char *method;     /* "pmix" or "single" */
    int64_t deadline_ns;    /* clock_ns() at which bootstrap gives up */
    struct boot_impl *impl; /* owned; NULL: not open */
};

/* Collective. `timeout_ms` bounds the whole bootstrap (0: 60 000); when it expires,
 * ACCEL_EPEER names the call that did not return. Without a PMIx server this is a world
 * of one process, unless the environment says that there are several tasks
 * (SLURM_STEP_NUM_TASKS or OMPI_COMM_WORLD_SIZE above 1): that is ACCEL_EUNAVAIL with
 * the cure (srun --mpi=pmix). After an error nothing needs to be freed. */
accel_status_t boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
/* What the ranks gave to one exchange, by rank. One malloc: boot_blobs_free
 * frees it all. */
struct boot_blobs {
    void **data;   /* [count] */
    size_t *bytes; /* [count] */
    int count;
};
/* Collective. Every rank gives `bytes` (at most BOOT_BLOB_MAX) at `mine` and
 * gets those of all ranks; the caller frees *all_out. May be called several
 * times before boot_leave. */
accel_status_t boot_exchange(struct boot *b, const void *mine, size_t bytes,
                             struct boot_blobs *all_out, accel_error_t *err);
void boot_blobs_free(struct boot_blobs *blobs);
/* Collective. Leaves PMIx; no exchange may follow. The fields of *b stay valid until
 * boot_free. */
accel_status_t boot_leave(struct boot *b, accel_error_t *err);
/* Collective, after a failure of all ranks: leaves. Ranks that do not speak then wait
 * until those of their node that do have ended, at most 3 s for each: a launcher ends
 * the job with the first rank that fails, and the message must be out by then. */
void boot_end_after_speaker(struct boot *b, bool speaks);
/* Leaves if that has not been done, and frees what *b owns. NULL is allowed. */
void boot_free(struct boot *b);

#endif
