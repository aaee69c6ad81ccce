/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run resumes from: --accel-resume of srun, --resume of accel launch. In: what
 * the user typed. Out: "auto", "none", "best" or an absolute path, as it is passed to
 * the tasks in ACCEL_RESUME.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"

/* The choices that are not paths. A file with such a name needs a slash: ./auto */
static const char *const words[] = { "auto", "none", "best" };

static bool resume_is_word(const char *text)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

/* Absolute, because the tasks may run in another directory than srun. */
accel_status_t resume_choice(const char *text, const char *base, char *out, size_t len,
                             accel_error_t *err)
{
    char cwd[PATH_MAX] = "";
    int n;

    if (!text[0])
        return accel_fail(err, A0340,
                          "give auto, none, best, or the path of a checkpoint",
                          "the choice of what to resume from is empty");
    if (resume_is_word(text) || text[0] == '/')
        n = snprintf(out, len, "%s", text);
    else if (base || (base = getcwd(cwd, sizeof(cwd))))
        n = snprintf(out, len, "%s/%s", base, text);
    else
        return accel_fail(err, A0340, "give an absolute path",
                          "cannot determine the current directory: %s",
                          strerror(errno));
    if (n < 0 || (size_t)n >= len)
        return accel_fail(err, A0340, "give a shorter path",
                          "the path to resume from is longer than %zu bytes", len - 1);
    return ACCEL_OK;
}

/* A word without a slash may be a misspelt choice: suggests that. */
accel_status_t resume_exists(const char *text, const char *choice, accel_error_t *err)
{
    const char *near = strchr(text, '/')
                           ? NULL
                           : suggest_nearest(text, words, ACCEL_ARRAY_SIZE(words));
    char hint[128] =
        "give auto, none, best, or the path of a checkpoint or of a directory of "
        "checkpoints (accel ckpt ls DIR)";

    if (choice[0] != '/' || access(choice, F_OK) == 0)
        return ACCEL_OK;
    if (near)
        snprintf(hint, sizeof(hint),
                 "did you mean '%s'? Or give the path of a checkpoint", near);
    return accel_fail_at(err, A0341, choice, hint, "cannot resume from '%.200s': %s",
                         text, strerror(errno));
}
