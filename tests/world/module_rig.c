/* SPDX-License-Identifier: Apache-2.0
 *
 * See module_rig.h.
 */
#include "tests/world/module_rig.h"

#include <string.h>

bool module_rig_open(struct module_rig *k, accel_dtype_t compute, int threads)
{
    memset(k, 0, sizeof(*k));
    return !backend_cpu_open(&k->be, threads, NULL) &&
           !graph_open(&k->g, k->be, compute, false, NULL);
}

bool module_rig_fill(struct module_rig *k, bool transformer_wrap, const char *classes)
{
    if (!k->model ||
        nn_units_build(k->model, transformer_wrap, classes, &k->units, NULL) ||
        resident_open(&k->r, &k->units, k->g.compute, 1))
        return false;
    k->g.residency = resident_residency(&k->r);
    return true;
}

void module_rig_close(struct module_rig *k)
{
    resident_close(&k->r);
    units_free(&k->units);
    nn_module_free(k->model);
    graph_close(&k->g);
    backend_close(k->be);
}
