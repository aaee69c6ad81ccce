/* SPDX-License-Identifier: Apache-2.0
 *
 * What an attempt tells its launcher, which cannot know what a program saves: the file
 * `job` of common/step_reports.h. In: the checkpoint directory and the steps that are
 * saved. Rank 0 only. Nobody depends on it, so what cannot be written is left out.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "common/env_names.h"
#include "common/step_reports.h"
#include "common/whole_io.h"
#include "preemption/preemption.h"

/* The launcher may read at any time: it finds the old file or the new one. */
static void replace(const char *reports, const char *text)
{
    char path[4096], part[4096 + 8];
    int fd;

    if (snprintf(path, sizeof(path), "%s/job", reports) >= (int)sizeof(path))
        return;
    snprintf(part, sizeof(part), "%s.new", path);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (line_write(fd, text, strlen(text)) != 0 || rename(part, path) != 0)
        unlink(part);
    close(fd);
}

void report_attempt(const struct preemption *p, int64_t saved)
{
    const char *reports = getenv(ENV_STEP_REPORTS);
    char text[DIRECTORY_MOST + 64], last[32] = "";

    if (p->rank != 0 || !reports || !reports[0] || !step_reports_make(reports))
        return;
    if (saved >= 0)
        snprintf(last, sizeof(last), "saved %lld\n", (long long)saved);
    snprintf(text, sizeof(text), "opened %s\n%s", p->directory, last);
    replace(reports, text);
}
