/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports: groups of named values, shown as a table of names and values or as JSON.
 */
#ifndef ACCEL_REPORT_H
#define ACCEL_REPORT_H

#include <jansson.h>
#include <stdbool.h>

/* `all`: an object of objects, {group: {name: value}}; takes it over. The table drops the
 * groups; names that end in _bytes are shown with a unit, null as "not found", arrays of
 * numbers or texts as a comma list. NULL (no memory) is an error. Returns the exit code. */
int report_print(json_t *all, bool json);

#endif
