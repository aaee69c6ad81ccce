/* SPDX-License-Identifier: Apache-2.0
 *
 * In which dtype a run does what. In: the config. Out: dtypes; nothing else in the
 * runtime turns mixed_precision or accel.precision into one. Which modules have others
 * says module_policy.h.
 *
 * Sums and losses are float32 whatever this says, moments unless
 * their optimizer keeps 8-bit ones, and buffers have the dtype that the program
 * declares.
 */
#ifndef ACCEL_PRECISION_POLICY_H
#define ACCEL_PRECISION_POLICY_H

#include "config/config.h"
#include "precision/fp8.h"

struct precision {
    /* Of activations, and of the parameters that ops see. */
    accel_dtype_t compute;
    /* Of the gathered copy and its wire. As `compute`, because narrowing before or
     * after the gather gives equal bits. */
    accel_dtype_t parameters;
    /* Of gradients on the wire where state is sharded. Sums are float32. */
    accel_dtype_t reduce;
    /* Whole copies are summed in that dtype as well: it was asked for. Otherwise in
     * float32. */
    bool narrow_copies;
    /* Gradients of activations need a loss scale: small ones would be 0. */
    bool scaled;
    /* Linears multiply in fp8 (below); `compute` is what all else has. */
    bool fp8;
    /* Where they are sharded, weights of those linears are gathered as 8-bit floats
     * (torchao's enable_fsdp_float8_all_gather); held: and kept so where one rank has
     * all of them. */
    bool coded, held;
    /* Of weights between steps: float32, or where `parameters` is bfloat16 that, or
     * float16 with scales (numbers/scaled.h). */
    accel_dtype_t masters;
    /* Of gradients between a backward and its step: float32, or e4m3 with scales. */
    accel_dtype_t gradients;
    /* bfloat16 masters are rounded to the nearest, not stochastically. */
    bool masters_nearest;
};

struct precision precision_of(const struct config *cfg);
/* The word of mixed_precision: "no", "bf16", "fp16", "fp8"; static. */
const char *precision_word(const struct precision *p);

/* ---- fp8_policy.c: how linears of a run multiply in fp8 -------------------------- */

/* Sizes of a weight that is narrowed are multiples of this: what tensor cores take. */
#define FP8_MULTIPLE 16

/* Of a config with mixed_precision fp8. */
struct fp8_recipe fp8_recipe_of(const struct config *cfg);
/* The word of accel.precision.fp8_recipe; static. */
const char *fp8_recipe_word(const struct fp8_recipe *r);

#endif
