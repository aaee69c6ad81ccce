/* SPDX-License-Identifier: Apache-2.0
 *
 * plan/: pure functions of (config, world, sizes) to groups, memory, wire bytes,
 * checkpoint bytes and times, printed before the first step and by `accel plan`. Every
 * strategy of the config is planned, also those that the runtime cannot run yet. Reads
 * and writes nothing beyond the text, communicates with nobody, and links libc only.
 */
#ifndef ACCEL_PLAN_PLAN_H
#define ACCEL_PLAN_PLAN_H

#include "common/common.h"
#include "config/config.h"

/* Elements of a unit after padding: a multiple of ranks * 32 (128 bytes of float32).
 * -1: too many. */
int64_t plan_padded_elems(int64_t elems, int ranks);
/* The strategy that the runtime follows: NO_SHARD unless distributed_type is FSDP. */
enum sharding_strategy plan_strategy(const struct config *c);

/* ---- layout.c: who holds what ---------------------------------------------------- */

/* Which ranks hold which part of the state. The ranks form a mesh, slowest axis first:
 * replicate, shard, cp, sp, tp. State is cut over shard * cp ranks (FSDP2 joins the
 * two); gradients are summed over the replicate * sp copies. */
struct plan_layout {
    /* "HYBRID_SHARD", "ZeRO-2" ...; static */
    const char *name;
    int replicate, shard, cp, sp, tp;
    /* over the shard group */
    bool cut_params, cut_gradients, cut_optimizer;
    /* parameters stay whole from forward to backward */
    bool keep_gathered;
    /* ... and are gathered once, after the update */
    bool whole_all_step;
    /* parameters, gradients and optimizer state in host memory */
    bool offload_params;
    bool offload_optimizer;
    /* the runtime of this version can do it */
    bool runs;
};

/* The layout that the config asks for, for `world` ranks of which `local_size` share
 * a node. ACCEL_EMISMATCH: the sizes do not fit each other; ACCEL_EUNSUPPORTED: not
 * even planned. */
accel_status_t plan_layout_of(const struct config *c, int world, int local_size,
                              struct plan_layout *layout_out, accel_error_t *err);
/* Layout number `i` (from 0) of all that can be compared on n ranks; false: no
 * more. Layouts that need several nodes are skipped on one. */
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

/* What a device has besides the shards. Zeros: no device. */
struct plan_device {
    bool present;
    /* base_bytes was not measured */
    bool base_guessed;
    /* total; 0: not known */
    int64_t memory_bytes;
    /* in use before the model: CUDA, code, NCCL, other processes */
    int64_t base_bytes;
    /* granularity of the memory of activations; 0: exact */
    int64_t activation_step;
    /* buffers of the model, which are not trained */
    int64_t buffer_bytes;
    /* workspace of the matrix products and of all other kernels */
    int64_t kernel_bytes;
    /* page-locked on the host, without offloaded state */
    int64_t staging_bytes;
    /* NCCL adds, in its own order */
    bool library_sums;
};

/* Elements of a unit that are gathered as 8-bit floats, from a multiple of 16 on, as
 * many as a multiple of 16. */
struct plan_coded {
    int unit;
    int64_t at, elems;
};
/* In list[n], which is in the order of units. */
struct plan_codes {
    const struct plan_coded *list;
    int n;
};
/* Bytes of the first `end` elements of a gathered unit: `elem` for each, but 1 for one
 * that is coded. */
int64_t plan_gathered_bytes(struct plan_codes codes, int unit, int64_t end,
                            int64_t elem);
/* The most bytes that one of `ranks` equal parts of the unit has: what each of them
 * sends when it is gathered. */
int64_t plan_part_bytes(struct plan_codes codes, int unit, int64_t padded, int ranks,
                        int64_t elem);
/* Numbers that are narrowed to codes at a time, and the bytes that n coded weights need
 * besides their codes. largest_part: bytes of the largest part of a unit with codes, 0
 * where one rank has all. */
int64_t plan_coded_elems(bool device);
int64_t plan_coded_room(int n, int64_t largest_part, bool device);

/* What plan_compute works from. Arrays and config belong to the caller. */
/* What a unit is gathered in, and what its gradient has on the wire. own false: the
 * run's. */
struct plan_types {
    bool own;
    accel_dtype_t parameters, reduce;
};

struct plan_input {
    const struct config *config;
    struct plan_layout layout;
    int world, nodes, local_size, accumulate;
    /* without padding */
    int64_t params;
    /* [units] with alignment gaps, before padding; what one tp rank holds */
    const int64_t *unit_elems;
    /* [units] of these not trained, at the unit's end; NULL: none */
    const int64_t *unit_frozen;
    /* [units] where a unit has other types than the run's; NULL: none has */
    const struct plan_types *unit_types;
    int units;
    /* of params */
    int64_t frozen;
    /* numbers of optimizer state per trained element: AdamW 2 */
    int states;
    /* their form, or the narrowest one of all optimizers */
    enum moments_choice moments;
    /* [units] plan_state_bytes of each unit, and the bytes that a checkpoint has of all
     * state; NULL: follow from `states` and `moments` */
    const int *unit_state;
    int64_t saved_state_bytes;
    /* name of their row: "adam moments" */
    const char *optimizer;
    /* bytes of the largest tensor of a checkpoint */
    int64_t largest_saved_bytes;
    /* peak of one micro-batch (meta run) */
    int64_t activation_bytes;
    /* by how much more logits raise that peak, which are kept because there is room */
    int64_t kept_bytes;
    /* the same with activation checkpointing; 0: not known */
    int64_t recomputed_bytes;
    /* samples per rank and micro-batch; 0: not known */
    int batch;
    /* the units are blocks, unlike in the config: for plan_cure */
    bool rewrapped;
    /* process without the model, measured at start; 0: not known */
    int64_t base_bytes;
    /* of the loaders that are open: batches and tables in host memory, uploads in
     * that of a device */
    int64_t loader_bytes, loader_device_bytes;
    /* GPUs; zeros: the host computes */
    struct plan_device device;
    /* PowerSGD; numbers of float32 of all optimizers, and what the one that sends most
     * sends */
    struct {
        bool on;
        int64_t memory_elems, state_elems, sent_elems, most_sent_elems;
    } compressed;
    /* numbers of float32 of the scales of fp8 linears */
    int64_t fp8_elems;
    /* their weights, where precision.coded */
    struct plan_codes coded;
    /* those that are not, since other ops than linears may take them; a name */
    int wide;
    const char *wide_name;
    /* bytes of their fp8 weights, for plan_keeps_codes */
    int64_t code_bytes;
    /* for tp and cp: blocks, and elements between two of them in a micro-batch; 0:
     * not known */
    int64_t layers, hidden_elems;
};

/* Bytes that a rank sends in a step, by link. */
struct plan_wire {
    /* to ranks of its own node, and of others */
    int64_t node, network;
    /* between device and host memory, both ways */
    int64_t host;
};

/* Elements whose state has a whole number of bytes in every form: those that share a
 * scale (SCALED_BLOCK, twice MOMENT_BLOCK). */
#define PLAN_STATE_ELEMS 32
/* Bytes of n numbers of state for each of PLAN_STATE_ELEMS elements: 4 for a
 * number; 1 and the scales' 2 for every 16; or 1 for the first number, 2 for a second
 * one, and the scales' 1. */
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
    /* two largest units in the dtype of parameters; a copy of all of them where
     * parameters stay whole; 0 where the masters serve */
    int64_t gather_bytes;
    /* one reduce buffer, or what PowerSGD keeps; else 0 where every rank stores
     * everything */
    int64_t reduce_bytes;
    /* fp8 weights that are made once per step */
    int64_t code_bytes;
    /* base: of the device if there is one */
    int64_t activation_bytes, base_bytes;
    /* device: scratch of sums in rank order */
    int64_t sum_bytes;
    int64_t buffer_bytes; /* device: as in struct plan_device */
    int64_t kernel_bytes;
    /* peak per rank, without host_bytes */
    int64_t total_bytes;
    /* of these kinds, those offloaded to host memory */
    int64_t host_bytes;
    /* device: the shards on the host, while a checkpoint is saved or read */
    int64_t copy_bytes;
    /* host: this rank's part of a checkpoint, to be written in the background */
    int64_t snapshot_bytes;
    /* of the host's peak, what a run does without where memory is short */
    int64_t optional_bytes;
    /* host: what rank 0 has of tensors on their way to the one file, at most */
    int64_t round_bytes;
    /* host: buffers of the copy of a checkpoint that is staged on the nodes */
    int64_t drain_bytes;
    /* device: peak of the host, per rank */
    int64_t host_total_bytes;
    struct plan_wire wire;
    /* node + network; units used in the order of a transformer */
    int64_t wire_bytes_per_step;
    /* the whole checkpoint, of all ranks */
    int64_t checkpoint_bytes;
    /* of these, what the first node has on its own disk while they are staged there; no
     * node has more. 0: nothing is staged */
    int64_t staged_bytes;
};

/* Staged checkpoints on a node at a time: the newest two, one that is being copied and
 * one that is being written. */
#define PLAN_STAGED 4

/* Bytes that a checkpoint has of the largest tensor that belongs to a parameter of
 * `elems` elements: itself, or the optimizer's state in its widest form. */
int64_t plan_saved_bytes(const struct config *c, int64_t elems, bool trained,
                         enum moments_choice widest);

/* Are fp8 weights kept for a step? Where the gathered ones are; and not those
 * that are gathered in fp8. `device`: a GPU. */
bool plan_keeps_codes(const struct config *c, const struct plan_layout *l);
/* Memory and wire as shard/ has them: needs world, accumulate and units of at
 * least 1. */
void plan_compute(const struct plan_input *in, struct plan *plan_out);

/* Are parameters whole on each rank and yet gathered two units at a time? Those whose
 * masters are float16 are: no copy of all of them lies beside it. */
bool plan_rings_whole(const struct plan_input *in);

/* Does one rank hold all weights of fp8 linears? */
bool plan_holds_codes(const struct plan_input *in);
/* Are weights of linears gathered in fp8, or held so? */
bool plan_has_codes(const struct plan_input *in);

/* What a GPU holds before the model, as a guess: the driver's context and code, and
 * NCCL's buffers to its peers. */
int64_t plan_base_guess(int world);
/* Bytes of the device's memory that are left for activations beyond activation_bytes;
 * 0: none, not known, or no device. Counts the guess, not what was measured, and leaves
 * a 16th alone: the same for every rank and every run on such a device. */
int64_t plan_spare_bytes(const struct plan_input *in);

/* ---- plan_cure.c ----------------------------------------------------------------- */

/* What would make the plan fit the device, whose memory is known: remedies with the
 * memory they then need, as one sentence in text[len]. Returns text. */
const char *plan_cure(const struct plan_input *in, const struct plan *p, char *text,
                      size_t len);

/* ---- interval.c: how often to save ----------------------------------------------- */

/* Seconds between checkpoints that lose the least time, when a save takes `save_s` and
 * failures come every `mtbf_s` on average (both > 0): sqrt(2 save_s mtbf_s) by J. W.
 * Young, "A first order approximation to the optimum checkpoint interval", CACM 17
 * (1974); with the two further terms of J. T. Daly, "A higher order estimate of the
 * optimum checkpoint interval for restart dumps", FGCS 22 (2006). */
double plan_interval_young(double save_s, double mtbf_s);
double plan_interval_daly(double save_s, double mtbf_s);
/* The part of the time that is lost to saves and to work done again, first order: save
 * / interval + interval / (2 mtbf). */
double plan_interval_loss(double interval_s, double save_s, double mtbf_s);

/* ---- plan_print.c ---------------------------------------------------------------- */

/* Appends the table of aligned "key value" rows that a run prints once. `extra` holds
 * the caller's own rows (model, data, log) as pairs key, value, ..., NULL. */
void plan_print(const struct plan_input *in, const struct plan *p,
                const char *const *extra, struct strbuf *out);

#endif
