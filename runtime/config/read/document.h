/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside config/: the source text with its list of problems, the YAML tree, and the
 * scalar rules that reader, validator, defaults and canonical text share.
 */
#ifndef ACCEL_CONFIG_REPORT_H
#define ACCEL_CONFIG_REPORT_H

#include "config/config.h"

enum {
    CONFIG_MAX_BYTES = 1 << 20,
    CONFIG_MAX_DEPTH = 16,
    CONFIG_MAX_EVENTS = 10000,
    CONFIG_MAX_DIAGS = 20,
};

/* One source of values as messages show it. */
struct config_text {
    const char *path; /* as the user wrote it, or "environment ACCEL_X", "flag x" */
    const char *text; /* the file; NULL before it was read, and for a lone value */
    size_t len;
    enum config_origin origin;
};

/* 1-based line and column (in characters), width in characters. line 0: the whole source.
 * `in` NULL: the source that is being read. */
struct place {
    int line, col, width;
    const struct config_text *in;
};

/* ---- diag.c ---------------------------------------------------------------------------- */

struct config_report {
    struct config_diags *diags;
    struct config_text in; /* the source that is being read */
    accel_error_t first;   /* of the first error in the order of sources and lines */
    uint64_t first_order;
    bool no_memory;
};

/* Adds one message. MESSAGE_NOTE makes it a note. `hint` may be
 * NULL. */
void report_add(struct config_report *r, enum message code, struct place at,
                const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The note that was added last is one that srun tells, too. */
void report_tell(struct config_report *r);
/* True when no more errors are taken: callers stop. */
bool report_full(const struct config_report *r);
/* Order of sources and lines; returns the first error (also into err) or ACCEL_OK. */
accel_status_t report_finish(struct config_report *r, accel_error_t *err);

/* Copies s[n] for a message: control and direction characters become '?', at most `len`
 * bytes, cut with "..." between characters. Returns buf. */
const char *printable(char *buf, size_t len, const char *s, size_t n);
/* One UTF-8 character at s[n]: its length, code point in *cp; 0 when invalid. */
size_t utf8_next(const char *s, size_t n, uint32_t *cp);
/* Length of the line break at s[n] as YAML 1.1 counts lines, 0 when there is none. */
size_t line_break(const char *s, size_t n);

/* ---- yaml_events.c --------------------------------------------------------------------- */

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

/* Children are linked by `next`; those of a map alternate key, value. -1: none. */
struct yaml_node {
    enum node_kind kind;
    bool plain; /* scalar without quotes */
    char *text; /* scalar only, NUL-terminated, without NUL inside */
    struct place at;
    int first, next;
};
struct yaml_tree {
    struct yaml_node *node; /* [0] is the root */
    int count, cap;
};

/* Parses r->text. Problems go into the report; false when the tree is not complete. */
bool yaml_tree_read(struct yaml_tree *t, struct config_report *r);
void yaml_tree_free(struct yaml_tree *t);

/* ---- json_syntax.c --------------------------------------------------------------------- */

/* Is r->in.text strict JSON? If not, says so in the report. */
bool json_check(struct config_report *r);

/* ---- scalar.c -------------------------------------------------------------------------- */

/* YAML 1.1 words as PyYAML reads them: 1 true, 0 false, -1 neither. */
int word_bool(const char *s);
bool word_null(const char *s);
/* Index of `word` in a NULL-terminated list, or -1. */
int word_index(const char *const *list, const char *word);

enum value_result { VALUE_OK, VALUE_TYPE, VALUE_RANGE };
/* Checks canonical text against the row and stores it. VALUE_RANGE also when the texts of
 * all keys together do not fit struct config. */
enum value_result value_set(struct config *cfg, const struct config_key *key,
                            const char *text);

/* Row `row` of `cfg` as it is in `from`, with its origin and line. */
void value_restore(struct config *cfg, const struct config *from, size_t row);

/* The check alone; for a row without a field, which need not be one of the table. */
enum value_result value_check(const struct config_key *key, const char *text);
/* "a|b" holds `text`; "*" holds all, NULL nothing. */
bool value_among(const char *list, const char *text);

/* ---- file.c ---------------------------------------------------------------------------- */

/* Reads the file r->in.path, at most CONFIG_MAX_BYTES of it, into r->in.text (the caller
 * frees it; NULL when there is none). User and site file may be missing; the site file must
 * be trusted (common/path_trust.h). */
void config_file_read(struct config_report *r);

/* ---- validate.c ------------------------------------------------------------------------ */

/* Maps of a config file; the row of each in the table of validate.c. */
enum config_section {
    TOP_LEVEL,
    FSDP_CONFIG,
    DYNAMO_CONFIG,
    MPIRUN_CONFIG,
    FP8_CONFIG,
    PARALLELISM_CONFIG,
    DEEPSPEED_CONFIG,
    MEGATRON_LM_CONFIG,
    ACCEL_MAP,
    ACCEL_CHECKPOINT,
    ACCEL_PREEMPTION,
    ACCEL_PRECISION,
    ACCEL_TOPOLOGY,
    CONFIG_SECTIONS,
};

/* What has been taken from the sources so far, weakest source first. */
struct validator {
    struct config *cfg;
    const struct yaml_tree *tree; /* of the file being read */
    struct config_report *report;
    const struct config_text
        *source; /* of the values being taken; outlives all places */
    const struct config_key *schema;
    size_t keys;
    struct place key_at[CONFIG_MAX_KEYS], section_at[CONFIG_SECTIONS]; /* this file's */
    struct place value_at[CONFIG_MAX_KEYS]; /* of the strongest source that gives one */
    struct place job_section_at[CONFIG_SECTIONS];
    struct place
        lock_at[CONFIG_MAX_KEYS]; /* locked by the site file when `in` is set */
    bool without_slurm;           /* of the config_sources */
    bool needs_type; /* a job file was given: some source must say distributed_type */
    bool misspelt_type; /* distributed_type was told to be a typo already */
};

/* Takes all keys of a file's tree from `source`; problems go into the report. */
void validate_tree(struct validator *v, const struct yaml_tree *t,
                   const struct config_text *source);
/* Takes one value from the environment or a flag. */
void validate_value(struct validator *v, size_t row, const char *text,
                    const struct config_text *source);
/* Keys against each other, once all sources are in. */
void validate_across(struct validator *v);

/* ---- lock.c: accel.lock, the keys that a site fixes ------------------------------------- */

/* Is `name` of the map `accel` the list of locked keys? */
bool lock_is_list(const char *name);
/* Takes that list; it may stand in the site file only. */
void lock_take(struct validator *v, const struct yaml_node *key,
               const struct yaml_node *list);
/* True, with a message, when row is locked and canonical `text` would change it. */
bool lock_refuses(struct validator *v, size_t row, const char *text, struct place at);

#endif
