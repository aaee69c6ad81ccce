/* SPDX-License-Identifier: Apache-2.0
 *
 * What modules compute in where that is not the run's dtype. In: the rules of
 * accel.precision.modules, what a program asks for, names. Out: dtypes per module, and
 * whether its linears multiply in fp8. Knows no tree.
 */
#ifndef ACCEL_PRECISION_MODULE_POLICY_H
#define ACCEL_PRECISION_MODULE_POLICY_H

#include "config/config.h"

#define MODULE_RULES 16
#define MODULE_GLOB  128

/* Of one module. Its parameters are gathered in `compute`, because narrowing before or
 * after the gather gives equal bits; its buffers have the dtype that they are declared
 * with. */
struct module_types {
    /* of activations inside it, and of its parameters as ops see them */
    accel_dtype_t compute;
    /* of what it returns, where that has the dtype of `compute` */
    accel_dtype_t output;
    /* of its parameters' gradients on the wire, where they are sharded */
    accel_dtype_t reduce;
};

/* What a rule or a program asks for: "fp32", "fp8", "fp32+output:fp32+reduce:bf16". */
struct module_choice {
    enum { MODULE_INHERITS, MODULE_FP32, MODULE_BF16, MODULE_FP16, MODULE_FP8 } compute;
    /* false: the caller's compute; that of the run, or `compute` */
    bool has_output, has_reduce;
    accel_dtype_t output, reduce;
};

/* accel.precision.modules: the first rule that fits a module counts. */
struct module_rules {
    struct {
        char glob[MODULE_GLOB];
        struct module_choice choice;
        /* modules, or linears, that it has decided */
        int hits;
    } rule[MODULE_RULES];
    int count;
};

/* False: it is none. */
bool module_choice_read(const char *text, struct module_choice *choice_out);
/* A0997: the list cannot be read. */
accel_status_t module_rules_read(const struct config *cfg,
                                 struct module_rules *rules_out, accel_error_t *err);
/* The number of the first rule that fits `name`, "h.0.mlp.c_fc.weight", or a module
 * that it belongs to, "h.0.mlp.c_fc", "h.0.mlp", "h.0"; -1: there is none. */
int module_rule_of(const struct module_rules *rules, const char *name);
/* The types of the run. */
struct module_types module_types_of(const struct config *cfg);
/* Those of a module whose caller computes in `around`. A0997: a run with this config
 * has no such types; `name` is for the message. */
accel_status_t module_types_choose(const struct config *cfg,
                                   const struct module_choice *choice,
                                   struct module_types around, const char *name,
                                   struct module_types *types_out, accel_error_t *err);
/* After all linears (narrow) or all modules. A0997: a rule that asks for fp8, or for
 * something else, has fitted none; `some` is a name, for the hint. */
accel_status_t module_rules_used(const struct module_rules *rules, bool narrow,
                                 const char *some, accel_error_t *err);

#endif
