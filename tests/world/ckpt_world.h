/* SPDX-License-Identifier: Apache-2.0
 *
 * For checkpoint tests: N forked ranks joined by sockets, and a state whose every
 * element is known from its name, index and step, cut over the ranks as flat shards
 * are.
 */
#ifndef TESTS_CKPT_WORLD_H
#define TESTS_CKPT_WORLD_H

#include <sys/types.h>

#include "checkpoint/accel_ckpt.h"
#include "common/common.h"

#define WORLD_MAX 8

struct world {
    int rank, size;
    int fd[WORLD_MAX]; /* rank 0: one per peer; others: fd[0] */
    pid_t pid[WORLD_MAX];
    accel_ckpt_coll_t coll;
};

/* Forks size-1 children; returns in every rank. */
void world_start(struct world *w, int size);
/* Children exit with `status`; rank 0 waits for all and returns how many (itself
 * included) had a status other than 0. */
int world_end(struct world *w, int status);

struct state {
    size_t boxes;
    accel_ckpt_box_t *box;
    char *memory;
    size_t bytes;
};
/* This rank's boxes of the odd-shaped test state; filled with step's values, or 0. */
void state_make(struct state *s, int rank, int size, int64_t step);
void state_make_empty(struct state *s, int rank, int size);
/* Number of elements that are not step's. */
long state_wrong(const struct state *s, int64_t step);
void state_free(struct state *s);

/* A save of that state with the blobs "trainer" and "rng". */
accel_status_t world_save(const struct world *w, const char *root, int64_t step,
                          int keep, accel_error_t *err);
/* Reads the newest complete checkpoint and compares; its step, or -1. */
int64_t world_load_newest(const char *root, int rank, int size, accel_error_t *err);

/* A state of a few bytes for tests of many saves, cut into equal parts. `part`: root,
 * step, keep and what shall not be as usual. */
accel_status_t numbers_save(const struct world *w, const accel_ckpt_save_t *part,
                            accel_error_t *err);
/* The same of one rank alone; owner NULL: as usual. */
accel_status_t numbers_save_alone(const char *root, int64_t step, int keep,
                                  const char *owner, accel_error_t *err);
/* The step of the newest complete checkpoint when it loads and its numbers are right,
 * -1 when there is none, -2 when it does not load, -3 when its numbers are wrong. */
int64_t numbers_load(const char *root);

/* Is it a shard file of a checkpoint that is open there? */
bool world_is_shard(int fd);
/* A checkpoint of one number, "model/w": its box; what the one in ROOT/NAME holds, -1:
 * it does not load. */
accel_ckpt_box_t value_box(double *value);
double value_in(const char *root, const char *name);
/* A new empty directory below $TMPDIR or the current one; removed by world_rmtree. */
void world_tmpdir(char out[256], const char *name);
void world_rmtree(const char *path);
/* Flips a bit of a file; again to undo. */
void world_flip(const char *path, int64_t at, int bit);
/* What a command of the shell prints, at most 1999 characters; valid until the next call. */
const char *world_output(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* How many names in `dir` match that pattern of grep; -1: none could be counted. */
int world_names_in(const char *dir, const char *what);

#endif
