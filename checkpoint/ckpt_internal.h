/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint/: limits and names of the format, directories, records of
 * staged checkpoints. A room has a header of its own. Everything has the prefix ckpt_
 * and hidden visibility. Outputs (`_out`) are written only on success.
 */
#ifndef ACCEL_CKPT_INTERNAL_H
#define ACCEL_CKPT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "accel_ckpt.h"
#include "common/ckpt_sizes.h"
#include "common/common.h"
#include "common/whole_io.h"

/* version of the format, in the first line of MANIFEST */
#define CKPT_FORMAT 1
/* Unit of hashing. Part of the format: a reader that wants any byte of a piece reads
 * and hashes all of it. */
#define CKPT_PIECE_BYTES (1 << 20)
/* datasets of at least this many bytes start on a page, so that
 * O_DIRECT can write them */
#define CKPT_ALIGN_FROM (64 << 10)
/* a manifest is parsed in memory; a larger one is refused before it is read */
#define CKPT_MANIFEST_MAX (256 << 20)
/* all blobs together, because opening a checkpoint reads them into memory */
#define CKPT_BLOBS_MAX (1 << 30)
/* longest tensor name, without its NUL */
#define CKPT_NAME_MAX   511
#define CKPT_RUN_ID_MAX 1024
#define CKPT_WORLD_MAX  99999
#define CKPT_STEP_MAX   INT64_C(999999999999)
/* names below the root: "step_...", ".tmp-step_....OWNER" */
#define CKPT_DIR_MAX 192
/* in a checkpoint's directory; and while it is made */
#define CKPT_INDEX      "index.h5"
#define CKPT_INDEX_PART ".index.h5.part"
/* names of moments, and of their scales */
#define CKPT_STATE_PREFIX "optim/"
#define CKPT_SCALE_SUFFIX ".scale"
/* the record of a staged checkpoint: ".local-step_....OWNER@ID", with a MANIFEST; and
 * one that a run gave up, because its files are on nodes that the run does not have */
#define CKPT_STAGED_PREFIX ".local-"
#define CKPT_AWAY_PREFIX   ".away-"
/* the file that has the ID of a root; bytes of an ID and of a node's name, with NUL */
#define CKPT_STAGING_FILE "staging"
#define CKPT_ID_MAX       17
#define CKPT_NODE_MAX     65

/* ---- dirs.c ---------------------------------------------------------------------- */

/* Opens directory `name` of `at`, never through a link. -1 with errno. */
int ckpt_open_dir(int at, const char *name);
/* Is errno `error` one of a full, failing or read-only disk? */
bool ckpt_is_disk_error(int error);
/* Makes the root and whatever is missing above it, durably. */
accel_status_t ckpt_make_root(const char *root, accel_error_t *err);
/* fsync of fd; `what` names it in the error. Never tried again: see dirs.c. */
accel_status_t ckpt_fsync(int fd, const char *what, accel_error_t *err);
/* Removes directory `name` and the plain files in it, MANIFEST first. 0, also when it
 * is not there, or -1. */
int ckpt_remove_dir(int rootfd, const char *name);
/* Does a live process hold the lock of directory `name`? `unknown` is the answer where
 * directories cannot be locked (NFS). */
bool ckpt_is_locked(int rootfd, const char *name, bool unknown);
/* Renames `name` to a free .trash-name... and removes that. 0 or -1. */
int ckpt_trash(int rootfd, const char *name);
/* "step_00001200" */
void ckpt_step_name(char name_out[64], int64_t step);
/* The step of a directory name, -1 when it is not the canonical name of one. */
int64_t ckpt_step_of_name(const char *name);
/* buf[len] gets the path that the open directory has now, under whatever name it was
 * opened; "" when that cannot be told. */
void ckpt_path_of(int dirfd, char *buf, size_t len);
/* The one rule about names: a directory called step_N holds step N. `shown` names it in
 * the error. ACCEL_ECORRUPT. */
accel_status_t ckpt_check_name(int dirfd, int64_t step, const char *shown,
                               accel_error_t *err);
/* Names in rootfd that begin with `prefix`, unsorted. *names_out is one malloc of
 * fixed-size entries; the caller frees it. */
accel_status_t ckpt_list_names(int rootfd, const char *prefix,
                               char (**names_out)[CKPT_DIR_MAX], size_t *count_out,
                               accel_error_t *err);

/* ---- staged_record.c: records of staged checkpoints ------------------------------ */

/* The ID of a root; false: it has none, or is a copy of the root that has it. */
bool ckpt_staging_id(int rootfd, char id_out[CKPT_ID_MAX]);
/* The same, or a new one. A0801. */
accel_status_t ckpt_staging_id_make(int rootfd, char id_out[CKPT_ID_MAX],
                                    accel_error_t *err);
/* ".local-step_00001200.OWNER@ID" */
void ckpt_staged_name(char name_out[CKPT_DIR_MAX], int64_t step, const char *owner,
                      const char *id);
/* Is the record there, also under the name of one that was given up? A root that cannot
 * be read may have it. */
bool ckpt_is_recorded(int rootfd, const char *record);
/* Name of this node, a word; "?": it has none. */
void ckpt_node_name(char name_out[CKPT_NODE_MAX]);
/* MANIFEST of a record, and what says where its files are ("": nothing does): one
 * malloc each with a NUL at its end. ACCEL_ECORRUPT: proven damage of the record. */
accel_status_t ckpt_record_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err);
accel_status_t ckpt_places_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err);
/* Where the files of a staged checkpoint are. */
struct ckpt_places {
    /* [world], owned: the node of each file, "" where that is not known; NULL: of
     * all */
    char (*node)[CKPT_NODE_MAX];
    /* the directory on the nodes, in the text; "" where that is not known */
    const char *local;
};
/* False: no memory. */
bool ckpt_places_parse(struct ckpt_places *p_out, const char *text, int world);

#endif
