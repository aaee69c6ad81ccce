/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual pages that `accel man` prints, each made from the tables of its subject.
 */
#ifndef ACCEL_MAN_PAGES_H
#define ACCEL_MAN_PAGES_H

#include "common/common.h"

void man_accel(void);    /* accel(1): commands and exit codes */
void man_libaccel(void); /* libaccel(3): the public header */
void man_overview(void); /* accel(7): the whole, areas of messages */

/* accel.h in its own order, cut by header.awk when accel is built. */
struct api_entry {
    const char *section; /* begins a section of the header, or NULL */
    const char *text;    /* the comment; for a section what is said of all of it */
    const char *code;    /* declarations, "" for a section */
};
extern const struct api_entry api_table[]; /* ends with an entry whose text is NULL */
extern const char api_rules[];             /* the first comment: rules for all */

#endif
