/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tools of `accel ckpt` need beyond accel_ckpt.h: the rest of a manifest. Not
 * installed; the tools link the library's objects. Nothing here is collective, and
 * texts belong to the open checkpoint.
 */
#ifndef ACCEL_CKPT_TOOLS_H
#define ACCEL_CKPT_TOOLS_H

#include <stdbool.h>

#include "accel_ckpt.h"

/* The header of a manifest beside step, world and run-id. */
struct ckpt_header {
    /* version of the library, JOBID.RESTART, and the word for how it was sharded */
    const char *library, *owner, *sharding;
    /* when MANIFEST was written, seconds since 1970; -1: not known */
    int64_t saved;
};
void ckpt_header(const accel_ckpt_t *c, struct ckpt_header *header_out);
/* The directory as it was opened; owned by c. */
const char *ckpt_path(const accel_ckpt_t *c);
/* Name and size of shard file 0 ... world size - 1. */
const char *ckpt_file_at(const accel_ckpt_t *c, int file, int64_t *bytes_out);
/* In how many boxes tensor i lies, and the first and last file that has one; -1, -1 for
 * an empty tensor. i as for accel_ckpt_tensor. */
size_t ckpt_boxes_of(const accel_ckpt_t *c, size_t i, int *first_out, int *last_out);
/* Blob i, by name; NULL when there are no more. */
const char *ckpt_blob_at(const accel_ckpt_t *c, size_t i, const void **data_out,
                         size_t *bytes_out);
/* The tensor of that name; -1: there is none. */
int64_t ckpt_tensor_find(const accel_ckpt_t *c, const char *name);

/* How far a tool has come with the checkpoint or file called `name`; `user` is its
 * caller's. */
typedef void ckpt_progress_f(void *user, const char *name, int64_t done, int64_t total);

/* Receives a finding, as the `report` of accel_ckpt_verify. */
typedef void ckpt_report_f(void *user, accel_status_t what, const char *line);

/* A checkpoint whose every byte is read. */
struct ckpt_check {
    /* its directory, and its name for `progress` */
    const char *dir, *name;
    /* As for accel_ckpt_verify; NULL is fine. */
    ckpt_report_f *report;
    /* Called for each file in the directory that is not the checkpoint's: nobody reads
     * it, so it is no finding. Its name is printable. NULL is fine. */
    void (*stranger)(void *user, const char *name);
    /* counts bytes; NULL is fine */
    ckpt_progress_f *progress;
    void *user;
};
/* accel_ckpt_verify with more to say. */
accel_status_t ckpt_check(const struct ckpt_check *x, accel_error_t *err);

/* A checkpoint that is written from tensors elsewhere, part by part. */
struct ckpt_copy {
    /* the directory of checkpoints; created when missing */
    const char *root;
    /* as for accel_ckpt_save */
    int64_t step;
    const char *run_id, *sharding;
    /* files to cut every tensor over, in flat ranges of equal length */
    int shards;
    /* name, dtype, ndim and global_shape of each whole tensor; the rest is not read */
    const accel_ckpt_box_t *tensors;
    size_t tensor_count;
    const accel_ckpt_blob_t *blobs;
    size_t blob_count;
    /* Elements [begin, begin + count) of tensor i into data, row-major. */
    accel_status_t (*read)(void *user, size_t i, int64_t begin, int64_t count,
                           void *data, accel_error_t *err);
    void *user;
};
/* Writes it as ROOT/step_N, durably or not at all, with a fixed amount of memory
 * beside the manifest. ACCEL_ECREATE where that step is there: nothing is replaced.
 * Other errors: those of accel_ckpt_save and of `read`. */
accel_status_t ckpt_copy(const struct ckpt_copy *x, accel_error_t *err);

/* Writes index.h5 into the checkpoint's directory, durably or not at all: see
 * doc/checkpoint-format.md. `progress` counts tensors; NULL is fine. ACCEL_ECREATE
 * where there is one; ACCEL_EIO, ACCEL_ENOMEM; ACCEL_EUNAVAIL without HDF5. */
accel_status_t ckpt_index(const accel_ckpt_t *c, ckpt_progress_f *progress, void *user,
                          accel_error_t *err);
/* Compares index.h5 with the manifest, through libhdf5: for a process of its own, as
 * accel_ckpt_verify_hdf5 is. report(user, what, line): once per finding; `err` gets
 * the first. ACCEL_OK, also where there is none; ACCEL_ECORRUPT, ACCEL_EIO;
 * ACCEL_EUNAVAIL without HDF5. */
accel_status_t ckpt_index_check(const accel_ckpt_t *c, ckpt_report_f *report,
                                void *user, accel_error_t *err);

/* Calls found(user, name, why) for every step directory below root: why it stays; "":
 * the next save of its run deletes it. Nothing else is done. A missing root has none.
 * ACCEL_EIO, ACCEL_EPERM, ACCEL_ENOMEM. */
accel_status_t ckpt_why_kept(const char *root,
                             void (*found)(void *user, const char *name,
                                           const char *why),
                             void *user, accel_error_t *err);

/* A directory of checkpoints to tidy. */
struct ckpt_prune {
    const char *root;
    /* prune: what counts in place of the rule that the runs here noted: how many of the
     * newest stay (0: as noted), of which steps all multiples do, as many with the best
     * values (-1: as noted), of which metric (NULL) and whether larger ones are better
     * (-1) */
    int keep;
    int64_t every;
    int best, larger;
    const char *metric;
    /* say what would be done, and do nothing */
    bool dry_run;
    /* Called for every directory decided on; texts are valid during the call. */
    void (*report)(void *user, const char *name, const char *action, const char *why);
    void *user;
    /* bytes of the checkpoint that is being read; NULL is fine */
    ckpt_progress_f *progress;
    void *progress_user;
};
/* Deletes checkpoints that the rule does not keep. Of those that stay two are proven
 * whole by reading them, or more stay. Damaged, unreadable and other runs' stay.
 * ACCEL_EUSAGE (no rule), ACCEL_EUNAVAIL (a run uses the directory), ACCEL_EIO,
 * ACCEL_EPERM, ACCEL_ENOMEM. */
accel_status_t ckpt_prune(const struct ckpt_prune *p, accel_error_t *err);
/* Deletes the checkpoint directory `dir`. ACCEL_EUNAVAIL (a run uses the directory
 * above it), ACCEL_EIO, ACCEL_EPERM, ACCEL_ENOMEM. */
accel_status_t ckpt_remove(const char *dir, accel_error_t *err);
/* Removes directories of saves and deletions that no live process works on, and moves
 * checkpoints that are proven to be damaged aside, by reading every byte of each.
 * ACCEL_EUNAVAIL (a run uses the directory), ACCEL_EIO, ACCEL_EPERM, ACCEL_ECREATE,
 * ACCEL_ENOMEM. */
accel_status_t ckpt_repair(const struct ckpt_prune *p, accel_error_t *err);

#endif
