/* SPDX-License-Identifier: Apache-2.0
 *
 * nn/: the named module tree, and how it is cut into units (wrap policy).
 */
#ifndef ACCEL_NN_NN_H
#define ACCEL_NN_NN_H

#include "tensor/graph.h"

struct accel_module {
    struct graph *g;
    const accel_class_t *cls;
    struct accel_module *parent, *child,
        *next;  /* child: first; next: sibling, in order */
    char *path; /* "h.3.attn"; "" for the root */
    void *state;
    accel_tensor_t **param; /* in order of declaration */
    int param_count;
    int unit; /* unit of its own parameters; -1 before */
};

accel_module_t *nn_module_new(struct graph *g, const accel_class_t *cls,
                              accel_module_t *parent, const char *name);
void nn_module_free(accel_module_t *root); /* the whole tree; NULL is fine */

/* Units: with TRANSFORMER_BASED_WRAP every module whose class is in `classes` (comma list,
 * empty: the model's own choice, classes named "...Block") becomes a unit with all its
 * descendants; the rest of the tree (all of it, when no class fits) is unit 0. Without
 * wrapping all is unit 0. Sets unit and unit_offset of every parameter (offsets aligned to
 * 64 bytes of float32).
 * Error: ACCEL_ECONFIG naming a class that does not occur, with the nearest one. */
struct nn_unit {
    const char *name;       /* path of its module; "" for the root unit */
    accel_tensor_t **param; /* in order of declaration */
    int param_count;
    int64_t elems; /* with alignment gaps */
};
struct nn_units {
    struct nn_unit *unit;
    int count;
};
accel_status_t nn_units_build(accel_module_t *root, bool transformer_wrap,
                              const char *classes, struct nn_units *out,
                              accel_error_t *err);
void nn_units_free(struct nn_units *u);

/* Peak bytes of the arena for one micro-batch of int32 {ids, targets} [batch, time]
 * through `model` (units are built): forward, and with `backward` also the backward. Runs
 * on the meta backend, touches no data and no unit, leaves the graph as it was. Equal to
 * arena_peak_bytes after the real thing. */
accel_status_t nn_measure(accel_module_t *model, int batch, int time, bool backward,
                          size_t *peak_bytes_out, accel_error_t *err);

#endif
