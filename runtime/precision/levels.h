/* SPDX-License-Identifier: Apache-2.0
 *
 * The levels of precision that a config can ask for, in one list: what `accel plan
 * --compare-precision` shows. A new recipe is a new row.
 */
#ifndef ACCEL_PRECISION_LEVELS_H
#define ACCEL_PRECISION_LEVELS_H

#include "config/config.h"

struct precision_level {
    const char *name; /* in the words of config files */
    enum mixed_precision mixed;
    enum fp8_choice recipe; /* of fp8 only */
    enum moments_choice moments;
    enum masters_choice masters;
    enum gradients_choice gradients;
    enum weights_choice weights;
    enum reduce_choice reduce; /* where it is not REDUCE_AUTO, a part of the level */
    const char *backend;       /* "AO": fp8_backend; NULL: not torchao */
};

/* Number `i` (from 0), widest first; NULL: no more. */
const struct precision_level *precision_level_at(int i);
bool precision_level_is(const struct precision_level *level, const struct config *cfg);
/* The config asks for this level and no other; all else in it stays. False: it has no
 * room for the text of a key. */
bool precision_level_set(const struct precision_level *level, struct config *cfg);

#endif
