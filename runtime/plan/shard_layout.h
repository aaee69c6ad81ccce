/* SPDX-License-Identifier: Apache-2.0
 *
 * Where each unit of a model lies in the arrays of one rank, and what these take: the
 * plan adds it up, and shard/ allocates it. In: sizes of units and how they are
 * sharded. Out: offsets and bytes. Knows no memory, and never allocates.
 */
#ifndef ACCEL_PLAN_SHARD_LAYOUT_H
#define ACCEL_PLAN_SHARD_LAYOUT_H

#include "accel_objects.h"
#include "common/common.h"

/* Elements of a unit after padding: a multiple of ranks * 32 (128 bytes of float32).
 * -1: too many. */
int64_t plan_padded_elems(int64_t elems, int ranks);
/* Bytes of n masters or gradients: of float16 and e4m3 with their scales. */
int64_t plan_resting_bytes(int64_t n, accel_dtype_t type);

/* ---- weights that are gathered in fp8 -------------------------------------------- */

/* Elements of a unit that are gathered as 8-bit floats, "coded"; `at` and `elems` are
 * multiples of 16. */
struct plan_coded {
    int unit;
    int64_t at, elems;
};
/* A list[n] of these, in the order of units. */
struct plan_codes {
    const struct plan_coded *list;
    int n;
};
/* Those of one unit. */
struct plan_codes plan_codes_of(struct plan_codes codes, int unit);
/* Bytes of the first `end` elements of a gathered unit, whose codes these are: 1 if
 * coded, else `elem`. */
int64_t plan_gathered_bytes(struct plan_codes own, int64_t end, int64_t elem);
/* The most bytes of any of `ranks` equal parts of the unit: what each rank sends. */
int64_t plan_part_bytes(struct plan_codes own, int64_t padded, int ranks, int64_t elem);
/* How many numbers are quantised to codes at a time. */
int64_t plan_coded_elems(bool device);

/* ---- the layout ------------------------------------------------------------------ */

/* How the units are sharded. */
struct shard_rules {
    /* the ranks that units are padded for, and this one among them */
    int ranks, rank;
    /* each of them stores its part of masters and state, and of gradients; else
     * everything */
    bool cut, cut_gradients;
    /* gathered units stay until the masters change; else there are rings */
    bool keep;
    /* the optimizer works in host memory; units are gathered from there, too, and
     * gradients are summed there */
    bool offloaded, streamed;
    bool device;
    /* ranks whose whole gradients are summed in the reduce dtype; 0: they are not */
    int narrow_copies;
    accel_dtype_t masters, gradients;
    /* of all units */
    struct plan_codes codes;
};

struct unit;

/* One unit. The `own` elements from flat index rank * own on are this rank's part: it
 * stores them (FULL_SHARD), or is responsible for them among the copies (NO_SHARD). */
struct shard_unit {
    /* Set before the layout. The model's unit, which the layout does not look at. */
    const struct unit *def;
    /* with alignment gaps; those at the end that are not trained */
    int64_t elems, frozen;
    /* number of the optimizer that trains the rest; -1: none does */
    int optim;
    /* the dtype that it is gathered in, and that of its gradient on the wire */
    accel_dtype_t type, reduce;

    /* The ring of all units with these dtypes. */
    int ring;
    /* its weights that are gathered in fp8 */
    struct plan_codes codes;
    /* elements, a multiple of ranks * 32 */
    int64_t padded;
    /* padded / ranks */
    int64_t own;
    /* elements from its start that are trained. Padding counts where nothing is frozen,
     * so that the range of the optimizer is the whole unit. */
    int64_t trained;
    /* bytes of each rank's part in a gather, and where the unit starts among the
     * gathered bytes of all units */
    size_t part_bytes, all_at;
    /* where it starts in the copy of units in another dtype than masters, in bytes */
    size_t copy_at;
    /* flat index of the first element stored here */
    int64_t first;
    /* elements stored here: own, or padded */
    int64_t stored;
    /* where they start among the masters */
    int64_t at;
    /* where they start in each array of optimizer state, and how many it has there */
    int64_t state_at, state;
    /* where they start among the gradients, which have all stored ones; -1: nothing is
     * trained */
    int64_t grad_at;
};

/* What the units of one dtype and one reduce dtype share: two slots and a reduce
 * buffer. The slots lie in one region of (largest + second largest) bytes. The first
 * grows up from its start, the second down from its end, so any two different units fit
 * side by side, though the slots together are smaller than two largest units. A block
 * whose norms have another dtype alternates between two rings, and neither evicts what
 * the other needs next. */
struct shard_ring {
    accel_dtype_t type, reduce_type;
    int units;
    /* in bytes of gathered units; in elements, of units that are not entirely frozen */
    size_t largest, second;
    int64_t largest_trained;
    /* where the region starts among those of all rings, and its bytes */
    size_t at, bytes;
    /* where the reduce buffer starts among all, in elements */
    int64_t reduce_at;
};

/* As many as there are pairs: 3 dtypes of parameters, 5 on the wire. */
#define SHARD_RINGS 15

/* What is allocated on this rank, in bytes. */
struct shard_memory {
    size_t master, gradient_shard, gather_slots, reduce_buffer;
    /* of whole copies whose gradients are summed in a narrow dtype */
    size_t wire_buffer;
    /* of all optimizers whose gradients PowerSGD reduces; not of the layout */
    size_t powersgd;
    /* of all kinds together, including the moving average; not of the layout */
    size_t moments;
    /* offloaded: narrow copy of the masters to gather from */
    size_t narrow_master;
    /* in addition to gather_slots, if weights are gathered in fp8 */
    size_t coded_room;
};

/* All units of a rank. */
struct shard_layout {
    struct shard_rules rules;
    /* those that the caller keeps; the layout itself reads none of them again */
    struct shard_unit *unit;
    int units;
    /* over all units: padded elements, and bytes when gathered */
    int64_t all_elems;
    size_t all_bytes;
    /* of the copy of units in another dtype than masters */
    size_t copy_bytes;
    int64_t stored_elems, grad_elems;
    /* of each optimizer: trained elements stored here */
    int64_t state_elems[ACCEL_MAX_OPTIMS];
    struct shard_ring ring[SHARD_RINGS];
    int rings;
    /* of all rings */
    int64_t largest_trained;
    /* bytes of the largest part of a unit with codes that travels */
    int64_t coded_part;
    /* bytes of one part of a gradient at the end of the reduce buffer: as it leaves the
     * device, or the float32 of what rests narrow */
    size_t piece_bytes;
    /* How parameters become available. resident: they are whole here. Units in the
     * dtype of masters use the masters themselves; all others have a copy. Scaled
     * masters are never resident: they go through rings even where they are whole.
     * keep: every unit has a slot and is gathered once per step; also used for whole
     * fp8 weights. Otherwise the rings are used. */
    bool resident, keep;
    struct shard_memory memory;
};

/* Sizes unit number `unit` of a layout by its rules: all but its offsets. False: it has
 * too many elements. */
bool shard_unit_size(const struct shard_rules *r, int unit, struct shard_unit *u);
/* Does the same and places the unit after those before. False: they are too many
 * elements; 64 times those of all units still fit an int64_t. */
bool shard_layout_add(struct shard_layout *l, struct shard_unit *u);
/* When all units are there: chooses how parameters become available, and counts the
 * bytes of `memory`. */
void shard_layout_end(struct shard_layout *l);

#endif
