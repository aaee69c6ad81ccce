/* SPDX-License-Identifier: Apache-2.0
 *
 * A world of one process: no server, no waiting.
 * In: the process itself. Out: rank 0 of 1. Never looks for peers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/boot_impl.h"

static accel_status_t single_exchange(struct boot *b, const void *mine, size_t bytes,
                                      struct boot_blobs *all_out, accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, boot_blobs_alloc(all_out, b->size, bytes, err));
    if (bytes > 0)
        memcpy(all_out->data[0], mine, bytes);
    all_out->bytes[0] = bytes;
    return ACCEL_OK;
}

static void single_free(struct boot *b)
{
    free(b->impl);
}

/* Outside of Slurm: host, pid and time make a word that no other run has. */
static void name_job(struct boot *b)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");

    if (job && step)
        snprintf(b->job, sizeof(b->job), "%s.%s", job, step);
    else
        snprintf(b->job, sizeof(b->job), "%.30s-%ld-%llx", b->host, (long)getpid(),
                 (unsigned long long)clock_ns());
}

accel_status_t boot_open_single(struct boot *b, accel_error_t *err)
{
    accel_status_t st;

    b->rank = 0;
    b->size = 1;
    b->method = "single";
    st = boot_alloc_ranks(b, err);
    ACCEL_TRY(st, boot_number_nodes(b, err));
    if (st != ACCEL_OK)
        return st;
    b->impl = malloc(sizeof(*b->impl));
    if (!b->impl)
        return accel_fail_nomem(err, "bootstrap", sizeof(*b->impl));
    *b->impl = (struct boot_impl){ single_exchange, NULL, single_free };
    name_job(b);
    return ACCEL_OK;
}
