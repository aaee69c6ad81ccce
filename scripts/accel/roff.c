/* SPDX-License-Identifier: Apache-2.0
 *
 * Writer of man(7) markup: keeps track of the beginning of lines, where '.' and ' would be
 * requests. Output errors are left to cli_finish.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scripts/accel/cli.h"
#include "scripts/accel/roff.h"

enum { FILL_COLUMN = 66 };

static bool line_start = true, after_heading, filling = true;
static int column;

static void request(const char *text)
{
    if (!line_start)
        putchar('\n');
    puts(text);
    line_start = true;
    column = 0;
}

static void put_escaped(const char *text)
{
    char c = *text;

    after_heading = false;
    if (c == ' ' && filling && column + (int)strcspn(text + 1, " \n") > FILL_COLUMN)
        c = '\n'; /* the reader of the page fills lines anew */
    column = c == '\n' ? 0 : column + 1;
    /* A line end at the beginning of a line would be an empty line. */
    if (c == '\n') {
        if (!line_start)
            putchar('\n');
        line_start = true;
        return;
    }
    if (line_start && (c == '.' || c == '\''))
        fputs("\\&", stdout);
    if (c == '\\')
        fputs("\\e", stdout);
    else if (c == '-')
        fputs("\\-", stdout);
    else if (c == '~')
        fputs("\\(ti", stdout);
    else if (c == '^')
        fputs("\\(ha", stdout);
    else if (c == '\'')
        fputs("\\(aq", stdout);
    else if (c == '`')
        fputs("\\(ga", stdout);
    else
        putchar(c);
    line_start = false;
}

void roff_text(const char *text)
{
    for (; *text; text++)
        put_escaped(text);
}

static void in_font(char font, const char *text)
{
    printf("\\f%c", font);
    line_start = false;
    roff_text(text);
    fputs("\\fR", stdout);
}

void roff_bold(const char *text)
{
    in_font('B', text);
}

void roff_italic(const char *text)
{
    in_font('I', text);
}

void roff_title(const char *name, int section, const char *manual)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t when = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm tm;
    char date[32] = "1970-01-01";

    if (gmtime_r(&when, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    printf(
        ".\\\" Made by `accel man %d` from the tables of the program: do not edit.\n",
        section);
    printf(".TH %s %d %s \"accel %s\" \"%s\"\n.nh\n", name, section, date,
           accel_version(), manual);
    line_start = true;
}

static void heading(const char *macro, const char *name)
{
    if (!line_start)
        putchar('\n');
    printf("%s \"", macro);
    line_start = false;
    roff_text(name);
    puts("\"");
    line_start = after_heading = true;
    column = 0;
}

void roff_section(const char *name)
{
    heading(".SH", name);
}

void roff_subsection(const char *name)
{
    heading(".SS", name);
}

void roff_paragraph(const char *text)
{
    if (!*text)
        return;
    if (!after_heading)
        request(".PP");
    for (; *text; text++) {
        put_escaped(text);
        if (*text == '\n' && text[1])
            request(".br");
    }
    put_escaped("\n");
}

void roff_form(void)
{
    if (!after_heading)
        request(".PP");
}

void roff_tag(void)
{
    request(".TP");
    filling = false; /* the tag is one line, however long */
}

void roff_tag_end(void)
{
    if (!line_start)
        putchar('\n');
    line_start = filling = true;
    column = 0;
}

void roff_bullet(void)
{
    request(".IP \\(bu 2");
}

static void kept_lines(const char *begin, const char *lines, const char *end)
{
    roff_form();
    request(".nf");
    request(begin);
    filling = false;
    roff_text(lines);
    put_escaped("\n");
    filling = true;
    request(end);
    request(".fi");
}

void roff_example(const char *lines)
{
    kept_lines(".RS 4", lines, ".RE");
}

void roff_code(const char *lines)
{
    kept_lines(".ft B", lines, ".ft R");
}
