/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines "key=value", as texts of checkpoints have them.
 */
#ifndef ACCEL_COMMON_KEY_LINES_H
#define ACCEL_COMMON_KEY_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies the value of `key` in `text` to buf[len]; false: there is none. */
bool key_line(const char *text, const char *key, char *buf, size_t len);
/* The same as a whole number, 0 or more. */
bool key_line_i64(const char *text, const char *key, int64_t *value_out);

#endif
