/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/: pure functions from (config, world, sizes) to groups, memory, wire bytes,
 * checkpoint bytes and times, printed before the first step and by `accel plan`. Every
 * strategy of the config is planned, even those that the runtime cannot run yet. Reads
 * nothing and writes only the text, never communicates, and links libc only.
 */
#ifndef ACCEL_PLAN_PLAN_H
#define ACCEL_PLAN_PLAN_H

#include "common/common.h"
#include "config/config.h"
#include "plan/shard_layout.h"

/* The strategy that the runtime follows: NO_SHARD unless distributed_type is FSDP. */
enum sharding_strategy plan_strategy(const struct config *c);

/* ---- layout.c: who holds what ---------------------------------------------------- */

/* Which ranks hold which part of the state. The ranks form a mesh, slowest axis first:
 * replicate, shard, cp, sp, tp. State is sharded over shard * cp ranks (FSDP2 joins the
 * two); gradients are summed over the replicate * sp copies. */
struct plan_layout {
    /* "HYBRID_SHARD", "ZeRO-2" ...; static */
    const char *name;
    int replicate, shard, cp, sp, tp;
    /* sharded over the shard group */
    bool cut_params, cut_gradients, cut_optimizer;
    /* parameters stay whole from forward to backward */
    bool keep_gathered;
    /* ... and are gathered once, after the update */
    bool whole_all_step;
    /* parameters, gradients and optimizer state are in host memory */
    bool offload_params;
    bool offload_optimizer;
    /* the runtime of this version can run it */
    bool runs;
};

/* The layout that the config asks for, for `world` ranks of which `local_size` share a
 * node. ACCEL_EMISMATCH: the sizes do not fit together; ACCEL_EUNSUPPORTED: such a
 * layout cannot even be planned. */
accel_status_t plan_layout_of(const struct config *c, int world, int local_size,
                              struct plan_layout *layout_out, accel_error_t *err);
/* Layout number `i` (from 0) of those that can be compared on `world` ranks; false: no
 * more. On one node, layouts that need several are skipped. */
bool plan_layout_at(int i, int world, int local_size, struct plan_layout *layout_out);

/* A group of ranks: first, first + stride, ... */
struct plan_group {
    int size, stride;
};
enum plan_axis { AXIS_REPLICATE, AXIS_SHARD, AXIS_CP, AXIS_SP, AXIS_TP, AXIS_COUNT };
/* The groups along one axis of the mesh; all have the same size and stride. */
struct plan_group plan_group_of(const struct plan_layout *l, enum plan_axis axis);
/* "dp_shard"; static */
const char *plan_axis_name(enum plan_axis axis);

/* ---- plan.c: bytes --------------------------------------------------------------- */

/* What a device holds besides the shards. Zeros: no device. */
struct plan_device {
    bool present;
    /* base_bytes is a guess, not measured */
    bool base_guessed;
    /* total; 0: not known */
    int64_t memory_bytes;
    /* in use before the model: CUDA, code, NCCL, other processes */
    int64_t base_bytes;
    /* granularity of memory for activations; 0: exact */
    int64_t activation_step;
    /* buffers of the model, which are not trained */
    int64_t buffer_bytes;
    /* workspace of matmuls and of all other kernels */
    int64_t kernel_bytes;
    /* page-locked on the host, without offloaded state */
    int64_t staging_bytes;
    /* NCCL computes the sums, in its own order */
    bool library_sums;
};

/* The dtype that a unit is gathered in, and that of its gradient on the wire. own
 * false: those of the run. */
struct plan_types {
    bool own;
    accel_dtype_t parameters, reduce;
};

/* The input of plan_compute. Arrays and config belong to the caller. */
struct plan_input {
    const struct config *config;
    struct plan_layout layout;
    int world, nodes, local_size, accumulate;
    /* without padding */
    int64_t params;
    /* [units] elements that one tp rank holds, with alignment gaps, before padding */
    const int64_t *unit_elems;
    /* [units] how many of these are not trained, at the unit's end; NULL: none */
    const int64_t *unit_frozen;
    /* [units] the dtypes of units that differ from the run's; NULL: none does */
    const struct plan_types *unit_types;
    int units;
    /* of `params` */
    int64_t frozen;
    /* numbers of optimizer state per trained element; AdamW has 2 */
    int states;
    /* their format, or the narrowest of all optimizers */
    enum moments_choice moments;
    /* [units] plan_state_bytes of each unit, and the bytes of all state in a
     * checkpoint; NULL: both follow from `states` and `moments` */
    const int *unit_state;
    int64_t saved_state_bytes;
    /* the name of their row: "adam moments" */
    const char *optimizer;
    /* bytes of the largest tensor of a checkpoint */
    int64_t largest_saved_bytes;
    /* peak of one micro-batch (meta run) */
    int64_t activation_bytes;
    /* how much logits kept because there is room raise that peak */
    int64_t kept_bytes;
    /* the same with activation checkpointing; 0: not known */
    int64_t recomputed_bytes;
    /* samples per rank and micro-batch; 0: not known */
    int batch;
    /* for plan_cure: the units are blocks, unlike in the config */
    bool rewrapped;
    /* memory of the process without the model, measured at start; 0: not known */
    int64_t base_bytes;
    /* of open loaders: batches and tables in host memory, uploads in device memory */
    int64_t loader_bytes, loader_device_bytes;
    /* GPUs; zeros: the host computes */
    struct plan_device device;
    /* PowerSGD: float32 numbers of all optimizers; most_sent_elems: of one of them */
    struct {
        bool on;
        int64_t memory_elems, state_elems, sent_elems, most_sent_elems;
    } compressed;
    /* float32 numbers of the scales of fp8 linears */
    int64_t fp8_elems;
    /* the weights of these linears that may be gathered or held in fp8 */
    struct plan_codes coded;
    /* how many of these linears' weights may not, because ops other than linears may
     * take them; the name of one */
    int wide;
    const char *wide_name;
    /* bytes of their fp8 weights, for plan_keeps_codes */
    int64_t code_bytes;
    /* for tp and cp: blocks, and elements between two of them in a micro-batch; 0:
     * not known */
    int64_t layers, hidden_elems;
};

/* Bytes that a rank sends in a step, per kind of link. */
struct plan_wire {
    /* to ranks on its own node, and on other nodes */
    int64_t node, network;
    /* between device and host memory, both ways */
    int64_t host;
};

/* A number of elements whose state has a whole number of bytes in every format: those
 * that share a scale (SCALED_BLOCK, twice MOMENT_BLOCK). */
#define PLAN_STATE_ELEMS 32
/* Bytes of the state of PLAN_STATE_ELEMS elements with `numbers` numbers each. float32:
 * 4 a number. 8-bit: 1 a number, and 2 for the scale of every 16. fp8: 1 for the first
 * number, 2 for the second, and 1 for the scale of every 32. */
static inline int plan_state_bytes(int numbers, enum moments_choice form)
{
    if (form == MOMENTS_FP8)
        return numbers * (PLAN_STATE_ELEMS + 1) + (numbers > 1 ? PLAN_STATE_ELEMS : 0);
    return numbers *
           (form == MOMENTS_8BIT ? PLAN_STATE_ELEMS + 4 : PLAN_STATE_ELEMS * 4);
}

/* The plan. Bytes are per rank unless they say otherwise. */
struct plan {
    /* per rank, all units */
    int64_t shard_elems;
    int64_t param_bytes, moment_bytes, gradient_bytes;
    /* the two largest units in the dtype of parameters; a copy of all units if
     * parameters stay whole; 0 if the masters are used directly */
    int64_t gather_bytes;
    /* one reduce buffer, or the state of PowerSGD; otherwise 0 if every rank stores
     * everything */
    int64_t reduce_bytes;
    /* fp8 weights that are quantised once per step */
    int64_t code_bytes;
    /* base: of the device if there is one */
    int64_t activation_bytes, base_bytes;
    /* device: scratch memory of sums in rank order */
    int64_t sum_bytes;
    int64_t buffer_bytes; /* device: as in struct plan_device */
    int64_t kernel_bytes;
    /* peak per rank, without host_bytes */
    int64_t total_bytes;
    /* the part of all these that is offloaded to host memory */
    int64_t host_bytes;
    /* device: the host's copy of the shards, while a checkpoint is saved or read */
    int64_t copy_bytes;
    /* host: this rank's part of a checkpoint that is written in the background */
    int64_t snapshot_bytes;
    /* the part of the host's peak that a run does without if memory is short */
    int64_t optional_bytes;
    /* host: the most that rank 0 holds of tensors on their way to a single file */
    int64_t round_bytes;
    /* host: buffers of the copy of a checkpoint that is staged on the nodes */
    int64_t drain_bytes;
    /* device: the host's peak per rank */
    int64_t host_total_bytes;
    struct plan_wire wire;
    /* node + network; units used in the order of a transformer */
    int64_t wire_bytes_per_step;
    /* of the whole checkpoint, over all ranks */
    int64_t checkpoint_bytes;
    /* of these, the bytes on the first node's own disk while they are staged; no node
     * has more. 0: nothing is staged */
    int64_t staged_bytes;
};

/* Staged checkpoints on a node at a time: the newest two, one that is being copied and
 * one that is being written. */
#define PLAN_STAGED 4

/* Bytes in a checkpoint of the largest tensor that belongs to a parameter of `elems`
 * elements: the parameter itself, or the optimizer's state in its widest format. */
int64_t plan_saved_bytes(const struct config *c, int64_t elems, bool trained,
                         enum moments_choice widest);

/* Are fp8 weights kept for a step? They are where the gathered weights are kept, except
 * those that are gathered in fp8. */
bool plan_keeps_codes(const struct config *c, const struct plan_layout *l);
/* Computes memory and wire bytes as shard/ has them; world, accumulate and units must
 * be at least 1. */
void plan_compute(const struct plan_input *in, struct plan *plan_out);

/* Are parameters whole on each rank, yet converted two units at a time in the rings?
 * They are if masters are float16: there is no second copy of all of them. */
bool plan_rings_whole(const struct plan_input *in);

/* Does one rank hold all weights of fp8 linears? */
bool plan_holds_codes(const struct plan_input *in);
/* Are weights of linears gathered or held in fp8? */
bool plan_has_codes(const struct plan_input *in);

/* What a GPU holds before the model, as a guess: the driver's context and code, and
 * NCCL's buffers to its peers. */
int64_t plan_base_guess(int world);
/* Bytes of the device's memory that are left for activations beyond activation_bytes;
 * 0: none, not known, or no device. Counts the guess of plan_base_guess, not what was
 * measured, and leaves a 16th free, so it is the same for every rank and every run on
 * such a device. */
int64_t plan_spare_bytes(const struct plan_input *in);

/* ---- plan_cure.c ----------------------------------------------------------------- */

/* What would make the plan fit the device, whose memory is known: remedies, each with
 * the memory that the run then needs, as one sentence in text[len]. Returns text. */
const char *plan_cure(const struct plan_input *in, const struct plan *p, char *text,
                      size_t len);

/* ---- interval.c: how often to save ----------------------------------------------- */

/* The seconds between checkpoints that lose the least time, if a save takes `save_s`
 * and failures come every `mtbf_s` on average (both > 0): sqrt(2 save_s mtbf_s) by J.
 * W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17
 * (1974); with the two further terms of J. T. Daly, "A higher order estimate of the
 * optimum checkpoint interval for restart dumps", FGCS 22 (2006). */
double plan_interval_young(double save_s, double mtbf_s);
double plan_interval_daly(double save_s, double mtbf_s);
/* The fraction of time that is lost to saves and to repeated work, to first order: save
 * / interval + interval / (2 mtbf). */
double plan_interval_loss(double interval_s, double save_s, double mtbf_s);

/* ---- plan_print.c ---------------------------------------------------------------- */

/* Appends the table of aligned "key value" rows that a run prints once. `extra` holds
 * the caller's own rows (model, data, log) as pairs key, value, ..., NULL. */
void plan_print(const struct plan_input *in, const struct plan *p,
                const char *const *extra, struct strbuf *out);

#endif
