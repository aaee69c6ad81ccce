/* SPDX-License-Identifier: Apache-2.0
 *
 * The error file of a rank, as torch.distributed.elastic writes it, and accel_slurm:
 * {"message": {"message": "ValueError: bad shape", "extraInfo": {"timestamp": "17"}}}.
 * Some versions of torch write the text itself in place of the inner object. The JSON
 * comes in; its message, time and place go out, made printable.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "common/json_scan.h"
#include "common/step_reports.h"

/* Objects inside each other that are looked into, and that are skipped. */
enum { LEVELS = 3, SKIPPED_LEVELS = 32 };
/* Later times and lines are no such. */
static const double last_time = 1e11, last_ns = 9e18, last_line = 1e9;
/* What torch's backends say where a connection broke or another rank did not come. */
static const char *const broken[] = {
    "Connection closed by peer", "Connection reset by peer", "Broken pipe",
    "Timed out waiting",         "wait timeout after",       "remote process exited"
};

/* Characters that would change how a line is shown: of control, and those that turn the
 * direction of writing or end a line. */
static bool is_hostile(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e ||
           c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* Copies the first line of `text`, as much as fits, with "..." where it does not. */
static void keep_printable(char *out, size_t len, const char *text)
{
    static const char more[] = "...";
    size_t left = strcspn(text, "\n"), used = 0;

    while (left > 0) {
        uint32_t c = 0;
        const size_t n = utf8_next(text, left, &c), step = n ? n : 1;
        const bool bad = n == 0 || is_hostile(c);
        const size_t wanted = bad ? 1 : n;

        /* What is shown is never longer than the text. */
        if (used + left >= len && used + wanted + sizeof(more) > len) {
            memcpy(out + used, more, sizeof(more) - 1);
            used += sizeof(more) - 1;
            break;
        }
        memcpy(out + used, bad ? "?" : text, wanted);
        used += wanted;
        text += step;
        left -= step;
    }
    out[used] = '\0';
}

/* The first character of the next value; NUL at the end. */
static char next_char(struct json_scan *j)
{
    while (j->s < j->end && *j->s && strchr(" \t\r\n", *j->s))
        j->s++;
    return j->s < j->end ? *j->s : '\0';
}

/* Takes a number, or a text with one; 0: something else, or not from 0 to `most`. */
static double take_number(struct json_scan *j, double most)
{
    char *text, *end;
    double v;

    if (next_char(j) != '"') {
        text = j->s;
        if (!json_scan_skip(j, SKIPPED_LEVELS))
            return 0;
        v = text_number(text, &end);
        return end > text && end <= j->s && v > 0 && v <= most ? v : 0;
    }
    if (!json_scan_string(j, &text))
        return 0;
    v = text_number(text, &end);
    return end > text && !*end && v > 0 && v <= most ? v : 0;
}

/* Takes a text; anything else is skipped. Of a path only its last part is kept. */
static void take_text(struct json_scan *j, char *out, size_t len, bool is_path)
{
    char *text, *slash;

    if (next_char(j) != '"') {
        json_scan_skip(j, SKIPPED_LEVELS);
        return;
    }
    if (!json_scan_string(j, &text))
        return;
    slash = is_path ? strrchr(text, '/') : NULL;
    keep_printable(out, len, slash ? slash + 1 : text);
}

/* Takes one object. The names are the same ones on all levels, so that one walk
 * finds them. */
static void take_object(struct json_scan *j, int levels, struct step_failure *f)
{
    char *key;
    size_t n = 0;

    while (json_scan_member(j, &n, &key)) {
        const bool inner = !strcmp(key, "message") || !strcmp(key, "extraInfo");

        if (inner && levels > 1 && next_char(j) == '{')
            take_object(j, levels - 1, f);
        else if (!strcmp(key, "message"))
            take_text(j, f->text, sizeof(f->text), false);
        else if (!strcmp(key, "timestamp"))
            f->seconds = take_number(j, last_time);
        else if (!strcmp(key, "time_ns"))
            f->when_ns = (int64_t)take_number(j, last_ns);
        else if (!strcmp(key, "blames_another"))
            f->blames_another = take_number(j, 1) > 0;
        else if (!strcmp(key, "file"))
            take_text(j, f->file, sizeof(f->file), true);
        else if (!strcmp(key, "line"))
            f->line = (int64_t)take_number(j, last_line);
        else if (!strcmp(key, "host"))
            take_text(j, f->host, sizeof(f->host), false);
        else
            json_scan_skip(j, SKIPPED_LEVELS);
    }
}

bool error_file_parse(char *text, size_t len, struct step_failure *f_out)
{
    struct json_scan j = { .begin = text, .s = text, .end = text + len };

    take_object(&j, LEVELS, f_out);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(broken); i++)
        f_out->blames_another |= strstr(f_out->text, broken[i]) != NULL;
    f_out->known = json_scan_end(&j) && !j.problem && f_out->text[0];
    return f_out->known;
}
