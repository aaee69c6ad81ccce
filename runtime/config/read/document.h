/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside config/: the source text with its list of problems, the YAML tree, and the
 * scalar rules that reader, validator, defaults and canonical text share.
 */
#ifndef ACCEL_CONFIG_DOCUMENT_H
#define ACCEL_CONFIG_DOCUMENT_H

#include "config/config.h"

/* Caps of one config file. They bound time and memory for a hostile file; no real
 * config comes near them. */
enum {
    CONFIG_MAX_BYTES = 1 << 20,
    CONFIG_MAX_DEPTH = 16,
    CONFIG_MAX_EVENTS = 10000,
    CONFIG_MAX_DIAGS = 20,
};

/* One source of values, as messages show it. The strings are borrowed. */
struct config_text {
    /* As the user wrote it, or "environment ACCEL_X", "flag x". */
    const char *path;
    /* The bytes of the file; NULL before it was read, and for a single value. */
    const char *text;
    size_t len;
    enum config_origin origin;
};

/* A place for a message: line and column from 1, column and width in characters, not
 * bytes. line 0: the whole source. `in` NULL: the source that is being read. */
struct place {
    int line, col, width;
    const struct config_text *in;
};

/* ---- diag.c ---------------------------------------------------------------------- */

/* The list of problems while it grows. `diags` belongs to the caller
 * of config_resolve. */
struct config_report {
    struct config_diags *diags;
    /* The source that is being read. */
    struct config_text in;
    /* The site file may not be missing. */
    bool needs_site;
    /* The first error in the order of sources and lines, and that order as a number:
     * errors are not always found in it. */
    accel_error_t first;
    uint64_t first_order;
    /* Out of memory: kept here until report_finish, so that readers need no status of
     * their own. */
    bool no_memory;
};

/* Adds one message at `at`, with an excerpt of the source line. MESSAGE_NOTE makes it a
 * note, any other code an error. `hint`, the cure, may be NULL. Copies all texts. Does
 * nothing once report_full. */
void report_add(struct config_report *r, enum message code, struct place at,
                const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Marks the note that was added last as one that srun shows as well. */
void report_tell(struct config_report *r);
/* True when no more messages are taken: callers stop early. */
bool report_full(const struct config_report *r);
/* Sorts the messages by source and line. Returns the first error (also in *err)
 * or ACCEL_OK. */
accel_status_t report_finish(struct config_report *r, accel_error_t *err);

/* Copies s[n] for a message: control and direction characters become '?'. Writes at
 * most `len` bytes, cut with "..." between characters. Returns buf. */
const char *printable(char *buf, size_t len, const char *s, size_t n);
/* Length in bytes of the line break at s[n], as YAML 1.1 counts lines; 0: there
 * is none. */
size_t line_break(const char *s, size_t n);

/* ---- yaml_events.c --------------------------------------------------------------- */

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

/* A node of the tree. Links are indices, not pointers, because the array grows.
 * Children are linked by `next`; those of a map alternate key and value. -1: none. */
struct yaml_node {
    enum node_kind kind;
    /* A scalar without quotes: YAML gives its words a type, "true" is a truth value. */
    bool plain;
    /* Of a scalar only; owned by the tree, without NUL inside. */
    char *text;
    struct place at;
    int first, next;
};
struct yaml_tree {
    /* node[0] is the root. */
    struct yaml_node *node;
    int count, cap;
};

/* Parses the bytes of r->in. Problems go into the report; false when the tree is not
 * complete. The caller frees the tree in both cases. */
bool yaml_tree_read(struct yaml_tree *tree_out, struct config_report *r);
/* Leaves an empty tree. */
void yaml_tree_free(struct yaml_tree *t);

/* ---- json_syntax.c --------------------------------------------------------------- */

/* Is r->in.text strict JSON? If not, the report says what is wrong and where. */
bool json_check(struct config_report *r);
/* A copy of a JSON text whose pairs of \u for one character are \U, which the YAML
 * reader knows: malloc, length in *len_out. NULL: the text has none, or out of
 * memory. */
char *json_for_yaml(const char *text, size_t len, size_t *len_out);

/* ---- scalar.c -------------------------------------------------------------------- */

/* YAML 1.1 words as PyYAML reads them: 1 true, 0 false, -1 neither. */
int word_bool(const char *s);
/* The same for where only a truth value can be meant: also 1, 0, y, n, t and f, in any
 * case, with or without quotes. */
int word_truth(const char *s);
/* Is it null: the word, "~" or nothing at all? */
bool word_null(const char *s);
/* Index of `word` in a NULL-terminated list, or -1. */
int word_index(const char *const *list, const char *word);

/* Wrong kind of text, or the right kind outside of the row's bounds. */
enum value_result { VALUE_OK, VALUE_TYPE, VALUE_RANGE };
/* Checks canonical text against the row and stores it in cfg. VALUE_RANGE also when the
 * texts of all keys together do not fit struct config. On failure cfg is unchanged. */
enum value_result value_set(struct config *cfg, const struct config_key *key,
                            const char *text);

/* Sets row `row` of `cfg` back to what it is in `from`, with its origin and line. */
void value_restore(struct config *cfg, const struct config *from, size_t row);

/* The check alone. `key` needs no field and need not be a row of the table. */
enum value_result value_check(const struct config_key *key, const char *text);
/* Is `text` in the list "a|b"? "*" holds every text, NULL none. */
bool value_among(const char *list, const char *text);

/* ---- file.c ---------------------------------------------------------------------- */

/* Reads the file r->in.path, at most CONFIG_MAX_BYTES, into r->in.text, which the
 * caller frees; NULL when there is none. A missing user or site file is no problem,
 * except for a site file with needs_site. The site file must be trusted
 * (common/path_trust.h). */
void config_file_read(struct config_report *r);

/* ---- validate.c ------------------------------------------------------------------ */

/* The maps of a config file; each is an index into the table of validate.c. */
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
    ACCEL_PYTHON,
    ACCEL_PRECISION,
    ACCEL_TOPOLOGY,
    CONFIG_SECTIONS,
};

/* The state of one resolve: what has been taken from the sources so far. Sources are
 * taken from the weakest to the strongest; each overwrites single keys of cfg. */
struct validator {
    struct config *cfg;
    /* Of the file being read. */
    const struct yaml_tree *tree;
    struct config_report *report;
    /* Where the values being taken come from. Outlives all places that point to it. */
    const struct config_text *source;
    /* schema[keys] */
    const struct config_key *schema;
    size_t keys;
    /* Keys and maps seen in this file, to find what is given twice. */
    struct place key_at[CONFIG_MAX_KEYS], section_at[CONFIG_SECTIONS];
    /* The value of the strongest source so far; `in` NULL: no source gives one. */
    struct place value_at[CONFIG_MAX_KEYS];
    /* Maps of the job file, for messages about a map as a whole. */
    struct place job_section_at[CONFIG_SECTIONS];
    /* Where the site file locks the key; `in` NULL: not locked. */
    struct place lock_at[CONFIG_MAX_KEYS];
    /* Of the config_sources. */
    bool without_slurm;
    /* All but the program's values were checked where the job was started; files that
     * they name are not read again. */
    bool is_resolved;
    /* A job file was given: some source must say distributed_type. */
    bool needs_type;
    /* A misspelt distributed_type was reported already: do not call it missing, too. */
    bool misspelt_type;
};

/* Takes all keys of a file's tree; problems go into the report. `source` must
 * outlive v. */
void validate_tree(struct validator *v, const struct yaml_tree *t,
                   const struct config_text *source);
/* Takes one value of the environment, a flag or the program, by the same rules as one
 * of a file. */
void validate_value(struct validator *v, size_t row, const char *text,
                    const struct config_text *source);
/* Checks keys against each other, once all sources are in. */
void validate_across(struct validator *v);

/* ---- lock.c: accel.lock, the keys that a site fixes ------------------------------ */

/* Is `name`, a key of the map `accel`, the list of locked keys? */
bool lock_is_list(const char *name);
/* Takes that list. Only the site file may have it. */
void lock_take(struct validator *v, const struct yaml_node *key,
               const struct yaml_node *list);
/* True, with a message, when the row is locked and canonical `text` would change it. */
bool lock_refuses(struct validator *v, size_t row, const char *text, struct place at);

#endif
