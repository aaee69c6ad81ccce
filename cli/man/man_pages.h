/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual pages that `accel man` prints, each made from the tables of its subject.
 * All print man(7) markup on stdout; output errors are left to cli_finish.
 */
#ifndef ACCEL_MAN_PAGES_H
#define ACCEL_MAN_PAGES_H

#include "common/common.h"

/* accel(1): commands and exit codes. */
void man_accel(void);
/* libaccel(3): the public header. */
void man_libaccel(void);
/* NAME(3), the page of one function of libaccel. False: there is no
 * function of this name. */
bool man_function(const char *name);
/* accel(7): the whole, and the areas of messages. */
void man_overview(void);

/* The public header in its own order, cut by header.awk when accel is built. */
struct api_entry {
    /* The heading, where a section of the header begins; else NULL. */
    const char *section;
    /* The comment; for a section, what is said about all of it. */
    const char *text;
    /* The declarations; "" for a section. */
    const char *code;
    /* The functions among them, "accel_rank accel_world_size"; "" for none. */
    const char *functions;
};
/* Ends with an entry whose text is NULL. */
extern const struct api_entry api_table[];
/* The header's first comment: rules for all functions. */
extern const char api_rules[];

/* Copies the next function's name into `name` and moves *at, which begins as {
 * 0 }. False: no more. */
struct api_cursor {
    size_t entry;
    const char *next;
};
enum { API_NAME_BYTES = 64 };
bool api_next_function(struct api_cursor *at, char name[API_NAME_BYTES]);

#endif
