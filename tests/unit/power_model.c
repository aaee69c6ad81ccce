/* SPDX-License-Identifier: Apache-2.0
 *
 * What a loss of power leaves: power_model.h.
 */
#include "tests/unit/power_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/world/ckpt_world.h"
#include "tests/unit/disk_shim.h"

#define DIRS_MAX 512
#define ZEROS    (POWER_MIXES - 1)

char power_live[300], power_after[300];
static char top[256];    /* of all */
static char shadow[300]; /* what is known to be on the disk, by inode */
static ino_t live_ino;

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

    return mix > 1 && mix != ZEROS && (x >> 40 & 1) != 0;
}

/* What was not synced became zeros: the bytes of `now` (closed here) that are not those
 * of `synced` (-1: it never was) at the same place. */
static void copy_zeroed(int now, int synced, const char *to)
{
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char buf[65536], old[sizeof(buf)];
    off_t at = 0;
    ssize_t n;

    while ((n = pread(now, buf, sizeof(buf), at)) > 0) {
        const ssize_t k = synced < 0 ? 0 : pread(synced, old, (size_t)n, at);

        for (ssize_t i = 0; i < n; i++)
            if (i >= k || old[i] != buf[i])
                buf[i] = 0;
        if (write(out, buf, (size_t)n) != n)
            abort();
        at += n;
    }
    if (out < 0 || n < 0 || close(out) || close(now))
        abort();
}

/* The file as it is now: by the link that keeps it, or by its name. -1: neither. */
static int open_now(int dirfd, const char *name, ino_t ino)
{
    char from[400];
    int fd;

    snprintf(from, sizeof(from), "%s/keep-%llu", shadow, (unsigned long long)ino);
    fd = open(from, O_RDONLY);
    return fd < 0 && dirfd >= 0 ? openat(dirfd, name, O_RDONLY) : fd;
}

static void lose_file(int dirfd, const char *name, ino_t ino, int mix, const char *to)
{
    char from[400], target[200] = "";
    int fd = -1, now = -1;

    snprintf(from, sizeof(from), "%s/keep-%llu", shadow, (unsigned long long)ino);
    if (readlink(from, target, sizeof(target) - 1) > 0 ||
        (dirfd >= 0 && readlinkat(dirfd, name, target, sizeof(target) - 1) > 0)) {
        if (symlink(target, to))
            abort();
        return;
    }
    if (mix == ZEROS || written_anyway(mix, ino))
        now = open_now(dirfd, name, ino);
    if (now < 0 || mix == ZEROS) {
        snprintf(from, sizeof(from), "%s/data-%llu", shadow, (unsigned long long)ino);
        fd = open(from, O_RDONLY);
    }
    if (mix == ZEROS && now >= 0) {
        copy_zeroed(now, fd, to);
        if (fd >= 0)
            close(fd);
        return;
    }
    if (now >= 0)
        fd = now;
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

/* mix 0: only what was synced. mix 1: all names, but no contents that were not. ZEROS:
 * all names, and zeros for what was not. Others: of each file and directory one or the
 * other. */
static void lose_dir(ino_t ino, int mix, const char *to)
{
    char list[400], name[300];
    unsigned long long child;
    bool now = mix == 1 || mix == ZEROS || written_anyway(mix, ino);

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

/* ---- */

bool power_begin(void)
{
    char here[200];
    int fd;

    world_tmpdir(top, "ckpt-power");
    if (top[0] != '/') {
        if (!getcwd(here, sizeof(here)) || strlen(here) + strlen(top) + 2 > sizeof(top))
            return false;
        memmove(top + strlen(here) + 1, top, strlen(top) + 1);
        memcpy(top, here, strlen(here));
        top[strlen(here)] = '/';
    }
    snprintf(power_live, sizeof(power_live), "%s/live", top);
    snprintf(shadow, sizeof(shadow), "%s/shadow", top);
    snprintf(power_after, sizeof(power_after), "%s/after", top);
    if (mkdir(power_live, 0777) || mkdir(shadow, 0777))
        return false;
    disk_synced = synced;
    fd = open(power_live, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fsync(fd)) /* empty, and on the disk */
        return false;
    live_ino = remember(fd);
    close(fd);
    return true;
}

void power_lose(int mix)
{
    world_rmtree(power_after);
    lose_dir(live_ino, mix, power_after);
}

void power_end(void)
{
    for (int i = 0; i < dir_count; i++)
        close(dirs[i].fd);
    world_rmtree(top);
}
