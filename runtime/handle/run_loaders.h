/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for loader/: a failure that other ranks do not know of yet, and
 * lines of a checkpoint for loaders that are not open.
 */
#ifndef ACCEL_HANDLE_RUN_LOADERS_H
#define ACCEL_HANDLE_RUN_LOADERS_H

#include <stdbool.h>

#include "accel.h"

/* The first failure of any loader that the other ranks do not know of yet. */
struct loader_failure {
    bool failed;
    accel_error_t error;
};

/* Lines of a checkpoint, in text that the run owns; NULL: none. */
struct loader_lines {
    /* of loaders that were not open at the load: each waits for its name */
    char *waiting;
    /* of a checkpoint that is checked and not yet loaded */
    char *found;
    /* rank 0 has said who waits */
    bool told;
};

#endif
