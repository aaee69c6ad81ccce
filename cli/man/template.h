/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates of what the program prints about itself. Each is a file NAME.in of this
 * folder that reads like the page or script that it becomes; what comes from the tables
 * of the program has a named place there, @NAME@.
 */
#ifndef ACCEL_TEMPLATE_H
#define ACCEL_TEMPLATE_H

#include <stddef.h>

/* The templates, made constants by embed.awk when accel is built. */
extern const char template_accel_1[], template_libaccel_3[], template_function_3[],
    template_accel_config_5[], template_accel_7[], template_completion_bash[];

/* What prints at @NAME@, on stdout. A place alone in its line prints whole lines, or
 * nothing; any other a part of its line. */
struct template_place {
    const char *name;
    void (*print)(void *arg);
};

/* Prints `text`: each of its places by the row of `places` with that name, all else
 * through `write`. `places` ends with a row without a name. `arg` is for the rows. */
void template_print(const char *text, const struct template_place *places,
                    void (*write)(const char *text, size_t n), void *arg);

#endif
