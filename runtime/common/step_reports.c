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
#include "common/repeat_list.h"

/* A rank's traceback is a few KiB. A longer file, or one more, is not read. */
enum { ERROR_BYTES = 256 << 10, JOB_BYTES = 64 << 10, MOST_ERRORS = 4096 };
enum { MOST_ENDS = 4096 };
/* What Python ends with after an exception that nothing has caught. */
enum { EXIT_EXCEPTION = 1 };
#define SECOND INT64_C(1000000000)
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

/* ---- who failed first ------------------------------------------------------------ */

/* A step while its reports are read. */
struct reading {
    struct step_report *report;
    struct step_end *end;
    size_t end_count;
    /* Which ranks have told of a failure; NULL: not known. */
    bool *told;
    int64_t ranks;
};

/* The rank's own clock counts; then when the file was written, which on a shared disk
 * one clock says. Who only blames another rank comes after all others. */
static bool is_earlier(const struct step_failure *a, const struct step_failure *b)
{
    if (!b->known || a->blames_another != b->blames_another)
        return !b->known || b->blames_another;
    if (a->when_ns != b->when_ns)
        return a->when_ns < b->when_ns;
    if (a->written_ns != b->written_ns)
        return a->written_ns < b->written_ns;
    return a->rank < b->rank;
}

static void take_failure(struct reading *r, const struct step_failure *f)
{
    if (r->told && f->rank < r->ranks)
        r->told[f->rank] = true;
    if (is_earlier(f, &r->report->first))
        r->report->first = *f;
}

/* A file that was written in the second that the rank tells has the finer time of the
 * two. */
static int64_t failure_time(const struct step_failure *f)
{
    const int64_t told = (int64_t)(f->seconds * 1e9);

    if (f->when_ns)
        return f->when_ns;
    return !told || (f->written_ns >= told && f->written_ns - told < 2 * SECOND)
               ? f->written_ns
               : told;
}

/* An exception and the end of the same rank are one event, at the exception's time. The
 * end adds its code, unless a signal came first, and the node as Slurm calls it. */
static void add_end(struct reading *r, struct step_failure *f)
{
    f->code = EXIT_EXCEPTION;
    for (size_t i = 0; i < r->end_count; i++) {
        struct step_end *e = &r->end[i];

        if (e->rank != f->rank)
            continue;
        e->raised = true;
        if (step_end_kind(e->status) == END_FAILED)
            f->code = step_end_code(e->status);
        if (e->host[0])
            snprintf(f->host, sizeof(f->host), "%s", e->host);
    }
}

static void read_error_file(int dir, const char *name, struct reading *r)
{
    struct step_failure f = { .rank = short_number(name + strlen(error_prefix)) };
    char *text = NULL;
    struct stat sb;
    size_t len;

    if (f.rank < 0 || fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) != 0 ||
        sb.st_size > ERROR_BYTES ||
        plain_tail(dir, name, ERROR_BYTES, &text, &len) != 0)
        return;
    f.written_ns = sb.st_mtim.tv_sec * SECOND + sb.st_mtim.tv_nsec;
    if (error_file_parse(text, len, &f)) {
        f.when_ns = failure_time(&f);
        add_end(r, &f);
        take_failure(r, &f);
        if (!f.blames_another && is_earlier(&f, &r->report->raised))
            r->report->raised = f;
    }
    free(text);
}

/* Ends without an exception. SIGKILL counts only if no end came before it: after the
 * first, srun and Slurm kill the others. */
static void judge_ends(struct reading *r)
{
    int64_t first_ns = INT64_MAX;

    for (size_t i = 0; i < r->end_count; i++)
        if (r->end[i].when_ns < first_ns)
            first_ns = r->end[i].when_ns;
    for (size_t i = 0; i < r->end_count; i++) {
        const struct step_end *e = &r->end[i];
        const enum step_end_kind kind = step_end_kind(e->status);
        struct step_failure f = { .known = true,
                                  .rank = e->rank,
                                  .when_ns = e->when_ns,
                                  .code = step_end_code(e->status) };

        if (e->raised || kind == END_WANTED ||
            (kind == END_KILLED && e->when_ns > first_ns))
            continue;
        f.blames_another = f.code == accel_exit_code(ACCEL_EPEER);
        step_end_text(e->status, f.text, sizeof(f.text));
        snprintf(f.host, sizeof(f.host), "%s", e->host);
        take_failure(r, &f);
    }
}

static void list_silent(const struct reading *r)
{
    struct step_report *report = r->report;

    for (int64_t rank = 0; r->told && rank < r->ranks; rank++) {
        if (r->told[rank])
            continue;
        if (report->silent_count < (int64_t)ACCEL_ARRAY_SIZE(report->silent))
            report->silent[report->silent_count] = rank;
        report->silent_count++;
    }
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

/* Who failed first is known only when all is read, the ends before the errors, which
 * they belong to. */
static void read_reports(DIR *d, const char *tasks_per_node, struct reading *r)
{
    struct dirent *e;
    int errors = 0;

    while ((e = readdir(d))) {
        if (strcmp(e->d_name, "job") == 0)
            read_job_report(dirfd(d), e->d_name, r->report);
        else if (r->end && r->end_count < MOST_ENDS)
            r->end_count += step_end_read(dirfd(d), e->d_name, tasks_per_node,
                                          &r->end[r->end_count]);
    }
    rewinddir(d);
    while ((e = readdir(d)))
        if (strncmp(e->d_name, error_prefix, strlen(error_prefix)) == 0 &&
            errors++ < MOST_ERRORS)
            read_error_file(dirfd(d), e->d_name, r);
    judge_ends(r);
    list_silent(r);
}

void step_reports_take(const char *path, const char *tasks_per_node,
                       struct step_report *report_out)
{
    struct reading r = { .report = report_out };
    DIR *d = open_reports(path);

    *report_out = (struct step_report){ 0 };
    if (!d)
        return;
    if (tasks_per_node) {
        r.ranks = repeat_list_total(tasks_per_node);
        r.end = calloc(MOST_ENDS, sizeof(*r.end));
        r.told = calloc((size_t)r.ranks, sizeof(*r.told));
    }
    read_reports(d, tasks_per_node, &r);
    free(r.end);
    free(r.told);
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

/* Who hangs, or is gone with its node, tells nothing. */
static void append_silent(struct strbuf *b, const struct step_report *r)
{
    const int64_t most = ACCEL_ARRAY_SIZE(r->silent);

    if (r->silent_count > most) {
        strbuf_printf(b, "; %lld ranks reported nothing", (long long)r->silent_count);
        return;
    }
    for (int64_t i = 0; i < r->silent_count; i++)
        strbuf_printf(b, "%s%lld",
                      i                     ? ", "
                      : r->silent_count > 1 ? "; ranks "
                                            : "; rank ",
                      (long long)r->silent[i]);
    if (r->silent_count > 0)
        strbuf_printf(b, " reported nothing");
}

const char *step_report_text(const struct step_report *r, char *buf, size_t len)
{
    const struct step_failure *f = &r->first;
    struct strbuf b = { 0 };

    strbuf_printf(&b, "rank %lld", (long long)f->rank);
    if (f->host[0])
        strbuf_printf(&b, " (%s)", f->host);
    strbuf_printf(&b, " failed first%s: %s",
                  f->blames_another ? ", but blames another rank" : "", f->text);
    if (f->file[0] && f->line > 0)
        strbuf_printf(&b, " (%s:%lld)", f->file, (long long)f->line);
    else if (f->file[0])
        strbuf_printf(&b, " (%s)", f->file);
    if (f->blames_another)
        append_silent(&b, r);
    snprintf(buf, len, "%s", b.s && !b.failed ? b.s : "");
    strbuf_free(&b);
    return buf;
}
