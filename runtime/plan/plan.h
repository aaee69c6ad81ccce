/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/: a pure function from (config, world, unit sizes, activations) to shards, bytes
 * and wire traffic; and its print as a table. Reads no environment, allocates nothing
 * beyond the text. Links libc only.
 */
#ifndef ACCEL_PLAN_PLAN_H
#define ACCEL_PLAN_PLAN_H

#include "common/common.h"
#include "config/config.h"

struct plan_input {
    const struct config *config;
    int world, nodes, local_size, accumulate;
    int64_t params;            /* without padding */
    const int64_t *unit_elems; /* [units] with alignment gaps, before padding */
    int units;
    int64_t activation_bytes; /* peak of one micro-batch (meta run) */
    int64_t base_bytes;       /* process without the model, measured at start; 0:
                            not known */
};

struct plan {
    int64_t shard_elems;                               /* per rank, all units */
    int64_t param_bytes, moment_bytes, gradient_bytes; /* per rank */
    int64_t gather_bytes; /* two largest units, compute dtype; NO_SHARD with bf16: a
                             copy of all; 0 where the masters serve as they are */
    int64_t reduce_bytes; /* one reduce buffer; 0 where every rank stores all */
    int64_t activation_bytes, base_bytes;
    int64_t total_bytes;         /* peak per rank */
    int64_t wire_bytes_per_step; /* sent per rank, units used in transformer order */
    int64_t checkpoint_bytes;    /* whole checkpoint */
};

/* Elements of a unit after padding: a multiple of world * 32 (128 bytes of float32). */
int64_t plan_padded_elems(int64_t elems, int world);
/* The strategy that is in force: NO_SHARD unless distributed_type is FSDP. */
enum sharding_strategy plan_strategy(const struct config *c);
/* in->world >= 1, accumulate >= 1, units >= 1; wire and memory as shard/ does it. */
void plan_compute(const struct plan_input *in, struct plan *out);

/* Appends the table ("key  value" rows, aligned) that a run prints once. `extra` holds
 * more rows as pairs key, value, ..., NULL (from the caller: model, data, log). */
void plan_print(const struct plan_input *in, const struct plan *p,
                const char *const *extra, struct strbuf *out);

#endif
