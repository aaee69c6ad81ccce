/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile manifests whose own hash is right: each is refused with a message that says
 * what is wrong, and no allocation is larger than the text can account for. Then
 * directories whose files are not what a right manifest says.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

/* The linker sends every allocation of this program and the library through these. */
static size_t largest;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *p, size_t n);

static size_t note(size_t n)
{
    largest = n > largest ? n : largest;
    return n;
}

void *__wrap_malloc(size_t n)
{
    return __real_malloc(note(n));
}

void *__wrap_calloc(size_t n, size_t each)
{
    note(n > SIZE_MAX / (each + 1) ? SIZE_MAX : n * each);
    return __real_calloc(n, each);
}

void *__wrap_realloc(void *p, size_t n)
{
    return __real_realloc(p, note(n));
}

#define HASH "0123456789abcdef0123456789abcdef"
#define C    "C " HASH "\n"
#define START(format, step, world, run, piece)                                         \
    "accel-checkpoint " format "\nlibrary 0.1.0\nstep " step "\nworld " world          \
    "\nowner 1.0\nsharding FULL_SHARD\nrun-id " run "\npiece " piece "\n"
#define HEAD(world) START("1", "7", world, "a run", "1048576")
#define F(name)     "F " name " 8192 " HASH "\n"
#define ONE         HEAD("1") F("rank_00000-of-00001.h5")
#define TWO         HEAD("2") F("rank_00000-of-00002.h5") F("rank_00001-of-00002.h5")
#define T44         "T model/a float32 4x4\n"
#define BIG         "9223372036854775807"

struct manifest_case {
    const char *what, *text;
    size_t len;
    const char *says; /* part of the error; NULL: it is right */
    accel_status_t code;
};
#define GOOD(what, text)                                                               \
    {                                                                                  \
        what, text, sizeof(text) - 1, NULL, ACCEL_OK                                   \
    }
#define EVIL(what, text, says)                                                         \
    {                                                                                  \
        what, text, sizeof(text) - 1, says, ACCEL_ECORRUPT                             \
    }
#define FORMAT(what, text, says)                                                       \
    {                                                                                  \
        what, text, sizeof(text) - 1, says, ACCEL_EUNSUPPORTED                         \
    }

/* clang-format off */
static const struct manifest_case cases[] = {
    GOOD("nothing stored", ONE),
    GOOD("one box", ONE T44 "B 0x0 4x4 0 4096 64\n" C),
    GOOD("a scalar", ONE "T model/s float64 -\nB - - 0 2048 8\n" C),
    GOOD("an empty tensor", ONE "T model/a float32 0\nT model/b float32 3x0x5\n"),
    GOOD("an empty tensor of huge extents", ONE "T model/a float32 0x" BIG "\n"),
    GOOD("eight dimensions", ONE "T model/a uint8 1x1x1x1x1x1x1x1\n"
                             "B 0x0x0x0x0x0x0x0 1x1x1x1x1x1x1x1 0 0 1\n" C),
    GOOD("a blob", ONE "S rng 3\nB 0 3 0 100 3\n" C),
    GOOD("boxes of two files", TWO T44 "B 0x0 2x4 1 0 32\n" C "B 2x0 2x4 0 0 32\n" C),
    GOOD("boxes cut both ways", TWO T44 "B 0x0 2x2 1 0 16\n" C "B 0x2 2x2 0 0 16\n" C
                                "B 2x0 1x4 1 16 16\n" C "B 3x0 1x4 0 16 16\n" C),

    EVIL("no text", "", "truncated"),
    EVIL("not a manifest", "hello\n", "no accel-checkpoint header"),
    FORMAT("format 2", START("2", "7", "1", "r", "1048576"), "format 2"),
    EVIL("format 0x1", START("0x1", "7", "1", "r", "1048576"), "no accel-checkpoint"),
    EVIL("a step beyond the limit", START("1", "1000000000000", "1", "r", "1048576"), "invalid header"),
    EVIL("a negative step", START("1", "-1", "1", "r", "1048576"), "invalid header"),
    EVIL("a step of 30 digits", START("1", "999999999999999999999999999999", "1", "r", "1048576"), "invalid header"),
    EVIL("a step of 2^64 + 7", START("1", "18446744073709551623", "1", "r", "1048576"), "invalid header"),
    EVIL("a leading zero", START("1", "07", "1", "r", "1048576"), "invalid header"),
    EVIL("world 0", START("1", "7", "0", "r", "1048576"), "invalid header"),
    EVIL("a huge world", START("1", "7", "99999", "r", "1048576") F("rank_00000-of-99999.h5"),
         "fewer file lines"),
    EVIL("a world beyond the limit", START("1", "7", "100000", "r", "1048576"), "invalid header"),
    EVIL("pieces of another size", START("1", "7", "1", "r", "1"), "invalid header"),
    EVIL("a run id with an escape", START("1", "7", "1", "a\x1b[2Jb", "1048576"), "invalid header"),
    EVIL("a run id in UTF-8", START("1", "7", "1", "caf\xc3\xa9", "1048576"), "invalid header"),
    EVIL("a run id with a NUL", START("1", "7", "1", "a\0b", "1048576"), "invalid header"),
    EVIL("an empty run id", START("1", "7", "1", "", "1048576"), "invalid header"),
    EVIL("a header cut off", "accel-checkpoint 1\nlibrary 0.1.0\nstep 7\n", "invalid header"),
    EVIL("carriage returns", "accel-checkpoint 1\r\nlibrary 0.1.0\r\n", "no accel-checkpoint"),

    EVIL("no file", HEAD("1"), "fewer file lines"),
    EVIL("a file too few", HEAD("2") F("rank_00000-of-00002.h5"), "fewer file lines"),
    EVIL("a file too few before a tensor", HEAD("2") F("rank_00000-of-00002.h5") T44, "number of file lines"),
    EVIL("a file too many", ONE F("rank_00001-of-00001.h5"), "invalid file line"),
    EVIL("files out of order", HEAD("2") F("rank_00001-of-00002.h5") F("rank_00000-of-00002.h5"),
         "out of order"),
    EVIL("a file twice", HEAD("2") F("rank_00000-of-00002.h5") F("rank_00000-of-00002.h5"),
         "out of order"),
    EVIL("a file above the directory", HEAD("1") F("../x"), "not rank_R-of-N.h5"),
    EVIL("an absolute file", HEAD("1") F("/etc/passwd"), "not rank_R-of-N.h5"),
    EVIL("a file below the directory", HEAD("1") F("sub/rank_00000-of-00001.h5"), "not rank_R-of-N.h5"),
    EVIL("a file of another world", HEAD("1") F("rank_00000-of-00002.h5"), "not rank_R-of-N.h5"),
    EVIL("a file name with a NUL", HEAD("1") F("rank_00000-of-00001.h5\0x"), "not rank_R-of-N.h5"),
    EVIL("a very long file name", HEAD("1") F(HASH HASH HASH), "invalid file line"),
    EVIL("a negative file size", HEAD("1") "F rank_00000-of-00001.h5 -1 " HASH "\n", "invalid file line"),
    EVIL("a file size of 2^63", HEAD("1") "F rank_00000-of-00001.h5 9223372036854775808 " HASH "\n",
         "invalid file line"),
    EVIL("a file hash too short", HEAD("1") "F rank_00000-of-00001.h5 1 0123\n", "invalid file line"),
    EVIL("a file hash in capitals", HEAD("1") "F rank_00000-of-00001.h5 1 0123456789ABCDEF0123456789ABCDEF\n",
         "invalid file line"),
    EVIL("a file after the tensors", ONE "T model/a float32 0\n" F("rank_00000-of-00001.h5"), "unknown line"),

    EVIL("an unknown line", ONE "Z\n", "unknown line"),
    EVIL("an empty line", ONE "\n", "unknown line"),
    EVIL("a box before any tensor", ONE "B - - 0 0 1\n" C, "unknown line"),
    EVIL("a hash before any box", ONE C, "unknown line"),
    EVIL("a second X line", ONE "X " HASH "\n", "unknown line"),

    EVIL("a tensor twice", ONE "T model/a float32 0\nT model/a float32 0\n", "not sorted or not unique"),
    EVIL("tensors unsorted", ONE "T model/b float32 0\nT model/a float32 0\n", "not sorted"),
    EVIL("a tensor after a blob", ONE "S rng 0\nT model/a float32 0\n", "not sorted"),
    EVIL("a blob twice", ONE "S rng 0\nS rng 0\n", "not sorted"),
    EVIL("a name with ..", ONE "T model/../a float32 0\n", "invalid tensor name"),
    EVIL("an absolute name", ONE "T /model/a float32 0\n", "invalid tensor name"),
    EVIL("a name ending in a slash", ONE "T model/ float32 0\n", "invalid tensor name"),
    EVIL("a name with @", ONE "T model/a@1 float32 0\n", "invalid tensor name"),
    EVIL("a name with a NUL", ONE "T mo\0del float32 0\n", "invalid tensor name"),
    EVIL("a name with a tab", ONE "T mo\tdel float32 0\n", "invalid tensor name"),
    EVIL("a name in UTF-8", ONE "T mod\xc3\xa8le float32 0\n", "invalid tensor name"),
    EVIL("a name of broken UTF-8", ONE "T mod\xff float32 0\n", "invalid tensor name"),
    EVIL("no name", ONE "T  float32 0\n", "invalid tensor name"),
    EVIL("an unknown dtype", ONE "T model/a float8 0\n", "invalid tensor line"),
    EVIL("a dtype of scales", ONE "T model/a e8m0 0\n", "invalid tensor line"),
    EVIL("nine dimensions", ONE "T model/a uint8 1x1x1x1x1x1x1x1x1\n", "invalid tensor line"),
    EVIL("a negative extent", ONE "T model/a uint8 -4\n", "invalid tensor line"),
    EVIL("an extent of 2^63", ONE "T model/a uint8 9223372036854775808\n", "invalid tensor line"),
    EVIL("an extent of 2^64", ONE "T model/a uint8 18446744073709551616\n", "invalid tensor line"),
    EVIL("a shape ending in x", ONE "T model/a uint8 4x\n", "invalid tensor line"),
    EVIL("a blank at the end", ONE "T model/a uint8 0 \n", "invalid tensor line"),
    EVIL("two blanks", ONE "T model/a  uint8 0\n", "invalid tensor line"),
    EVIL("a word too many", ONE "T model/a uint8 0 0\n", "invalid tensor line"),
    EVIL("a shape that overflows", ONE "T model/a uint8 4294967296x4294967296\n", "overflows"),
    EVIL("bytes that overflow", ONE "T model/a float64 " BIG "\n", "overflows"),
    EVIL("a huge tensor without boxes", ONE "T model/a uint8 " BIG "\n", "some are missing"),
    EVIL("a huge blob without boxes", ONE "S rng " BIG "\n", "rng: "),

    EVIL("no box", ONE T44, "some are missing"),
    EVIL("a hole", TWO T44 "B 0x0 1x4 0 0 16\n" C "B 2x0 2x4 1 0 32\n" C, "some are missing"),
    EVIL("an overlap", TWO T44 "B 0x0 3x4 0 0 48\n" C "B 2x0 2x4 1 0 32\n" C, "some are stored twice"),
    EVIL("an overlap that makes up for a hole",
         TWO T44 "B 0x0 2x4 0 0 32\n" C "B 0x2 2x2 1 0 16\n" C "B 2x0 2x2 0 32 16\n" C, "overlap"),
    EVIL("a box twice", TWO T44 "B 0x0 4x4 0 0 64\n" C "B 0x0 4x4 1 0 64\n" C, "not sorted by offset"),
    EVIL("a box too many", TWO T44 "B 0x0 4x4 0 0 64\n" C "B 3x0 1x4 1 0 16\n" C, "some are stored twice"),
    EVIL("a scalar twice", TWO "T model/s uint8 -\nB - - 0 0 1\n" C "B - - 1 0 1\n" C, "not sorted"),
    EVIL("boxes unsorted", TWO T44 "B 2x0 2x4 1 0 32\n" C "B 0x0 2x4 0 0 32\n" C, "not sorted by offset"),
    EVIL("a box outside its tensor", ONE T44 "B 1x0 4x4 0 0 64\n" C, "outside the tensor"),
    EVIL("a box whose end overflows", ONE T44 "B " BIG "x0 4x4 0 0 64\n" C, "outside the tensor"),
    EVIL("an empty box", ONE T44 "B 0x0 0x4 0 0 1\n" C, "outside the tensor"),
    EVIL("a box of other dimensions", ONE T44 "B 0 16 0 0 64\n" C, "invalid box line"),
    EVIL("a scalar's box with a dimension", ONE "T model/s uint8 -\nB 0 1 0 0 1\n" C, "invalid box line"),
    EVIL("a box with too few bytes", ONE T44 "B 0x0 4x4 0 0 63\n" C, "wrong number of bytes"),
    EVIL("a box of no bytes", ONE T44 "B 0x0 4x4 0 0 0\n", "invalid box line"),
    EVIL("a box in file 1 of 1", ONE T44 "B 0x0 4x4 1 0 64\n" C, "invalid box line"),
    EVIL("a box in file 2^62", ONE T44 "B 0x0 4x4 4611686018427387904 0 64\n" C, "invalid box line"),
    EVIL("a box in file -1", ONE T44 "B 0x0 4x4 -1 0 64\n" C, "invalid box line"),
    EVIL("a box beyond its file", ONE T44 "B 0x0 4x4 0 8129 64\n" C, "beyond the end of the file"),
    EVIL("a box at 2^63-1", ONE T44 "B 0x0 4x4 0 " BIG " 64\n" C, "beyond the end of the file"),
    EVIL("two tensors on the same bytes",
         ONE T44 "B 0x0 4x4 0 0 64\n" C "T model/b uint8 4\nB 0 4 0 63 4\n" C, "share bytes"),
    EVIL("a tensor and a blob on the same bytes",
         ONE T44 "B 0x0 4x4 0 0 64\n" C "S rng 4\nB 0 4 0 0 4\n" C, "share bytes"),
    EVIL("a hash too few", ONE T44 "B 0x0 4x4 0 0 64\n", "fewer hashes"),
    EVIL("a hash too many", ONE T44 "B 0x0 4x4 0 0 64\n" C C, "unknown line"),
    EVIL("a petabyte and one hash",
         ONE "T model/a uint8 1125899906842624\nB 0 1125899906842624 0 0 1125899906842624\n" C,
         "fewer hashes"),
    EVIL("2^63-1 bytes and one hash", ONE "T model/a uint8 " BIG "\nB 0 " BIG " 0 0 " BIG "\n" C,
         "fewer hashes"),
    EVIL("two pieces, one hash", ONE "T model/a uint8 1048577\nB 0 1048577 0 0 1048577\n" C,
         "fewer hashes"),
    EVIL("a hash with another letter", ONE T44 "B 0x0 4x4 0 0 64\nC 0123456789abcdeg0123456789abcdef\n",
         "invalid hash line"),
    EVIL("a hash with a tail", ONE T44 "B 0x0 4x4 0 0 64\nC " HASH " 0\n", "invalid hash line"),
};
/* clang-format on */

static size_t seal(char *out, const char *text, size_t len)
{
    XXH128_hash_t h = XXH3_128bits(text, len);

    memcpy(out, text, len);
    return len + (size_t)sprintf(out + len, "X %016llx%016llx\n",
                                 (unsigned long long)h.high64,
                                 (unsigned long long)h.low64);
}

/* In memory of exactly its size, so that a sanitizer sees a byte read too far. */
static accel_status_t parse_exact(const char *text, size_t len, accel_error_t *err)
{
    struct ckpt_manifest m = { 0 };
    char *copy = __real_malloc(len ? len : 1);
    accel_status_t s;

    memcpy(copy, text, len);
    s = ckpt_manifest_parse(&m, copy, len, false, "dir/MANIFEST", err);
    free(copy);
    ckpt_manifest_free(&m);
    return s;
}

static void test_cases(void)
{
    char text[8192];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        const struct manifest_case *c = &cases[i];
        size_t len = seal(text, c->text, c->len);
        accel_error_t err = { 0 };
        accel_status_t s;

        largest = 0;
        s = parse_exact(text, len, &err);
        if (!c->says) {
            tap_ok(s == ACCEL_OK, "%s: accepted (%s)", c->what, err.text);
            continue;
        }
        snprintf(text, sizeof(text), "%s: %s", err.where, err.text);
        tap_ok(s == c->code && strstr(text, c->says), "%s: \"%s\"", c->what, text);
        if (largest > (64 << 10) + 64 * len)
            tap_ok(false, "%s: allocates %zu bytes", c->what, largest);
    }
}

/* Every cut of a right manifest, sealed again or not, is refused or still right. */
static void test_cuts(void)
{
    static const char whole[] = TWO T44 "B 0x0 2x4 1 0 32\n" C "B 2x0 2x4 0 0 32\n" C
                                        "S rng 3\nB 0 3 0 100 3\n" C;
    /* Where a line ends and what stands above it is complete. */
    const size_t right[] = { sizeof(TWO) - 1, sizeof(whole) - 1,
                             (size_t)(strstr(whole, "S rng") - whole) };
    char text[4096];
    int wrong = 0, open = 0;
    size_t len;

    for (size_t cut = 0; cut < sizeof(whole); cut++) {
        accel_error_t err = { 0 };
        bool want = cut == right[0] || cut == right[1] || cut == right[2];

        len = seal(text, whole, cut);
        wrong += (parse_exact(text, len, &err) == ACCEL_OK) != want;
    }
    tap_is_int(wrong, 0, "%zu cuts, sealed again", sizeof(whole));
    len = seal(text, whole, sizeof(whole) - 1);
    for (size_t cut = 0; cut < len; cut++) {
        accel_error_t err = { 0 };

        open += parse_exact(text, cut, &err) != ACCEL_ECORRUPT;
    }
    tap_is_int(open, 0, "%zu cuts, not sealed: each refused", len);
}

/* Each digit of the last line counts, and each byte above it. */
static void test_own_hash(void)
{
    static const char whole[] = ONE T44 "B 0x0 4x4 0 4096 64\n" C;
    char text[4096];
    size_t len = seal(text, whole, sizeof(whole) - 1);
    int open = 0;

    for (size_t i = 0; i + 1 < len; i++) {
        accel_error_t err = { 0 };
        char was = text[i];

        text[i] = was == '0' ? '1' : '0';
        /* Character 17 is the version: another one is no damage. */
        open += parse_exact(text, len, &err) !=
                (i == 17 ? ACCEL_EUNSUPPORTED : ACCEL_ECORRUPT);
        text[i] = was;
    }
    tap_is_int(open, 0, "%zu characters, one changed at a time: each refused", len);
}

/* Many small boxes in few rows: checked along the columns, not pair by pair. */
static void test_many_boxes(void)
{
    const int n = 40000;
    struct strbuf b = { 0 };
    accel_error_t err = { 0 };
    char *text;
    size_t len;

    strbuf_printf(&b, "%s", HEAD("1") "F rank_00000-of-00001.h5 80000 " HASH "\n");
    strbuf_printf(&b, "T model/a uint8 2x%d\n", n);
    for (int i = 0; i < 2 * n; i++)
        strbuf_printf(&b, "B %dx%d 1x1 0 %d 1\n" C, i / n, i % n, i);
    text = __real_malloc(b.len + 64);
    len = seal(text, b.s, b.len);
    largest = 0;
    tap_is_int(parse_exact(text, len, &err), ACCEL_OK, "80000 boxes of one tensor");
    tap_ok(largest < 64 * len, "their memory follows the text (%zu for %zu)", largest,
           len);
    free(text);
    strbuf_free(&b);
}

/* Opening reads all blobs into memory, so their sum has a limit. */
static void test_blobs(void)
{
    char text[CKPT_BLOBS_MAX / CKPT_PIECE_BYTES * sizeof(C) + 1024];

    for (int more = 0; more < 2; more++) {
        struct strbuf b = { 0 };
        accel_error_t err = { 0 };

        strbuf_printf(&b, HEAD("1") "F rank_00000-of-00001.h5 2000000000 " HASH "\n");
        strbuf_printf(&b, "S a %d\nB 0 %d 0 %d %d\n" C, more, more, 1 << 30, more);
        if (!more) /* an empty blob has no box */
            b.len -= strlen("B 0 0 0 1073741824 0\n" C);
        strbuf_printf(&b, "S b %d\nB 0 %d 0 0 %d\n", 1 << 30, 1 << 30, 1 << 30);
        for (int i = 0; i < 1024; i++)
            strbuf_printf(&b, "%s", C);
        tap_is_int(parse_exact(text, seal(text, b.s, b.len), &err),
                   more ? ACCEL_ECORRUPT : ACCEL_OK, "blobs of 1 GiB%s: %s",
                   more ? " and a byte" : "", err.text);
        strbuf_free(&b);
    }
}

/* ---- directories ----------------------------------------------------------------- */

static char root[256], dir[300];

static void put(const char *name, const char *text, size_t len, off_t size)
{
    char path[400];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    remove(path);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len || ftruncate(fd, size))
        abort();
    close(fd);
}

static void put_manifest(void)
{
    static const char whole[] = ONE T44 "B 0x0 4x4 0 4096 64\n" C;
    char text[4096];
    size_t len = seal(text, whole, sizeof(whole) - 1);

    put("MANIFEST", text, len, (off_t)len);
}

#define SHARD "rank_00000-of-00001.h5"

static void refused(const char *what, const char *says)
{
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    accel_status_t s;
    char text[1400];

    largest = 0;
    s = accel_ckpt_open(&c, dir, &err);
    snprintf(text, sizeof(text), "%s: %s", err.where, err.text);
    tap_ok(s == ACCEL_ECORRUPT && strstr(text, says) && !strstr(text, "Success"),
           "%s: \"%s\"", what, text + (strlen(text) > 60 ? strlen(root) : 0));
    tap_ok(largest < 1 << 20, "%s: no large allocation (%zu)", what, largest);
    accel_ckpt_close(c);
}

/* What is in the place of a shard or the manifest; a file: of zeros. */
enum instead { ZEROS, NOTHING, LINK, FIFO, DIRECTORY };

static void replace(const char *name, enum instead with, off_t size)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    put(name, "", 0, size);
    if (with != ZEROS && remove(path))
        abort();
    if ((with == LINK && symlink("../other", path)) ||
        (with == FIFO && mkfifo(path, 0666)) ||
        (with == DIRECTORY && mkdir(path, 0777)))
        abort();
}

static void test_directories(void)
{
    static const struct {
        const char *what, *name;
        enum instead with;
        off_t size;
        const char *says;
    } rows[] = {
        { "a shard cut by a byte", SHARD, ZEROS, 8191,
          "8191 bytes, but the manifest says 8192" },
        { "an empty shard", SHARD, ZEROS, 0, "0 bytes" },
        { "a missing shard", SHARD, NOTHING, 0, "No such file" },
        { "a symlink to a file of the right size", SHARD, LINK, 0, "symbolic link" },
        { "a pipe instead of a shard", SHARD, FIFO, 0, "not a regular file" },
        { "a directory instead of a shard", SHARD, DIRECTORY, 0, "not a regular file" },
        { "a pipe instead of the manifest", "MANIFEST", FIFO, 0, "MANIFEST" },
        { "a symlink instead of the manifest", "MANIFEST", LINK, 0, "symbolic link" },
        { "a manifest of a terabyte", "MANIFEST", ZEROS, (off_t)1 << 40,
          "268435456 bytes" },
        { "an empty manifest", "MANIFEST", ZEROS, 0, "truncated" },
        { "no manifest", "MANIFEST", NOTHING, 0, "the save never finished" },
    };
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;

    world_tmpdir(root, "ckpt-manifest");
    snprintf(dir, sizeof(dir), "%s/step_00000007", root);
    if (mkdir(dir, 0777))
        abort();
    put("../other", "", 0, 8192);
    put_manifest();
    put(SHARD, "", 0, 8192);
    tap_is_int(accel_ckpt_open(&c, dir, &err), ACCEL_OK,
               "the files are as the manifest says");
    accel_ckpt_close(c);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        put_manifest();
        put(SHARD, "", 0, 8192);
        replace(rows[i].name, rows[i].with, rows[i].size);
        refused(rows[i].what, rows[i].says);
    }
    world_rmtree(root);
}

/* For shell tests: each hostile manifest in a directory of its own, DIR/N/step_00000007,
 * beside shards of 8192 bytes. */
static int leave_all(const char *where)
{
    char text[8192];
    size_t len;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        if (!cases[i].says)
            continue;
        snprintf(dir, sizeof(dir), "%s/%zu", where, i);
        if (mkdir(dir, 0777))
            return 73;
        snprintf(dir, sizeof(dir), "%s/%zu/step_00000007", where, i);
        if (mkdir(dir, 0777))
            return 73;
        len = seal(text, cases[i].text, cases[i].len);
        put("MANIFEST", text, len, (off_t)len);
        put(SHARD, "", 0, 8192);
        put("rank_00000-of-00002.h5", "", 0, 8192);
        put("rank_00001-of-00002.h5", "", 0, 8192);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return leave_all(argv[1]);
    test_cases();
    test_cuts();
    test_own_hash();
    test_many_boxes();
    test_blobs();
    test_directories();
    return tap_done();
}
