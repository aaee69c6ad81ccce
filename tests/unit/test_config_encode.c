/* SPDX-License-Identifier: Apache-2.0
 *
 * Canonical text of a config: decode(encode(c)) == c for random configs with odd
 * strings, printable and bounded; damaged, cut, extended and foreign text is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config/read/document.h"
#include "tests/tap.h"

static uint64_t state = 20240521;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Any bytes but NUL, of any length up to `max`. */
static void random_text(char *s, size_t max)
{
    size_t n = next() % 4 ? next() % 20 : next() % (max + 1);

    for (size_t i = 0; i < n; i++)
        s[i] = next() % 3 ? ";%=@\"'\\ \n,"[next() % 10] : (char)(1 + next() % 255);
    memset(s + n, 0, max + 1 - n);
}

static void random_config(struct config *c)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    config_defaults(c);
    for (size_t i = 0; i < n; i++) {
        char *field = (char *)c + k[i].offset;
        unsigned words = 0;

        c->locked[i] = !k[i].moved_to && next() % 8 == 0;
        if (k[i].offset == SIZE_MAX)
            continue;
        c->origin[i] = (unsigned char)(next() % 4);
        c->line[i] = c->origin[i] ? (int)(next() % 1000000) : 0;
        while (k[i].type == TYPE_ENUM && k[i].values[words])
            words++;
        if (k[i].type == TYPE_BOOL)
            *(bool *)field = next() & 1;
        else if (k[i].type == TYPE_ENUM)
            *(unsigned *)field = (unsigned)(next() % words);
        else if (k[i].type == TYPE_INT)
            *(int64_t *)field =
                (int64_t)k[i].min + (int64_t)(next() % (uint64_t)(k[i].max - k[i].min));
        else if (k[i].type == TYPE_NUMBER)
            *(double *)field = (double)(next() >> 11) * 0x1p-53 * k[i].max;
        else
            random_text(field, (size_t)k[i].max);
    }
    c->has_accel_section = next() & 1;
    snprintf(c->job_path, sizeof(c->job_path), "/job;%%s %c/\u00e9=%d.yaml",
             'a' + (int)(next() % 26), (int)(next() % 1000));
}

static void test_round_trip(void)
{
    static char text[16 << 10], again[16 << 10];
    int wrong = 0, unprintable = 0;

    for (int i = 0; i < 2000; i++) {
        struct config a, b;

        random_config(&a);
        if (config_encode(&a, text, sizeof(text), NULL) ||
            config_decode(text, &b, NULL) ||
            config_encode(&b, again, sizeof(again), NULL) || strcmp(text, again) ||
            strcmp(a.ckpt_dir, b.ckpt_dir) || strcmp(a.job_path, b.job_path) ||
            a.ckpt_every_minutes != b.ckpt_every_minutes ||
            memcmp(a.origin, b.origin, sizeof(a.origin)) ||
            memcmp(a.locked, b.locked, sizeof(a.locked)) ||
            memcmp(a.line, b.line, sizeof(a.line)))
            wrong++;
        for (const char *s = text; *s; s++)
            unprintable += *s < 0x20 || *s > 0x7e;
    }
    tap_is_int(wrong, 0, "2000 random configs come back equal");
    tap_is_int(unprintable, 0, "the text is printable ASCII");
}

static void test_damage(void)
{
    static char text[16 << 10], bad[32 << 10];
    struct config c, before;
    accel_error_t err;
    size_t n;
    int taken = 0;

    config_defaults(&c);
    snprintf(c.ckpt_dir, sizeof(c.ckpt_dir), "/scratch/x");
    config_encode(&c, text, sizeof(text), NULL);
    before = c;
    n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 7; bit++) {
            strcpy(bad, text);
            bad[i] = (char)(bad[i] ^ 1 << bit);
            taken += config_decode(bad, &c, &err) == ACCEL_OK;
        }
        strcpy(bad, text);
        bad[i] = '\0';
        taken += config_decode(bad, &c, &err) == ACCEL_OK;
    }
    snprintf(bad, sizeof(bad), "%s0", text);
    taken += config_decode(bad, &c, &err) == ACCEL_OK;
    tap_is_int(taken, 0, "every flipped bit and every cut is refused");
    tap_is_int(err.code, ACCEL_ECORRUPT, "as damage");
    tap_ok(err.hint[0] != '\0', "with a cure");
    tap_ok(!memcmp(&c, &before, sizeof(c)), "and leaves the output alone");
    snprintf(bad, sizeof(bad), "accel2;%s", text + 7);
    tap_is_int(config_decode(bad, &c, &err), ACCEL_EMISMATCH, "another version");
    memset(bad, 'x', sizeof(bad) - 1);
    bad[sizeof(bad) - 1] = '\0';
    memcpy(bad, "accel1;", 7);
    tap_is_int(config_decode(bad, &c, &err), ACCEL_ECORRUPT, "too long");
    tap_is_int(config_decode("", &c, &err), ACCEL_EMISMATCH, "empty");
}

static void test_room(void)
{
    static char text[16 << 10];
    struct config c;
    accel_error_t err;

    config_defaults(&c);
    memset(c.ckpt_dir, '\x01', sizeof(c.ckpt_dir) - 1);
    memset(c.transformer_cls, '%', sizeof(c.transformer_cls) - 1);
    tap_is_int(config_encode(&c, text, sizeof(text), &err), ACCEL_OK,
               "the longest config fits 16 KiB");
    tap_is_int(config_encode(&c, text, 100, &err), ACCEL_ECONFIG,
               "a small buffer does not");
}

/* debug: true, in line 7 of the job file; all else is the default. */
static void given_config(struct config *c)
{
    int row = config_row("debug");

    config_defaults(c);
    c->debug = true;
    c->origin[row] = ORIGIN_FILE;
    c->line[row] = 7;
}

/* Writes `text` with `as` in place of `in` and the right hash. False: `in` is not
 * in it. */
static bool forge(char *out, const char *text, const char *in, const char *as)
{
    const char *at = strstr(text, in), *end = strstr(text, ";xxh3=");
    int n;

    if (!at || !end)
        return false;
    n = sprintf(out, "%.*s%s%.*s", (int)(at - text), text, as,
                (int)(end - at - (long)strlen(in)), at + strlen(in));
    sprintf(out + n, ";xxh3=%016llx", (unsigned long long)XXH3_64bits(out, (size_t)n));
    return true;
}

/* Texts with the right hash that nobody has written: what they hold is looked at. */
static void test_forged(void)
{
    static const struct {
        const char *in, *as;
    } forged[] = {
        { ";file=", ";file=a%00b" },
        { ";file=", ";file=a%0" },
        { ";file=", ";file=%zz" },
        { ";file=", ";file=%3b" },
        { ";file=", ";file=%A" },
        { ";file=", ";file=%:0" },
        { ";file=", ";file=%@0" },
        { ";file=", ";file=%G0" },
        { ";accel=0", ";accel=2" },
        { ";accel=0", ";accel=0;x" },
        { "debug@f7=", "debug@x7=" },
        { "debug@f7=", "debug@fx=" },
        { "debug@f7=", "debgu@f7l7=" },
        { "debug@f7=true", "debug@f7=tr%00" },
        { ";file=", ";deepspeed=a%00;file=" },
        { ";file=", ";deepspeed=0123456789abcdef0123456789abcdef"
                    "0123456789abcdef0123456789abcdef;file=" },
    };
    static char text[16 << 10], changed[16 << 10];
    struct config cfg, back;

    given_config(&cfg);
    tap_is_int(config_encode(&cfg, text, sizeof(text), NULL), ACCEL_OK, "encoded");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forged); i++) {
        accel_error_t err = { 0 };

        tap_ok(forge(changed, text, forged[i].in, forged[i].as) &&
                   config_decode(changed, &back, &err) != ACCEL_OK &&
                   err.message == 311,
               "%s in place of %s is damage", forged[i].as, forged[i].in);
    }
}

/* The text to the byte, and what is said of others. */
static void test_frame(void)
{
    static const char want[] = "accel1;debug@f7=true;file=/%C3%A4%25%3B%7F%09~ =;"
                               "accel=0;xxh3=0dea81359e288816";
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "accel1;", "damaged: wrong length" },
        { "accel1;xxh3=0000000000000000", "damaged: wrong length" },
        { "accel1;;xxh3=000000000000000", "damaged: wrong length" },
        { "accel1;;xxh3=0000000000000000", "damaged: wrong hash" },
        { "accel1;;xxh4=0000000000000000", "damaged: no hash" },
        { "accel1;;xxh3=00000000000000000", "damaged: no hash" },
        { "accel1;accel=0;xxh3=283C81CF9C1B4DD0", "damaged: wrong hash" },
        { "accel1;accel=0;xxh3=283c81cf9c1b4dd0", "" },
        { "accel;;xxh3=0000000000000000", "a version that" },
    };
    static char text[16 << 10];
    struct config cfg, back;

    given_config(&cfg);
    snprintf(cfg.job_path, sizeof(cfg.job_path), "/\xc3\xa4%%;\x7f\t~ =");
    config_encode(&cfg, text, sizeof(text), NULL);
    tap_is_str(text, want, "the text");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { 0 };

        config_decode(rows[i].text, &back, &err);
        tap_ok(*rows[i].says ? strstr(err.text, rows[i].says) != NULL : !err.code,
               "%s: %s", rows[i].text, err.text);
    }
}

/* ---- plugin and library of two releases ------------------------------------------ */

/* The row that the schema of an older library does not have; -1: it has all. */
static int struck = -1;

const struct config_key *__real_config_schema(size_t *count_out);
const struct config_key *__wrap_config_schema(size_t *count_out);

const struct config_key *__wrap_config_schema(size_t *count_out)
{
    static struct config_key older[CONFIG_MAX_KEYS];
    const struct config_key *all = __real_config_schema(count_out);

    if (struck < 0)
        return all;
    memcpy(older, all, *count_out * sizeof(*all));
    older[struck].section = "";
    older[struck].name = "-";
    return older;
}

/* Some text that the row takes and that is not its default. */
static bool other_value(struct config *c, const struct config_key *k, char *buf,
                        size_t len)
{
    static const char *const tries[] = { "true", "false",          "2", "0.25", "x",
                                         "auto", "true,false,true" };
    char normal[CONFIG_GIVEN_BYTES];
    struct config fresh;

    config_defaults(&fresh);
    config_value_text(&fresh, k, normal, sizeof(normal));
    for (size_t i = 0; k->values && k->values[i]; i++) {
        snprintf(buf, len, "%s", k->values[i]);
        if (strcmp(normal, buf) && value_set(c, k, buf) == VALUE_OK)
            return true;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(tries); i++) {
        snprintf(buf, len, "%s", tries[i]);
        if (strcmp(normal, buf) && value_set(c, k, buf) == VALUE_OK)
            return true;
    }
    return false;
}

/* The library lacks one row, each in turn, and the plugin has it. */
static void test_older_library(void)
{
    static char text[16 << 10];
    size_t n;
    const struct config_key *k = config_schema(&n);
    int lost = 0, refused = 0, unnamed = 0, taken = 0, rows = 0, single = 0;

    for (size_t i = 0; i < n; i++) {
        struct config cfg, back;
        char path[128], value[64];
        accel_error_t err = { 0 };

        if (k[i].moved_to)
            continue;
        rows++;
        config_key_path(&k[i], path, sizeof(path));
        given_config(&cfg);
        config_encode(&cfg, text, sizeof(text), NULL);
        struck = strcmp(path, "debug") ? (int)i : -1;
        lost += config_decode(text, &back, NULL) != ACCEL_OK || !back.debug;
        struck = -1;
        config_defaults(&cfg);
        cfg.origin[i] = ORIGIN_FILE;
        cfg.line[i] = 12;
        config_encode(&cfg, text, sizeof(text), NULL);
        struck = (int)i;
        refused += config_decode(text, &back, NULL) != ACCEL_OK;
        struck = -1;
        if (!other_value(&cfg, &k[i], value, sizeof(value))) {
            single++;
            continue;
        }
        config_encode(&cfg, text, sizeof(text), NULL);
        taken += config_decode(text, &back, NULL) != ACCEL_OK || back.line[i] != 12;
        struck = (int)i;
        if (config_decode(text, &back, &err) != ACCEL_EMISMATCH || err.message != 127 ||
            !strstr(err.text, path) || !strstr(err.text, value)) {
            tap_diag("%s: %s", path, err.text);
            unnamed++;
        }
        struck = -1;
    }
    tap_ok(rows - single > 100, "%d rows, each struck from the library's schema", rows);
    tap_is_int(lost, 0, "not given: the older library takes the config");
    tap_is_int(refused, 0, "given at its default: so it does");
    tap_is_int(unnamed, 0, "any other value is refused by name, as A0127");
    tap_is_int(taken, 0, "where the library has the row, the value arrives");
}

/* What another release may have written. */
static void test_other_release(void)
{
    static const struct {
        const char *in, *as, *name; /* NULL: it is taken */
    } rows[] = {
        { "debug@f7=true", "debug@f7=true;accel.later.key@f9=3",
          "'accel.later.key' at '3'" },
        { "debug@f7=true", "debug@f7=true;accel.later.key@s09l=a%3Bb", NULL },
        { "debug@f7=true", "debug@f7=true;accel.later.key@s9l=a%3Bb",
          "'accel.later.key' at 'a;b'" },
        { "debug@f7=true", "debug@f7=maybe", "'debug' at 'maybe'" },
        { ";accel=0", ";accel=0;later=1", "'later' at '1'" },
        { "debug@f7=true", "debug@f7=true;dynamo_backend@f9=INDUCTOR", NULL },
    };
    static char text[16 << 10], changed[16 << 10];
    struct config cfg, back;
    char word[32];

    given_config(&cfg);
    config_encode(&cfg, text, sizeof(text), NULL);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { 0 };
        bool forged = forge(changed, text, rows[i].in, rows[i].as);
        accel_status_t st = config_decode(changed, &back, &err);

        if (rows[i].name)
            tap_ok(forged && st == ACCEL_EMISMATCH && err.message == 127 &&
                       strstr(err.text, rows[i].name),
                   "%s: refused by name: %s", rows[i].as, err.text);
        else
            tap_ok(forged && st == ACCEL_OK && back.debug, "%s: taken %s", rows[i].as,
                   err.text);
    }
    tap_is_str(config_get(&back, "dynamo_config.dynamo_backend", word, sizeof(word)),
               "INDUCTOR", "an old name is the new key");
}

/* What the plugin of 0.1.0 wrote, every key with a field in it: a later library takes it,
 * and what nobody gave is still the default. */
static void test_older_plugin(const char *dir)
{
    static const char *const names[] = { "defaults", "all-ours", "questionnaire" };
    static char text[16 << 10], copy[16 << 10], value[CONFIG_GIVEN_BYTES];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        char path[512], *rest, *item;
        struct config cfg, fresh;
        accel_error_t err = { 0 };
        int keys = 0, wrong = 0;
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s-0.1.0.txt", dir, names[i]);
        f = fopen(path, "r");
        text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
        if (f)
            fclose(f);
        text[strcspn(text, "\n")] = '\0';
        tap_is_int(config_decode(text, &cfg, &err), ACCEL_OK, "%s of 0.1.0: %s",
                   names[i], err.text);
        config_defaults(&fresh);
        strcpy(copy, text);
        for (item = strtok_r(copy, ";", &rest); item;
             item = strtok_r(NULL, ";", &rest)) {
            char *mark = strchr(item, '@'), *is = strchr(item, '=');

            if (!mark || strchr(item, '%'))
                continue;
            *mark = '\0';
            keys++;
            config_get(mark[1] == 'd' ? &fresh : &cfg, item, value, sizeof(value));
            if (!strcmp(value, is + 1))
                continue;
            tap_diag("%s is %s, but was %s", item, value, is + 1);
            wrong++;
        }
        tap_ok(keys > 40 && !wrong, "its %d values", keys);
    }
}

int main(void)
{
    const char *src = getenv("ACCEL_SRC");
    char dir[400];

    snprintf(dir, sizeof(dir), "%s/tests/data/config/resolved", src ? src : ".");
    test_round_trip();
    test_damage();
    test_room();
    test_forged();
    test_frame();
    test_older_library();
    test_other_release();
    test_older_plugin(dir);
    return tap_done();
}
