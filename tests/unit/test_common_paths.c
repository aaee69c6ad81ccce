/* SPDX-License-Identifier: Apache-2.0
 *
 * common/: files and directories that are trusted or refused, what a run goes on from,
 * and ports that nobody else has. What needs another owner needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "common/path_trust.h"
#include "common/plain_file.h"
#include "common/port.h"
#include "tests/tap.h"

#define STRANGER 12345

static char base[64];

static const char *path_of(const char *name)
{
    static char path[4][PATH_MAX + 64];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", base, name);
    return path[next];
}

static void make_file(const char *name, mode_t mode)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, "x", 1) != 1 || fchmod(fd, mode))
        abort();
    close(fd);
}

static void make_dir(const char *name, mode_t mode)
{
    if (mkdir(path_of(name), 0700) || chmod(path_of(name), mode))
        abort();
}

static void make_link(const char *to, const char *name)
{
    if (symlink(to, path_of(name)))
        abort();
}

/* ---- trust ----------------------------------------------------------------------- */

static void make_tree(void)
{
    char name[32], to[32];

    make_file("good", 0644);
    make_file("mine", 0600);
    make_file("group", 0664);
    make_file("all", 0646);
    make_file("sticky-file", 01666);
    make_dir("dir", 0755);
    make_file("dir/file", 0644);
    make_dir("group-dir", 0775);
    make_file("group-dir/file", 0644);
    make_dir("all-dir", 0757);
    make_file("all-dir/file", 0644);
    make_dir("sticky-dir", 01777);
    make_file("sticky-dir/file", 0644);
    make_link("good", "link");
    make_link("dir", "dir-link");
    make_link(path_of("dir"), "absolute-link");
    make_link("group-dir", "bad-link");
    make_link("loop", "loop");
    make_link("dir", "chain1");
    for (int i = 2; i <= 41; i++) {
        snprintf(name, sizeof(name), "chain%d", i);
        snprintf(to, sizeof(to), "chain%d", i - 1);
        make_link(to, name);
    }
    if (mkfifo(path_of("fifo"), 0644))
        abort();
}

static void test_trust(void)
{
    static const struct {
        const char *name, *says; /* says: part of the error; NULL: trusted */
        accel_status_t status;
    } cases[] = {
        { "good", NULL, ACCEL_OK },
        { "mine", NULL, ACCEL_OK },
        { "dir/file", NULL, ACCEL_OK },
        { "dir//./../dir/file", NULL, ACCEL_OK },
        { "sticky-dir/file", NULL, ACCEL_OK },
        { "dir-link/file", NULL, ACCEL_OK },
        { "absolute-link/file", NULL, ACCEL_OK },
        { "chain40/file", NULL, ACCEL_OK },
        { "group", "file %s/group can be written by its group (mode 0664)",
          ACCEL_EPERM },
        { "all", "file %s/all can be written by everybody (mode 0646)", ACCEL_EPERM },
        { "sticky-file", "file %s/sticky-file can be written by everybody",
          ACCEL_EPERM },
        { "group-dir/file", "directory %s/group-dir can be written by its group",
          ACCEL_EPERM },
        { "all-dir/file", "directory %s/all-dir can be written by everybody",
          ACCEL_EPERM },
        { "all-dir/../good", "directory %s/all-dir can be written by everybody",
          ACCEL_EPERM },
        { "bad-link/file", "directory %s/group-dir can be written", ACCEL_EPERM },
        { "link", "%s/link is a symbolic link", ACCEL_EPERM },
        { "fifo", "%s/fifo is a fifo or device, not a file", ACCEL_EPERM },
        { "dir", "%s/dir is a directory, not a file", ACCEL_EPERM },
        { "dir-link", "%s/dir-link is a symbolic link", ACCEL_EPERM },
        { "none", "%s/none: No such file", ACCEL_ENOENT },
        { "none/file", "%s/none: No such file", ACCEL_ENOENT },
        { "all-dir/none", "%s/all-dir/none: No such file", ACCEL_ENOENT },
        { "good/file", "%s/good: Not a directory", ACCEL_ENOENT },
        { "chain41/file", "Too many levels of symbolic links", ACCEL_ESYSTEM },
        { "loop/file", "Too many levels of symbolic links", ACCEL_ESYSTEM },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_error_t err = { 0 };
        char want[200] = "", c = 0;
        int fd = -7;
        accel_status_t st = path_trust_open(path_of(cases[i].name), &fd, &err);

        if (!cases[i].says) {
            tap_ok(st == ACCEL_OK && read(fd, &c, 1) == 1 && c == 'x' &&
                       (fcntl(fd, F_GETFD) & FD_CLOEXEC),
                   "%s is trusted: %s", cases[i].name, err.text);
            close(fd);
            continue;
        }
        snprintf(want, sizeof(want), cases[i].says, base);
        tap_ok(st == cases[i].status && fd == -7 && strstr(err.text, want), "%s: %s",
               cases[i].name, err.text);
    }
}

static void test_trust_owner(void)
{
    static const char *const names[] = { "good", "dir", "dir-link" };
    static const char *const opened[] = { "good", "dir/file", "dir-link/file" };
    int fd;

    if (geteuid() != 0) {
        tap_skip(3, "needs root to give files away");
        return;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        accel_error_t err = { 0 };

        if (lchown(path_of(names[i]), STRANGER, STRANGER))
            abort();
        tap_ok(path_trust_open(path_of(opened[i]), &fd, &err) == ACCEL_EPERM &&
                   strstr(err.text, "is owned by uid 12345"),
               "a stranger's: %s", err.text);
        if (lchown(path_of(names[i]), 0, 0))
            abort();
    }
}

static void test_trust_relative(void)
{
    accel_error_t err = { 0 };
    char cwd[PATH_MAX];
    int fd = -1;

    if (!getcwd(cwd, sizeof(cwd)) || chdir(path_of("dir")))
        abort();
    tap_is_int(path_trust_open("file", &fd, &err), ACCEL_OK, "a relative path: %s",
               err.text);
    close(fd);
    tap_is_int(path_trust_open("../all", &fd, &err), ACCEL_EPERM, "another: %s",
               err.text);
    if (chdir(cwd))
        abort();
    tap_is_int(path_trust_open("/", &fd, &err), ACCEL_ENOENT, "no name at all: %s",
               err.text);
}

/* ---- directories to write into --------------------------------------------------- */

static void test_open_dir(void)
{
    static const struct {
        const char *name;
        int error; /* 0: open */
    } cases[] = {
        { "dir", 0 },           { "dir/", 0 },       { "dir///", 0 },
        { "dir-link", 0 },      { "dir-link/", 0 },  { "group-dir", 0 },
        { "link", ENOTDIR },    { "good", ENOTDIR }, { "none", ENOENT },
        { "none/dir", ENOENT }, { "loop", ELOOP },   { "good/dir", ENOTDIR },
    };
    static char name[PATH_MAX + 8];
    accel_error_t err = { 0 };
    int fd;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_status_t st;

        fd = -7;
        errno = 0;
        st = path_open_dir(path_of(cases[i].name), &fd, &err);
        tap_ok(st == ACCEL_OK &&
                   (cases[i].error ? fd == -1 && errno == cases[i].error : fd >= 0),
               "directory %s: %d, %s", cases[i].name, fd, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    tap_ok(path_open_dir("/", &fd, &err) == ACCEL_OK && fd >= 0, "the root");
    close(fd);
    memset(name, 'x', sizeof(name) - 1);
    tap_ok(path_open_dir(name, &fd, &err) == ACCEL_OK && fd == -1 &&
               errno == ENAMETOOLONG,
           "a name that is too long");
    if (geteuid() != 0) {
        tap_skip(2, "needs root to give a link away");
        return;
    }
    if (lchown(path_of("dir-link"), STRANGER, STRANGER))
        abort();
    tap_ok(path_open_dir(path_of("dir-link"), &fd, &err) == ACCEL_EPERM &&
               err.message == 208 && fd == -1,
           "a stranger's link: %s", err.text);
    tap_is_int(path_open_dir(path_of("dir-link/"), &fd, &err), ACCEL_EPERM,
               "the same with a slash behind it");
    if (lchown(path_of("dir-link"), 0, 0))
        abort();
}

static void test_plain_open(void)
{
    static const struct {
        const char *name;
        int flags, error;
    } cases[] = {
        { "good", O_RDONLY, 0 },          { "good", O_WRONLY, 0 },
        { "none", O_RDONLY, ENOENT },     { "link", O_RDONLY, ELOOP },
        { "dir", O_RDONLY, EMEDIUMTYPE }, { "fifo", O_RDONLY, EMEDIUMTYPE },
        { "dir", O_WRONLY, EISDIR },      { "fifo", O_WRONLY, EMEDIUMTYPE },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        const int fd = plain_open(AT_FDCWD, path_of(cases[i].name), cases[i].flags);

        tap_is_int(fd < 0 ? errno : 0, cases[i].error, "%s, opened to %s",
                   cases[i].name, cases[i].flags == O_RDONLY ? "read" : "write");
        if (fd >= 0)
            close(fd);
    }
}

/* As an ordinary user, in a process that an alarm ends. */
static int sync_name_of(const char *name)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0 && (setgid(STRANGER) || setuid(STRANGER)))
            _exit(200);
        alarm(HANG_S);
        _exit(path_sync_name(path_of(name)));
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static void test_sync_name(void)
{
    static const struct {
        const char *name;
        int error;
    } cases[] = {
        { "dir/file", 0 },    { "dir//", 0 },          { "none", 0 },
        { "drop/file", 0 },   { "drop/fifo", 0 },      { "drop/closed", EACCES },
        { "none/x", ENOENT }, { "drop/none", ENOENT },
    };

    make_dir("drop", 0700);
    make_file("drop/file", 0644);
    make_file("drop/closed", 0000);
    if (mkfifo(path_of("drop/fifo"), 0644))
        abort();
    for (size_t i = 0; geteuid() == 0 && i < 4; i++)
        if (chown(path_of((const char *[]){ "drop", "drop/file", "drop/fifo",
                                            "drop/closed" }[i]),
                  STRANGER, STRANGER))
            abort();
    chmod(path_of("drop"), 0300); /* to write into, not to read */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_is_int(sync_name_of(cases[i].name), cases[i].error, "the name of %s",
                   cases[i].name);
    chmod(path_of("drop"), 0700);
}

/* ---- what a run goes on from ----------------------------------------------------- */

/* The current directory is gone: what needs it fails with the reason, and nothing else
 * does. */
static void test_no_directory(const char *back)
{
    static const struct {
        const char *text, *base, *want; /* NULL: refused */
    } rows[] = { { "x", NULL, NULL },
                 { "./auto", NULL, NULL },
                 { "x", "/b", "/b/x" },
                 { "auto", NULL, "auto" },
                 { "/a/b", NULL, "/a/b" } };
    char gone[] = "/tmp/accel-gone.XXXXXX", out[64];

    if (!mkdtemp(gone) || chdir(gone) || rmdir(gone))
        abort();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { 0 };
        accel_status_t st =
            resume_choice(rows[i].text, rows[i].base, out, sizeof(out), &err);

        if (rows[i].want)
            tap_ok(!st && !strcmp(out, rows[i].want), "'%s' without a directory: %s",
                   rows[i].text, out);
        else
            tap_ok(st == ACCEL_EUSAGE && err.message == 340 && err.hint[0] &&
                       !strcmp(err.text, "cannot determine the current directory: "
                                         "No such file or directory"),
                   "'%s' without a directory: %s", rows[i].text, err.text);
    }
    if (chdir(back))
        abort();
}

static void test_resume(void)
{
    static const struct {
        const char *text, *base, *want; /* NULL: refused */
        size_t len;
    } cases[] = {
        { "auto", "/b", "auto", 99 },
        { "none", NULL, "none", 99 },
        { "best", "/b", "best", 99 },
        { "/a/b", "/b", "/a/b", 99 },
        { "x", "/b", "/b/x", 99 },
        { "Auto", "/b", "/b/Auto", 99 },
        { "auto/x", "/b", "/b/auto/x", 99 },
        { "./none", "/b", "/b/./none", 99 },
        { "x", "/b", "/b/x", 5 },
        { "x", "/b", NULL, 4 },
        { "none", NULL, "none", 5 },
        { "none", NULL, NULL, 4 },
        { "", "/b", NULL, 99 },
        { "/a/b", NULL, NULL, 4 },
    };
    char out[PATH_MAX + 8], cwd[PATH_MAX], want[PATH_MAX + 8];
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_status_t st =
            resume_choice(cases[i].text, cases[i].base, out, cases[i].len, &err);

        if (cases[i].want)
            tap_ok(st == ACCEL_OK && strcmp(out, cases[i].want) == 0,
                   "'%s' in %zu bytes: %s", cases[i].text, cases[i].len, out);
        else
            tap_ok(st == ACCEL_EUSAGE && err.message == 340, "'%s' in %zu bytes: %s",
                   cases[i].text, cases[i].len, err.text);
    }
    if (!getcwd(cwd, sizeof(cwd)))
        abort();
    snprintf(want, sizeof(want), "%s/x", cwd);
    tap_ok(resume_choice("x", NULL, out, sizeof(out), &err) == ACCEL_OK &&
               !strcmp(out, want),
           "against the current directory: %s", out);
    test_no_directory(cwd);

    tap_is_int(resume_exists("auto", "auto", &err), ACCEL_OK, "auto needs nothing");
    tap_is_int(resume_exists("none", "none", &err), ACCEL_OK, "nor does none");
    tap_is_int(resume_exists("dir", path_of("dir"), &err), ACCEL_OK, "what is there");
    tap_ok(resume_exists("nome", path_of("nome"), &err) == ACCEL_ENOENT &&
               strstr(err.hint, "did you mean 'none'?"),
           "what is not: %s", err.hint);
    tap_ok(resume_exists("bset", path_of("bset"), &err) == ACCEL_ENOENT &&
               strstr(err.hint, "did you mean 'best'?"),
           "nor is that: %s", err.hint);
    tap_ok(resume_exists("a/none", path_of("a/none"), &err) == ACCEL_ENOENT &&
               !strstr(err.hint, "did you mean") && strstr(err.text, "'a/none'"),
           "a path is no misspelt word: %s", err.text);
}

/* ---- ports ----------------------------------------------------------------------- */

static unsigned claim(uint32_t step, int *fd)
{
    accel_error_t err = { 0 };
    unsigned port = 0;

    if (port_claim("127.0.0.1", (uint32_t)getpid(), step, &port, fd, &err))
        tap_diag("%s", err.text);
    return port;
}

/* In another process: may it hold the port? 1 or 0. */
static int other_holds(unsigned port)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(port_hold(port));
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static void test_ports(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one, two, three, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned first, second, third;

    tap_is_int(port_first_choice(0, 0), 0, "job 0");
    tap_is_int(port_first_choice(1, 0), 8918, "job 1");
    tap_is_int(port_first_choice(2, 0), 3449, "job 2");
    tap_is_int(port_first_choice(2, 1), 3450, "its next step");
    tap_is_int(port_first_choice(UINT32_MAX, UINT32_MAX), 8919ull * UINT32_MAX % 14387,
               "the last of both");
    first = claim(1, &one);
    second = claim(1, &two);
    tap_ok(first >= PORT_FIRST && first < PORT_FIRST + PORT_COUNT &&
               second >= PORT_FIRST && second < PORT_FIRST + PORT_COUNT &&
               first != second,
           "two claims, two ports: %u %u", first, second);
    port_release(one);
    third = claim(1, &three);
    tap_is_int(third, first, "released: it is free again");
    port_release(three);
    a.sin_port = htons((uint16_t)first);
    tap_ok(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0,
           "in use");
    third = claim(1, &three);
    tap_ok(third != first && third != second && third, "then it is skipped: %u", third);
    port_release(three);
    close(fd);
    tap_is_int(other_holds(first), 1, "a first rank holds it");
    tap_is_int(port_hold(first), 1, "and another one after it ended");
    tap_is_int(other_holds(first), 0, "while that holds it, nobody else does");
    tap_is_int(port_hold(first), 0, "not even itself again");
    third = claim(1, &three);
    tap_ok(third != first && third, "nor is it claimed: %u", third);
    port_release(three);
    port_release(two);
    port_release(-1);
}

/* Somebody holds the names of all ports that are tried. */
static void test_ports_taken(void)
{
    struct rlimit most = { 0 };
    int fd[2048], count = 0, last;
    unsigned port;

    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    if (most.rlim_cur < 2200) {
        tap_ok(true, "# SKIP too few descriptors");
        return;
    }
    while (count < 2048 && claim(7, &fd[count]) > 0 && fd[count] >= 0)
        count++;
    port = claim(7, &last);
    tap_ok(port > 0 && last == -1, "%d names are taken: port %u without a name", count,
           port);
    while (count > 0)
        port_release(fd[--count]);
}

int main(void)
{
    char command[100];

    umask(022);
    snprintf(base, sizeof(base), "/tmp/accel-paths.XXXXXX");
    if (!mkdtemp(base) || chmod(base, 0755))
        return 1;
    make_tree();
    test_trust();
    test_trust_owner();
    test_trust_relative();
    test_open_dir();
    test_plain_open();
    test_sync_name();
    test_resume();
    test_ports();
    test_ports_taken();
    snprintf(command, sizeof(command), "rm -rf %s", base);
    tap_ok(system(command) == 0, "removed");
    return tap_done();
}
