/* SPDX-License-Identifier: Apache-2.0
 *
 * The linears of models whose matmuls are fp8, with their scales. In: module trees and
 * the policy. Out: weights that carry their scales (param.fp8).
 */
#ifndef ACCEL_NN_FP8_LINEARS_H
#define ACCEL_NN_FP8_LINEARS_H

#include "nn/nn.h"
#include "precision/policy.h"

struct fp8_linears {
    struct fp8_recipe recipe;
    /* [count] each; `state`: the memory of all their states, one after the other */
    struct fp8_linear *linear;
    accel_tensor_t **weight;
    float *state;
    /* [FP8_TENSORS * count]: shown, what kernels see, as of the host's last look; live,
     * the kernels' own, in the memory of `be` once fp8_linears_place has placed it */
    struct fp8_live *shown, *live;
    const struct backend *be;
    /* fp8 weights that are kept (fp8_kept.c), in the memory of `kept_be` */
    void *kept;
    int64_t kept_bytes;
    const struct backend *kept_be;
    int count;
    /* how many matrices could have been among them */
    int candidates;
};

/* The numbers in one linear's state. */
static inline int64_t fp8_state_elems(const struct fp8_recipe *r)
{
    return FP8_TENSORS * (1 + r->history);
}

/* The numbers in all states that are kept from step to step. */
static inline int64_t fp8_linears_elems(const struct fp8_linears *l)
{
    return l->recipe.current ? 0 : l->count * fp8_state_elems(&l->recipe);
}

/* Chooses among the matrices of n trees, except embedding tables: those whose sizes
 * allow it, without the first and the last of each tree, unless a rule says otherwise.
 * The weights carry their scales from here on, and must not be used after
 * fp8_linears_close. Errors: those of policy.h; ACCEL_ENOMEM. */
accel_status_t fp8_linears_open(struct fp8_linears *out, accel_module_t *const *roots,
                                int n, const struct config *cfg, accel_error_t *err);
/* Call this before a rehearsal of the forward (nn_measure), which finds the weights
 * that ops other than linears take. Without a rehearsal, all weights of the program's
 * own modules count as such, unless the program or a rule asks for fp8. */
void fp8_linears_rehearse(struct fp8_linears *l);
/* How many such weights there are; *name_out is the name of the first. */
int fp8_linears_wide(const struct fp8_linears *l, const char **name_out);
/* Gives the kernels of `be`, which must outlive `l`, their scales. ACCEL_ENOMEM. */
accel_status_t fp8_linears_place(struct fp8_linears *l, const struct backend *be,
                                 accel_error_t *err);
/* Passes the current scales to the kernels, and clears what these have seen. */
void fp8_linears_show(struct fp8_linears *l);
/* Copies what kernels have seen to entry 0 of the histories; waits for the device. */
void fp8_linears_look(struct fp8_linears *l);
/* The bytes of device memory that fp8_linears_place takes. */
size_t fp8_linears_bytes(const struct fp8_linears *l);
void fp8_linears_close(struct fp8_linears *l);

/* fp8_kept.c: the bytes that fp8 weights take on a backend. `keep`: from here on they
 * are quantised once for all matmuls, which a rehearsal takes into account. */
int64_t fp8_linears_keep(struct fp8_linears *l, const struct backend *be, bool keep);
/* Allocates memory for kept weights. The backend must outlive `l`. ACCEL_ENOMEM. */
accel_status_t fp8_linears_room(struct fp8_linears *l, const struct backend *be,
                                accel_error_t *err);

#endif
