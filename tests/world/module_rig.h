/* SPDX-License-Identifier: Apache-2.0
 *
 * One module on the CPU without a run: backend, graph, units and the values of its
 * parameters (resident.h).
 */
#ifndef ACCEL_TESTS_MODULE_RIG_H
#define ACCEL_TESTS_MODULE_RIG_H

#include "backend/device.h"
#include "tests/world/resident.h"

struct module_rig {
    struct backend *be;
    struct graph g;
    accel_module_t *model; /* set by the test, between open and fill */
    struct units units;
    struct resident r;
};

/* Zeros all of it, then opens backend and graph. False: there is none. */
bool module_rig_open(struct module_rig *k, accel_dtype_t compute, int threads);
/* Cuts k->model into units, as nn_units_build does, and gives its parameters values.
 * False: there is no model, or an error. */
bool module_rig_fill(struct module_rig *k, bool transformer_wrap, const char *classes);
/* Also after a failure, and where nothing was filled. */
void module_rig_close(struct module_rig *k);

#endif
