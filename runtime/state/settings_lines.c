/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that a restart may change: those in which a run differs from the checkpoint
 * that it resumes from. In: both texts. Out: a warning for each, never an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/loader.h"
#include "state/state.h"
#include "common/key_lines.h"
#include "handle/run.h"

/* of every list of settings: put_settings of state.c begins with it */
#define FIRST_KEY "steps="

/* A line "key=value". */
struct setting {
    char key[64];
    /* a group's line has up to 200 characters of its pattern */
    char value[320];
};

/* The line at `at`; returns where the next one begins, NULL behind the last. */
static const char *next_setting(const char *at, struct setting *s)
{
    const size_t key = strcspn(at, "=\n"), n = strcspn(at, "\n");

    if (!*at)
        return NULL;
    snprintf(s->key, sizeof(s->key), "%.*s", (int)key, at);
    snprintf(s->value, sizeof(s->value), "%.*s", n > key ? (int)(n - key - 1) : 0,
             at + key + (n > key));
    return at + n + (at[n] == '\n');
}

/* Their absence is a form, which moments_warn and masters_warn name. */
static bool is_form(const char *key)
{
    return strncmp(key, "moments", 7) == 0 || strncmp(key, "masters", 7) == 0;
}

/* The settings in a trainer state: from their first line to the lines of loaders. */
static const char *settings_of(const char *text)
{
    while (*text && strncmp(text, FIRST_KEY, strlen(FIRST_KEY)) != 0) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return text;
}

/* Samples of a step, of the lines of a text; 0: not known. */
static long long global_batch(const char *text)
{
    static const char *const factors[] = { "batch", "accumulate", "world_size" };
    long long samples = 1;
    char value[32];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(factors); i++)
        samples *= key_line(text, factors[i], value, sizeof(value))
                       ? strtoll(value, NULL, 10)
                       : 0;
    return samples;
}

/* It follows from three settings, and from the number of ranks alone where nobody has
 * changed a setting: the steps that are left then have other gradients. */
static void compare_batches(const accel_t *run, const char *text)
{
    const long long now = global_batch(run->progress.settings),
                    before = global_batch(text);

    if (now != before && now > 0 && before > 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "resuming with a global batch of %lld samples (the checkpoint had "
                   "%lld): change batch or accumulate to keep it",
                   now, before);
}

void settings_compare(const accel_t *run, const char *text)
{
    const char *ours = run->progress.settings;
    struct setting s;
    char other[sizeof(s.value)];

    if (run->boot.rank != 0)
        return;
    for (const char *at = ours; (at = next_setting(at, &s));) {
        const bool had = key_line(text, s.key, other, sizeof(other));

        if (had && strcmp(s.value, other) != 0)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "resuming with %s = %s (the checkpoint had %s)", s.key, s.value,
                       other);
        else if (!had && !is_form(s.key))
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "resuming with %s = %s (the checkpoint had none)", s.key,
                       s.value);
    }
    for (const char *at = settings_of(text); (at = next_setting(at, &s));)
        if (strncmp(s.key, LOADER_LINE_FRONT, strlen(LOADER_LINE_FRONT)) != 0 &&
            !is_form(s.key) && !key_line(ours, s.key, other, sizeof(other)))
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "resuming without %s (the checkpoint had %s)", s.key, s.value);
    compare_batches(run, text);
}
