/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory in which the ranks of a step tell its launcher what happened. In: the
 * step's name, and what is in the directory when the step is over. Out: the directory;
 * what the job did and which rank failed first; nothing is left of it. Never prints.
 */
#include "common/step_reports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/common.h"
#include "common/plain_file.h"

/* A rank's traceback is a few KiB. A longer file, or one more, is not read. */
enum { ERROR_BYTES = 256 << 10, JOB_BYTES = 64 << 10, MOST_ERRORS = 4096 };
static const char error_prefix[] = "error.";

/* ---- its place ------------------------------------------------------------------- */

/* Tasks are given no value with such characters (carrier_read). */
static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static bool is_usable_home(const char *home)
{
    return home && home[0] == '/' && !has_control(home) &&
           access(home, W_OK | X_OK) == 0;
}

bool step_reports_choose(const char *name, char *buf, size_t len)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char cwd[4096];
    int n;

    if (state && state[0] == '/' && !has_control(state))
        n = snprintf(buf, len, "%s/accel/steps/%s", state, name);
    else if (is_usable_home(home))
        n = snprintf(buf, len, "%s/.local/state/accel/steps/%s", home, name);
    else if (getcwd(cwd, sizeof(cwd)) && !has_control(cwd))
        n = snprintf(buf, len, "%s/.accel-step.%s", cwd, name);
    else
        return false;
    return n > 0 && (size_t)n < len;
}

bool step_reports_make(const char *path)
{
    char above[4096];
    const size_t len = strlen(path);

    for (size_t n = 1; n < len && n < sizeof(above); n++) {
        if (path[n] != '/')
            continue;
        snprintf(above, sizeof(above), "%.*s", (int)n, path);
        if (mkdir(above, 0700) != 0 && access(above, F_OK) != 0)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* ---- what it says ---------------------------------------------------------------- */

/* A whole number of 9 digits at most, and nothing else; -1: it is not. */
static int64_t short_number(const char *s)
{
    const size_t n = strspn(s, "0123456789");

    return n == 0 || n > 9 || s[n] ? -1 : strtol(s, NULL, 10);
}

/* The steps of a run need more digits; -1: not a step. */
static int64_t step_number(const char *s)
{
    const size_t n = strspn(s, "0123456789");

    return n == 0 || n > 18 || s[n] ? -1 : strtoll(s, NULL, 10);
}

/* Of a long file only the end is read: a program that saved has opened its job. */
static void read_job_report(int dir, const char *name, struct step_report *report)
{
    static const char opened[] = "opened ", saved[] = "saved ";
    char *text = NULL, *rest, *line;
    size_t len;

    if (plain_tail(dir, name, JOB_BYTES, &text, &len) != 0)
        return;
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        const int64_t step = strncmp(line, saved, strlen(saved)) == 0
                                 ? step_number(line + strlen(saved))
                                 : -1;

        report->opened |= strncmp(line, opened, strlen(opened)) == 0;
        if (step >= 0) {
            report->opened = report->saved = true;
            report->saved_step = step;
        }
    }
    free(text);
}

/* The rank's own clock counts, in whole seconds; then when the file was written, which
 * on a shared disk one clock says. */
static bool is_earlier(const struct step_failure *a, const struct step_failure *b)
{
    if (!b->known || a->seconds != b->seconds)
        return !b->known || a->seconds < b->seconds;
    if (a->written_ns != b->written_ns)
        return a->written_ns < b->written_ns;
    return a->rank < b->rank;
}

static void read_error_file(int dir, const char *name, struct step_report *report)
{
    struct step_failure f = { .rank = short_number(name + strlen(error_prefix)) };
    char *text = NULL;
    struct stat sb;
    size_t len;

    if (f.rank < 0 || fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) != 0 ||
        sb.st_size > ERROR_BYTES ||
        plain_tail(dir, name, ERROR_BYTES, &text, &len) != 0)
        return;
    f.written_ns = sb.st_mtim.tv_sec * INT64_C(1000000000) + sb.st_mtim.tv_nsec;
    if (error_file_parse(text, len, &f)) {
        if (f.seconds == 0)
            f.seconds = (double)sb.st_mtim.tv_sec;
        if (is_earlier(&f, &report->first))
            report->first = f;
    }
    free(text);
}

/* ---- reading and removing -------------------------------------------------------- */

/* NULL: there is none, or it is not ours. */
static DIR *open_reports(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat sb;
    DIR *d = NULL;

    if (fd >= 0 && fstat(fd, &sb) == 0 && sb.st_uid == geteuid())
        d = fdopendir(fd);
    if (fd >= 0 && !d)
        close(fd);
    return d;
}

/* Directories in it stay, and then so does it: no rank has made them. */
static void remove_reports(DIR *d, const char *path)
{
    struct dirent *e;

    rewinddir(d);
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    rmdir(path);
}

void step_reports_take(const char *path, struct step_report *report_out)
{
    DIR *d = open_reports(path);
    struct dirent *e;
    int errors = 0;

    *report_out = (struct step_report){ 0 };
    if (!d)
        return;
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, "job") == 0)
            read_job_report(dirfd(d), e->d_name, report_out);
        else if (strncmp(e->d_name, error_prefix, strlen(error_prefix)) == 0 &&
                 errors++ < MOST_ERRORS)
            read_error_file(dirfd(d), e->d_name, report_out);
    }
    remove_reports(d, path);
    closedir(d);
}

/* Is `name`, from `stem` on, STEP.RESTART of an earlier start? */
static bool is_old_step(const char *name, const char *stem, size_t stem_len,
                        int64_t restart)
{
    char step[16];
    size_t n;
    int64_t its;

    if (strncmp(name, stem, stem_len) != 0)
        return false;
    n = strcspn(name + stem_len, ".");
    if (!name[stem_len + n] || n >= sizeof(step))
        return false;
    snprintf(step, sizeof(step), "%.*s", (int)n, name + stem_len);
    its = short_number(name + stem_len + n + 1);
    return step_number(step) >= 0 && its >= 0 && its < restart;
}

/* Where the stem, with its last point, ends in `name` and *restart_out is what follows
 * the last point; 0: it is not such a name. */
static size_t split_name(const char *name, int64_t *restart_out)
{
    const char *last = strrchr(name, '.'), *stem = last;

    while (stem && stem > name && stem[-1] != '.')
        stem--;
    *restart_out = last ? short_number(last + 1) : -1;
    return stem && *restart_out >= 0 ? (size_t)(stem - name) : 0;
}

/* Reads the names only where there can be some: the first start finds none. */
void step_reports_sweep(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int64_t restart;
    const size_t stem = split_name(name, &restart);
    char old[4096];
    struct dirent *e;
    DIR *above, *d;

    if (!slash || stem == 0 || restart == 0)
        return;
    snprintf(old, sizeof(old), "%.*s", (int)(name - path), path);
    above = opendir(old);
    while (above && (e = readdir(above))) {
        if (!is_old_step(e->d_name, name, stem, restart) ||
            snprintf(old, sizeof(old), "%.*s%s", (int)(name - path), path, e->d_name) >=
                (int)sizeof(old))
            continue;
        d = open_reports(old);
        if (d) {
            remove_reports(d, old);
            closedir(d);
        }
    }
    if (above)
        closedir(above);
}

const char *step_failure_text(const struct step_failure *f, char *buf, size_t len)
{
    struct strbuf b = { 0 };

    strbuf_printf(&b, "rank %lld", (long long)f->rank);
    if (f->host[0])
        strbuf_printf(&b, " (%s)", f->host);
    strbuf_printf(&b, " failed first: %s", f->text);
    if (f->file[0] && f->line > 0)
        strbuf_printf(&b, " (%s:%lld)", f->file, (long long)f->line);
    else if (f->file[0])
        strbuf_printf(&b, " (%s)", f->file);
    snprintf(buf, len, "%s", b.s && !b.failed ? b.s : "");
    strbuf_free(&b);
    return buf;
}
