/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of accel.track: which files trackers write. A list cannot be a row of words
 * in the schema table, so its words are checked here. Also reads the same list for
 * programs.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/validate.h"

#define BLANKS " \t"

static const struct {
    const char *word;
    unsigned format;
} formats[] = {
    { "jsonl", TRACK_JSONL },
    { "csv", TRACK_CSV },
    { "tensorboard", TRACK_TENSORBOARD },
    { "none", 0 },
};

/* The index of text[n] in the table, or -1. */
static int format_index(const char *text, size_t n)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(formats); i++)
        if (strlen(formats[i].word) == n && !strncmp(formats[i].word, text, n))
            return (int)i;
    return -1;
}

/* An empty word, as between two commas, is none of them either. */
bool config_track_formats(const char *list, unsigned *formats_out, char *word_out,
                          size_t len)
{
    unsigned set = 0;

    for (const char *at = list; at; at = strchr(at, ',')) {
        size_t n;
        int i;

        at += *at == ',';
        at += strspn(at, BLANKS);
        n = strcspn(at, ",");
        while (n > 0 && strchr(BLANKS, at[n - 1]))
            n--;
        i = format_index(at, n);
        if (i < 0) {
            snprintf(word_out, len, "%.*s", (int)(n < len ? n : len - 1), at);
            return false;
        }
        set |= formats[i].format;
    }
    *formats_out = set;
    return true;
}

void check_track(struct validator *v)
{
    const char *words[ACCEL_ARRAY_SIZE(formats)], *near;
    char word[sizeof(v->cfg->track)], hint[100];
    unsigned set;

    if (!v->cfg->track[0] ||
        config_track_formats(v->cfg->track, &set, word, sizeof(word)))
        return;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(formats); i++)
        words[i] = formats[i].word;
    near = suggest_nearest(word, words, ACCEL_ARRAY_SIZE(words));
    if (near)
        snprintf(hint, sizeof(hint), "did you mean '%s'?", near);
    else
        snprintf(hint, sizeof(hint), "use jsonl, csv, tensorboard, or none");
    report_add(v->report, A0104, place_of(v, "track", ACCEL_MAP), hint,
               "'track' cannot be '%s'", word);
}
