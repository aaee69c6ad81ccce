/* SPDX-License-Identifier: Apache-2.0
 *
 * nn/: the named module tree, and how it is cut into units (wrap policy).
 */
#ifndef ACCEL_NN_NN_H
#define ACCEL_NN_NN_H

#include "tensor/units.h"

struct nn_alias {
    char *name; /* full name */
    accel_tensor_t *param;
};

struct accel_module {
    struct graph *g;
    const accel_class_t *cls;
    struct accel_module *parent, *child,
        *next;  /* child: first; next: sibling, in order */
    char *path; /* "h.3.attn"; "" for the root */
    void *state;
    accel_tensor_t **param; /* in order of declaration */
    int param_count;
    int unit;       /* unit of its own parameters; -1 before */
    bool recompute; /* keeps its inputs only; backward runs its forward again */
    accel_tensor_t **buffer; /* not trained; see buffers.c */
    int buffer_count;
    struct nn_alias *alias; /* parameters of other modules under names of this one */
    int alias_count;
};

accel_module_t *nn_module_new(struct graph *g, const accel_class_t *cls,
                              accel_module_t *parent, const char *name);
void nn_module_free(accel_module_t *root); /* the whole tree; NULL is fine */

/* Units: with TRANSFORMER_BASED_WRAP every module whose class is in `classes` (comma list,
 * empty: the model's own choice, classes named "...Block" or "...Layer") becomes a unit with all its
 * descendants; the rest of the tree (all of it, when no class fits) is unit 0. Without
 * wrapping all is unit 0. Lays them out.
 * Error: ACCEL_ECONFIG naming a class that does not occur, with the nearest one. */
accel_status_t nn_units_build(accel_module_t *root, bool transformer_wrap,
                              const char *classes, struct units *units_out,
                              accel_error_t *err);

/* "path.name", or "name" below the root: malloc; NULL: out of memory. */
char *nn_join(const char *path, const char *name);
/* May `parent` have another child or parameter of that name? False: sticky error. */
bool nn_name_fits(struct graph *g, const accel_module_t *parent, const char *name);

/* Memory and first values for every buffer of the tree that has none. */
accel_status_t nn_buffers_open(accel_module_t *root, accel_error_t *err);
/* Those of one module. */
void nn_buffers_free(accel_module_t *m);
/* Writes all buffers of the tree, in order of declaration, into out (NULL: counts only);
 * returns how many there are. */
int64_t nn_buffers_list(accel_module_t *root, accel_tensor_t **list_out);

/* Every module that is the root of a unit other than 0 is computed again in backward
 * (activation checkpointing). Returns how many there are. */
int nn_recompute_units(accel_module_t *root);
/* Runs the forward of `m`, keeping its inputs only, and records that backward has to run
 * it again. */
accel_tensor_t *nn_recompute_call(accel_module_t *m, accel_tensor_t *const *in, int n);
/* The forward in a scope of its own. NULL: sticky error. */
accel_tensor_t *nn_forward(accel_module_t *m, accel_tensor_t *const *in, int n);

/* Peak bytes of the arena for one micro-batch of `batch` samples of n fields (at most 8)
 * through `model` (units are built): forward, and with `backward` also the backward. Runs
 * on the meta backend, touches no data and no unit, leaves the graph as it was. Equal to
 * arena_peak_bytes after the real thing. own_bytes_out (NULL is fine): the most that one
 * kernel takes for itself beside the arena. */
accel_status_t nn_measure(accel_module_t *model, int batch, const accel_field_t *field,
                          int n, bool backward, size_t *peak_bytes_out,
                          size_t *own_bytes_out, accel_error_t *err);
/* The batch's tensor of one field, float fields in the compute dtype; uninitialised. NULL
 * on failure (sticky error). */
accel_tensor_t *nn_batch_tensor(struct graph *g, int64_t batch, const accel_field_t *f);

#endif
