/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of runs that save to the nodes first, every second step. The ranks share a
 * node, or each is a node of its own. A test that links this wraps
 * accel_ckpt_save_write, ckpt_node_name, pthread_join and staging_open, besides
 * $(open_world_wraps).
 */
#ifndef ACCEL_TESTS_STAGING_WORLD_H
#define ACCEL_TESTS_STAGING_WORLD_H

#include <signal.h>
#include <stdatomic.h>

#include "tests/world/held_run.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"

#define KILLED (128 + SIGKILL)

/* The folder of all cases. */
extern char staging_root[];
/* Each rank is a node of its own. */
extern bool apart;
/* Its node is another one than before; where the ranks share one, all of them moved. */
extern int moved_rank;
/* ... or the node is the same, and has another disk there. */
extern bool other_disk;
/* In place of the node's directory; NULL: that. */
extern const char *local_dir;
/* The wait for a thread lets it go. */
extern bool join_opens;
/* The wait for a thread lets it remove files. */
extern bool join_removes;
/* Files of shards that a thread was about to remove. */
extern atomic_int removals;
/* The next write ends the process behind it. */
extern bool kill_written;

/* Threads that remove files of shards wait, or go on. */
void hold_removal(bool hold);
/* True on other ranks. */
bool has_said(const struct boot *b, const char *text);
/* Until this rank has copied; no rank looks before all have. */
void await_copy(struct number_run *k);
/* The newest record of a staged one, and how many there are. */
int64_t staged(size_t *count_out);
/* The disk of this rank's node, into buf[len]. */
void node_dir(int rank, char *buf, size_t len);
/* Parts on this rank's node; found (NULL: not) is called with the path of each. */
int parts(int rank, void (*found)(const char *dir));
/* Their number, when this rank has removed what is gone. */
int parts_left(struct number_run *k);
/* Kills this rank when all have come here. */
void die(struct number_run *k);
/* Lives that are killed: with step 2 on the nodes alone; with step 2 in the shared
 * directory and step 4 on the nodes; with both on the nodes. For life(). */
int dies_between(struct boot *b, void *arg);
int dies_later(struct boot *b, void *arg);
int dies_with_two(struct boot *b, void *arg);
/* From now on `call` fails for names that begin with `name`; error 0: no more. */
void fail(const char *call, const char *name, int error);

/* A new folder; `more`: lines of accel.checkpoint. */
void new_case(int world, const char *name, const char *more);
/* A life; its ranks end with `status`. */
void life(int world, const char *what, int (*fn)(struct boot *, void *), void *arg,
          int status);
/* The next life begins at step `want`, with its weight, and says `text` (NULL: any);
 * nothing is on the nodes then. */
void life_finds(int world, const char *what, int64_t want, const char *text);
void staging_world_begin(void);
void staging_world_end(void);

#endif
