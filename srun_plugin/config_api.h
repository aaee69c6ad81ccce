/* SPDX-License-Identifier: Apache-2.0
 *
 * The seam between accel_spank.so and accel_spank_config.so. The second one carries the
 * YAML parser. srun, sbatch and salloc load it when the option is used; root's daemons
 * never do.
 */
#ifndef ACCEL_SRUN_PLUGIN_CONFIG_API_H
#define ACCEL_SRUN_PLUGIN_CONFIG_API_H

#include "config/python/environ.h"

#define CONFIG_API_FILE   "accel_spank_config.so"
#define CONFIG_API_SYMBOL "accel_spank_config_api"

/* The table that accel_spank_config.so exports. Both files check that they come from
 * one build before anything is called. */
struct config_api {
    /* PACKAGE_VERSION, and sizeof(struct config): the check. */
    const char *version;
    size_t config_bytes;
    /* The functions of config/config.h and config/python/environ.h with these names. */
    void (*sources_default)(struct config_sources *src, struct config_paths *paths);
    accel_status_t (*resolve)(const struct config_sources *src, struct config *cfg,
                              struct config_diags *diags, accel_error_t *err);
    const char *(*place)(const struct config *cfg, const struct config_sources *src,
                         size_t row, char *buf, size_t len);
    void (*diags_free)(struct config_diags *d);
    accel_status_t (*encode)(const struct config *cfg, char *buf, size_t len,
                             accel_error_t *err);
    accel_status_t (*environment)(const struct config *cfg,
                                  const struct config_world *w, config_env_f emit,
                                  void *user, accel_error_t *err);
    accel_status_t (*check_world)(const struct config *cfg, int64_t world,
                                  accel_error_t *err);
    const struct config_key *(*schema)(size_t *count_out);
    const char *(*key_path)(const struct config_key *key, char *buf, size_t len);
    void (*value_text)(const struct config *cfg, const struct config_key *key,
                       char *buf, size_t len);
};

#endif
