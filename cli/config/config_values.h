/* SPDX-License-Identifier: Apache-2.0
 *
 * A config as the texts of its keys, to be changed and written as a YAML file again.
 */
#ifndef ACCEL_CONFIG_VALUES_H
#define ACCEL_CONFIG_VALUES_H

#include "config/config.h"

/* text[i]: canonical text of schema row i, malloc'ed; NULL: the file does not say. */
struct config_values {
    char *text[CONFIG_MAX_KEYS];
};

/* Adds what the sources `from` of `cfg` give. False: no memory. */
bool config_values_take(struct config_values *v, const struct config *cfg,
                        enum config_origin from);
/* Sets or (NULL) removes one key. False: no memory, or no such key. */
bool config_values_set(struct config_values *v, const char *key, const char *text);
/* NULL: not given. */
const char *config_values_get(const struct config_values *v, const char *key);
void config_values_free(struct config_values *v);

/* The values as YAML, maps nested, text quoted where YAML would read something else, behind
 * the line that tells an editor the schema when that is installed. Reading it gives the
 * same values. */
void config_values_yaml(const struct config_values *v, struct strbuf *out);

/* Writes `text` to `path`: a new file, or with `replace` in place of an old one, which stays
 * whole until the new one is on disk. A0260: it exists; A0261: cannot be written. */
accel_status_t config_file_write(const char *path, const struct strbuf *text,
                                 bool replace, accel_error_t *err);

/* Writes `text` to `path`; what was there stays as PATH.bak, unless it is the same text: then
 * nothing is done. *kept_out: there is a PATH.bak now. A0262: PATH.bak exists, or cannot be
 * made; else as config_file_write. */
accel_status_t config_file_replace(const char *path, const struct strbuf *text,
                                   bool *kept_out, accel_error_t *err);
/* Would the old file, if there is one, find its name free? A0262: no. */
accel_status_t config_file_replaceable(const char *path, accel_error_t *err);

#endif
