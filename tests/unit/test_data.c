/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets on real files: order, headers and their damage, directories, files that
 * shrink; and the permutation.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "data/token_file.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static char dir[] = "/tmp/accel-test-data-XXXXXX";
static char path[512];

static const char *at(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

/* Of the sample that was read last. */
static int32_t ids[20], targets[20];
static void *const tokens[] = { ids, targets };

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(at(name), "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        tap_ok(false, "writing %s", path);
}

/* A token file of `n` tokens (or `claim` in the header), token i = (first + i) % 60000,
 * and in the form of 4 bytes 70000 more. */
static void put_tokens(const char *name, uint32_t magic, uint32_t version,
                       uint32_t claim, int n, int first)
{
    const int width = magic == 20240801 ? 4 : 2;
    size_t bytes = 1024 + (size_t)width * (size_t)n;
    unsigned char *b = calloc(1, bytes);
    const uint32_t word[3] = { magic, version, claim };

    for (int i = 0; i < 12; i++)
        b[i] = (unsigned char)(word[i / 4] >> (8 * (i % 4)));
    for (int i = 0; i < n; i++) {
        int t = (first + i) % 60000 + (width == 4 ? 70000 : 0);

        for (int k = 0; k < width; k++)
            b[1024 + width * i + k] = (unsigned char)(t >> 8 * k);
    }
    put(name, b, bytes);
    free(b);
}

static void test_text(void)
{
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };

    put("a.txt", "0123456789abcdefghij", 20);
    tap_ok(!accel_dataset_open(&d, at("a.txt"), 4, 0, &err), "text opens (%s)",
           err.text);
    tap_is_int(accel_dataset_samples(d), 4, "(20 - 1) / 4 samples");
    tap_is_int(accel_dataset_vocab(d), 256, "bytes: vocabulary 256");
    tap_is_int(data_holdout_samples(d), 0, "nothing held out");
    tap_ok(!data_sample(d, 3, tokens, &err) && ids[0] == 'c' && ids[3] == 'f' &&
               targets[0] == 'd' && targets[3] == 'g',
           "last sample: targets are the inputs shifted by one");
    accel_dataset_close(d);
    tap_ok(!accel_dataset_open(&d, at("a.txt"), 4, 0.5, &err) &&
               accel_dataset_samples(d) == 2 && data_holdout_samples(d) == 2,
           "half held out");
    tap_ok(!data_holdout_sample(d, 1, tokens, &err) && ids[0] == 'e' &&
               targets[3] == 'i',
           "held-out samples come from the end");
    accel_dataset_close(d);
    tap_ok(!accel_dataset_open(&d, at("a.txt"), 1, 0, &err) &&
               !data_sample(d, 18, tokens, &err) && ids[0] == 'i' && targets[0] == 'j',
           "sequence length 1");
    accel_dataset_close(d);
    accel_dataset_close(NULL);
}

/* Files of both widths, which then change. */
static void test_tokens(void)
{
    static const struct {
        const char *name;
        uint32_t magic, version;
        int first;
    } c[] = { { "t.bin", 20240520, 1, 1000 }, { "w.bin", 20240801, 7, 71000 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        accel_dataset_t *d = NULL;
        accel_error_t err = { 0 };
        uint64_t one = 0, two = 0;

        put_tokens(c[i].name, c[i].magic, c[i].version, 100, 100, 1000);
        tap_ok(!accel_dataset_open(&d, at(c[i].name), 8, 0.1, &err), "%s opens (%s)",
               c[i].name, err.text);
        tap_is_int(accel_dataset_samples(d), 11, "(90 - 1) / 8 samples");
        tap_is_int(accel_dataset_vocab(d), c[i].first + 100,
                   "vocabulary is the largest token + 1");
        tap_ok(!data_sample(d, 2, tokens, &err) && ids[0] == c[i].first + 16 &&
                   targets[7] == c[i].first + 24,
               "tokens of sample 2");
        tap_ok(!data_digest(d, &one, &err), "the digest");
        put_tokens(c[i].name, c[i].magic, c[i].version, 100, 100, 1001);
        tap_ok(!data_digest(d, &two, &err) && one != two, "is of all bytes");
        put_tokens(c[i].name, c[i].magic, c[i].version, 100, 100, 5000);
        tap_ok(data_sample(d, 2, tokens, &err) == ACCEL_ECORRUPT &&
                   strstr(err.where, c[i].name),
               "a token beyond the vocabulary is an error naming the file");
        accel_dataset_close(d);
    }
}

/* A file that changes after its vocabulary was found: the first token beyond it, and
 * those that are negative as numbers of 32 bits. */
static void test_vocabulary(void)
{
    static const struct {
        const char *what;
        uint32_t token;
        accel_status_t want;
    } c[] = {
        { "the largest token", 71099, ACCEL_OK },
        { "the vocabulary itself", 71100, ACCEL_ECORRUPT },
        { "the largest number", INT32_MAX, ACCEL_ECORRUPT },
        { "the smallest number", 1u << 31, ACCEL_ECORRUPT },
        { "minus one", UINT32_MAX, ACCEL_ECORRUPT },
        { "nothing", 0, ACCEL_OK },
    };
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };

    put_tokens("v.bin", 20240801, 7, 100, 100, 1000);
    tap_ok(!accel_dataset_open(&d, at("v.bin"), 8, 0, &err), "opens (%s)", err.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        FILE *f = fopen(path, "r+b");

        /* the last target of sample 0 */
        if (!f || fseek(f, 1024 + 4 * 8, SEEK_SET) || fwrite(&c[i].token, 4, 1, f) != 1)
            tap_ok(false, "writing %s", path);
        if (f)
            fclose(f);
        tap_is_int(data_sample(d, 0, tokens, &err), c[i].want,
                   "%s as a token of a vocabulary of 71100", c[i].what);
    }
    close(d->file[0].fd);
    d->file[0].fd = open(path, O_WRONLY);
    tap_ok(data_sample(d, 0, tokens, &err) == ACCEL_EIO &&
               strstr(err.text, "cannot read at byte 1024") &&
               strstr(err.where, "v.bin"),
           "a read that fails: %s", err.text);
    accel_dataset_close(d);
}

/* Tokens of 4 bytes after a file of 2. */
static void test_both_widths(void)
{
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };

    mkdir(at("w"), 0700);
    put_tokens("w/0.bin", 20240520, 1, 5, 5, 0);
    put_tokens("w/1.bin", 20240801, 7, 4, 4, 5);
    tap_ok(accel_dataset_open(&d, at("w"), 8, 0, &err) == ACCEL_EINVAL && !d &&
               strstr(err.text, "of two tokenizers"),
           "both widths in one stream: %s", err.text);
}

static void test_damage(void)
{
    static const struct {
        const char *name, *text;
        uint32_t magic, version, claim;
        int n;
        accel_status_t want;
    } c[] = {
        { "magic.bin", "magic number 7", 7, 1, 50, 50, ACCEL_ECORRUPT },
        { "version.bin", "version 2", 20240520, 2, 50, 50, ACCEL_ECORRUPT },
        { "long.bin", "says 51 tokens", 20240520, 1, 51, 50, ACCEL_ECORRUPT },
        { "short.bin", "holds 50", 20240520, 1, 49, 50, ACCEL_ECORRUPT },
        { "huge.bin", "4294967295", 20240520, 1, 0xffffffff, 50, ACCEL_ECORRUPT },
        { "wide.bin", "version 1", 20240801, 1, 50, 50, ACCEL_ECORRUPT },
        { "widelong.bin", "says 51 tokens", 20240801, 7, 51, 50, ACCEL_ECORRUPT },
        { "none.bin", "0 tokens for training", 20240520, 1, 0, 0, ACCEL_EINVAL },
        { "few.bin", "8 tokens for training", 20240520, 1, 8, 8, ACCEL_EINVAL },
    };
    accel_dataset_t *d = NULL;
    accel_error_t err;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        accel_status_t st;

        put_tokens(c[i].name, c[i].magic, c[i].version, c[i].claim, c[i].n, 0);
        st = accel_dataset_open(&d, at(c[i].name), 8, 0, &err);
        tap_ok(st == c[i].want && strstr(err.text, c[i].text) &&
                   strstr(err.where, c[i].name) && err.hint[0],
               "%s: %s", c[i].name, err.text);
    }
    put("odd.bin", "x", 1);
    tap_ok(accel_dataset_open(&d, at("odd.bin"), 8, 0, &err) == ACCEL_ECORRUPT,
           "odd.bin: %s", err.text);
    put("empty.txt", "", 0);
    tap_ok(accel_dataset_open(&d, at("empty.txt"), 8, 0, &err) == ACCEL_EINVAL,
           "empty.txt: %s", err.text);
    tap_ok(!d, "outputs are set on success only");
}

static void test_arguments(void)
{
    accel_dataset_t *d = NULL;
    accel_error_t err;

    tap_ok(accel_dataset_open(&d, at("nowhere"), 8, 0, &err) == ACCEL_ENOENT &&
               strstr(err.where, "nowhere"),
           "missing file: %s", err.text);
    tap_ok(accel_dataset_open(&d, NULL, 8, 0, &err) == ACCEL_EINVAL, "no path");
    tap_ok(accel_dataset_open(&d, at("a.txt"), 0, 0, &err) == ACCEL_EINVAL, "seq 0");
    tap_ok(accel_dataset_open(&d, at("a.txt"), 4, 0.6, &err) == ACCEL_EINVAL &&
               accel_dataset_open(&d, at("a.txt"), 4, -0.1, &err) == ACCEL_EINVAL &&
               accel_dataset_open(&d, at("a.txt"), 4, 0.0 / 0.0, &err) ==
                   ACCEL_EINVAL &&
               strstr(err.text, "is not between"),
           "holdout outside 0 .. 0.5: %s", err.text);
    tap_ok(mkfifo(at("fifo"), 0600) == 0 &&
               accel_dataset_open(&d, at("fifo"), 4, 0, &err) == ACCEL_EINVAL &&
               strstr(err.text, "not a regular file"),
           "a FIFO is refused and does not hang: %s", err.text);
    if (geteuid() != 0) {
        chmod(at("a.txt"), 0);
        tap_ok(accel_dataset_open(&d, path, 4, 0, &err) == ACCEL_EPERM, "unreadable");
        chmod(path, 0600);
    } else {
        tap_skip(1, "root reads everything");
    }
}

static void test_directory(void)
{
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    uint64_t one = 0, two = 0;

    mkdir(at("d"), 0700);
    tap_ok(accel_dataset_open(&d, at("d"), 4, 0, &err) == ACCEL_EINVAL,
           "empty directory: %s", err.text);
    put("d/2", "ghij", 4);
    put("d/1", "abc", 3);
    put("d/10", "def", 3);
    put("d/11", "", 0);
    put("d/.hidden", "XXXXXXXX", 8);
    mkdir(at("d/sub"), 0700);
    tap_ok(!accel_dataset_open(&d, at("d"), 9, 0, &err) &&
               accel_dataset_samples(d) == 1 && !data_sample(d, 0, tokens, &err),
           "directory: regular files that are not hidden (%s)", err.text);
    tap_ok(
        !memcmp(ids, (int32_t[]){ 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i' }, 36) &&
            targets[8] == 'j',
        "in name order, joined across files and an empty one");
    tap_ok(!data_digest(d, &one, &err) && !data_digest(d, &two, &err) && one == two,
           "the digest repeats");
    accel_dataset_close(d);
    put("d/10", "deF", 3);
    tap_ok(!accel_dataset_open(&d, at("d"), 1, 0.2, &err) &&
               !data_digest(d, &two, &err) && one != two,
           "one changed byte changes it");
    put("d/10", "def", 3);
    tap_ok(!data_digest(d, &two, &err) && one == two,
           "sequence length and holdout do not");
    tap_ok(truncate(at("d/2"), 1) == 0 &&
               data_holdout_sample(d, 0, tokens, &err) == ACCEL_EIO &&
               strstr(err.where, "d/2"),
           "a file that shrank: %s", err.text);
    accel_dataset_close(d);
    d = NULL;
    put_tokens("d/3.bin", 20240520, 1, 50, 50, 0);
    tap_ok(accel_dataset_open(&d, at("d"), 4, 0, &err) == ACCEL_EINVAL &&
               strstr(err.text, "mix .bin") && !d,
           "mixed: %s", err.text);
    mkdir(at("b"), 0700);
    put_tokens("b/0.bin", 20240520, 1, 5, 5, 0);
    put_tokens("b/1.bin", 20240520, 1, 4, 4, 5);
    tap_ok(!accel_dataset_open(&d, at("b"), 8, 0, &err) &&
               !data_sample(d, 0, tokens, &err) && ids[4] == 4 && ids[5] == 5 &&
               targets[7] == 8,
           "token files are joined without their headers");
    accel_dataset_close(d);
}

static void test_width(void)
{
    tap_ok(token_file_width(1) == 2 && token_file_width(65536) == 2 &&
               token_file_width(65537) == 4 && token_file_width(INT32_MAX) == 4,
           "tokens of up to 65536 take two bytes");
}

/* What a header and a token are in bytes, and that nothing else is written. */
static void test_written(void)
{
    static const struct {
        int width;
        uint32_t magic, version, tokens;
        uint64_t mark;
    } c[] = { { 2, 20240520, 1, 7, 0 },
              { 2, 20240520, 1, 0x7fffffff, 0xfedcba9876543210 },
              { 4, 20240801, 7, 0x01020304, 0x0123456789abcdef } };
    uint8_t got[TOKEN_FILE_HEADER + 8], want[sizeof(got)];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        const uint32_t word[] = { c[i].magic,          c[i].version,
                                  c[i].tokens,         0,
                                  (uint32_t)c[i].mark, (uint32_t)(c[i].mark >> 32) };

        memset(got, 0xee, sizeof(got));
        memset(want, 0xee, sizeof(want));
        memset(want, 0, TOKEN_FILE_HEADER);
        for (int b = 0; b < 24; b++)
            want[b] = (uint8_t)(word[b / 4] >> 8 * (b % 4));
        token_file_header(got, c[i].width, c[i].tokens, c[i].mark);
        tap_ok(memcmp(got, want, sizeof(got)) == 0, "header %zu: all of it", i);
        tap_ok(token_file_mark(got) == c[i].mark, "header %zu: its mark", i);
    }
    for (int width = 1; width <= 4; width *= 2) {
        const uint32_t token = 0x87654321 & (uint32_t)(0xffffffff >> (32 - 8 * width));

        memset(got, 0xee, 8);
        memset(want, 0xee, 8);
        for (int b = 0; b < width; b++)
            want[1 + b] = (uint8_t)(token >> 8 * b);
        token_file_put(got + 1, width, token);
        tap_ok(memcmp(got, want, 8) == 0 && token_file_get(got + 1, width) == token,
               "a token of %d bytes: no more and no less", width);
    }
}

/* All ways in which three files have no mark, the one or the other. */
static void test_marks(void)
{
    const int marks[] = { 0, 7, 8 };

    mkdir(at("m"), 0700);
    for (int way = 0; way < 27; way++) {
        const int mark[] = { marks[way % 3], marks[way / 3 % 3], marks[way / 9] };
        char want[64] = "";
        accel_dataset_t *d = NULL;
        accel_error_t err = { 0 };
        accel_status_t st;

        for (int f = 0; f < 3; f++) {
            uint8_t file[TOKEN_FILE_HEADER + 2 * 5] = { 0 };
            char name[8];

            token_file_header(file, 2, 5, (uint64_t)mark[f] << 32);
            snprintf(name, sizeof(name), "m/%d.bin", f);
            put(name, file, sizeof(file));
            for (int g = 0; g < f; g++)
                if (!want[0] && mark[g] && mark[f] && mark[g] != mark[f])
                    snprintf(want, sizeof(want),
                             "'%d.bin' and '%d.bin' are of two tokenizers", g, f);
        }
        st = accel_dataset_open(&d, at("m"), 4, 0, &err);
        tap_is_int(st, want[0] ? ACCEL_EINVAL : ACCEL_OK, "marks %d %d %d", mark[0],
                   mark[1], mark[2]);
        tap_is_str(err.text, want, "marks %d %d %d: the files", mark[0], mark[1],
                   mark[2]);
        accel_dataset_close(d);
    }
}

static uint64_t digest_of(const char *name, int seq)
{
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    uint64_t digest = 0;

    if (accel_dataset_open(&d, at(name), seq, 0, &err) || data_digest(d, &digest, &err))
        tap_ok(false, "digest of %s: %s", name, err.text);
    accel_dataset_close(d);
    return digest;
}

/* Two files of one letter, cut at `first`. */
static void put_pair(const char *a, const char *b, size_t first)
{
    enum { BOTH = 2000000 };
    char *text = malloc(BOTH);

    memset(text, 'a', BOTH);
    put(a, text, first);
    put(b, text, BOTH - first);
    free(text);
}

/* What lies in which file counts, where all the bytes are the same. */
static void test_digest(void)
{
    char other[sizeof(path)];
    uint64_t half, other_cut, other_name;

    mkdir(at("same"), 0700);
    put_pair("same/1", "same/2", 1000000);
    half = digest_of("same", 4);
    put_pair("same/1", "same/2", 999000);
    other_cut = digest_of("same", 4);
    put_pair("same/1", "same/2", 1000000);
    snprintf(other, sizeof(other), "%s", at("same/3"));
    tap_ok(rename(at("same/2"), other) == 0, "another name");
    other_name = digest_of("same", 4);
    tap_ok(half != other_cut, "the digest is of the files' sizes");
    tap_ok(half != other_name, "and of their names");
    tap_is_int((long long)half, 952986544293868858, "and what it always was");
}

/* Parts whose ends are those of samples. */
static void test_parts(void)
{
    static const struct {
        int seq;
        double holdout;
        int64_t samples, held_out;
    } c[] = {
        { 4, 0, 4, 0 }, /* 20 tokens: the last one is a target only */
        { 5, 0, 3, 0 },     { 5, 0.5, 1, 1 },   { 10, 0, 1, 0 },
        { 19, 0, 1, 0 },    { 9, 0.5, 1, 1 },   { 1, 0.5, 9, 9 },
        { 18, 0.05, 1, 0 }, { 18, 0.1, -1, 0 }, { 20, 0, -1, 0 },
    };

    put("p.txt", "abcdefghijklmnopqrst", 20);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        accel_dataset_t *d = NULL;
        accel_error_t err = { 0 };
        bool opened =
            !accel_dataset_open(&d, at("p.txt"), c[i].seq, c[i].holdout, &err);

        if (c[i].samples < 0) {
            tap_ok(!opened && strstr(err.text, "needs"), "%d of 20: %s", c[i].seq,
                   err.text);
            continue;
        }
        tap_ok(opened && accel_dataset_samples(d) == c[i].samples &&
                   data_holdout_samples(d) == c[i].held_out &&
                   !data_sample(d, c[i].samples - 1, tokens, &err) &&
                   data_sample(d, c[i].samples, tokens, &err) == ACCEL_EINVAL &&
                   data_sample(d, -1, tokens, &err) == ACCEL_EINVAL,
               "20 tokens, samples of %d, holdout %g: %lld and %lld", c[i].seq,
               c[i].holdout, (long long)c[i].samples, (long long)c[i].held_out);
        if (c[i].held_out)
            tap_ok(!data_holdout_sample(d, c[i].held_out - 1, tokens, &err) &&
                       targets[c[i].seq - 1] <= 't' &&
                       data_holdout_sample(d, c[i].held_out, tokens, &err) ==
                           ACCEL_EINVAL &&
                       data_holdout_sample(d, -1, tokens, &err) == ACCEL_EINVAL,
                   "and the held-out ones end there");
        accel_dataset_close(d);
    }
}

static void test_permutation(void)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 16, 17, 255, 1000, 4097, 20000 };
    unsigned char *seen = malloc(20000);
    int64_t fixed = 0, same = 0, big = (int64_t)1 << 60;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(sizes); k++) {
        int64_t n = sizes[k], hit = 0;

        memset(seen, 0, 20000);
        for (int64_t i = 0; i < n; i++) {
            int64_t x = data_permute(99, 3, n, i);

            if (x >= 0 && x < n && !seen[x])
                hit += seen[x] = 1;
        }
        tap_is_int(hit, n, "a bijection on [0, %lld)", (long long)n);
    }
    for (int64_t i = 0; i < 20000; i++) {
        fixed += data_permute(1, 0, 20000, i) == i;
        same += data_permute(1, 0, 20000, i) == data_permute(1, 1, 20000, i);
    }
    tap_ok(fixed < 12 && same < 12, "about one fixed point; epochs differ (%lld, %lld)",
           (long long)fixed, (long long)same);
    tap_ok(data_permute(1, 0, big - 1, 5) < big - 1, "large n");
    free(seen);
}

/* Ranks take cursors step * global batch + rank * batch + i: whatever the world, the
 * same samples in the same order, each once per epoch. */
static void test_order(void)
{
    enum { SAMPLES = 97, EPOCHS = 3 };
    int64_t at_cursor[SAMPLES * EPOCHS];
    int wrong = 0, count[EPOCHS][SAMPLES] = { 0 };

    for (int64_t c = 0; c < SAMPLES * EPOCHS; c++) {
        at_cursor[c] = data_permute(5, c / SAMPLES, SAMPLES, c % SAMPLES);
        count[c / SAMPLES][at_cursor[c]]++;
    }
    for (int e = 0; e < EPOCHS; e++) {
        for (int i = 0; i < SAMPLES; i++)
            wrong += count[e][i] != 1;
    }
    tap_is_int(wrong, 0, "each sample once per epoch");
    tap_ok(memcmp(at_cursor, at_cursor + SAMPLES, SAMPLES * sizeof(int64_t)) != 0,
           "another order in the next epoch");
    /* Golden: a change of the permutation would make resumed runs see samples twice. */
    tap_ok(at_cursor[0] == 14 && at_cursor[1] == 33 && at_cursor[100] == 46,
           "the order is the one older checkpoints were written with");
}

/* A field of three floats and one number, both told by the index. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    int64_t *calls = user;

    ++*calls;
    for (int i = 0; i < 3; i++)
        ((float *)dst[0])[i] = (float)(10 * index + i);
    *(int32_t *)dst[1] = (int32_t)index;
    return index == 77 ? 5 : 0;
}

/* All samples alike. */
static int fetch_same(void *user, int64_t index, void *const *dst)
{
    (void)user, (void)index;
    memset(dst[0], 0, 3 * sizeof(float));
    return 0;
}

static uint64_t digest_of_fields(int64_t samples, accel_field_t field)
{
    accel_dataset_t *d = NULL;
    uint64_t digest = 0;

    if (accel_dataset_new(&d, samples, &field, 1, fetch_same, NULL, 0, NULL) ||
        data_digest(d, &digest, NULL))
        tap_ok(false, "digest of fields");
    accel_dataset_close(d);
    return digest;
}

static void test_digest_of_fields(void)
{
    const accel_field_t flat = { ACCEL_F32, 1, { 3 } },
                        row = { ACCEL_F32, 2, { 1, 3 } },
                        whole = { ACCEL_I32, 1, { 3 } };
    uint64_t digest = digest_of_fields(100, flat);

    tap_ok(digest != digest_of_fields(128, flat), "more samples, another digest");
    tap_ok(digest != digest_of_fields(100, row), "another shape, another");
    tap_ok(digest != digest_of_fields(100, whole), "another type, another");
    tap_ok(digest == digest_of_fields(100, flat), "the same, the same");
}

static void test_fields(void)
{
    const accel_field_t fields[] = { { ACCEL_F32, 2, { 1, 3 } },
                                     { ACCEL_I32, 0, { 0 } } };
    const accel_field_t *have;
    accel_dataset_t *d = NULL, *e = NULL;
    accel_error_t err = { 0 };
    float image[3];
    int32_t label;
    void *dst[] = { image, &label };
    uint64_t one = 0, same = 1, other = 1;
    int64_t calls = 0;
    char text[64];

    tap_ok(!accel_dataset_new(&d, 100, fields, 2, fetch, &calls, 0.25, &err),
           "a dataset of a program's own (%s)", err.text);
    tap_ok(accel_dataset_samples(d) == 75 && data_holdout_samples(d) == 25 &&
               accel_dataset_vocab(d) == 0 && data_seq(d) == 0,
           "a quarter is held out; no tokens");
    tap_ok(data_fields(d, &have) == 2 && data_field_elems(&have[0]) == 3 &&
               data_field_bytes(&have[1]) == 4,
           "fields");
    tap_is_str(data_fields_text(d, text, sizeof(text)), "float32 [1, 3], int32 []",
               "their text");
    tap_ok(!data_sample(d, 74, dst, &err) && image[2] == 742 && label == 74,
           "a sample");
    tap_ok(data_sample(d, 75, dst, &err) == ACCEL_EINVAL, "and none beyond");
    tap_ok(!data_holdout_sample(d, 0, dst, &err) && label == 75,
           "held-out samples follow the others");
    tap_ok(data_holdout_sample(d, 2, dst, &err) == ACCEL_EIO &&
               strstr(err.text, "77") && strstr(err.text, "5"),
           "a fetch that fails is an error with the sample: %s", err.text);
    calls = 0;
    accel_dataset_new(&e, 60, fields, 2, fetch, &calls, 0, &err);
    tap_ok(!data_digest(e, &one, &err) && calls == 60 && !data_digest(e, &same, &err) &&
               one == same,
           "digest: the same data, the same number, from at most 64 samples");
    accel_dataset_close(e);
    accel_dataset_new(&e, 59, fields, 2, fetch, &calls, 0, &err);
    tap_ok(!data_digest(e, &other, &err) && other != one, "other data, another");
    accel_dataset_close(e);
    accel_dataset_close(d);
}

static void test_wrong_fields(void)
{
    static const struct {
        const char *what;
        int64_t samples;
        double holdout;
        int n;
        accel_field_t field;
    } cases[] = {
        { "no sample", 0, 0, 1, { ACCEL_F32, 1, { 3 } } },
        { "a holdout of more than a half", 9, 0.6, 1, { ACCEL_F32, 1, { 3 } } },
        { "no field", 9, 0, 0, { ACCEL_F32, 1, { 3 } } },
        { "nine fields", 9, 0, 9, { ACCEL_F32, 1, { 3 } } },
        { "an unknown dtype", 9, 0, 1, { (accel_dtype_t)99, 1, { 3 } } },
        { "a dtype of the wire", 9, 0, 1, { ACCEL_F8E4M3, 1, { 3 } } },
        { "four dimensions", 9, 0, 1, { ACCEL_F32, 4, { 3, 3, 3 } } },
        { "a size of 0", 9, 0, 1, { ACCEL_F32, 2, { 3, 0 } } },
        { "a sample of 4 GiB", 9, 0, 1, { ACCEL_F32, 2, { 32768, 32768 } } },
        { "sizes beyond 64 bits", 9, 0, 1, { ACCEL_F32, 2, { INT64_MAX, INT64_MAX } } },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_field_t fields[9];
        accel_dataset_t *d = NULL;
        accel_error_t err = { 0 };

        for (int k = 0; k < 9; k++)
            fields[k] = cases[i].field;
        tap_ok(accel_dataset_new(&d, cases[i].samples, fields, cases[i].n, fetch, NULL,
                                 cases[i].holdout, &err) == ACCEL_EINVAL &&
                   !d && err.hint[0],
               "%s is refused: %s", cases[i].what, err.text);
    }
}

int main(void)
{
    const int files = tap_open_files();

    run_folder_new(dir);
    test_text();
    test_parts();
    test_fields();
    test_digest_of_fields();
    test_wrong_fields();
    test_tokens();
    test_vocabulary();
    test_width();
    test_written();
    test_marks();
    test_both_widths();
    test_damage();
    test_arguments();
    test_directory();
    test_digest();
    test_permutation();
    test_order();
    tap_is_int(tap_open_files(), files, "no file stays open");
    run_folder_remove(dir);
    return tap_done();
}
