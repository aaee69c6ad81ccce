/* SPDX-License-Identifier: Apache-2.0
 *
 * What the verbs of `accel ckpt` share: the command line, opening what a path names,
 * reading tensors in parts of bounded size, and a bar on the terminal's stderr.
 */
#ifndef ACCEL_CKPT_CMD_H
#define ACCEL_CKPT_CMD_H

#include "accel_ckpt.h"
#include "cli/cli.h"

/* The parsed command line of every verb. */
struct ckpt_args {
    const char *verb;
    /* may be written to: slashes at the end of path[0] are cut off in place */
    char *path[2];
    int paths;
    /* --json; --deep */
    bool json, deep;
    /* --tol; negative: bit by bit */
    double tol;
    /* --all, --hf, --dtype, --shard-size, --shards */
    bool all;
    const char *hf, *dtype;
    int64_t shard_bytes;
    int shards;
    /* --keep (0: not given), --every, --best, --mode (1: max; -1: not given), --metric,
     * --dry-run */
    int keep, every, best, larger;
    const char *metric;
    bool dry_run;
    /* export: delete the checkpoint when its weights are written */
    bool remove;
    /* keys of the options that not every verb takes, as they came */
    char given[16];
};

/* The verbs; each returns the exit code. */
int ckpt_show(const struct ckpt_args *a);
int ckpt_diff(const struct ckpt_args *a);
int ckpt_export(const struct ckpt_args *a);

/* Points *path to buf[len], which gets the same path, or the directory `checkpoints` in
 * it where it is the output directory of a run and holds no checkpoint itself.
 * ACCEL_ENOENT: there is no such directory. */
accel_status_t ckpt_find(char **path, char *buf, size_t len, accel_error_t *err);
/* Opens the checkpoint `path`, or the newest complete one of the directory `path`.
 * ACCEL_ENOENT: there is none; and what accel_ckpt_open returns. */
accel_status_t ckpt_open_path(accel_ckpt_t **ckpt_out, const char *path,
                              accel_error_t *err);

/* A tensor of an open checkpoint; name and shape belong to the checkpoint. */
struct ckpt_view {
    const char *name;
    accel_dtype_t dtype;
    int ndim;
    const int64_t *shape;
    int64_t elems;
};
/* i as for accel_ckpt_tensor. */
void ckpt_view(const accel_ckpt_t *c, size_t i, struct ckpt_view *view_out);
/* Elements of a dtype that are read at a time. */
int64_t ckpt_part_elems(accel_dtype_t dtype);
/* Elements [begin, begin + count) of the tensor, row-major, into data. Hashes are
 * checked. Errors are those of accel_ckpt_read. */
accel_status_t ckpt_read_part(accel_ckpt_t *c, const struct ckpt_view *v, int64_t begin,
                              int64_t count, void *data, accel_error_t *err);
/* "3x4", or "-" for a scalar, into buf[len]; returns buf. */
const char *ckpt_dims(int ndim, const int64_t *shape, char *buf, size_t len);

/* ---- ckpt_weights.c -------------------------------------------------------------- */

/* Of a float16 weight the tensor of its exponents; -1: there is none that fits. */
int64_t ckpt_weight_scales(const accel_ckpt_t *c, const struct ckpt_view *v);
/* Is it stored as masters are? */
bool ckpt_is_weight(const accel_ckpt_t *c, const struct ckpt_view *v);
/* Bytes of the room that ckpt_read_weights needs for n elements. */
size_t ckpt_weight_room(const struct ckpt_view *v, int64_t count);
/* As ckpt_read_part, of a tensor that ckpt_is_weight: out[count] as float32. */
accel_status_t ckpt_read_weights(accel_ckpt_t *c, const struct ckpt_view *v,
                                 int64_t begin, int64_t count, float *out, void *room,
                                 accel_error_t *err);

/* ---- ckpt_model.c ---------------------------------------------------------------- */

/* Which model of the library a checkpoint holds. */
struct ckpt_model {
    /* "gpt2", "llama", "bert"; "": not known */
    char type[16];
    /* the directory that it was opened from; "": none */
    char from[4096];
    /* its config.json, with weights of the dtype asked for, owned; NULL: not known */
    char *config;
};
/* What the run has noted. dtype: "float32" ... */
accel_status_t ckpt_model_read(const accel_ckpt_t *c, const char *dtype,
                               struct ckpt_model *model_out, accel_error_t *err);
/* Copies the tokenizer's files from m->from to the directory `to`, durable; those that
 * are there stay. Returns how many were copied. */
int ckpt_model_tokenizer(const struct ckpt_model *m, const char *to);

/* One part of the state beside the tensors; `name` may be empty. */
typedef void ckpt_state_row(void *user, const char *kind, const char *name,
                            const char *what);
/* Calls row for every optimizer, schedule, loader, scaler, average and registered
 * object that the checkpoint has the state of. False: no memory for all of them. */
bool ckpt_state_rows(const accel_ckpt_t *c, ckpt_state_row *row, void *user);

/* ---- ckpt_progress.c ------------------------------------------------------------- */

struct ckpt_progress {
    /* "exported", or what is being looked at */
    const char *what;
    /* bytes; or `counts`, "tensors", where that is not NULL */
    int64_t total, done;
    const char *counts;
    /* nothing is drawn: the output is for a program */
    bool off;
    /* when it was last drawn; 0: not yet */
    int64_t drawn;
};
/* `bytes` more are done. */
void ckpt_progress_add(struct ckpt_progress *p, int64_t bytes);
/* `done` of `total` are. */
void ckpt_progress_to(struct ckpt_progress *p, const char *what, int64_t done,
                      int64_t total);
/* A ckpt_progress_f; `user` is the progress. */
void ckpt_progress_read(void *user, const char *name, int64_t done, int64_t total);
/* Clears the line. */
void ckpt_progress_end(struct ckpt_progress *p);

#endif
