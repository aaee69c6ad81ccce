/* SPDX-License-Identifier: Apache-2.0
 *
 * The linears of models that multiply in fp8, with their scales. In: module trees
 * and the policy. Out: weights that carry their scales (param.fp8).
 */
#ifndef ACCEL_NN_FP8_LINEARS_H
#define ACCEL_NN_FP8_LINEARS_H

#include "nn/nn.h"
#include "precision/fp8_policy.h"

struct fp8_linears {
    struct fp8_recipe recipe;
    /* [count], and the memory of all their states, one after the other */
    struct fp8_linear *linear;
    accel_tensor_t **weight;
    float *state;
    /* [FP8_TENSORS * count]: what kernels see, by the host's last look; and their own,
     * in the memory of `be` once it is placed */
    struct fp8_live *shown, *live;
    const struct backend *be;
    /* fp8 weights that are kept (fp8_kept.c), in the memory of `kept_be` */
    void *kept;
    int64_t kept_bytes;
    const struct backend *kept_be;
    int count;
    /* matrices that could have been among them */
    int candidates;
};

/* Numbers of one linear's state. */
static inline int64_t fp8_state_elems(const struct fp8_recipe *r)
{
    return FP8_TENSORS * (1 + r->history);
}

/* Numbers of all states, as far as they are kept from step to step. */
static inline int64_t fp8_linears_elems(const struct fp8_linears *l)
{
    return l->recipe.current ? 0 : l->count * fp8_state_elems(&l->recipe);
}

/* Chooses among the matrices of n trees, other than tables of embeddings: those whose
 * sizes allow it, without the first and the last of a tree, unless a rule says
 * otherwise. The weights carry their scales from here on, and must not be used after
 * fp8_linears_close. Errors: those of fp8_policy.h; ACCEL_ENOMEM. */
accel_status_t fp8_linears_open(struct fp8_linears *out, accel_module_t *const *roots,
                                int n, const struct config *cfg, accel_error_t *err);
/* A rehearsal of the forward follows (nn_measure), which finds the weights that other
 * ops than linears take. Without one, those of modules of the program's own are
 * supposed to be so, unless the program or a rule asks for fp8. */
void fp8_linears_rehearse(struct fp8_linears *l);
/* How many these are; *name_out is set to the first one's. */
int fp8_linears_wide(const struct fp8_linears *l, const char **name_out);
/* Gives kernels of a backend, which must outlive it, their scales. ACCEL_ENOMEM. */
accel_status_t fp8_linears_place(struct fp8_linears *l, const struct backend *be,
                                 accel_error_t *err);
/* Kernels find the scales as they are now, and have seen nothing. */
void fp8_linears_show(struct fp8_linears *l);
/* Takes what kernels have seen to place 0 of the histories; waits for the device. */
void fp8_linears_look(struct fp8_linears *l);
/* Bytes of the device that fp8_linears_place takes. */
size_t fp8_linears_bytes(const struct fp8_linears *l);
void fp8_linears_close(struct fp8_linears *l);

/* fp8_kept.c: bytes that fp8 weights take on a backend. `keep`: from here on they
 * are made once for all products, which a rehearsal counts on. */
int64_t fp8_linears_keep(struct fp8_linears *l, const struct backend *be, bool keep);
/* Gives what is kept its memory. The backend must outlive it. ACCEL_ENOMEM. */
accel_status_t fp8_linears_room(struct fp8_linears *l, const struct backend *be,
                                accel_error_t *err);

#endif
