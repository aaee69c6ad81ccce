/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs on forked ranks. See run_world.h.
 */
#include "tests/unit/run_world.h"

#include <stdio.h>

accel_status_t __real_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __wrap_boot_open(struct boot *b, int timeout_ms, accel_error_t *err);
accel_status_t __real_boot_leave(struct boot *b, accel_error_t *err);
accel_status_t __wrap_boot_leave(struct boot *b, accel_error_t *err);
void __real_boot_free(struct boot *b);
void __wrap_boot_free(struct boot *b);

static struct boot *forked;

void run_world_enter(struct boot *b)
{
    forked = b;
}

void run_world_leave(void)
{
    forked = NULL;
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

bool run_world_config(const char *path, const char *strategy, int world, int nodes,
                      const char *more)
{
    char config[256];
    FILE *f;

    snprintf(config, sizeof(config), "%s.yaml", path);
    f = fopen(config, "w");
    if (!f)
        return false;
    fprintf(f,
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n"
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_transformer_layer_cls_to_wrap: Linear\n"
            "num_machines: %d\nnum_processes: %d\nuse_cpu: true\n%s",
            strategy, nodes, world, more ? more : "mixed_precision: 'no'\n");
    return fclose(f) == 0;
}
