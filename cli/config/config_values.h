/* SPDX-License-Identifier: Apache-2.0
 *
 * A config as the texts of its keys, to be changed and written as a YAML file again;
 * and the ways to make a config file that `accel config` offers.
 */
#ifndef ACCEL_CONFIG_VALUES_H
#define ACCEL_CONFIG_VALUES_H

#include "config/config.h"

/* ---- config_values.c, config_write.c --------------------------------------------- */

/* text[i] is the canonical text of schema row i, malloc'ed; NULL:
 * the file does not say. */
struct config_values {
    char *text[CONFIG_MAX_KEYS];
};

/* Adds the values of `cfg` whose origin is `from`. False: out of memory. */
bool config_values_take(struct config_values *v, const struct config *cfg,
                        enum config_origin from);
/* Sets one key to a copy of `text`, or removes it (NULL). False: out of
 * memory, or no such key. */
bool config_values_set(struct config_values *v, const char *key, const char *text);
/* The text of one key, owned by `v`; NULL: not given. */
const char *config_values_get(const struct config_values *v, const char *key);
void config_values_free(struct config_values *v);

/* Appends the values as YAML: maps nested, text quoted where YAML would read something
 * else, after the line that tells editors the schema, where that is installed. Reading
 * it gives the same values. */
void config_values_yaml(const struct config_values *v, struct strbuf *out);

/* Writes `text` to `path`: a new file or, with `replace`, over an old one, which stays
 * whole until the new one is durable. A0260: it exists. A0261: it cannot be written. */
accel_status_t config_file_write(const char *path, const struct strbuf *text,
                                 bool replace, accel_error_t *err);

/* Writes `text` to `path` and keeps the old file as PATH.bak, unless both are equal:
 * then nothing is done. *kept_out: there is a PATH.bak now. A0262: PATH.bak exists or
 * cannot be made. Other errors as config_file_write. */
accel_status_t config_file_replace(const char *path, const struct strbuf *text,
                                   bool *kept_out, accel_error_t *err);
/* Asks before any work whether config_file_replace will find
 * PATH.bak free. A0262: no. */
accel_status_t config_file_replaceable(const char *path, accel_error_t *err);

/* ---- config_make.c, config_ask.c ------------------------------------------------- */

/* Asks on the terminal and writes `path`. An older file's values are the
 * proposed answers. Each of these functions returns the exit code and shows
 * problems on stderr. */
int config_ask(const char *path);
/* Writes a config for this machine's devices to `path`, which must not exist.
 * `precision` may be NULL: no. */
int config_default(const char *path, const char *precision);
/* Rewrites an older Accelerate file in today's form; the old one stays as PATH.bak. */
int config_update(const char *path);
/* Writes the values to `path`, which must not exist; with kept_out also over an old
 * file, as config_file_replace does. */
int config_write_values(const struct config_values *v, const char *path,
                        bool *kept_out);

#endif
