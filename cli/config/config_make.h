/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways to make a config file that `accel config` offers.
 */
#ifndef ACCEL_CONFIG_MAKE_H
#define ACCEL_CONFIG_MAKE_H

#include "config/config.h"

/* Asks on the terminal and writes `path`. An older file's values are the
 * proposed answers. Each of these functions returns the exit code and shows
 * problems on stderr. */
int config_ask(const char *path);
/* Writes a config for this machine's devices to `path`, which must not exist.
 * `precision` may be NULL: no. */
int config_default(const char *path, const char *precision);
/* Rewrites an older Accelerate file in today's form; the old one stays as PATH.bak. */
int config_update(const char *path);

#endif
