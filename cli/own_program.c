/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs and files that belong to `accel` and are not it. Each program links what
 * most commands can do without (PMIx and UCX, HDF5), so that `accel` itself starts at
 * once.
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

bool cli_own_file(const char *const *roots, const char *name, int mode,
                  char path_out[PATH_MAX])
{
    char dir[PATH_MAX] = "";
    bool known = cli_own_dir(dir);

    for (; *roots; roots++) {
        bool whole = **roots == '/';

        if ((whole || known) &&
            snprintf(path_out, PATH_MAX, "%s%s%s%s", whole ? "" : dir, whole ? "" : "/",
                     *roots, name) < PATH_MAX &&
            access(path_out, mode) == 0)
            return true;
    }
    return false;
}

int cli_print_file(const char *path)
{
    char piece[4096];
    size_t n;
    int code = 0;
    FILE *f = fopen(path, "r");

    while (f && (n = fread(piece, 1, sizeof(piece), f)) > 0)
        fwrite(piece, 1, n, stdout);
    if (!f || ferror(f))
        code = cli_error(A0017, NULL, "reinstall accel completely: make install",
                         "cannot read '%s': %s", path, strerror(errno));
    if (f)
        fclose(f);
    return cli_finish(code);
}

accel_status_t cli_own_program(const char *name, const char *command,
                               char path_out[PATH_MAX], accel_error_t *err)
{
    static const char *const roots[] = { "", "../libexec/accel/", PKGLIBEXECDIR "/",
                                         NULL };

    if (cli_own_file(roots, name, X_OK, path_out))
        return ACCEL_OK;
    return accel_fail(err, A0060, "reinstall accel completely: make install",
                      "%s, which `%s` starts, is missing", name, command);
}

int cli_become(const char *program, char **argv)
{
    execvp(program, argv);
    return cli_error(A0060, NULL, "reinstall accel, or run accel doctor",
                     "cannot run '%s': %s", program, strerror(errno));
}
