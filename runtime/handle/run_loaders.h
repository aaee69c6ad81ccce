/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for loader/: a failure that the other ranks do not know about yet,
 * and lines of a checkpoint for loaders that are not open.
 */
#ifndef ACCEL_HANDLE_RUN_LOADERS_H
#define ACCEL_HANDLE_RUN_LOADERS_H

#include <stdbool.h>

#include "accel.h"

/* The first failure of any loader, until the other ranks know about it. */
struct loader_failure {
    bool failed;
    accel_error_t error;
};

/* Lines of a checkpoint, in text that the run owns; NULL: none. */
struct loader_lines {
    /* of loaders not open at the load: each waits for a loader of its name */
    char *waiting;
    /* of a checkpoint that has been checked but not yet loaded */
    char *found;
    /* rank 0 has warned about the lines that wait */
    bool told;
};

#endif
