/* SPDX-License-Identifier: Apache-2.0
 *
 * Public structs that may grow. Their first member is `size_t bytes`, the size that the
 * program was compiled with. A program's struct comes in, one of today's size goes out:
 * members that the program does not know are 0. Knows nothing about what they mean.
 */
#ifndef ACCEL_SIZED_H
#define ACCEL_SIZED_H

#include "common/common.h"

struct sized {
    const char *type;
    size_t first; /* the smallest size: up to the last member of the first release */
    size_t now;
};
/* `last` is the last member that `type` had in its first release; it never changes. */
#define SIZED(type, last)                                                              \
    (&(const struct sized){ #type, offsetof(type, last) + sizeof(((type *)0)->last),   \
                            sizeof(type) })

/* Whether the program has set `bytes` of its struct to a size that `type` can have.
 * A0913. */
accel_status_t sized_check(const struct sized *type, const void *theirs,
                           accel_error_t *err);
/* The program's struct in today's size; NULL: all zero. `own_out` is set only on
 * success. Errors: A0913; A0914: something is set past what this library knows. */
accel_status_t sized_read(const struct sized *type, void *own_out, const void *theirs,
                          accel_error_t *err);
/* Fills a struct of the program that has passed sized_check: as much of `own` as it has
 * room for, and zeros in what this library does not know. */
void sized_write(const struct sized *type, void *theirs_out, const void *own);

#endif
