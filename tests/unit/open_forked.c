/* SPDX-License-Identifier: Apache-2.0
 *
 * The bootstrap of a run is that of the fork. See open_forked.h.
 */
#include "tests/unit/open_forked.h"

accel_status_t __real_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __wrap_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __real_boot_leave(struct boot *b, accel_error_t *err);
accel_status_t __wrap_boot_leave(struct boot *b, accel_error_t *err);
void __real_boot_free(struct boot *b);
void __wrap_boot_free(struct boot *b);

static struct boot *forked;

void open_forked(struct boot *b)
{
    forked = b;
}

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
