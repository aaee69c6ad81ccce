/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a test that opens runs (run_folder.h).
 */
#include "tests/world/run_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/tap.h"

void run_folder_write(const char *config, const char *text)
{
    FILE *f = fopen(config, "w");

    if (!f || fputs(text, f) < 0 || fclose(f))
        tap_skip_all("no file");
}

void run_folder_new(char *dir)
{
    unsetenv("ACCEL_CONFIG_RESOLVED");
    unsetenv("ACCEL_RESUME");
    if (!mkdtemp(dir))
        tap_skip_all("no directory for temporary files");
}

void run_folder_make(char *dir, const char *text, char *config_out, size_t len)
{
    run_folder_new(dir);
    snprintf(config_out, len, "%s/one.yaml", dir);
    run_folder_write(config_out, text);
}

void run_folder_remove(const char *dir)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    tap_ok(system(command) == 0, "removed");
}
