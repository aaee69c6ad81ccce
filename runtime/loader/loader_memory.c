/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that loaders hold, for the plan. In: open loaders. Out: the bytes that
 * loader_open has allocated; nothing is allocated later.
 */
#include "loader/loader.h"
#include "loader/loader_impl.h"
#include "handle/run.h"

struct loader_memory loader_memory(const struct accel_loader *l)
{
    /* room for the sample numbers of a batch, and for their lengths */
    size_t numbers = 2 * (size_t)loader_capacity(l) * sizeof(int64_t);
    struct loader_memory m = { .host = (int64_t)sampler_bytes(&l->sampler) };

    m.host += l->slots * (int64_t)(l->slot[0].host.bytes + numbers);
    if (stage_is_open(&l->stage))
        m.device = 2 * (int64_t)l->slot[0].host.bytes;
    return m;
}

struct loader_memory loaders_memory(const accel_t *run)
{
    struct loader_memory all = { 0 };

    for (const struct accel_loader *l = run->loaders; l; l = l->next) {
        struct loader_memory m = loader_memory(l);

        all.host += m.host;
        all.device += m.device;
    }
    return all;
}
