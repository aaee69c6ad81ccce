/* SPDX-License-Identifier: Apache-2.0
 *
 * The message for a lack of device memory: what was asked for, what is held by kind,
 * what is free, and which option helps.
 */
#include <stdio.h>

#include "backend/cuda/cuda.h"

/* Hints by the kind of memory asked for. */
static const char *const helps[MEMORY_KINDS] = {
    "shard over all ranks (fsdp_sharding_strategy: FULL_SHARD), use more ranks, or "
    "keep parameters on the host (fsdp_offload_params: true)",
    "use more ranks with fsdp_sharding_strategy: FULL_SHARD or SHARD_GRAD_OP, or keep "
    "the optimizer on the host (fsdp_offload_params: true)",
    "use more ranks with fsdp_sharding_strategy: FULL_SHARD or SHARD_GRAD_OP, or keep "
    "the optimizer on the host (fsdp_offload_params: true)",
    "wrap smaller modules (fsdp_transformer_layer_cls_to_wrap, fsdp_min_num_params), "
    "or set mixed_precision: bf16",
    "wrap smaller modules (fsdp_transformer_layer_cls_to_wrap, fsdp_min_num_params)",
    "set fsdp_activation_checkpointing: true, use a smaller batch with more gradient "
    "accumulation, or set mixed_precision: bf16",
    "use a smaller batch or a smaller cache of keys and values",
    "use a smaller batch with more gradient accumulation, or set mixed_precision: bf16",
};

/* Writes "parameters 1.2 GiB, activations 3.0 GiB"; kinds that hold nothing are left
 * out. */
static void list_held(const struct backend_usage *u, char *out, size_t len)
{
    char size[32];
    size_t at = 0;

    snprintf(out, len, "nothing");
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (u->held[k] && at < len)
            at +=
                (size_t)snprintf(out + at, len - at, "%s%s %s", at ? ", " : "",
                                 backend_memory_name((enum backend_memory)k),
                                 format_bytes((double)u->held[k], size, sizeof(size)));
}

/* Names the used memory that is not in our books: the driver's, NCCL's or another
 * process's. */
static void tell_rest(const struct backend_usage *u, char *out, size_t len)
{
    size_t rest = u->used;
    char size[32];

    for (int k = 0; k < MEMORY_KINDS; k++)
        /* books and driver are read at different times, so never below 0 */
        rest -= u->held[k] < rest ? u->held[k] : rest;
    *out = '\0';
    if (rest)
        snprintf(out, len,
                 "; CUDA, NCCL and other processes hold %s (nvidia-smi lists them)",
                 format_bytes((double)rest, size, sizeof(size)));
}

accel_status_t cuda_no_memory(struct cuda_state *s, enum backend_memory kind,
                              size_t bytes, accel_error_t *err)
{
    char asked[32], spare[32], all[32], held[384], rest[128];
    struct backend_usage u;

    cuda_usage(&s->be, &u);
    list_held(&u, held, sizeof(held));
    tell_rest(&u, rest, sizeof(rest));
    format_bytes((double)(u.total - u.used), spare, sizeof(spare));
    format_bytes((double)(u.total ? u.total : s->be.memory_bytes), all, sizeof(all));
    if (!bytes)
        return accel_fail(
            err, A0447, helps[kind],
            "GPU %d is out of memory (%s); this process holds %s%s; %s of %s are free",
            s->device, s->call, held, rest, spare, all);
    return accel_fail(err, A0447, helps[kind],
                      "GPU %d is out of memory: %s for %s; this process holds "
                      "%s%s; %s of %s are free",
                      s->device, format_bytes((double)bytes, asked, sizeof(asked)),
                      backend_memory_name(kind), held, rest, spare, all);
}
