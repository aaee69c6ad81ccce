/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual pages that `accel man` prints, each made from the tables of its subject.
 */
#ifndef ACCEL_MAN_PAGES_H
#define ACCEL_MAN_PAGES_H

#include "common/common.h"

void man_accel(void);    /* accel(1): commands and exit codes */
void man_libaccel(void); /* libaccel(3): the public header */
/* NAME(3) of a function of it; false: there is none of this name. */
bool man_function(const char *name);
void man_overview(void); /* accel(7): the whole, areas of messages */

/* accel.h in its own order, cut by header.awk when accel is built. */
struct api_entry {
    const char *section;   /* begins a section of the header, or NULL */
    const char *text;      /* the comment; for a section what is said of all of it */
    const char *code;      /* declarations, "" for a section */
    const char *functions; /* of them, "accel_rank accel_world_size"; "" for none */
};
extern const struct api_entry api_table[]; /* ends with an entry whose text is NULL */
extern const char api_rules[];             /* the first comment: rules for all */

/* The function at *place, a cursor that begins as { 0 }, copied into name; false: no more. */
struct api_cursor {
    size_t entry;
    const char *next;
};
enum { API_NAME_BYTES = 64 };
bool api_next_function(struct api_cursor *at, char name[API_NAME_BYTES]);

#endif
