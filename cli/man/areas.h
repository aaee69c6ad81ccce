/* SPDX-License-Identifier: Apache-2.0
 *
 * The areas of message codes, for `accel explain` and accel(7), and the form of a code.
 */
#ifndef ACCEL_AREAS_H
#define ACCEL_AREAS_H

#include <stddef.h>

struct message_area {
    int first;         /* 300: A0300 to A0399 */
    const char *title; /* what these messages are about */
    const char *see;   /* where one reads on */
};

/* All areas in the order of their numbers; static. */
const struct message_area *message_areas(size_t *count_out);
/* The area of message `number`; every row of messages.def has one. */
const struct message_area *message_area_of(int number);

#endif
