/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/: pure functions of (config, world, sizes) to groups, memory, wire bytes, checkpoint
 * bytes and times, printed before the first step and by `accel plan`. Every strategy of
 * the config is planned, those that the runtime cannot run yet too. Reads and writes
 * nothing beyond the text. Links libc only.
 */
#ifndef ACCEL_PLAN_PLAN_H
#define ACCEL_PLAN_PLAN_H

#include "common/common.h"
#include "config/config.h"

/* Elements of a unit after padding: a multiple of ranks * 32 (128 bytes of float32). */
int64_t plan_padded_elems(int64_t elems, int ranks);
/* The strategy that the runtime follows: NO_SHARD unless distributed_type is FSDP. */
enum sharding_strategy plan_strategy(const struct config *c);

/* ---- layout.c: who holds what ---------------------------------------------------- */

/* The ranks form a mesh, slowest axis first: replicate, shard, cp, sp, tp. State is cut
 * over shard * cp ranks (FSDP2 joins the two), copies are summed over replicate * sp. */
struct plan_layout {
    const char *name; /* "HYBRID_SHARD", "ZeRO-2" ... */
    int replicate, shard, cp, sp, tp;
    bool cut_params, cut_gradients, cut_optimizer; /* over the shard group */
    bool keep_gathered;  /* parameters stay whole from forward to backward */
    bool whole_all_step; /* ... and are gathered once, after the update */
    bool offload_params; /* parameters, gradients and optimizer in host memory */
    bool offload_optimizer;
    bool runs; /* this version's runtime can do it */
};

/* From the config, for `world` ranks of which `local_size` share a node. ACCEL_EMISMATCH:
 * the sizes do not fit each other; ACCEL_EUNSUPPORTED: not even planned. */
accel_status_t plan_layout_of(const struct config *c, int world, int local_size,
                              struct plan_layout *layout_out, accel_error_t *err);
/* The layout number `i` of all that can be compared on so many ranks; false: no more.
 * Those that need several nodes are left out on one. */
bool plan_layout_at(int i, int world, int local_size, struct plan_layout *layout_out);

/* A group: ranks first, first + stride, ... */
struct plan_group {
    int size, stride;
};
enum plan_axis { AXIS_REPLICATE, AXIS_SHARD, AXIS_CP, AXIS_SP, AXIS_TP, AXIS_COUNT };
struct plan_group plan_group_of(const struct plan_layout *l, enum plan_axis axis);
const char *plan_axis_name(enum plan_axis axis); /* "dp_shard"; static */

/* ---- plan.c: bytes --------------------------------------------------------------- */

/* What a device has beside the shards. */
struct plan_device {
    bool present;
    bool base_guessed;       /* base_bytes was not measured */
    int64_t memory_bytes;    /* in all; 0: not known */
    int64_t base_bytes;      /* in use before the model: CUDA, code, NCCL, others */
    int64_t activation_step; /* activations get memory in such steps; 0: as they are */
    int64_t buffer_bytes;    /* values of the model that are not trained */
    int64_t kernel_bytes;    /* workspace of the products, room of single kernels */
    int64_t staging_bytes;   /* page-locked on the host, without offloaded state */
    bool library_sums;       /* NCCL adds, in its own order */
};

struct plan_input {
    const struct config *config;
    struct plan_layout layout;
    int world, nodes, local_size, accumulate;
    int64_t params;            /* without padding */
    const int64_t *unit_elems; /* [units] with alignment gaps, before padding; what one
                                  tp rank holds */
    const int64_t
        *unit_frozen; /* of these, not trained (at the unit's end); NULL: none */
    int units;
    int64_t frozen;           /* of params */
    int states;               /* optimizer's numbers per trained element: AdamW 2 */
    const char *optimizer;    /* their row: "adam moments" */
    int64_t activation_bytes; /* peak of one micro-batch (meta run) */
    int64_t recomputed_bytes; /* the same with activation checkpointing; 0: not known */
    int batch;                /* samples of a rank and micro-batch; 0: not known */
    bool rewrapped;     /* its units are blocks, unlike in the config: for plan_cure */
    int64_t base_bytes; /* process without the model, measured at start; 0:
                            not known */
    struct plan_device device;    /* GPUs; zeros: the host computes */
    int64_t layers, hidden_elems; /* blocks, and elements between two of them in a
                                     micro-batch: for tp and cp; 0: not known */
};

/* Bytes that a rank sends in a step, by what they travel on. */
struct plan_wire {
    int64_t node, network; /* to ranks of its node, of others */
    int64_t host;          /* between device and host memory, both ways */
};

struct plan {
    int64_t shard_elems;                               /* per rank, all units */
    int64_t param_bytes, moment_bytes, gradient_bytes; /* per rank */
    int64_t gather_bytes; /* two largest units, compute dtype; a copy of all where
                             parameters stay whole; 0 where the masters serve */
    int64_t reduce_bytes; /* one reduce buffer; 0 where every rank stores all */
    int64_t activation_bytes, base_bytes; /* base: of the device if there is one */
    int64_t sum_bytes;                    /* device: scratch of sums in rank order */
    int64_t buffer_bytes;                 /* device, as in the input: */
    int64_t kernel_bytes;
    int64_t total_bytes; /* peak per rank, without host_bytes */
    int64_t host_bytes;  /* of these kinds, those offloaded to host memory */
    int64_t copy_bytes;  /* device: the shards on the host, while a checkpoint is saved
                            or read */
    int64_t host_total_bytes; /* device: peak of the host per rank */
    struct plan_wire wire;
    int64_t wire_bytes_per_step; /* node + network; units used in transformer order */
    int64_t checkpoint_bytes;    /* whole checkpoint */
};

/* in->world >= 1, accumulate >= 1, units >= 1; wire and memory as shard/ does it. */
void plan_compute(const struct plan_input *in, struct plan *plan_out);

/* ---- plan_cure.c ----------------------------------------------------------------- */

/* What would make the plan fit the device, whose memory is known, with what it then needs, as
 * one sentence into text; returns text. */
const char *plan_cure(const struct plan_input *in, const struct plan *p, char *text,
                      size_t len);

/* ---- interval.c: how often to save ----------------------------------------------- */

/* Seconds between checkpoints that lose the least time, when a save takes `save_s` and
 * failures come every `mtbf_s` on average: sqrt(2 save_s mtbf_s) by J. W. Young, "A first
 * order approximation to the optimum checkpoint interval", CACM 17 (1974); with the two
 * further terms of J. T. Daly, "A higher order estimate of the optimum checkpoint interval
 * for restart dumps", FGCS 22 (2006). Both > 0. */
double plan_interval_young(double save_s, double mtbf_s);
double plan_interval_daly(double save_s, double mtbf_s);
/* Part of the time lost to saves and to work done again, first order: save / interval +
 * interval / (2 mtbf). */
double plan_interval_loss(double interval_s, double save_s, double mtbf_s);

/* ---- plan_print.c ---------------------------------------------------------------- */

/* Appends the table ("key  value" rows, aligned) that a run prints once. `extra` holds
 * more rows as pairs key, value, ..., NULL (from the caller: model, data, log). */
void plan_print(const struct plan_input *in, const struct plan *p,
                const char *const *extra, struct strbuf *out);

#endif
