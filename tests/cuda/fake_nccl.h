/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the stand-in for NCCL share: what the ranks of a communicator have
 * in common memory, and what one of them knows.
 */
#ifndef ACCEL_TESTS_FAKE_NCCL_H
#define ACCEL_TESTS_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/nccl/nccl.h"
#include "tests/cuda/include/cuda_runtime_api.h"

#define CHUNK  ((size_t)1 << 20) /* bytes of a message that are under way at a time */
#define RANKS  16
#define EXPORT __attribute__((visibility("default")))

enum { INVALID_ARGUMENT = 4, SYSTEM_ERROR = 2 };

/* From one rank to another. The data follows all channels. */
struct channel {
    _Atomic uint64_t sent, taken; /* chunks */
    size_t bytes;                 /* of the last one */
    uint64_t all_bytes;           /* of all so far; the sender's to write */
};

/* What a rank wants of split number `asked`, and, from the first rank of a group, where
 * the group's memory is. Two in turn: nobody is at split n + 2 before all are through
 * n. */
struct wish {
    _Atomic uint64_t asked, made;
    int color, key;
    char path[128];
};

struct world {
    _Atomic int attached;
    _Atomic bool aborted[RANKS];
    struct wish wish[2][RANKS];
    struct channel channel[RANKS][RANKS];
};

struct item {
    int peer;
    bool is_send;
    char *data;
    size_t bytes, done;
};

/* What one call or group puts on a stream. */
struct launch {
    struct launch *next; /* without streams */
    struct nccl_comm *comm;
    uint64_t number;
    int items, room;
    struct item *item;
    char *parts; /* [size][elems]: to be reduced into out */
    void *out;
    size_t elems;
    int type, op;
};

struct nccl_comm {
    int rank, size;
    struct world *world;
    size_t world_bytes;
    bool arrived, aborted, starting;
    int fd; /* of the maker of the id, until all have arrived; else -1 */
    int error;
    uint64_t launched, finished;
    cudaStream_t last_stream;
    cudaEvent_t event;
    bool recorded;
    uint64_t recording;     /* where the event was recorded: recording_of */
    struct launch *waiting; /* without streams */
    int registered;
    uint64_t splits;
    struct nccl_comm **split_out; /* of the split under way; NULL: none */
};

/* fake_nccl.c */
/* The text after `name` in $FAKE_NCCL, or NULL. */
const char *wish(const char *name);
/* Memory for the ranks of a communicator: its descriptor and the name others open it
 * by. */
int make_world(char path[128]);
int attach(struct nccl_comm *c, const char *path);
void close_made(struct nccl_comm *c);

/* For tests: bytes that this rank has sent to another one. */
EXPORT uint64_t fake_nccl_sent(const nccl_comm_t *c, int to);

/* fake_nccl_sums.c */
size_t size_of(int type);
void reduce(const struct launch *l);

/* fake_nccl_split.c: a split goes on while its communicator is asked for its state. */
void go_on_splitting(struct nccl_comm *c);

#endif
