/* SPDX-License-Identifier: Apache-2.0
 *
 * The path of a config file comes in, its bytes go out. Opens with the caller's rights,
 * reads at most 1 MiB. Only regular files: no fifo can make it hang, no device can feed
 * it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_trust.h"
#include "config/read/document.h"

/* Directory entries that are searched for a similar name; a directory on a shared file
 * system may have very many. */
enum { DIR_ENTRIES = 1000, NAME_BYTES = 256 };

static bool is_yaml_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

/* Writes the name of the YAML file of that directory that is nearest to `base`; false
 * when there is none. */
static bool nearest_file(DIR *dir, const char *base, char *out, size_t len)
{
    char best[NAME_BYTES] = "";
    struct dirent *e;

    for (int i = 0; i < DIR_ENTRIES && (e = readdir(dir)); i++) {
        /* Keep the better of the two: suggest_nearest prefers the smaller distance. */
        const char *pair[2] = { best, e->d_name };
        const char *found;

        /* A dangling link has exactly this name; it is no suggestion. */
        if (!is_yaml_name(e->d_name) || !strcmp(e->d_name, base))
            continue;
        found = suggest_nearest(base, pair + !best[0], best[0] ? 2 : 1);
        if (found == e->d_name)
            snprintf(best, sizeof(best), "%s", e->d_name);
    }
    if (best[0])
        printable(out, len, best, strlen(best));
    return best[0] != '\0';
}

/* Reports a link whose target is missing. "No such file" alone would puzzle whoever
 * sees the link in ls. False: the path is no link. */
static bool dangling_link(struct config_report *r)
{
    char target[512], shown[512];
    ssize_t n = readlink(r->in.path, target, sizeof(target));

    if (n < 0)
        return false;
    report_add(r, A0113, (struct place){ 0 },
               "point the link at the config, or give the path of the file itself",
               "broken link: its target '%s' does not exist",
               printable(shown, sizeof(shown), target, (size_t)n));
    return true;
}

/* Reports a missing file, with the nearest name of its directory as the cure. */
static void missing_file(struct config_report *r)
{
    char dirname[1024], near[NAME_BYTES], hint[NAME_BYTES + 40];
    const char *slash = strrchr(r->in.path, '/');
    const char *base = slash ? slash + 1 : r->in.path;
    size_t n = slash == r->in.path ? 1 : slash ? (size_t)(slash - r->in.path) : 1;
    struct place whole = { 0 };
    DIR *dir;

    if (dangling_link(r))
        return;
    if (n >= sizeof(dirname)) {
        report_add(r, A0113, whole, "check the path", "no such file");
        return;
    }
    memcpy(dirname, slash ? r->in.path : ".", n);
    dirname[n] = '\0';
    dir = opendir(dirname);
    if (!dir) {
        report_add(r, A0113, whole, "check the path",
                   "no such file, and its directory cannot be read: %s",
                   strerror(errno));
        return;
    }
    if (nearest_file(dir, base, near, sizeof(near)))
        snprintf(hint, sizeof(hint), "did you mean '%s', in the same directory?", near);
    else
        snprintf(hint, sizeof(hint), "check the path");
    closedir(dir);
    report_add(r, A0113, whole, hint, "no such file");
}

/* Reports errno `error` of open, by what the user can do about it. */
static void open_failed(struct config_report *r, int error)
{
    struct place whole = { 0 };

    if (error == ENOENT)
        missing_file(r);
    else if (error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP)
        report_add(r, A0113, whole, "check the path", "cannot open the file: %s",
                   strerror(error));
    else if (error == EACCES || error == EPERM)
        report_add(r, A0114, whole,
                   "make it readable (chmod u+r) and its directories searchable",
                   "cannot open the file: %s", strerror(error));
    else
        report_add(r, A0116, whole, "give the path of a regular file",
                   "cannot open the file: %s", strerror(error));
}

/* Is it a regular file within the cap? *size_out is its size now; it may still grow. */
static bool check_kind(struct config_report *r, int fd, size_t *size_out)
{
    struct place whole = { 0 };
    struct stat st;
    const char *kind;

    if (fstat(fd, &st)) {
        report_add(r, A0115, whole, "try again", "cannot stat the file: %s",
                   strerror(errno));
        return false;
    }
    if (S_ISREG(st.st_mode)) {
        *size_out = (size_t)st.st_size;
        if (st.st_size <= CONFIG_MAX_BYTES)
            return true;
        report_add(r, A0111, whole, "check that this is a config file",
                   "the file has %lld bytes; the limit for a config is 1 MiB",
                   (long long)st.st_size);
        return false;
    }
    kind = S_ISDIR(st.st_mode)    ? "a directory"
           : S_ISFIFO(st.st_mode) ? "a fifo"
                                  : "a device";
    report_add(r, A0116, whole,
               S_ISDIR(st.st_mode) ? "name the file inside it"
                                   : "save it to a file first: every task reads it",
               "is %s, not a file", kind);
    return false;
}

/* Reads the whole file into *buf_out, also if it has grown since its size was taken.
 * Returns the bytes, or -1 when it fails or outgrows the cap. The caller frees *buf_out
 * in both cases. */
static ssize_t read_all(struct config_report *r, int fd, size_t size, char **buf_out)
{
    size_t used = 0, room = 0;

    while (used <= CONFIG_MAX_BYTES) {
        ssize_t n;

        if (used == room) {
            char *grown;

            /* One byte more than expected: a read of 0 then shows the end. A file that
             * has grown gets the whole cap at once. */
            room = room ? CONFIG_MAX_BYTES + 1 : size + 1;
            grown = realloc(*buf_out, room);
            if (!grown) {
                r->no_memory = true;
                return -1;
            }
            *buf_out = grown;
        }
        n = read(fd, *buf_out + used, room - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            report_add(r, A0115, (struct place){ 0 }, "check the file system",
                       "cannot read the file: %s", strerror(errno));
            return -1;
        }
        if (n == 0)
            return (ssize_t)used;
        used += (size_t)n;
    }
    report_add(r, A0111, (struct place){ 0 }, "check that this is a config file",
               "the file is larger than 1 MiB, the limit for a config");
    return -1;
}

/* Under su or sudo HOME may be somebody else's directory. That is no reason to stop:
 * a note says that it was skipped. A file of the user's own that cannot be opened is
 * an error. */
static void optional_failed(struct config_report *r, int error)
{
    char dir[1024];
    const char *slash = strrchr(r->in.path, '/');

    if (error == EACCES && slash && (size_t)(slash - r->in.path) < sizeof(dir)) {
        memcpy(dir, r->in.path, (size_t)(slash - r->in.path));
        dir[slash - r->in.path] = '\0';
        if (access(dir, X_OK) && errno == EACCES) {
            report_add(r, MESSAGE_NOTE, (struct place){ 0 },
                       "set HOME or XDG_CONFIG_HOME to your own directory",
                       "not looked for: no permission to search its directory");
            return;
        }
    }
    open_failed(r, error);
}

/* The site file applies to every user: nobody but root or the caller may have put it
 * there. -1: it is missing, or the reason is in the report. */
static int open_trusted(struct config_report *r)
{
    accel_error_t err;
    char text[sizeof(err.text)];
    int fd = -1;
    accel_status_t st = path_trust_open(r->in.path, &fd, &err);

    if (st == ACCEL_ENOENT) {
        if (r->needs_site)
            missing_file(r);
        return -1;
    }
    if (st)
        report_add(r, message_of(&err), (struct place){ 0 }, err.hint,
                   "not trusted: %s",
                   printable(text, sizeof(text), err.text, strlen(err.text)));
    return fd;
}

/* A user file (`optional`) may be missing, a job file may not. */
static int open_own(struct config_report *r, bool optional)
{
    /* Non-blocking, so that a fifo without a writer does not hang the open. */
    int fd = open(r->in.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0)
        return fd;
    if (!optional)
        open_failed(r, errno);
    else if (errno != ENOENT && errno != ENOTDIR)
        optional_failed(r, errno);
    return -1;
}

void config_file_read(struct config_report *r)
{
    ssize_t n = -1;
    size_t size;
    char *buf = NULL;
    int fd = r->in.origin == ORIGIN_SITE ? open_trusted(r)
                                         : open_own(r, r->in.origin == ORIGIN_USER);

    if (fd < 0)
        return;
    if (check_kind(r, fd, &size))
        n = read_all(r, fd, size, &buf);
    close(fd);
    if (n < 0) {
        free(buf);
        return;
    }
    r->in.text = buf;
    r->in.len = (size_t)n;
}
