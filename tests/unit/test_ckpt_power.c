/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of lost power. Of a file only what it held at its last fsync is left, of a
 * directory only the names at its last fsync; or, of each on its own, what it holds
 * now, because the system may write at any time. A save that returned must load from
 * every such tree, and while one runs the older checkpoint must, whenever the power
 * goes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_internal.h"
#include "common/path_dir.h"
#include "tests/tap.h"
#include "tests/unit/ckpt_world.h"
#include "tests/unit/disk_shim.h"

#define DIRS_MAX 512
#define MIXES    5 /* of what was written and what was not, at every moment */

static char top[256];                  /* of all */
static char live[300];                 /* what the programs see; it was always there */
static char shadow[300];               /* what is known to be on the disk, by inode */
static char after[300];                /* the tree after the loss */
static char root[400], lost_root[400]; /* of the checkpoints, there and afterwards */

/* Open for as long as the test runs, so that no inode number is used twice. */
static struct {
    ino_t ino;
    int fd;
} dirs[DIRS_MAX];
static int dir_count;

static int fd_of(ino_t ino)
{
    for (int i = 0; i < dir_count; i++)
        if (dirs[i].ino == ino)
            return dirs[i].fd;
    return -1;
}

static ino_t remember(int fd)
{
    struct stat st;

    if (fstat(fd, &st))
        abort();
    if (fd_of(st.st_ino) < 0) {
        if (dir_count == DIRS_MAX)
            abort();
        dirs[dir_count].ino = st.st_ino;
        dirs[dir_count++].fd = dup(fd);
    }
    return st.st_ino;
}

static void copy_fd(int from, const char *to)
{
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char buf[65536];
    ssize_t n;
    off_t at = 0;

    while ((n = pread(from, buf, sizeof(buf), at)) > 0 &&
           write(out, buf, (size_t)n) == n)
        at += n;
    if (out < 0 || n < 0 || close(out))
        abort();
}

static DIR *open_list(int fd)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;

    if (!d)
        abort();
    return d;
}

/* Not what readdir says: an overlay file system has other numbers there. */
static ino_t inode_at(int dirfd, const char *name)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
        abort();
    return st.st_ino;
}

/* "INODE NAME" per line, and a hard link that keeps the inode of each file. */
static void note_names(int fd, const char *to)
{
    FILE *out = fopen(to, "w");
    DIR *d = open_list(fd);
    struct dirent *e;

    if (!out)
        abort();
    while ((e = readdir(d)) != NULL) {
        unsigned long long ino;
        char keep[400];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ino = inode_at(fd, e->d_name);
        fprintf(out, "%llu %s\n", ino, e->d_name);
        snprintf(keep, sizeof(keep), "%s/keep-%llu", shadow, ino);
        if (e->d_type == DT_DIR) {
            int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY);

            remember(sub);
            close(sub);
        } else if (linkat(fd, e->d_name, AT_FDCWD, keep, 0) && errno != EEXIST) {
            abort();
        }
    }
    closedir(d);
    fclose(out);
}

/* After an fsync, in any process: what is on the disk now. */
static void synced(int fd)
{
    char to[400], from[64];
    struct stat st;
    int again;

    if (fstat(fd, &st))
        abort();
    snprintf(to, sizeof(to), "%s/%s-%llu", shadow,
             S_ISDIR(st.st_mode) ? "names" : "data", (unsigned long long)st.st_ino);
    if (S_ISDIR(st.st_mode)) {
        remember(fd);
        note_names(fd, to);
        return;
    }
    snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    again = open(from, O_RDONLY); /* fd itself may be for writing only */
    if (again < 0)
        abort();
    copy_fd(again, to);
    close(again);
    snprintf(to, sizeof(to), "%s/keep-%llu", shadow, (unsigned long long)st.st_ino);
    if (linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) && errno != EEXIST)
        abort();
}

/* Of one file or directory: is what it holds now on the disk, though nobody asked? */
static bool written_anyway(int mix, ino_t ino)
{
    uint64_t x = ((uint64_t)ino * 31 + (uint64_t)mix) * 0x9e3779b97f4a7c15u;

    return mix > 1 && (x >> 40 & 1) != 0;
}

static void lose_file(int dirfd, const char *name, ino_t ino, int mix, const char *to)
{
    char from[400], target[200] = "";
    int fd = -1;

    snprintf(from, sizeof(from), "%s/keep-%llu", shadow, (unsigned long long)ino);
    if (readlink(from, target, sizeof(target) - 1) > 0 ||
        (dirfd >= 0 && readlinkat(dirfd, name, target, sizeof(target) - 1) > 0)) {
        if (symlink(target, to))
            abort();
        return;
    }
    if (written_anyway(mix, ino)) {
        fd = open(from, O_RDONLY);
        if (fd < 0 && dirfd >= 0)
            fd = openat(dirfd, name, O_RDONLY);
    }
    if (fd < 0) {
        snprintf(from, sizeof(from), "%s/data-%llu", shadow, (unsigned long long)ino);
        fd = open(from, O_RDONLY);
    }
    if (fd < 0)
        fd = open("/dev/null", O_RDONLY); /* there by name, and empty */
    copy_fd(fd, to);
    close(fd);
}

static void lose_dir(ino_t ino, int mix, const char *to);

static void lose_entry(int dirfd, const char *name, ino_t ino, int mix, const char *to)
{
    char path[700];
    int fd = fd_of(ino);
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", to, name);
    if (fd < 0 && dirfd >= 0 && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode)) {
        int sub = openat(dirfd, name, O_RDONLY | O_DIRECTORY);

        remember(sub);
        close(sub);
        fd = fd_of(ino);
    }
    if (fd >= 0)
        lose_dir(ino, mix, path);
    else
        lose_file(dirfd, name, ino, mix, path);
}

/* mix 0: only what was synced. mix 1: all names, but no contents that were not. Others:
 * of each file and directory one or the other. */
static void lose_dir(ino_t ino, int mix, const char *to)
{
    char list[400], name[300];
    unsigned long long child;
    bool now = mix == 1 || written_anyway(mix, ino);

    if (mkdir(to, 0777))
        abort();
    if (now) {
        DIR *d = open_list(fd_of(ino));
        struct dirent *e;

        while ((e = readdir(d)) != NULL)
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                lose_entry(fd_of(ino), e->d_name, inode_at(fd_of(ino), e->d_name), mix,
                           to);
        closedir(d);
    } else {
        FILE *in;

        snprintf(list, sizeof(list), "%s/names-%llu", shadow, (unsigned long long)ino);
        in = fopen(list, "r");
        while (in && fscanf(in, "%llu %299s", &child, name) == 2)
            lose_entry(-1, name, (ino_t)child, mix, to);
        if (in)
            fclose(in);
    }
}

/* ---- the power goes -------------------------------------------------------------- */

static int64_t older, newer; /* what may be there while a save runs */
static long moments, wrong;
static ino_t live_ino;
static const char *refused; /* a call that this file system does not have */

static int64_t lose(int mix)
{
    world_rmtree(after);
    lose_dir(live_ino, mix, after);
    return numbers_load(lost_root);
}

static int power_goes(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, "open") == 0 || strcmp(call, "openat") == 0)
        return 0; /* changes nothing */
    moments++;
    for (int mix = 0; mix < MIXES; mix++) {
        int64_t got = lose(mix);

        if (got != older && got != newer && wrong++ < 5)
            tap_diag("before %s(%s), mix %d: %lld", call, name, mix, (long long)got);
    }
    return refused && strcmp(refused, call) == 0 ? EINVAL : 0;
}

/* A save of `step` while `before` is the newest there, and the power goes at each of
 * its calls and after it. */
static void test_save(int64_t before, int64_t step, int keep, const char *without,
                      const char *what)
{
    struct world one = { .size = 1 };
    accel_error_t err = { 0 };
    int lost = 0;

    older = before;
    newer = step;
    moments = wrong = 0;
    refused = without;
    disk_hook = power_goes;
    tap_is_int(
        numbers_save(&one,
                     &(accel_ckpt_save_t){ .root = root, .step = step, .keep = keep },
                     &err),
        ACCEL_OK, "%s (%s)", what, err.text);
    disk_hook = NULL;
    tap_is_int(wrong, 0, "at each of its %ld moments the older one loads", moments);
    tap_ok(moments > 15, "the model saw its calls");
    for (int mix = 0; mix < MIXES; mix++)
        lost += lose(mix) != step;
    tap_is_int(lost, 0, "and when it has returned, it loads");
}

static void test_ranks(int64_t step)
{
    accel_error_t err = { 0 };
    struct world w;
    accel_status_t s;
    int lost = 0;

    world_start(&w, 3);
    s = numbers_save(&w, &(accel_ckpt_save_t){ .root = root, .step = step, .keep = 9 },
                     &err);
    tap_is_int(world_end(&w, s != ACCEL_OK), 0, "a save of 3 ranks (%s)", err.text);
    for (int mix = 0; mix < MIXES; mix++)
        lost += lose(mix) != step;
    tap_is_int(lost, 0, "it loads after a loss of power");
}

/* ---- directories made on the way ------------------------------------------------- */

static int fail_at; /* the n-th fsync fails */

static int no_fsync(const char *call, const char *name, int fd)
{
    (void)name;
    (void)fd;
    return strcmp(call, "fsync") == 0 && --fail_at == 0 ? EIO : 0;
}

/* Where the directory above may not be read. */
static int no_reading(const char *call, const char *name, int fd)
{
    size_t len = strlen(live);

    (void)fd;
    return strcmp(call, "open") == 0 && strncmp(name, live, len) == 0 &&
                   strcmp(name + len, "/") == 0
               ? EACCES
               : 0;
}

static void test_directories(void)
{
    static const struct {
        const char *path;
        int leaf;
    } ways[] = { { "out/checkpoints", 0 }, { "./x//y/", 0 }, { "./x/z///", 0 } };
    char path[700], there[700];
    size_t len = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ways); i++) {
        snprintf(path, sizeof(path), "%s/%s", live, ways[i].path);
        tap_is_int(path_make_dirs(path, &len), 0, "%s is made", ways[i].path);
        lose(0);
        snprintf(there, sizeof(there), "%s/%s", after, ways[i].path);
        tap_is_int(access(there, F_OK), 0, "and there after a loss of power");
    }
    if (chdir(live))
        abort();
    tap_is_int(path_make_dirs("below/here", &len), 0, "from the current directory");
    lose(0);
    snprintf(there, sizeof(there), "%s/below/here", after);
    tap_is_int(access(there, F_OK), 0, "and there after a loss of power");
    disk_hook = no_fsync;
    fail_at = 2;
    tap_is_int(path_make_dirs("a/b/c", &len), EIO,
               "one that is not durable is an error");
    tap_is_int((long)len, 3, "which names it");
    tap_ok(access("a", F_OK) == 0 && access("a/b", F_OK) != 0,
           "and takes it back, so that the next try makes it anew");
    disk_hook = no_reading;
    snprintf(path, sizeof(path), "%s/drop", live);
    tap_is_int(path_make_dirs(path, &len), 0, "below one that cannot be read");
    disk_hook = NULL;
    tap_is_int(path_make_dirs("", &len), ENOENT, "no name");
    if (symlink("nowhere", "dangling"))
        abort();
    tap_is_int(path_make_dirs("/", &len), 0, "the root is there");
    tap_ok(path_make_dirs("/dev/null/x", &len) == ENOTDIR && len == 11,
           "below what is no directory");
}

int main(void)
{
    int fd;

    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    world_tmpdir(top, "ckpt-power");
    if (top[0] != '/') {
        char here[200];

        if (!getcwd(here, sizeof(here)) || strlen(here) + strlen(top) + 2 > sizeof(top))
            return 1;
        memmove(top + strlen(here) + 1, top, strlen(top) + 1);
        memcpy(top, here, strlen(here));
        top[strlen(here)] = '/';
    }
    snprintf(live, sizeof(live), "%s/live", top);
    snprintf(shadow, sizeof(shadow), "%s/shadow", top);
    snprintf(after, sizeof(after), "%s/after", top);
    snprintf(root, sizeof(root), "%s/out/run/checkpoints", live);
    snprintf(lost_root, sizeof(lost_root), "%s/out/run/checkpoints", after);
    if (mkdir(live, 0777) || mkdir(shadow, 0777))
        return 1;
    disk_synced = synced;
    fd = open(live, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd)) /* empty, and on the disk */
        return 1;
    live_ino = remember(fd);
    close(fd);
    test_save(-1, 1, 1, NULL, "the first one, with new directories above it");
    test_save(1, 2, 1, NULL, "the next one, which replaces it");
    test_save(2, 2, 1, NULL, "the same step again");
    test_save(2, 3, 1, "symlinkat", "where there are no symbolic links");
    test_save(3, 4, 1, "renameat2", "where renames have no flags");
    test_ranks(5);
    test_directories();
    if (chdir("/"))
        return 1;
    for (int i = 0; i < dir_count; i++)
        close(dirs[i].fd);
    world_rmtree(top);
    return tap_done();
}
