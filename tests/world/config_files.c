/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a test of config/, and what resolving them says.
 */
#include "tests/world/config_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char config_dir[32] = "/tmp/accel-config.XXXXXX";
char config_site[64], config_user[64], config_job[64];

void config_files_make(void)
{
    if (!mkdtemp(config_dir)) {
        perror(config_dir);
        exit(1);
    }
    snprintf(config_site, sizeof(config_site), "%s/site.yaml", config_dir);
    snprintf(config_user, sizeof(config_user), "%s/user.yaml", config_dir);
    snprintf(config_job, sizeof(config_job), "%s/job.yaml", config_dir);
}

int config_files_remove(void)
{
    unlink(config_site);
    unlink(config_user);
    unlink(config_job);
    return rmdir(config_dir);
}

const char *config_put_bytes(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(text, 1, n, f) != n || fclose(f)) {
        perror(path);
        exit(1);
    }
    chmod(path, 0644);
    return path;
}

const char *config_put(const char *path, const char *text)
{
    return config_put_bytes(path, text, strlen(text));
}

accel_status_t config_say(const struct config_sources *src, struct config *cfg,
                          struct config_said *said_out)
{
    size_t used = 0, room = sizeof(said_out->text);
    struct config_diags diags;
    accel_status_t st;

    memset(said_out, 0, sizeof(*said_out));
    st = config_resolve(src, cfg, &diags, &said_out->first);
    said_out->count = diags.count;
    said_out->errors = diags.errors;
    for (size_t i = 0; i < diags.count; i++) {
        said_out->told += diags.item[i].is_told;
        if (used < room)
            used += (size_t)snprintf(said_out->text + used, room - used, "%s\n",
                                     diags.item[i].text);
    }
    config_diags_free(&diags);
    return st;
}

const char *config_verdict(const char *text, struct config *cfg,
                           struct config_said *said_out)
{
    const struct config_sources src = { .job_path = config_put(config_job, text) };
    static char code[16];

    code[0] = '\0';
    if (config_say(&src, cfg, said_out) != ACCEL_OK)
        snprintf(code, sizeof(code), "A%04d", said_out->first.message);
    return code;
}
