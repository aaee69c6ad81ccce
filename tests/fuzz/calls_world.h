/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzzer of call sequences (fuzz_calls.c) works with: random numbers, the
 * objects that calls have made, and the judgement of each call. calls_*.c have one list
 * of actions per header.
 */
#ifndef ACCEL_TESTS_CALLS_WORLD_H
#define ACCEL_TESTS_CALLS_WORLD_H

#include <stdbool.h>
#include <stdio.h>

#include "accel.h"

enum {
    CALLS_SLOTS = 4,
    CALLS_TENSORS = 12,
    CALLS_SIDES = 2,
    CALLS_OUTCOMES = 1 << 16,
};

/* A run and what the program has made of it. NULL: an empty place. */
struct side {
    accel_t *run;
    /* a call to prepare it has succeeded */
    bool prepared;
    /* for its output and folders; bit i: folder i holds a checkpoint, or weights */
    char dir[200];
    unsigned states, weights;
    accel_module_t *module[CALLS_SLOTS];
    /* of them the one that trains */
    accel_module_t *model;
    accel_tensor_t *param[CALLS_SLOTS];
    accel_tensor_t *tensor[CALLS_TENSORS];
    accel_optim_t *optim[CALLS_SLOTS];
    accel_loader_t *loader[CALLS_SLOTS];
    accel_unit_t *unit[CALLS_SLOTS];
    accel_kv_t *kv[CALLS_SLOTS];
    accel_dataset_t *data[CALLS_SLOTS];
};

/* Two runs in one process, as long as there is one rank; calls go to `now`. */
struct world {
    /* the same numbers on all ranks, and those of this rank */
    uint64_t random, own;
    struct side side[CALLS_SIDES];
    struct side *now;
    int rank, ranks;
    /* for files of this world */
    const char *dir;
    /* functions of the program that the library has called and that have not returned,
     * and those of them that may use the run (attempts) */
    int inside, allowed;
    /* what is called next is local: it may differ between ranks */
    bool local;
    long calls, findings;
    bool trace;
    /* outcomes of calls, [CALLS_OUTCOMES], shared; NULL: one rank */
    short *outcome;
    accel_error_t err;
    /* the call was given `err` */
    bool asked;
};

/* One kind of call; the last of a list has no function. */
struct calls_action {
    void (*act)(struct world *w);
    /* how often */
    int weight;
    /* need not be the same on all ranks */
    bool local;
};
extern const struct calls_action calls_of_run[], calls_of_models[], calls_of_ops[],
    calls_of_objects[], calls_of_rules[], calls_of_files[], calls_of_loaders[],
    calls_of_ranks[], calls_of_state[], calls_of_track[], calls_of_units[],
    calls_of_text[];

/* The world that callbacks of the program belong to. */
extern struct world *calls_now;

/* Below n; true once in n times. */
uint64_t calls_random(struct world *w, uint64_t n);
bool calls_once_in(struct world *w, uint64_t n);
/* A small number; seldom negative or extreme. */
int64_t calls_number(struct world *w);
/* An ordinary number; seldom one that is negative or none. */
double calls_real(struct world *w);
/* A name out of few; seldom one that is none. */
const char *calls_name(struct world *w);
/* Takes a random action out of those of all headers. */
void calls_any(struct world *w);
/* As from a function of the program that the library has called: sometimes a call or
 * two. calls_attempt: from one that may use the run. */
void calls_inside(struct world *w);
void calls_attempt(struct world *w);

/* The run, seldom NULL; then *bad_out becomes true. */
accel_t *calls_run(struct world *w, bool *bad_out);
/* Where the error goes; now and then nowhere. */
accel_error_t *calls_error(struct world *w);
/* Judges one call: `text` is what was called, `bad` that it cannot succeed. Returns
 * whether it has. calls_made: of a call that returns an object. */
void calls_say(struct world *w, const char *text);
bool calls_judge(struct world *w, const char *text, bool bad, accel_status_t st);
bool calls_made(struct world *w, const char *text, bool bad, const void *object);
/* A mistake of the library, in words. */
void calls_finding(struct world *w, const char *text, const char *what);
#define CALL(w, bad, call) (calls_say(w, #call), calls_judge(w, #call, bad, call))
#define MAKE(w, bad, call) (calls_say(w, #call), calls_made(w, #call, bad, call))

/* One out of a list of the side, seldom NULL or one of the other run; then *bad_out
 * becomes true. */
#define PICK(w, list, bad_out)                                                         \
    ((__typeof__((w)->now->list[0]))calls_pick(                                        \
        w, (void **)(w)->side[0].list, (void **)(w)->side[1].list,                     \
        sizeof((w)->now->list) / sizeof(void *), bad_out))
void *calls_pick(struct world *w, void **first, void **second, size_t n, bool *bad_out);
/* Puts an object into a list of the side, if there is one. */
#define KEEP(w, list, object)                                                          \
    calls_keep(w, (void **)(w)->now->list, sizeof((w)->now->list) / sizeof(void *),    \
               object)
void calls_keep(struct world *w, void **list, size_t n, void *object);

/* A folder of the side, below FOLDERS, that is (filled) or is not in `holds`, if there
 * is one; seldom any other. Writes its path to buf[256], returns its number. */
enum { CALLS_FOLDERS = 8 };
int calls_folder(struct world *w, const char *kind, unsigned holds, bool filled,
                 char *buf);

/* ---- what others build on: calls_run.c, calls_models.c, calls_rules.c, ... ------- */

/* Opens the run of the side; ends all of it. */
void calls_open(struct world *w);
void calls_close(struct world *w);
/* What programs do: models, data and a prepared run; a step; a micro-batch with a few
 * tensors. */
void calls_set_up(struct world *w);
void calls_train(struct world *w);
void calls_begin(struct world *w);
/* What a run is asked for before it is prepared: averages, schedules, ways to reduce. */
void calls_rules(struct world *w);
/* Weights written and read, which is possible only before the first step. */
void calls_weights(struct world *w);
/* Micro-batches until a step has ended: much is possible only between steps. */
void calls_settle(struct world *w);
/* A dataset of the side, of random kind; one that the models of calls_set_up train on. */
accel_dataset_t *calls_dataset(struct world *w);
accel_dataset_t *calls_samples(struct world *w);
/* A tree of one module with parameters. NULL: refused. */
accel_module_t *calls_tree(struct world *w);
/* Values as a tensor, [rows, 2]; small numbers, int32 [2, 2]. */
accel_tensor_t *calls_values(struct world *w, int64_t rows);
accel_tensor_t *calls_ids(struct world *w);

#endif
