/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside config/: values that stand alone, each with a name of its own in messages: of
 * a variable, a flag, or a setting of the program.
 */
#ifndef ACCEL_CONFIG_LONE_H
#define ACCEL_CONFIG_LONE_H

#include "config/read/document.h"

/* ---- single_value.c -------------------------------------------------------------- */

/* Its name as messages show it; `in` points to it. */
struct lone {
    struct config_text in;
    char label[256];
};
/* Never reallocated, because places point to `in`. */
struct lones {
    struct lone *item;
    size_t count;
};

/* Room for `most` of them. False: out of memory. */
bool lones_open(struct lones *l, size_t most);
void lones_close(struct lones *l);
/* The next free one. */
struct lone *lone_next(struct lones *l);

/* From here on messages come from this variable, flag or setting, called name[len].
 * Returns the source, which lives in `l`. */
const struct config_text *lone_enter(struct validator *v, struct lone *l,
                                     enum config_origin origin, const char *name,
                                     size_t len);
/* Takes a flag or a setting of the program. */
void lone_setting(struct validator *v, struct lones *l, enum config_origin origin,
                  const char *name, const char *value);

/* ---- program.c ------------------------------------------------------------------- */

/* How many settings there are in the NULL-terminated list, which may be NULL. */
size_t program_count(const char *const *settings);
/* Takes them in their order; of two with one key the last one counts. */
void program_take(struct validator *v, struct lones *l, const char *const *settings);

/* ---- resolved.c ------------------------------------------------------------------ */

/* Takes the values and locks of `from` that are weaker than the program's, or those
 * that are stronger. */
void resolved_take(struct validator *v, struct lones *l, const struct config *from,
                   bool stronger);

#endif
