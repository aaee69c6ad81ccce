/* SPDX-License-Identifier: Apache-2.0
 *
 * nn/: the named module tree, and how the wrap policy cuts it into units. A tree
 * belongs to one graph (and so to one run); one thread uses it. Failures of builders
 * are sticky: the first one stays in graph->error, and every later call returns NULL.
 */
#ifndef ACCEL_NN_NN_H
#define ACCEL_NN_NN_H

#include "precision/module_policy.h"
#include "tensor/units.h"

/* A second name for a parameter, made by accel_tie: for example, Hugging Face
 * checkpoints name a tied head as if it had its own weight. */
struct nn_alias {
    /* full name, malloc */
    char *name;
    /* owned by the module that declared it */
    accel_tensor_t *param;
};

/* A node of the tree. It owns its children, its parameters and buffers, its names and
 * its state; the tree is freed from the root. */
struct accel_module {
    struct graph *g;
    /* the program's or the library's, static */
    const accel_class_t *cls;
    /* child: the first one; next: the next sibling, in order of declaration */
    struct accel_module *parent, *child, *next;
    /* "h.3.attn"; "" for the root */
    char *path;
    /* cls->state_bytes, initially zero; what accel_module_state returns */
    void *state;
    /* its own parameters, without those of its children, in order of declaration */
    accel_tensor_t **param;
    int param_count;
    /* the unit that holds its own parameters; -1 before nn_units_build */
    int unit;
    /* its forward keeps only the inputs, and backward runs it again (module_call.c) */
    bool recompute;
    /* its class begins a unit (nn_units_build) */
    bool wrapped;
    /* what the program has asked for by accel_module_precision */
    struct module_choice choice;
    /* those of the run, until nn_precision_assign sets others */
    struct module_types types;
    bool own_types;
    /* not trained, whole on every rank; see buffers.c */
    accel_tensor_t **buffer;
    int buffer_count;
    /* names in this module for parameters of other modules */
    struct nn_alias *alias;
    int alias_count;
};

/* A new module under `parent` (NULL: the root of a new tree, which the caller frees
 * with nn_module_free). `name` is copied. NULL: sticky error. */
accel_module_t *nn_module_new(struct graph *g, const accel_class_t *cls,
                              accel_module_t *parent, const char *name);
/* Frees the whole tree with its parameters and buffers; NULL is fine. */
void nn_module_free(accel_module_t *root);

/* Gives every module of the n trees its dtypes: those of the first rule of
 * accel.precision.modules that matches it, else what the program asks for, else those
 * of its parent. *others_out: how many modules do not have the run's. Call this before
 * nn_units_build. Errors: A0997. */
accel_status_t nn_precision_assign(accel_module_t *const *roots, int n,
                                   const struct config *cfg, int *others_out,
                                   accel_error_t *err);
/* Does the program ask for fp8 matmuls in linears of m, for m itself or a module that
 * contains it? `otherwise`: the result if it has not asked. */
bool nn_module_narrows(const accel_module_t *m, bool otherwise);

/* Cuts the tree into units and lays them out. With `transformer_wrap` every module
 * whose class is in `classes` becomes a unit with all its descendants, and the rest of
 * the tree is unit 0. `classes` is a comma list; NULL or empty stands for the classes
 * named "...Block" or "...Layer". Without wrapping, or if no class matches, everything
 * is unit 0. Within each of these, modules with other dtypes become separate units. The
 * caller frees *units_out with units_free, before the tree. Not collective, but the
 * result is the same on all ranks. */
accel_status_t nn_units_build(accel_module_t *root, bool transformer_wrap,
                              const char *classes, struct units *units_out,
                              accel_error_t *err);

/* Every word of the comma list `classes` (NULL: none) must name a class of one of the n
 * trees. ACCEL_ECONFIG names one that does not occur, and the nearest one that does. */
accel_status_t nn_classes_check(accel_module_t *const *roots, int n,
                                const char *classes, accel_error_t *err);

/* "path.name", or "name" below the root. The caller frees it; NULL: out of memory. */
char *nn_join(const char *path, const char *name);
/* May `parent` have another child, parameter, buffer or alias of that name? False:
 * sticky error. */
bool nn_name_fits(struct graph *g, const accel_module_t *parent, const char *name);

/* Allocates every buffer of the tree that has no memory yet, and fills in its initial
 * values. The memory is the backend's; nn_module_free frees it. */
accel_status_t nn_buffers_open(accel_module_t *root, accel_error_t *err);
/* Frees the buffers of one module, but not those of its children. */
void nn_buffers_free(accel_module_t *m);
/* Writes all buffers of the tree, in order of declaration, to list_out (NULL: counts
 * only). Returns how many there are. The tree keeps them. */
int64_t nn_buffers_list(accel_module_t *root, accel_tensor_t **list_out);

/* For an op that a module calls with the weights of another module m, as for a tied
 * head. nn_types_enter converts x to m's dtype, in which ops compute from then on.
 * nn_types_leave ends this: it takes *outer_out, and converts y to the dtype that m
 * returns. x and y may be NULL. */
accel_tensor_t *nn_types_enter(const accel_module_t *m, accel_tensor_t *x,
                               accel_dtype_t *outer_out);
accel_tensor_t *nn_types_leave(const accel_module_t *m, accel_tensor_t *y,
                               accel_dtype_t outer);

/* Turns on activation checkpointing for every module that is the root of a unit other
 * than 0: backward recomputes it. Returns how many there are. */
int nn_recompute_units(accel_module_t *root);
/* How many modules of the tree begin a unit by their class. */
int nn_wrapped(const accel_module_t *root);

/* The peak bytes of the arena for one micro-batch of `batch` samples of n fields (at
 * most 8) through `model`, whose units are built: for the forward, and with `backward`
 * also the backward. Runs on the meta backend, touches no data and no unit, and leaves
 * the graph as it was. Equals arena_peak_bytes after the real micro-batch. Not
 * collective. */
accel_status_t nn_measure(accel_module_t *model, int batch, const accel_field_t *field,
                          int n, bool backward, size_t *peak_bytes_out,
                          accel_error_t *err);
/* Sets the graph's room for logits to the most with which that peak (with the backward)
 * stays within most_bytes, or to none if the peak exceeds most_bytes even without room.
 * *peak_bytes: the peak; before the call without such room, after it with it. */
accel_status_t nn_keep_logits(accel_module_t *model, int batch,
                              const accel_field_t *field, int n, size_t most_bytes,
                              size_t *peak_bytes, accel_error_t *err);

#endif
