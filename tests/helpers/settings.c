/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a run with the settings of its arguments, and says what became of them.
 */
#include <accel.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    accel_options_t options = { sizeof(options), .log = accel_log_stderr };
    accel_error_t err = { 0 };
    accel_info_t info = { .bytes = sizeof(info) };
    accel_t *run = NULL;

    (void)argc;
    options.set = (const char *const *)(argv + 1);
    if (!accel_open(&run, &options, &err) && !accel_info(run, &info, &err) &&
        accel_is_main(run))
        printf("%d ranks, config of %s, %s, %s, set: %s\n%d threads\n", info.world_size,
               info.config_source, info.compute, info.sharding, info.config_set,
               info.threads);
    accel_close(run, &err);
    return accel_report(&err);
}
