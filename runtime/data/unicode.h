/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters of a text that claims to be UTF-8: the class of the next or the last one,
 * and its length in bytes. A byte that belongs to no character is one of its own, of
 * class 0.
 */
#ifndef ACCEL_DATA_UNICODE_H
#define ACCEL_DATA_UNICODE_H

#include "common/common.h"

enum {
    UNICODE_LETTER = 1, /* general category L* */
    UNICODE_NUMBER = 2, /* N* */
    UNICODE_SPACE = 4,  /* White_Space */
    UNICODE_WORD = 8,   /* what \w is: Alphabetic, M*, Nd, Pc, Join_Control */
    UNICODE_LIMIT = 0x110000,
};

/* Class of every code point, once unicode_init has run. */
extern uint8_t unicode_class[UNICODE_LIMIT];
/* Fills the table; any thread, any number of times. */
void unicode_init(void);

/* Class of the character at p < end; its length goes to *len_out. */
static inline unsigned unicode_next(const uint8_t *p, const uint8_t *end, int *len_out)
{
    uint32_t cp;

    *len_out = 1;
    if (*p < 0x80)
        return unicode_class[*p];
    *len_out = (int)utf8_next((const char *)p, (size_t)(end - p), &cp);
    if (*len_out)
        return unicode_class[cp];
    *len_out = 1;
    return 0;
}

/* The same for the character that ends at p > begin. */
unsigned unicode_last(const uint8_t *begin, const uint8_t *p, int *len_out);

#endif
