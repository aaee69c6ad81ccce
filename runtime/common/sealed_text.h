/* SPDX-License-Identifier: Apache-2.0
 *
 * A list as one line of printable ASCII, "NAME1;item;item;xxh3=HEX", which passes
 * through an environment. The hash guards against damage, not malice.
 */
#ifndef ACCEL_COMMON_SEALED_TEXT_H
#define ACCEL_COMMON_SEALED_TEXT_H

#include "common/common.h"

/* Appends a value: ';', '%' and what is not printable ASCII become %XX. */
void sealed_append(struct strbuf *b, const char *value);
/* Decodes in place what sealed_append wrote. False on another escape, and on one for
 * NUL, which would cut the value. */
bool sealed_decode(char *value);
/* Appends the hash of all before it, the version included. */
void sealed_close(struct strbuf *b);
/* NULL: the text has fewer than `max` bytes and ends with its hash; *items_out is the
 * length up to that. Otherwise what is wrong. `head`: bytes of the version, which the
 * caller compares. */
const char *sealed_problem(const char *text, size_t head, size_t max,
                           size_t *items_out);

#endif
