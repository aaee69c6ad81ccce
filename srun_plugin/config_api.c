/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_spank_config.so: config/ as one exported table. Loaded by accel_spank.so,
 * only in the user's own processes. Never prints.
 */
#include "srun_plugin/config_api.h"

__attribute__((
    visibility("default"))) extern const struct config_api accel_spank_config_api;

const struct config_api accel_spank_config_api = {
    .version = PACKAGE_VERSION,
    .config_bytes = sizeof(struct config),
    .sources_default = config_sources_default,
    .resolve = config_resolve,
    .place = config_place,
    .diags_free = config_diags_free,
    .encode = config_encode,
    .environment = config_environment,
    .check_world = config_check_world,
    .schema = config_schema,
    .key_path = config_key_path,
    .value_text = config_value_text,
};
