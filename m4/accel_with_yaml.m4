# SPDX-License-Identifier: Apache-2.0
#
# ACCEL_WITH_YAML: --with-yaml[=DIR|no]. libyaml reads the config file.
# Sets YAML_CFLAGS and YAML_LIBS.
AC_DEFUN([ACCEL_WITH_YAML], [
    ACCEL_DEPENDENCY([yaml], [YAML], [required], [yaml-0.1], [yaml.h], [yaml], [yaml_parser_initialize],
        [libyaml-dev], [libyaml-devel],
        [libyaml reads the config file])
])
