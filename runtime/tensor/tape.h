/* SPDX-License-Identifier: Apache-2.0
 *
 * The tape of one micro-batch and the lifetime of tensor data, for ops/ and nn/.
 * Data lives while somebody holds it: the scope of the module that made it (until that
 * module's forward returns; the output passes to the caller's scope), tape entries that
 * need it in backward, or the `grad` link of another tensor. The structs themselves stay
 * until the graph_reset after the next, so that a late use is found (data == NULL) and
 * named.
 */
#ifndef ACCEL_TENSOR_TAPE_H
#define ACCEL_TENSOR_TAPE_H

#include "tensor/graph.h"

#define TAPE_MAX_IN    8
#define TAPE_MAX_SAVED 8

struct tape_entry {
    const char *op;
    const char *path; /* module that called the op */
    /* Reads out->grad, adds to the gradients of in[]. Failures go to g->error. */
    bool (*backward)(struct graph *g, const struct tape_entry *e);
    accel_tensor_t *out;
    accel_tensor_t *in[TAPE_MAX_IN];       /* meaning is the op's; may be NULL */
    accel_tensor_t *saved[TAPE_MAX_SAVED]; /* data held until backward is done */
    int64_t ints[6]; /* attributes of the call; meaning is the op's */
    float reals[4];
    const void *ref[2]; /* what the op needs besides; not owned */
};

/* Sets g->error unless one is there already. `op` may be NULL. Always returns NULL, so
 * that ops end with `return graph_fail(...)`. */
void *graph_fail(struct graph *g, enum message code, const char *op, const char *hint,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The op, of the module at work, whose work is put on the device from here on. */
void graph_mark(struct graph *g, const char *op, bool backward);

/* What a device has told so far, at the op that has just been put on it. False: sticky. */
bool graph_check(struct graph *g, const char *op);

/* Appends an entry and holds its saved tensors. False: out of memory (sticky). */
bool tape_record(struct graph *g, const struct tape_entry *e);
int tape_length(const struct graph *g);
struct tape_entry *tape_at(struct graph *g, int index);
/* Drops the holds of the last entry and the entry itself. */
void tape_pop(struct graph *g);

void tensor_retain(accel_tensor_t *t);
void tensor_release(accel_tensor_t *t); /* frees the data with the last holder */

/* scope_begin ... scope_end(mark, output): what was made in between and is held by
 * nobody else is freed, except `out` (may be NULL). */
int scope_begin(const struct graph *g);
void scope_end(struct graph *g, int mark, const accel_tensor_t *out);

/* Arena memory of one op call. NULL: out of memory (sticky). */
void *graph_scratch(struct graph *g, size_t bytes);
void graph_scratch_free(struct graph *g, void *p);

/* "[4, 64, 768]" into buf; returns buf. */
const char *tensor_shape_text(const accel_tensor_t *t, char *buf, size_t len);

struct tape *tape_new(void);
void tape_free(struct tape *t);

#endif
