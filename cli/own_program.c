/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs that belong to `accel` and are not it: each links what most commands
 * can do without (BLAS and PMIx, HDF5), so that `accel` itself starts at once.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/own_program.h"

bool cli_own_dir(char dir_out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", dir_out, PATH_MAX - 1);

    if (n <= 0)
        return false;
    dir_out[n] = '\0';
    *strrchr(dir_out, '/') = '\0';
    return true;
}

/* Next to this program (a build tree), in libexec of the same installation, which may
 * have been moved, or where it was installed. */
static bool find_program(const char *name, char path_out[PATH_MAX])
{
    static const char *const near[] = { "", "../libexec/accel/" };
    char dir[PATH_MAX];

    for (size_t i = 0; cli_own_dir(dir) && i < ACCEL_ARRAY_SIZE(near); i++)
        if (snprintf(path_out, PATH_MAX, "%s/%s%s", dir, near[i], name) < PATH_MAX &&
            access(path_out, X_OK) == 0)
            return true;
    snprintf(path_out, PATH_MAX, "%s/%s", PKGLIBEXECDIR, name);
    return access(path_out, X_OK) == 0;
}

accel_status_t cli_own_program(const char *name, const char *command,
                               char path_out[PATH_MAX], accel_error_t *err)
{
    if (find_program(name, path_out))
        return ACCEL_OK;
    return accel_fail(err, A0060, "reinstall accel completely: make install",
                      "%s, which `%s` starts, is missing", name, command);
}

int cli_become(const char *program, char **argv)
{
    accel_error_t err;

    execvp(program, argv);
    accel_fail(&err, A0060, "reinstall accel, or run accel doctor",
               "cannot run '%s': %s", program, strerror(errno));
    return cli_fail(&err);
}
