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

#include "config/config.h"
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
        c->line[i] = (int)(next() % 1000000);
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

/* Texts with the right hash that nobody has written: what they hold is looked at. */
static void test_forged(void)
{
    static const struct {
        const char *in, *as;
    } forged[] = {
        { ";file=", ";file=a%00b" },         { ";file=", ";file=a%0" },
        { ";file=", ";file=%zz" },           { ";accel=0", ";accel=2" },
        { ";accel=0", ";accel=0;x=1" },      { "debug@d0=", "debug@x0=" },
        { "debug@d0=", "debug@dx=" },        { "debug@d0=", "debgu@d0=" },
        { "debug@d0=false", "debug@d0=no" }, { ";file=", ";deepspeed=a%00;file=" },
    };
    static char text[16 << 10], changed[16 << 10];
    struct config cfg, back;

    config_defaults(&cfg);
    tap_is_int(config_encode(&cfg, text, sizeof(text), NULL), ACCEL_OK, "encoded");
    *strstr(text, ";xxh3=") = '\0';
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(forged); i++) {
        const char *at = strstr(text, forged[i].in);
        accel_error_t err = { 0 };
        int n = at ? snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text),
                              text, forged[i].as, at + strlen(forged[i].in))
                   : 0;

        snprintf(changed + n, sizeof(changed) - (size_t)n, ";xxh3=%016llx",
                 (unsigned long long)XXH3_64bits(changed, (size_t)n));
        tap_ok(at && config_decode(changed, &back, &err) != ACCEL_OK &&
                   err.message == 311,
               "%s in place of %s is damage", forged[i].as, forged[i].in);
    }
}

int main(void)
{
    test_round_trip();
    test_damage();
    test_room();
    test_forged();
    return tap_done();
}
