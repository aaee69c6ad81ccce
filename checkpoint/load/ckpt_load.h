/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing, opening and verifying what may be damaged or out of reach.
 */
#ifndef ACCEL_CKPT_LOAD_H
#define ACCEL_CKPT_LOAD_H

#include "manifest/ckpt_manifest.h"

/* ---- access.c: reading what may be damaged or out of reach ----------------------- */

/* Opens a file to read, never through a link. -1 with errno. */
int ckpt_open_plain(int dirfd, const char *name);
/* All of a plain file: one malloc with a NUL at its end. `where` names it in errors,
 * `missing` says what it means that it is not there. ACCEL_ECORRUPT: it is missing, no
 * plain file, or longer than `most`. */
accel_status_t ckpt_read_file(int dirfd, const char *name, const char *where,
                              const char *missing, int64_t most, char **text_out,
                              size_t *len_out, accel_error_t *err);
/* The error for errno `error`, met while `doing` something with the file or directory
 * `where` of a checkpoint. ACCEL_ECORRUPT is proof that it is not what a save left
 * there; ACCEL_EPERM and ACCEL_EIO say that it cannot be read now. */
accel_status_t ckpt_fail_access(accel_error_t *err, const char *where,
                                const char *doing, int error);
/* The same for the directory of all checkpoints, which is never damaged. */
accel_status_t ckpt_fail_root(accel_error_t *err, const char *root, const char *doing,
                              int error);
/* Is the failure temporary? Then it says nothing about the checkpoint itself. */
bool ckpt_may_pass(accel_status_t st);
/* How often something is tried again: CKPT_TRIES times, and only while `left` lasts.
 * Several things may share `left`; `used` is set to 0 before each of them. */
struct ckpt_tries {
    int left, used;
};
#define CKPT_TRIES 3
/* Waits, longer each time. False, without waiting, when no try is left. */
bool ckpt_try_again(struct ckpt_tries *t);
/* Opens shard file `file` to read and checks that its size is that of the manifest. The
 * caller closes *fd_out. */
accel_status_t ckpt_open_shard(const accel_ckpt_t *c, int file, int *fd_out,
                               accel_error_t *err);

/* ---- list.c ---------------------------------------------------------------------- */

struct accel_ckpt {
    /* the only descriptor it holds: shard files are opened while they are read */
    int dirfd;
    /* as shown in messages */
    char *dir;
    struct ckpt_manifest m;
    /* [boxes], ordered by (file, at) */
    size_t *by_place;
    /* [world+1]: boxes of file f are by_place[file_first[f] .. file_first[f+1]) */
    size_t *file_first;
    /* all blobs, one after the other; NULL until accel_ckpt_open reads them */
    unsigned char *blob;
    /* [tensors]: where in `blob` the bytes of a blob begin */
    size_t *blob_at;
};
/* by_place and file_first, from the manifest. */
accel_status_t ckpt_index_places(accel_ckpt_t *c, accel_error_t *err);
/* Opens directory `name` of `at` (or AT_FDCWD) and parses its manifest. Checks that
 * every shard file can be opened and has its size; does not read blobs. A temporary
 * failure is tried again. `shown` is its name in messages. */
accel_status_t ckpt_open_at(accel_ckpt_t **ckpt_out, int at, const char *name,
                            const char *shown, accel_error_t *err);
/* What directory `name` of rootfd is, by a single look at it. */
struct ckpt_identity {
    /* ACCEL_OK: a whole checkpoint; else the reason why it is not */
    accel_status_t status;
    /* from its manifest; -1 when that is not whole, and then the texts are empty */
    int64_t step;
    char owner[64], run_id[CKPT_RUN_ID_MAX + 1];
};
/* Always fills *id_out. */
void ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name);

/* ---- read.c ---------------------------------------------------------------------- */

/* Fills boxes[n].data. blobs: the names are those of blobs, else of tensors. */
accel_status_t ckpt_read_boxes(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               bool blobs, accel_error_t *err);
/* read_together.c: accel_ckpt_read_together of tensors or of blobs. */
accel_status_t ckpt_read_together(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                  size_t n, bool blobs, const accel_ckpt_coll_t *coll,
                                  accel_error_t *err);
/* Receives one finding; *e is valid only during the call. */
typedef void ckpt_finding_fn(void *user, const accel_error_t *e);
/* Reads all boxes of a file and checks their hashes. `finding` is called once per
 * damaged or unreadable box, and the rest is still read; `advance`, unless NULL, after
 * every read: false ends them. The result is an error only when the check itself cannot
 * run. */
accel_status_t ckpt_verify_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                                bool (*advance)(void *user, int64_t bytes), void *user,
                                accel_error_t *err);

/* ---- verify.c -------------------------------------------------------------------- */

/* The same with the bytes around the boxes: all of the file. */
void ckpt_check_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                     bool (*advance)(void *user, int64_t bytes), void *user);

#endif
