/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap/: who am I, who are the others, and one exchange of small blobs.
 * PMIx under srun --mpi=pmix or mpirun, else a single process. PMIx is used for wire-up
 * only and finalized right after: a rank that dies before PMIx_Finalize makes Slurm kill
 * the whole step.
 */
#ifndef ACCEL_BOOTSTRAP_BOOT_H
#define ACCEL_BOOTSTRAP_BOOT_H

#include "common/common.h"

#define BOOT_BLOB_MAX 65536 /* PMIx servers of Slurm break above ~8 MB; cap low */

struct boot {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this node */
    int node, nodes;
    int *node_of;       /* [size] node index of every rank */
    int *local_rank_of; /* [size] */
    char job[64];       /* "JOBID.STEP" or a unique word; same on all ranks */
    char host[64];
    const char *method;  /* "pmix" or "single" */
    int64_t deadline_ns; /* clock_ns() at which bootstrap gives up */
    struct boot_impl *impl;
};

/* `timeout_ms` bounds the whole bootstrap; on expiry ACCEL_EPEER names the call that did
 * not return. Without a PMIx server: one process; but ACCEL_EUNAVAIL when the environment
 * says that there are several tasks (SLURM_STEP_NUM_TASKS > 1, OMPI_COMM_WORLD_SIZE > 1)
 * and no PMIx, with the cure (srun --mpi=pmix). */
accel_status_t boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
/* Collective. Every rank gives `mine` (<= BOOT_BLOB_MAX) and gets all[size], sizes[size];
 * one malloc, freed by boot_blobs_free. May be called several times. */
struct boot_blobs {
    void **data;
    size_t *bytes;
    int count;
};
accel_status_t boot_exchange(struct boot *b, const void *mine, size_t bytes,
                             struct boot_blobs *all_out, accel_error_t *err);
void boot_blobs_free(struct boot_blobs *blobs);
/* Collective: leaves PMIx. The fields of *b stay valid until boot_free. */
accel_status_t boot_leave(struct boot *b, accel_error_t *err);
void boot_free(struct boot *b);

#endif
