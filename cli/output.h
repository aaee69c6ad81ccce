/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports: groups of named values, shown as a table of names and values or as JSON.
 */
#ifndef ACCEL_REPORT_H
#define ACCEL_REPORT_H

#include <jansson.h>
#include <stdbool.h>

/* Prints a JSON value with these flags of json_dumpf, and consumes it. NULL (out of
 * memory for `what`, "the report") is an error. Returns the exit code. */
int cli_print_json(json_t *json, size_t flags, const char *what);

/* `all` is an object of objects, {group: {name: value}}, and is consumed. The table
 * drops the groups, shows names that end in _bytes with a unit, null as "not found",
 * and arrays of numbers or texts as a comma list. NULL (out of memory) is an error.
 * Returns the exit code. */
int report_print(json_t *all, bool json);

#endif
