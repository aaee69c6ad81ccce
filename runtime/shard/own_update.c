/* SPDX-License-Identifier: Apache-2.0
 *
 * The step of an optimizer that the program provides. Its function is called with each
 * contiguous piece of a parameter stored here, its gradient and its state, in host
 * memory. In: complete gradients. Out: new masters and state. Never communicates.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

/* values, gradient, state */
#define ARRAYS (2 + SHARD_MAX_STATE)

/* The piece's arrays where they are stored. */
struct own_piece {
    float *at[ARRAYS];
    int arrays;
    int64_t count;
};

/* Where the home is a device: host copies of all arrays, one after the other, which
 * the update works on and which go back afterwards. *copy_out NULL: no memory. */
static void bring_copies(const struct shard *s, const struct own_piece *stored,
                         struct own_piece *host_out, float **copy_out)
{
    const size_t bytes = (size_t)stored->count * sizeof(float);

    *host_out = *stored;
    *copy_out = malloc((size_t)stored->arrays * bytes);
    for (int k = 0; *copy_out && k < stored->arrays; k++) {
        host_out->at[k] = *copy_out + (int64_t)k * stored->count;
        s->be->to_host_bytes(s->be, host_out->at[k], stored->at[k], bytes);
    }
}

static void return_copies(const struct shard *s, const struct own_piece *stored,
                          const struct own_piece *host)
{
    for (int k = 0; k < stored->arrays; k++)
        s->be->from_host(s->be, stored->at[k], host->at[k],
                         (size_t)stored->count * sizeof(float));
}

/* One call of the program's function. `call` has all but the arrays. */
static accel_status_t update_piece(const struct shard *s, const accel_own_optim_t *own,
                                   const struct own_piece *stored, float grad_scale,
                                   accel_piece_t *call, accel_error_t *err)
{
    struct own_piece host = *stored;
    float *copy = NULL;

    if (s->home->device) {
        bring_copies(s, stored, &host, &copy);
        if (!copy)
            return accel_fail_nomem(err, "a copy of a parameter on the host",
                                    (size_t)stored->count * sizeof(float));
    }
    for (int64_t i = 0; grad_scale != 1.0f && i < host.count; i++)
        host.at[1][i] *= grad_scale;
    call->values = host.at[0];
    call->gradient = host.at[1];
    call->state = host.at + 2;
    own->update(own->user, call);
    if (copy)
        return_copies(s, stored, &host);
    free(copy);
    return ACCEL_OK;
}

/* In the order of the units and their parameters, the same on all ranks. */
accel_status_t shard_own_update(struct shard *s, int optim, float lr, int64_t t,
                                float grad_scale, accel_error_t *err)
{
    const struct shard_trainer *trainer = &s->store.trainer[optim];
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        for (int j = 0; u->optim == optim && j < u->def->param_count && !st; j++) {
            const accel_tensor_t *p = u->def->param[j];
            accel_piece_t call = { .name = tensor_full_name(p),
                                   .step = t,
                                   .lr = lr * p->param->lr_scale,
                                   .weight_decay = p->param->weight_decay };
            struct own_piece stored = { .arrays = 2 + trainer->states };
            int64_t b, e, at;

            if (!param_is_trained(p) ||
                !shard_param_range(p, u->first, u->stored, &b, &e))
                continue;
            at = p->param->unit_offset + b - u->first;
            call.first = b;
            call.count = stored.count = e - b;
            stored.at[0] = shard_master_at(s, u->at + at);
            stored.at[1] = s->store.grad + u->grad_at + at;
            for (int k = 0; k < trainer->states; k++)
                stored.at[2 + k] = shard_state_at(trainer, k, u->state_at + at);
            st = update_piece(s, &trainer->o.own, &stored, grad_scale, &call, err);
        }
    }
    return st;
}
