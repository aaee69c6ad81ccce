/* SPDX-License-Identifier: Apache-2.0
 *
 * What doc/checkpoint-format.md says, in numbers and bytes that were worked out without
 * the library: seeds and hashes of pieces and files, names, the text of a MANIFEST, and
 * how the ranks' records become one. A change on both sides, of writing and of reading,
 * would pass every save and load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"

/* ---- hashes ---------------------------------------------------------------------- */

/* The examples of the page. */
static const struct {
    struct ckpt_tensor t;
    struct ckpt_mbox b;
    int64_t step;
    size_t index;
    const char *bytes;
    size_t count;
    uint64_t seed, hi, lo;
} examples[] = {
    { { .name = "model/h.0.weight", .dtype = ACCEL_F32, .ndim = 2, .shape = { 2, 4 } },
      { .offset = { 1, 0 }, .shape = { 1, 4 } },
      7,
      0,
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      16,
      0xb1cb931e61c41898,
      0x44ad92b2baf4fa97,
      0x97e5303c11e49f35 },
    { { .name = "model/scale", .dtype = ACCEL_BF16 },
      { .offset = { 0 } },
      7,
      0,
      "\x80\x3f",
      2,
      0x9b7ea641ea03e6d0,
      0x8a0c29173f764550,
      0x294ac3a3fa49fb86 },
    { { .name = "model/wte.weight",
        .dtype = ACCEL_F64,
        .ndim = 1,
        .shape = { 300000 } },
      { .offset = { 100 }, .shape = { 200000 } },
      1200,
      1,
      "abc",
      3,
      0xc00a3bb3dafd27f7,
      0xd9beb6895950d6e0,
      0xcad1f44d603b7306 },
    { { .name = "trainer", .dtype = ACCEL_U8, .blob = true, .ndim = 1, .shape = { 3 } },
      { .offset = { 0 }, .shape = { 3 } },
      1200,
      0,
      "abc",
      3,
      0x1d11b397de427d33,
      0xb2e3cf12ed0d9d5e,
      0x77964410a54fb10d },
};

static void test_examples(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(examples); i++) {
        struct ckpt_tensor t = examples[i].t;
        struct ckpt_mbox b = examples[i].b;
        struct ckpt_manifest m = { .step = examples[i].step,
                                   .tensor = &t,
                                   .tensors = 1 };
        uint64_t seed = ckpt_box_seed(&m, &b);
        struct ckpt_hash h = ckpt_piece_hash(seed, examples[i].index, examples[i].bytes,
                                             examples[i].count);

        tap_ok(seed == examples[i].seed, "%s: S", t.name);
        tap_ok(h.hi == examples[i].hi && h.lo == examples[i].lo, "%s: hash", t.name);
    }
    tap_ok(
        ckpt_hash_equal((struct ckpt_hash){ 1, 2 }, (struct ckpt_hash){ 1, 2 }) &&
            !ckpt_hash_equal((struct ckpt_hash){ 1, 2 }, (struct ckpt_hash){ 1, 3 }) &&
            !ckpt_hash_equal((struct ckpt_hash){ 1, 2 }, (struct ckpt_hash){ 3, 2 }),
        "both halves count");
}

/* No two of these may have the same seed. */
static void test_seeds_differ(void)
{
    static const struct {
        struct ckpt_tensor t;
        struct ckpt_mbox b;
        int64_t step;
    } box[] = {
        { { .name = "a", .ndim = 1, .shape = { 2 } }, { .shape = { 2 } }, 1 },
        { { .name = "b", .ndim = 1, .shape = { 2 } }, { .shape = { 2 } }, 1 },
        { { .name = "a", .ndim = 1, .shape = { 3 } }, { .shape = { 2 } }, 1 },
        { { .name = "a", .ndim = 1, .shape = { 3 } },
          { .offset = { 1 }, .shape = { 2 } },
          1 },
        { { .name = "a", .ndim = 1, .shape = { 2 } }, { .shape = { 2 } }, 2 },
        { { .name = "a", .ndim = 1, .shape = { 2 }, .dtype = ACCEL_I32 },
          { .shape = { 2 } },
          1 },
        { { .name = "a", .ndim = 1, .shape = { 2 }, .blob = true },
          { .shape = { 2 } },
          1 },
        { { .name = "a", .ndim = 2, .shape = { 2, 0 } }, { .shape = { 2, 0 } }, 1 },
        { { .name = "a", .ndim = 2, .shape = { 3, 2 } }, { .shape = { 2, 1 } }, 1 },
        { { .name = "a", .ndim = 2, .shape = { 2, 3 } }, { .shape = { 2, 1 } }, 1 },
        { { .name = "a", .ndim = 2, .shape = { 2, 3 } }, { .shape = { 1, 2 } }, 1 },
        { { .name = "a", .ndim = 8, .shape = { 2, 2, 2, 2, 2, 2, 2, 2 } },
          { .shape = { 2, 2, 2, 2, 2, 2, 2, 1 } },
          1 },
        { { .name = "a", .ndim = 8, .shape = { 2, 2, 2, 2, 2, 2, 2, 2 } },
          { .offset = { 0, 0, 0, 0, 0, 0, 0, 1 }, .shape = { 2, 2, 2, 2, 2, 2, 2, 1 } },
          1 },
    };
    uint64_t seed[ACCEL_ARRAY_SIZE(box)];
    int alike = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(box); i++) {
        struct ckpt_tensor t = box[i].t;
        struct ckpt_mbox b = box[i].b;
        struct ckpt_manifest m = { .step = box[i].step, .tensor = &t, .tensors = 1 };

        seed[i] = ckpt_box_seed(&m, &b);
        for (size_t k = 0; k < i; k++)
            alike += seed[i] == seed[k];
    }
    tap_is_int(alike, 0, "%zu boxes, each with its own seed", ACCEL_ARRAY_SIZE(box));
}

static void test_pieces(void)
{
    static const int64_t bytes[] = { 1, CKPT_PIECE_BYTES - 1, CKPT_PIECE_BYTES,
                                     CKPT_PIECE_BYTES + 1, 3 * CKPT_PIECE_BYTES };

    tap_is_int(CKPT_PIECE_BYTES, 1048576, "a piece");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bytes); i++) {
        struct ckpt_manifest m = { 0 };
        struct ckpt_mbox b = { .bytes = bytes[i] };
        accel_error_t err = { 0 };
        int64_t sum = 0, most = 0, least = bytes[i];

        if (ckpt_manifest_add_box(&m, &b, &err))
            abort();
        for (size_t k = 0; k < m.box[0].pieces; k++) {
            int64_t n = ckpt_piece_bytes(&b, k);

            sum += n;
            most = n > most ? n : most;
            least = n < least ? n : least;
        }
        tap_ok(sum == bytes[i] && most <= 1048576 && least > 0 &&
                   m.box[0].pieces == (size_t)((bytes[i] + 1048575) / 1048576),
               "%lld bytes: %zu pieces of %lld to %lld", (long long)bytes[i],
               m.box[0].pieces, (long long)least, (long long)most);
        ckpt_manifest_free(&m);
    }
}

/* The bytes of a file outside its boxes, put side by side here and hashed at once. */
static void test_file_hash(void)
{
    enum { BYTES = 3 * CKPT_PIECE_BYTES + 77 };
    static const struct {
        const char *what;
        size_t count;
        struct ckpt_mbox box[3]; /* at, bytes */
    } cases[] = {
        { "no box", 0, { { 0 } } },
        { "one in the middle", 1, { { .at = 5, .bytes = 100 } } },
        { "one at the start", 1, { { .at = 0, .bytes = 1 } } },
        { "one at the end", 1, { { .at = BYTES - 9, .bytes = 9 } } },
        { "side by side", 2, { { .at = 70, .bytes = 10 }, { .at = 80, .bytes = 10 } } },
        { "with a gap of one",
          2,
          { { .at = 70, .bytes = 10 }, { .at = 81, .bytes = 10 } } },
        { "with a gap of more than a piece",
          2,
          { { .at = 9, .bytes = 9 }, { .at = CKPT_PIECE_BYTES + 19, .bytes = 10 } } },
        { "all of it", 1, { { .at = 0, .bytes = BYTES } } },
    };
    unsigned char *file = malloc(BYTES), *rest = malloc(BYTES);
    char name[] = "/tmp/accel-format.XXXXXX";
    int fd = mkstemp(name);

    for (int i = 0; i < BYTES; i++)
        file[i] = (unsigned char)(i * 2654435761u >> 24);
    if (fd < 0 || pwrite_all(fd, file, BYTES, 0))
        abort();
    unlink(name);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        struct ckpt_file f = { .name = "rank_00000-of-00001.h5", .bytes = BYTES };
        struct ckpt_mbox box[3];
        struct ckpt_manifest m = { .step = 41, .world = 1, .file = &f, .box = box };
        const size_t order[3] = { 0, 1, 2 };
        struct ckpt_hash got = { 0 };
        accel_error_t err = { 0 };
        size_t n = 0;
        XXH128_hash_t want;

        memcpy(box, cases[i].box, sizeof(box));
        for (int64_t k = 0; k < BYTES; k++) {
            bool inside = false;

            for (size_t b = 0; b < cases[i].count; b++)
                inside |= k >= box[b].at && k < box[b].at + box[b].bytes;
            if (!inside)
                rest[n++] = file[k];
        }
        want = XXH3_128bits_withSeed(rest, n, XXH3_64bits(f.name, 22) + 41);
        tap_ok(ckpt_meta_hash(&m, 0, fd, order, cases[i].count, &got, &err) ==
                       ACCEL_OK &&
                   got.hi == want.high64 && got.lo == want.low64,
               "hash of a file, %s: %zu bytes", cases[i].what, n);
        f.bytes++;
        tap_ok(ckpt_meta_hash(&m, 0, fd, order, cases[i].count, &got, &err) ==
                       ACCEL_ECORRUPT &&
                   strstr(err.text, "truncated"),
               "and of a file that is shorter: %s", err.text);
    }
    close(fd);
    free(file);
    free(rest);
}

/* ---- names ----------------------------------------------------------------------- */

static void test_names(void)
{
    static const struct {
        const char *name;
        bool good;
    } cases[] = {
        { "a", true },     { "a/b", true },   { "!/~", true },    { "...", true },
        { "a/.b", true },  { "..a", true },   { "a/b..", true },  { ".a/..b", true },
        { "", false },     { ".", false },    { "..", false },    { "/", false },
        { "/a", false },   { "a/", false },   { "a//b", false },  { "a/.", false },
        { "a/..", false }, { "./a", false },  { "../a", false },  { "a/../b", false },
        { "a@", false },   { "a b", false },  { "a\tb", false },  { "a\x7f", false },
        { "\x80", false }, { "a\n", false },  { "a/./b", false }, { "@1", false },
        { " ", false },    { "\x1f", false }, { "\xff", false },
    };
    char name[520];
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        if (!ckpt_name_problem(cases[i].name) != cases[i].good) {
            tap_diag("'%s': %s", cases[i].name, ckpt_name_problem(cases[i].name));
            wrong++;
        }
    tap_is_int(wrong, 0, "%zu names of tensors", ACCEL_ARRAY_SIZE(cases));
    memset(name, 'x', sizeof(name));
    name[511] = '\0';
    tap_ok(!ckpt_name_problem(name), "511 bytes");
    name[511] = 'x';
    name[512] = '\0';
    tap_ok(ckpt_name_problem(name) && ckpt_name_problem(NULL), "512 bytes, and none");
    tap_ok(ckpt_word_ok("a", 2) && ckpt_word_ok("12.0", 5) && ckpt_word_ok("!~", 64),
           "words");
    tap_ok(!ckpt_word_ok("ab", 2) && !ckpt_word_ok("", 9) && !ckpt_word_ok(NULL, 9) &&
               !ckpt_word_ok(".a", 9) && !ckpt_word_ok("a/b", 9) &&
               !ckpt_word_ok("a b", 9) && !ckpt_word_ok("a\x7f", 9) &&
               !ckpt_word_ok("\xe9", 9) && !ckpt_word_ok("a\n", 9),
           "what is no word");
    ckpt_shard_name(name, 2, 31);
    tap_is_str(name, "rank_00002-of-00031.h5", "a file's name");
}

/* ---- the records of the ranks ---------------------------------------------------- */

static accel_error_t error;

static void add_tensor(struct ckpt_manifest *m, struct ckpt_tensor t)
{
    if (ckpt_manifest_add_tensor(m, &t, &error))
        abort();
}

/* A box of the last tensor; its pieces are told apart by `mark`. */
static void add_box(struct ckpt_manifest *m, struct ckpt_mbox b, uint64_t mark)
{
    b.tensor = m->tensors - 1;
    if (ckpt_manifest_add_box(m, &b, &error))
        abort();
    for (size_t k = 0; k < m->box[m->boxes - 1].pieces; k++)
        m->piece[m->box[m->boxes - 1].piece + k] =
            (struct ckpt_hash){ mark, 0xabcdef0000000000 + k };
}

static void start(struct ckpt_manifest *m, int world)
{
    *m = (struct ckpt_manifest){ .step = 12, .world = world };
    strcpy(m->version, "9.8");
    strcpy(m->owner, "1.0");
    strcpy(m->sharding, "NO_SHARD");
    strcpy(m->run_id, "a b");
    m->file = calloc((size_t)world, sizeof(*m->file));
    for (int r = 0; r < world; r++)
        m->file[r] =
            (struct ckpt_file){ .bytes = 8000 + r, .meta = { (uint64_t)r, 255 } };
}

static void take_file(struct ckpt_manifest *part, int rank)
{
    ckpt_shard_name(part->file[rank].name, rank, part->world);
}

static void parts(struct ckpt_manifest part[2])
{
    for (int r = 0; r < 2; r++) {
        start(&part[r], 2);
        take_file(&part[r], r);
    }
    add_tensor(&part[0],
               (struct ckpt_tensor){
                   .name = "m/b", .dtype = ACCEL_BF16, .ndim = 2, .shape = { 2, 3 } });
    add_box(&part[0],
            (struct ckpt_mbox){
                .offset = { 1, 0 }, .shape = { 1, 3 }, .at = 20, .bytes = 6 },
            1);
    add_tensor(&part[0], (struct ckpt_tensor){ .name = "b",
                                               .dtype = ACCEL_U8,
                                               .blob = true,
                                               .ndim = 1,
                                               .shape = { 1048577 } });
    add_box(&part[0],
            (struct ckpt_mbox){
                .offset = { 0 }, .shape = { 1048577 }, .at = 30, .bytes = 1048577 },
            2);
    add_tensor(&part[0],
               (struct ckpt_tensor){ .name = "m/a", .dtype = ACCEL_I64, .ndim = 0 });
    add_box(&part[0], (struct ckpt_mbox){ .at = 8, .bytes = 8 }, 3);
    add_tensor(&part[1], (struct ckpt_tensor){ .name = "m/empty",
                                               .dtype = ACCEL_F32,
                                               .ndim = 2,
                                               .shape = { 0, 5 } });
    add_tensor(&part[1],
               (struct ckpt_tensor){
                   .name = "m/b", .dtype = ACCEL_BF16, .ndim = 2, .shape = { 2, 3 } });
    add_box(&part[1],
            (struct ckpt_mbox){
                .offset = { 0, 2 }, .shape = { 1, 1 }, .at = 50, .bytes = 2 },
            4);
    add_tensor(&part[1],
               (struct ckpt_tensor){
                   .name = "m/b", .dtype = ACCEL_BF16, .ndim = 2, .shape = { 2, 3 } });
    add_box(&part[1],
            (struct ckpt_mbox){
                .offset = { 0, 0 }, .shape = { 1, 2 }, .at = 60, .bytes = 4 },
            5);
}

#define Z14 "00000000000000"
#define Z15 Z14 "0"
#define L15 "abcdef000000000"
static const char joined[] =
    "accel-checkpoint 1\nlibrary 9.8\nstep 12\nworld 2\nowner 1.0\nsharding NO_SHARD\n"
    "run-id a b\npiece 1048576\n"
    "F rank_00000-of-00002.h5 8000 " Z15 "0" Z14 "ff\n"
    "F rank_00001-of-00002.h5 8001 " Z15 "1" Z14 "ff\n"
    "T m/a int64 -\nB - - 0 8 8\nC " Z15 "3" L15 "0\n"
    "T m/b bfloat16 2x3\n"
    "B 0x0 1x2 1 60 4\nC " Z15 "5" L15 "0\n"
    "B 0x2 1x1 1 50 2\nC " Z15 "4" L15 "0\n"
    "B 1x0 1x3 0 20 6\nC " Z15 "1" L15 "0\n"
    "T m/empty float32 0x5\n"
    "S b 1048577\nB 0 1048577 0 30 1048577\nC " Z15 "2" L15 "0\nC " Z15 "2" L15 "1\n";
/* Of rank 1 alone: its file is number 0. */
static const char fragment[] =
    "accel-checkpoint 1\nlibrary 9.8\nstep 12\nworld 2\nowner 1.0\nsharding NO_SHARD\n"
    "run-id a b\npiece 1048576\n"
    "F rank_00001-of-00002.h5 8001 " Z15 "1" Z14 "ff\n"
    "T m/b bfloat16 2x3\n"
    "B 0x0 1x2 0 60 4\nC " Z15 "5" L15 "0\n"
    "B 0x2 1x1 0 50 2\nC " Z15 "4" L15 "0\n"
    "T m/empty float32 0x5\n";

/* The text without its last line, which must be the hash of the rest. */
static bool is_text(const struct ckpt_manifest *m, int only_file, const char *want)
{
    struct strbuf b = { 0 };
    char last[40];
    XXH128_hash_t h = XXH3_128bits(want, strlen(want));
    bool same;

    snprintf(last, sizeof(last), "X %016llx%016llx\n", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    if (ckpt_manifest_format(m, only_file, &b, &error))
        return false;
    same = b.len == strlen(want) + 35 && memcmp(b.s, want, strlen(want)) == 0 &&
           memcmp(b.s + strlen(want), last, 35) == 0;
    if (!same)
        tap_diag("%.*s", (int)b.len, b.s);
    strbuf_free(&b);
    return same;
}

static void test_records(void)
{
    struct ckpt_manifest part[2], m = { 0 }, again = { 0 };
    struct strbuf text = { 0 };
    const struct ckpt_tensor *t;

    parts(part);
    start(&m, 2);
    for (int r = 0; r < 2; r++)
        if (ckpt_manifest_sort(&part[r], &error) ||
            ckpt_manifest_merge(&m, &part[r], r, &error))
            abort();
    tap_is_int(ckpt_manifest_sort(&m, &error), ACCEL_OK, "records of two ranks: %s",
               error.text);
    tap_ok(is_text(&m, -1, joined), "their MANIFEST, byte for byte");
    tap_is_int((long long)m.tensors, 4, "a tensor of two ranks is one");
    t = ckpt_manifest_find(&m, false, "m/b");
    tap_ok(t && !t->blob && t->boxes == 3 && m.box[t->box].at == 60, "found by name");
    t = ckpt_manifest_find(&m, true, "b");
    tap_ok(t && t->blob && t->boxes == 1, "a blob, too");
    tap_ok(!ckpt_manifest_find(&m, true, "m/b") &&
               !ckpt_manifest_find(&m, false, "b") &&
               !ckpt_manifest_find(&m, false, "m") &&
               !ckpt_manifest_find(&m, false, "m/z"),
           "and nothing else");
    tap_ok(is_text(&part[1], 1, fragment), "what rank 1 hands in");
    if (ckpt_manifest_format(&part[1], 1, &text, &error))
        abort();
    tap_is_int(ckpt_manifest_parse(&again, text.s, text.len, true, "rank 1", &error),
               ACCEL_OK, "it is read as a fragment: %s", error.text);
    tap_ok(again.file && again.file[1].bytes == 8001 && !again.file[0].name[0] &&
               again.boxes == 2 && again.box[0].file == 1 && again.box[1].piece == 1,
           "of rank 1");
    ckpt_manifest_free(&again);
    tap_is_int(ckpt_manifest_parse(&again, text.s, text.len, false, "rank 1", &error),
               ACCEL_ECORRUPT, "and not as a MANIFEST: %s", error.text);
    strbuf_free(&text);
    ckpt_manifest_free(&m);
    ckpt_manifest_free(&part[0]);
    ckpt_manifest_free(&part[1]);
}

/* Two ranks that do not describe a tensor alike. */
static void test_disagree(void)
{
    static const struct {
        const char *what;
        struct ckpt_tensor t;
        accel_status_t want;
    } cases[] = {
        { "alike", { .dtype = ACCEL_F32, .ndim = 2, .shape = { 2, 3 } }, ACCEL_OK },
        { "another dtype",
          { .dtype = ACCEL_I32, .ndim = 2, .shape = { 2, 3 } },
          ACCEL_EMISMATCH },
        { "another shape",
          { .dtype = ACCEL_F32, .ndim = 2, .shape = { 2, 4 } },
          ACCEL_EMISMATCH },
        { "fewer dimensions",
          { .dtype = ACCEL_F32, .ndim = 1, .shape = { 2 } },
          ACCEL_EMISMATCH },
        { "a dimension of 0 more",
          { .dtype = ACCEL_F32, .ndim = 3, .shape = { 2, 3, 0 } },
          ACCEL_EMISMATCH },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        struct ckpt_manifest m;
        struct ckpt_tensor t = cases[i].t;

        start(&m, 1);
        t.name = "model/a";
        add_tensor(&m, (struct ckpt_tensor){ .name = "model/a",
                                             .dtype = ACCEL_F32,
                                             .ndim = 2,
                                             .shape = { 2, 3 } });
        add_tensor(&m, t);
        error = (accel_error_t){ 0 };
        tap_ok(ckpt_manifest_sort(&m, &error) == cases[i].want &&
                   (!cases[i].want || strcmp(error.where, "model/a") == 0),
               "%s: %s", cases[i].what, error.text);
        ckpt_manifest_free(&m);
    }
}

/* More than the first allocation holds, in the opposite order. */
static void test_many(void)
{
    enum { N = 1000 };
    struct ckpt_manifest m;
    char name[16];
    int wrong = 0;

    start(&m, 1);
    for (int i = N; i-- > 0;) {
        snprintf(name, sizeof(name), "t%04d", i);
        add_tensor(&m,
                   (struct ckpt_tensor){
                       .name = name, .dtype = ACCEL_U8, .ndim = 1, .shape = { 2 } });
        for (int k = 2; k-- > 0;)
            add_box(&m,
                    (struct ckpt_mbox){
                        .offset = { k }, .shape = { 1 }, .at = 2 * i + k, .bytes = 1 },
                    (uint64_t)(2 * i + k));
    }
    wrong += ckpt_manifest_sort(&m, &error) != ACCEL_OK;
    for (int i = 0; i < N; i++) {
        const struct ckpt_tensor *t;

        snprintf(name, sizeof(name), "t%04d", i);
        t = ckpt_manifest_find(&m, false, name);
        wrong += !t || t != &m.tensor[i] || t->boxes != 2 || t->box != 2 * (size_t)i;
        for (size_t k = 0; t && k < 2; k++) {
            const struct ckpt_mbox *b = &m.box[t->box + k];

            wrong += b->tensor != (size_t)i || b->at != 2 * i + (int)k ||
                     m.piece[b->piece].hi != (uint64_t)b->at;
        }
    }
    tap_is_int(wrong, 0, "%d tensors, sorted with their boxes", N);
    ckpt_manifest_free(&m);
}

int main(void)
{
    test_examples();
    test_seeds_differ();
    test_pieces();
    test_file_hash();
    test_names();
    test_records();
    test_disagree();
    test_many();
    return tap_done();
}
