/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside config/: what the walk over the tree (validate.c), the values (value.c) and
 * the checks between keys (rules/) share.
 */
#ifndef ACCEL_CONFIG_VALIDATE_H
#define ACCEL_CONFIG_VALIDATE_H

#include "config/read/document.h"

/* ---- validate.c ------------------------------------------------------------------ */

/* The path of a map, "fsdp_config"; "" for the top level. Static. */
const char *section_name(int section);
/* `at`, made fit for messages that come after the next source has been entered: it
 * names its source. */
struct place lasting(const struct validator *v, struct place at);

/* ---- value.c --------------------------------------------------------------------- */

/* Takes one key with its value into v->cfg, by row `row`. */
void take_value(struct validator *v, size_t row, const struct yaml_node *key,
                const struct yaml_node *val);
/* Does the value say "not given"? null, an empty map and an empty list do. */
bool is_absent(const struct yaml_node *val);

/* ---- shape.c: size and device of a run ------------------------------------------- */

/* The config as it was before the site file, the program or the user file was taken, so
 * that single values of that source can be undone later; and the type that it sets. */
struct shape_layer {
    struct config cfg;
    struct place value_at[CONFIG_MAX_KEYS];
    bool has_type;
    enum distributed_type type;
};
/* Call these two around the taking of that source: the first saves the config, the
 * second notes whether the source `file` set distributed_type. */
void shape_before(struct shape_layer *layer, const struct validator *v);
void shape_after(struct shape_layer *layer, const struct validator *v,
                 enum config_origin file);
/* Undoes what these sources say about size and device where a stronger one sets a
 * distributed_type that does not go with it. Uses before[] from ORIGIN_SITE on. */
void shape_settle(struct validator *v, const struct shape_layer before[ORIGIN_FILE]);

/* ---- checks ---------------------------------------------------------------------- */

/* The place for a message about a key: its value, else its map in the job file, else
 * the whole job file. */
struct place place_of(const struct validator *v, const char *name, int section);
/* Adds a note that a map, if it is given, has no effect until `key` is `word`. */
void note_unused_map(struct validator *v, int section, const char *key,
                     const char *word);

/* Each checks one map of the merged config; problems go into the report. */
void check_fsdp(struct validator *v);
void check_fp8(struct validator *v);
void check_parallelism(struct validator *v);
void check_deepspeed(struct validator *v);
void check_megatron(struct validator *v);
/* Checks the words of accel.track. */
void check_track(struct validator *v);
/* Checks the sizes of parallelism_config and megatron_lm_config
 * against num_processes. */
void check_world(struct validator *v);

#endif
