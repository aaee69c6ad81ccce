/* SPDX-License-Identifier: Apache-2.0
 *
 * The bootstrap of a run is that of the fork: see open_world.h.
 */
#include "tests/world/open_world.h"

#include <stddef.h>

accel_status_t __real_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __wrap_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __real_boot_leave(struct boot *b, accel_error_t *err);
accel_status_t __wrap_boot_leave(struct boot *b, accel_error_t *err);
void __real_boot_free(struct boot *b);
void __wrap_boot_free(struct boot *b);

static struct boot *forked;

accel_status_t __wrap_boot_open(struct boot *b, int timeout_ms, accel_error_t *err)
{
    if (!forked)
        return __real_boot_open(b, timeout_ms, err);
    *b = *forked;
    return ACCEL_OK;
}

accel_status_t __wrap_boot_leave(struct boot *b, accel_error_t *err)
{
    return forked ? ACCEL_OK : __real_boot_leave(b, err);
}

/* Groups of ranks have bootstraps of their own. */
void __wrap_boot_free(struct boot *b)
{
    if (!forked || b->node_of != forked->node_of)
        __real_boot_free(b);
}

void open_world_join(struct boot *b)
{
    forked = b;
}

int open_world_rank(void)
{
    return forked ? forked->rank : -1;
}

struct opened {
    int (*fn)(struct boot *b, void *arg);
    void *arg;
};

static int open_rank(struct boot *b, void *arg)
{
    const struct opened *o = arg;
    int rc;

    open_world_join(b);
    rc = o->fn(b, o->arg);
    open_world_join(NULL);
    return rc;
}

int open_world(int n, int nodes, int (*fn)(struct boot *b, void *arg), void *arg,
               int timeout_s)
{
    struct opened o = { fn, arg };

    return fork_world_nodes(n, nodes, open_rank, &o, timeout_s, NULL);
}
