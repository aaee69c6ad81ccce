/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint/: a save in progress, which writes a checkpoint, stages one on
 * the nodes, or copies a staged one into the root.
 */
#ifndef ACCEL_CKPT_SAVING_H
#define ACCEL_CKPT_SAVING_H

#include <limits.h>

#include "manifest/ckpt_manifest.h"
#include "save/ckpt_commit.h"
#include "retention/ckpt_retention.h"
#include "ckpt_internal.h"

struct ckpt_drain;
struct accel_ckpt_saving;

/* What the steps of a save do where they do not write the caller's boxes. */
struct ckpt_steps {
    accel_status_t (*write)(struct accel_ckpt_saving *g, accel_error_t *err);
    accel_status_t (*publish)(struct accel_ckpt_saving *g, const accel_ckpt_coll_t *c,
                              accel_error_t *err);
    void (*free)(struct accel_ckpt_saving *g);
};

/* On one rank. */
struct accel_ckpt_saving {
    struct ckpt_commit commit;
    /* this rank's fragment; its boxes point to the caller's memory. Of a drain: all. Of
     * one file for all ranks: on rank 0 its manifest, elsewhere nothing but the step */
    struct ckpt_manifest m;
    /* NULL: each rank has a file */
    struct ckpt_one_file *one;
    /* [size], for gathers */
    size_t *sizes;
    /* what accel_ckpt_save_t had; `root` and `local` are owned */
    char *root, *local;
    int rank;
    accel_status_t (*may_commit)(void *user, accel_error_t *err);
    void *may_commit_user;
    int (*may_delete)(void);
    /* what stays; `noted`: and is noted */
    struct ckpt_rule rule;
    bool noted;
    /* clock_ns of the begin */
    int64_t begun;
    /* what the write of this rank has come to, and whether O_DIRECT was taken */
    accel_status_t written;
    accel_error_t why;
    int direct;
    struct ckpt_pace pace;
    /* something of it may be on this node's disk */
    bool local_begun;
    /* rank 0 has what it needs for the commit, and is not known to have failed */
    bool may_stand;
    /* the commit is durable */
    bool published;
    /* of drain.c; NULL: it writes the caller's boxes */
    const struct ckpt_steps *steps;
    struct ckpt_drain *drain;
};

/* ---- save_steps.c ---------------------------------------------------------------- */

/* accel_ckpt_save_free frees it. `settings_out` gets the caller's, in today's size. */
accel_status_t ckpt_saving_new(struct accel_ckpt_saving **saving_out,
                               accel_ckpt_save_t *settings_out,
                               const accel_ckpt_save_t *theirs,
                               const accel_ckpt_coll_t *c, accel_error_t *err);
/* Copies the paths. */
accel_status_t ckpt_saving_paths(struct accel_ckpt_saving *g,
                                 const accel_ckpt_save_t *s, accel_error_t *err);

/* ---- local_part.c: a node's part of a staged checkpoint -------------------------- */

/* Makes this node's directory of the save and opens it; all names above it are
 * durable. The caller closes *fd_out. A0860. */
accel_status_t ckpt_local_make(const struct accel_ckpt_saving *g, int *fd_out,
                               accel_error_t *err);
/* Opens that of the staged checkpoint `name` of g->root; -1 with errno: ENOENT is no
 * proof that it is lost, as the disk may not be mounted; EPERM: it is somebody else's.
 * path_out: its path, or that of what could not be opened above it. */
int ckpt_local_open(const struct accel_ckpt_saving *g, const char *name,
                    char path_out[PATH_MAX]);

/* ---- staged_record.c ------------------------------------------------------------- */

/* Writes down, beside the MANIFEST of a record, where the files are.
 * nodes[world][CKPT_NODE_MAX]. A0801. */
accel_status_t ckpt_places_write(const struct accel_ckpt_saving *g, const char *nodes,
                                 accel_error_t *err);

#endif
