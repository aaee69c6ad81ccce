/* SPDX-License-Identifier: Apache-2.0
 *
 * between/: what the ranks of a run tell each other for the program: gathers,
 * reductions, padding, broadcasts, signs, agreement on errors. Over comm/, in host
 * memory and a device's. The rules (rules.c, compare.c) know neither run nor
 * communicator.
 */
#ifndef ACCEL_BETWEEN_H
#define ACCEL_BETWEEN_H

#include <stdbool.h>

#include "accel.h"

/* What a run remembers from one call to the next. */
struct between {
    /* accel_trigger_set since the last check */
    bool trigger;
    /* between accel_first_begin and accel_first_end */
    bool in_first;
    /* this rank is one of those that go first */
    bool goes_first;
};

#endif
