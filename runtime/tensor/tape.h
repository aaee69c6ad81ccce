/* SPDX-License-Identifier: Apache-2.0
 *
 * The tape of one micro-batch and the lifetime of tensor data, for ops/ and nn/.
 *
 * Data lives while it is held: by the scope of the module that made it (until that
 * module's forward returns; the output passes to the caller's scope), by tape entries
 * that need it in backward, or by the `grad` link of another tensor. The structs stay
 * until the graph_reset after the next, so that a late use is detected (data == NULL)
 * and reported by name.
 */
#ifndef ACCEL_TENSOR_TAPE_H
#define ACCEL_TENSOR_TAPE_H

#include "tensor/graph.h"

#define TAPE_MAX_IN    8
#define TAPE_MAX_SAVED 8

/* One op that backward has to undo. Entries are copied when they are recorded. */
struct tape_entry {
    const char *op;
    /* the module that called the op, and its compute dtype; set by tape_record */
    const char *path;
    accel_dtype_t compute;
    /* Reads out->grad and adds to the gradients of in[]. Failures go to g->error. */
    bool (*backward)(struct graph *g, const struct tape_entry *e);
    accel_tensor_t *out;
    /* meaning is the op's; may be NULL */
    accel_tensor_t *in[TAPE_MAX_IN];
    /* data held until backward is done; may be NULL */
    accel_tensor_t *saved[TAPE_MAX_SAVED];
    /* attributes of the call; meaning is the op's */
    int64_t ints[6];
    float reals[4];
    /* whatever else the op needs; not owned */
    const void *ref[2];
};

/* Sets g->error unless there is one already. `op` may be NULL. Always returns NULL, so
 * that ops end with `return graph_fail(...)`. */
void *graph_fail(struct graph *g, enum message code, const char *op, const char *hint,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Names the op whose work is queued on the device from here on, and the module that
 * called it; a device failure is reported for them. */
void graph_mark(struct graph *g, const char *op, bool backward);

/* Takes what the device has reported so far as an error of `op`, without waiting.
 * False: sticky error. */
bool graph_check(struct graph *g, const char *op);

/* Appends a copy of `e` and holds its saved tensors. False: out of memory (sticky). */
bool tape_record(struct graph *g, const struct tape_entry *e);
int tape_length(const struct graph *g);
struct tape_entry *tape_at(struct graph *g, int index);
/* Releases the saved tensors of the last entry, and the entry itself. */
void tape_pop(struct graph *g);
/* Puts the last entry aside unchanged; tape_put_back appends all such, in order. */
void tape_put_aside(struct graph *g);
void tape_put_back(struct graph *g);

/* Parameters are not counted: their data belongs to the residency. */
void tensor_retain(accel_tensor_t *t);
/* Frees the data when its last holder lets go; NULL is fine. */
void tensor_release(accel_tensor_t *t);

/* scope_begin ... scope_end(mark, output): tensors made in between are freed
 * unless something else holds them, except `out` (may be NULL), which passes to
 * the outer scope. */
int scope_begin(const struct graph *g);
void scope_end(struct graph *g, int mark, const accel_tensor_t *out);

/* Arena memory of one op call. NULL: out of memory (sticky). */
void *graph_scratch(struct graph *g, size_t bytes);
void graph_scratch_free(struct graph *g, void *p);

/* "[4, 64, 768]" into buf; returns buf. */
const char *tensor_shape_text(const accel_tensor_t *t, char *buf, size_t len);

#endif
