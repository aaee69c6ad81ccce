/* SPDX-License-Identifier: Apache-2.0
 *
 * libacceljob: size and hash of a file, whole and in pieces, and of what is none.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "accel_job.h"
#include "tests/tap.h"
#include "tests/unit/attempt_world.h"

static accel_error_t err;

static void put(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        tap_skip_all("no file");
}

static void test_values(void)
{
    /* of the specification's reference, `xxhsum -H3` */
    static const struct {
        const char *text;
        uint64_t hash;
    } known[] = { { "", 0x2d06800538d394c2 }, { "abc", 0x78af5f94892f3950 } };
    static const size_t sizes[] = {
        1, 240, 241, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 17
    };
    unsigned char *bytes = malloc(4 << 20);
    uint64_t hash = 1;
    int64_t n = -1;

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        world_write(world_path("file"), known[i].text);
        tap_ok(accel_hash_file(world_path("file"), &n, &hash, &err) == ACCEL_OK &&
                   n == (int64_t)strlen(known[i].text) && hash == known[i].hash,
               "'%s' has the known value", known[i].text);
    }
    for (size_t i = 0; bytes && i < 4 << 20; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; bytes && i < sizeof(sizes) / sizeof(*sizes); i++) {
        put(world_path("file"), bytes, sizes[i]);
        tap_ok(accel_hash_file(world_path("file"), &n, &hash, NULL) == ACCEL_OK &&
                   n == (int64_t)sizes[i] && hash == XXH3_64bits(bytes, sizes[i]),
               "%zu bytes in pieces: as in one", sizes[i]);
    }
    free(bytes);
    world_write(world_path("file"), "abc");
    world_read_error = EINTR;
    tap_ok(accel_hash_file(world_path("file"), &n, &hash, &err) == ACCEL_OK && n == 3 &&
               hash == known[1].hash,
           "a read that a signal interrupts is done again");
}

static bool refused(const char *path, const char *why)
{
    int64_t n;
    uint64_t hash;

    memset(&err, 0, sizeof(err));
    return accel_hash_file(path, &n, &hash, &err) == ACCEL_EIO && err.message == 801 &&
           strcmp(err.where, path) == 0 && strstr(err.text, "cannot read the file: ") &&
           strstr(err.text, why);
}

/* In a child that is no longer root. */
static int read_as_another(void)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 9;
    return refused(world_path("file"), "Permission denied") ? 0 : 1;
}

static void test_refused(void)
{
    int status = -1;
    pid_t pid;

    tap_ok(refused(world_path("none"), "No such file"), "no file: %s", err.text);
    tap_ok(refused(world_path("file/below"), "Not a directory"), "a file above: %s",
           err.text);
    tap_ok(refused(world_path("bin"), ""), "a directory: %s", err.text);
    mkfifo(world_path("fifo"), 0666);
    tap_ok(refused(world_path("fifo"), ""), "a fifo is not waited for: %s", err.text);
    tap_ok(refused("/dev/zero", ""), "a device is not read for ever: %s", err.text);
    if (symlink("file", world_path("link")) != 0)
        tap_skip_all("no link");
    tap_ok(refused(world_path("link"), ""), "a link is not followed: %s", err.text);
    world_read_error = EIO;
    tap_ok(refused(world_path("file"), "Input/output error"), "a disk that fails: %s",
           err.text);
    world_read_error = 0;
    chmod(world_path(""), 0755);
    chmod(world_path("file"), 0);
    pid = fork();
    if (pid == 0)
        _exit(read_as_another());
    waitpid(pid, &status, 0);
    tap_is_int(status, 0, "somebody else's file that may not be read");
}

int main(void)
{
    int files;

    world_begin();
    world_new();
    files = tap_open_files();
    test_values();
    test_refused();
    tap_is_int(tap_open_files(), files, "no file stays open");
    world_end();
    return tap_done();
}
