/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a save: shard files, one file for all ranks, staging, the commit, and
 * agreement between ranks.
 */
#ifndef ACCEL_CKPT_COMMIT_H
#define ACCEL_CKPT_COMMIT_H

#include "manifest/ckpt_manifest.h"

/* ---- write.c --------------------------------------------------------------------- */

/* seconds: a month */
#define CKPT_SPREAD_MAX 2592000.0

/* How fast a file is written. Other threads set the flags meanwhile. */
struct ckpt_pace {
    /* the write is to end, with an error */
    atomic_bool cancelled;
    /* somebody waits: no more spreading */
    atomic_bool hurried;
    /* ns over which the data is spread; 0: as fast as it goes */
    int64_t spread;
    /* the caller's; 0: time has become short, no more spreading. NULL: it has not */
    int (*has_time)(void);
    /* the writer's: ns that it has waited */
    int64_t waited;
};

/* A laid out shard file that is being written, by a thread of its own. */
struct ckpt_writer;
/* Opens file `rank` of m, reserves its blocks and fills in its meta hash. *pace has to
 * stay until the close. */
accel_status_t ckpt_writer_open(struct ckpt_writer **writer_out, int dirfd,
                                struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, accel_error_t *err);
/* Writes a box and fills in its hashes. `data` is copied, unless it stays as it is
 * until the close. False: a write has failed, and the close says why. */
bool ckpt_writer_put(struct ckpt_writer *w, size_t box, const void *data, bool stays);
/* Ends the writing and frees w. complete: the file is made durable, and *direct_out
 * says whether O_DIRECT held to the end; else what was written is of no use. */
accel_status_t ckpt_writer_close(struct ckpt_writer *w, bool complete, int *direct_out,
                                 accel_error_t *err);

/* Writes the data of all boxes into the laid out file, fills in their hashes and the
 * file's meta hash, fsyncs. *direct_out: whether O_DIRECT held to the end. */
accel_status_t ckpt_write_shard(int dirfd, struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, int *direct_out,
                                accel_error_t *err);

/* ---- one_file.c ------------------------------------------------------------------ */

/* A save of all ranks into one file, which rank 0 writes. */
struct ckpt_one_file;
/* Takes over *m, this rank's fragment; on rank 0 *m becomes the manifest to be
 * written, whose file is not laid out yet. Collective: every rank gets the same
 * status. The caller frees *one_out in either case. */
accel_status_t ckpt_one_file_begin(struct ckpt_one_file **one_out,
                                   struct ckpt_manifest *m,
                                   const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Lays out and writes the file of m in dirfd, durably; other ranks than 0 only send,
 * and pass an m and a dirfd that are not looked at. Collective; an error may be of this
 * rank alone. */
accel_status_t ckpt_one_file_write(struct ckpt_one_file *o, int dirfd,
                                   struct ckpt_manifest *m, struct ckpt_pace *pace,
                                   int *direct_out, accel_error_t *err);
/* NULL is fine. */
void ckpt_one_file_free(struct ckpt_one_file *o);

/* ---- stage.c --------------------------------------------------------------------- */

/* Zeroed memory aligned to 2 MiB, in a mapping of its own. NULL: there is none left. */
void *ckpt_stage_map(size_t bytes);
/* `bytes` as given to ckpt_stage_map. NULL is fine. */
void ckpt_stage_unmap(void *p, size_t bytes);

/* ---- commit.c (rank 0 only) ------------------------------------------------------ */

/* A save in progress, as seen by one rank. */
struct ckpt_commit {
    /* the root and the directory in progress; -1: not open */
    int rootfd, tmpfd;
    /* rank 0 made tmp and it is not in place yet: ours to remove */
    bool made;
    /* names in the root, and the owner "JOBID.RESTART" */
    char tmp[CKPT_DIR_MAX], final[CKPT_DIR_MAX], owner[64];
    /* the files are on the nodes: what becomes visible is a record of them */
    bool staged;
    /* of the root, where `staged`; on all ranks after the begin */
    char id[CKPT_ID_MAX];
    /* the caller's; `replaces`: as in accel_ckpt_save_t */
    const char *run_id;
    bool replaces;
    /* name of what was replaced, which the retention removes; "": nothing was */
    char replaced[CKPT_DIR_MAX];
    /* new name of whatever had the final name; "": nothing had it */
    char aside[CKPT_DIR_MAX];
};
/* Step 1, rank 0: makes the root, removes stale directories of dead owners, checks that
 * `bytes` are free, makes .tmp-step_N.OWNER. */
accel_status_t ckpt_commit_begin(struct ckpt_commit *c, const char *root, int64_t step,
                                 const char *owner, int64_t bytes, accel_error_t *err);
/* Step 1, all other ranks: opens the directory that rank 0 made. Called after the ranks
 * agreed that it is there. */
accel_status_t ckpt_commit_join(struct ckpt_commit *c, const char *root, int64_t step,
                                const char *owner, accel_error_t *err);
/* What a kill left of a replacement on a file system that cannot exchange names: the
 * replaced one has its name again, unless the new one has it. */
void ckpt_settle_old(int rootfd);
/* Steps 4 and 5, rank 0: writes the MANIFEST and puts the directory in place. On error
 * nothing visible has changed. */
accel_status_t ckpt_commit_publish(struct ckpt_commit *c, const struct strbuf *manifest,
                                   accel_error_t *err);
/* Rank 0: removes the directory in progress, if it is still ours. */
void ckpt_commit_abandon(struct ckpt_commit *c);
/* Closes the descriptors. Removes nothing. */
void ckpt_commit_close(struct ckpt_commit *c);
/* Renames directory `name`, durably, so that it is no checkpoint of the run any more;
 * its new name goes to name_out. `damaged`: the caller has proof of damage. */
accel_status_t ckpt_set_aside(int rootfd, const char *name, bool damaged,
                              char name_out[CKPT_DIR_MAX], accel_error_t *err);

/* ---- agree.c --------------------------------------------------------------------- */

/* ckpt_agree, and *failed_out: the lowest failing rank; -1: none, or the collective
 * itself has failed. */
accel_status_t ckpt_agree_whose(const accel_ckpt_coll_t *c, accel_status_t mine,
                                int *failed_out, accel_error_t *err);

/* Collective. The error of the lowest failing rank becomes everyone's; `mine` is this
 * rank's status, with its error in *err, which may not be NULL. */
accel_status_t ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t mine,
                          accel_error_t *err);

/* Rank 0: the manifest of all ranks, of the texts of their fragments, one after the
 * other in `all`. Its boxes tile every tensor. Each text is parsed as strictly as a
 * file. `mine` has what the header must agree with. */
accel_status_t ckpt_join_fragments(const struct ckpt_manifest *mine, const char *all,
                                   const size_t *sizes, struct ckpt_manifest *m_out,
                                   accel_error_t *err);

#endif
