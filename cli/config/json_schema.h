/* SPDX-License-Identifier: Apache-2.0
 *
 * The config schema table as JSON Schema draft-07, for editors and other checkers.
 */
#ifndef ACCEL_JSON_SCHEMA_H
#define ACCEL_JSON_SCHEMA_H

#include <jansson.h>

#include "config/config.h"

/* The schema of a whole config file. The caller owns it (json_decref).
 * NULL: out of memory. */
json_t *json_schema_file(void);
/* The schema of one key's value. Its "$ref" points into json_schema_file. The caller
 * owns it. NULL: out of memory. */
json_t *json_schema_key(const struct config_key *key);

#endif
