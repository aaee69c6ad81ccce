/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table: every op, what it is given, how it is called, and the same in double.
 * One driver runs it forward and backward on any backend: what is true of one is then
 * true of all. A family of ops adds a file with its rows and a line in optable.c.
 */
#ifndef ACCEL_TESTS_OPTABLE_H
#define ACCEL_TESTS_OPTABLE_H

#include <stdio.h>

#include "backend/device.h"
#include "precision/fp8.h"

#define OP_INPUTS 4

enum op_input_kind {
    OP_COMPUTED, /* an activation of the compute dtype */
    OP_PARAMETER,
    OP_IDS,   /* int32, no gradient */
    OP_BYTES, /* int8, no gradient */
};

struct op_input {
    enum op_input_kind kind;
    int ndim;
    int64_t dim[4];
    double reach;      /* values lie in [-reach, reach); 0: 1 */
    double least;      /* above 0: in [least, reach) */
    int64_t low, high; /* of OP_IDS and OP_BYTES: low .. high - 1 */
    int64_t elems;     /* filled in by the driver, as is v: the values, ids included */
    double *v;
};

struct op_case {
    const char *name;             /* the op and what is special */
    const struct op_family *with; /* how it is called */
    int64_t s[8];                 /* sizes and numbers; their meaning is the family's */
    double r[2];
    int coarse; /* in bfloat16 a second rounding is in the gradient, 2: in the values, too */
};

struct op_family {
    /* Describes the inputs of the case; returns how many. */
    int (*inputs)(const struct op_case *c, struct op_input in[OP_INPUTS]);
    /* Calls the op. */
    accel_tensor_t *(*build)(const struct op_case *c, accel_tensor_t *const *in);
    /* y[elems of the result], from in[].v, in double; nothing shared with the op. */
    void (*reference)(const struct op_case *c, const struct op_input *in, double *y);
};

struct op_rows {
    const struct op_case *at;
    int count;
};

/* The kinds with a gradient. */
static inline bool op_input_learns(const struct op_input *in)
{
    return in->kind == OP_COMPUTED || in->kind == OP_PARAMETER;
}

/* Every family's rows, in turn; ends with NULL. */
extern const struct op_rows *const optable[];

extern const struct op_rows optable_elementwise, optable_rows, optable_views,
    optable_linear;
/* Rows whose matrices linears multiply in fp8, with each recipe that a backend
 * has. */
extern const struct op_rows optable_fp8;

/* Runs the table on be[0] and judges values and gradients by the references; be[1 ..
 * n-1] must then give the same bits as be[0]. Prints TAP results. */
void optable_run(struct backend *const *be, int n);
/* Its rows of products in fp8 with scales of blocks alone. */
void optable_run_blocks(struct backend *const *be, int n);

/* The table on `be` and on `device`, by the same inputs: float32 to 1e-5, bfloat16 to
 * two of its last places. */
void optable_beside(struct backend *be, struct backend *device);

/* Writes what optable.py needs to compute the table with PyTorch: cases, inputs,
 * weights. */
void optable_dump(struct backend *be, FILE *to);
/* Compares the table on `be` with what optable.py wrote. */
void optable_golden(struct backend *be);

/* One way through a case. */
struct op_trial {
    const struct op_case *c;
    accel_dtype_t compute;
    bool apart;                      /* every parameter in a unit of its own */
    const struct fp8_recipe *recipe; /* of products in fp8; NULL: none */
    struct op_input in[OP_INPUTS];
    int inputs, parameters;
    double *weight; /* the loss is the sum of weight * result */
    double *want;   /* the reference's result */
    char what[256];
};

struct op_outcome {
    int64_t elems;
    float *out, *again; /* with and without a tape */
    float *grad[OP_INPUTS];
    int faults;
};

void op_trial_open(struct op_trial *t, const struct op_case *c, accel_dtype_t compute,
                   bool apart);
/* Forward and backward; false: a TAP result says why. */
bool op_attempt(struct op_trial *t, struct backend *be, struct op_outcome *o);
/* Calls `one` with every way through the table that `be` has. */
void optable_each(const struct backend *be, void (*one)(struct op_trial *t, void *user),
                  void *user);
/* Forward and backward with watch(true) before what the op does and watch(false) behind
 * it: returns their status. Then the same again without a watch, in the same graph, after
 * op_attempt has been through the trial once: that fills in the outcome, whose faults
 * are those of both. */
accel_status_t op_retry(struct op_trial *t, struct backend *be, void (*watch)(bool),
                        struct op_outcome *o, accel_error_t *err);
/* Do the outcomes have the same bits? */
bool op_same(const struct op_trial *t, const struct op_outcome *a,
             const struct op_outcome *b);
/* Largest |got - want| in units of what is allowed: `rel` of each value (one rounding
 * of the storage) and `size` of the largest. */
double op_excess(const double *got, const double *want, int64_t n, double rel,
                 double size);
void op_outcome_free(struct op_outcome *o);
void op_trial_close(struct op_trial *t);

/* Inputs of the commonest kinds. */
struct op_input op_computed_input(int ndim, int64_t a, int64_t b, int64_t c, int64_t d);
struct op_input op_parameter_input(int ndim, int64_t a, int64_t b, int64_t c,
                                   int64_t d);
/* An activation in double; `kind` is an accel_activation_t. */
double optable_act(double x, int64_t kind);

/* The random ops draw by these. */
#define OP_SEED         42
#define OP_FIRST_SAMPLE 5

#endif
