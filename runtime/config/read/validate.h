/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside config/: what the walk over the tree (validate.c), the values (value.c) and the
 * checks between keys (check*.c) share.
 */
#ifndef ACCEL_CONFIG_VALIDATE_H
#define ACCEL_CONFIG_VALIDATE_H

#include "config/read/document.h"

/* ---- validate.c ------------------------------------------------------------------------ */

/* "fsdp_config" */
const char *section_name(int section);
/* `at` for messages that come when other sources are read already. */
struct place lasting(const struct validator *v, struct place at);

/* ---- value.c --------------------------------------------------------------------------- */

/* One key with its value into v->cfg, by row `row`. */
void take_value(struct validator *v, size_t row, const struct yaml_node *key,
                const struct yaml_node *val);
/* null, an empty map and an empty list say "not given". */
bool is_absent(const struct yaml_node *val);

/* ---- shape.c: size and device of a run ------------------------------------------------- */

/* A config as it was before the site file or the user file was taken, and the type that
 * this file says. */
struct shape_layer {
    struct config cfg;
    struct place value_at[CONFIG_MAX_KEYS];
    bool has_type;
    enum distributed_type type;
};
void shape_before(struct shape_layer *layer, const struct validator *v);
void shape_after(struct shape_layer *layer, const struct validator *v,
                 enum config_origin file);
/* Sets aside what these two files say of size and device where a stronger source says
 * distributed_type and it does not go with that. */
void shape_settle(struct validator *v, const struct shape_layer before[ORIGIN_FILE]);

/* ---- checks ---------------------------------------------------------------------------- */

/* Where a key's value stands, or its map in the job file, or that whole file. */
struct place place_of(const struct validator *v, const char *name, int section);
/* Notes that a map, where it is given, has no effect until `key` is `word`. */
void note_unused_map(struct validator *v, int section, const char *key,
                     const char *word);

void check_fsdp(struct validator *v);
void check_fp8(struct validator *v);
void check_parallelism(struct validator *v);
void check_deepspeed(struct validator *v);
void check_megatron(struct validator *v);
/* The sizes of parallelism_config and megatron_lm_config against num_processes. */
void check_world(struct validator *v);

#endif
