/* SPDX-License-Identifier: Apache-2.0
 *
 * The areas of message codes, for `accel explain` and accel(7).
 */
#ifndef ACCEL_AREAS_H
#define ACCEL_AREAS_H

#include <stddef.h>

struct message_area {
    /* The first number: 300 stands for A0300 to A0399. */
    int first;
    /* What these messages are about. */
    const char *title;
    /* Where to read on. */
    const char *see;
};

/* All areas in the order of their numbers. Static. */
const struct message_area *message_areas(size_t *count_out);
/* The area of message `number`. Every row of messages.def has one. */
const struct message_area *message_area_of(int number);

#endif
