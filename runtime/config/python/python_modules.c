/* SPDX-License-Identifier: Apache-2.0
 *
 * Where accel's Python modules are: two directories, python/ with the package and
 * python-site/ with the sitecustomize.py of accel.python.trainer. In: ACCEL_ROOT, which
 * the module file sets, and the place of the installation. Out: the directory above
 * both, and a sentence if they are not there. Needs libc only.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/env_names.h"
#include "config/python/environ.h"

const char *python_modules_dir(char *buf, size_t len)
{
    const char *root = getenv(ENV_ROOT);

    if (root && root[0] == '/')
        snprintf(buf, len, "%s/share/accel", root);
    else
        snprintf(buf, len, "%s", PKGDATADIR);
    return buf;
}

bool python_modules_found(const char *dir, char *buf, size_t len)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/python-site/sitecustomize.py", dir) <
            (int)sizeof(path) &&
        access(path, R_OK) == 0)
        return true;
    snprintf(buf, len,
             "accel.python.trainer is true, but there is no %s/python-site/"
             "sitecustomize.py: the script runs without it; install accel with its "
             "Python modules, or correct " ENV_ROOT,
             dir);
    return false;
}
