/* SPDX-License-Identifier: Apache-2.0
 *
 * Writer of man(7) markup. It tracks the beginning of lines, where '.' and ' would be
 * requests. Output errors are left to cli_finish.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/man/roff.h"

/* Lines of the source break here. roff fills anew; this is for diffs of pages. */
enum { FILL_COLUMN = 66 };

/* At the beginning of a line; just behind a heading, where a paragraph needs no
 * request; may spaces become line ends? */
static bool line_start = true, after_heading, filling = true;
/* Characters since the last line end. */
static int column;

/* A request or macro, which stands at the beginning of a line. */
static void roff_request(const char *text)
{
    if (!line_start)
        putchar('\n');
    puts(text);
    line_start = true;
    column = 0;
}

/* Bytes up to the next space or line end. */
static int word_length(const char *text, size_t n)
{
    size_t length = 0;

    while (length < n && text[length] != ' ' && text[length] != '\n')
        length++;
    return (int)length;
}

/* Prints the first of text[n]: escaped, and as a line end where the line would get too
 * long. The rest is needed to see how long the next word is. */
static void put_escaped(const char *text, size_t n)
{
    char c = *text;

    after_heading = false;
    if (c == ' ' && filling && column + word_length(text + 1, n - 1) > FILL_COLUMN)
        c = '\n'; /* the reader of the page fills lines anew */
    column = c == '\n' ? 0 : column + 1;
    /* A line end at the beginning of a line would be an empty line. */
    if (c == '\n') {
        if (!line_start)
            putchar('\n');
        line_start = true;
        return;
    }
    /* \& prints nothing and keeps the sign from being a request. */
    if (line_start && (c == '.' || c == '\''))
        fputs("\\&", stdout);
    /* roff typesets these signs; pages are copied from, so they must stay ASCII. */
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

/* Ends the line, unless it is empty. */
static void line_end(void)
{
    put_escaped("\n", 1);
}

void roff_text_n(const char *text, size_t n)
{
    for (; n > 0; text++, n--)
        put_escaped(text, n);
}

void roff_text(const char *text)
{
    roff_text_n(text, strlen(text));
}

/* Text in another font; \f needs no beginning of a line, but hides one: an escape in
 * front makes a dot harmless. */
static void in_font(char font, const char *text, size_t n)
{
    printf("\\f%c", font);
    line_start = false;
    roff_text_n(text, n);
    fputs("\\fR", stdout);
}

void roff_bold(const char *text)
{
    in_font('B', text, strlen(text));
}

void roff_italic_n(const char *text, size_t n)
{
    in_font('I', text, n);
}

void roff_italic(const char *text)
{
    roff_italic_n(text, strlen(text));
}

/* SOURCE_DATE_EPOCH makes pages reproducible: packages are built twice and compared. */
void roff_date(void *arg)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t when = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm tm;
    char date[32] = "1970-01-01";

    (void)arg;
    if (gmtime_r(&when, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
    fputs(date, stdout);
}

void roff_version(void *arg)
{
    (void)arg;
    fputs(accel_version(), stdout);
}

void roff_markup(const char *text, size_t n)
{
    const char *line = text + n;

    if (n == 0)
        return;
    fwrite(text, 1, n, stdout);
    line_start = text[n - 1] == '\n';
    /* Back to the beginning of the last line. */
    line -= line_start;
    while (line > text && line[-1] != '\n')
        line--;
    after_heading =
        line_start && (!strncmp(line, ".SH", 3) || !strncmp(line, ".SS", 3));
    /* A line may begin with markup and go on with words; "\-" is one sign. */
    column = line > text || line_start ? 0 : column;
    for (; !line_start && line < text + n; line++)
        column += *line != '\\';
}

/* A heading is an argument in quotation marks: it must stay one line, however long. */
static void heading_begin(const char *macro)
{
    if (!line_start)
        putchar('\n');
    printf("%s \"", macro);
    line_start = filling = false; /* a heading is one line, however long */
}

/* Behind it the next paragraph needs no request. */
static void heading_end(void)
{
    puts("\"");
    line_start = after_heading = filling = true;
    column = 0;
}

void roff_section_begin(void)
{
    heading_begin(".SH");
}

void roff_section_end(void)
{
    heading_end();
}

void roff_subsection_begin(void)
{
    heading_begin(".SS");
}

void roff_subsection_end(void)
{
    heading_end();
}

void roff_subsection(const char *name)
{
    roff_subsection_begin();
    roff_text(name);
    roff_subsection_end();
}

void roff_paragraph(const char *text)
{
    size_t n = strcspn(text, "\v");

    if (n == 0)
        return;
    if (!after_heading)
        roff_request(".PP");
    /* Line ends inside are breaks; one at the end is the paragraph's own. */
    for (; n > 0; text++, n--) {
        put_escaped(text, n);
        if (*text == '\n' && n > 1)
            roff_request(".br");
    }
    line_end();
}

/* Behind a heading man(7) begins a paragraph by itself. */
void roff_form(void)
{
    if (!after_heading)
        roff_request(".PP");
}

void roff_tag(void)
{
    roff_request(".TP");
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
    roff_request(".IP \\(bu 2");
}

/* Lines between two requests, unfilled. */
static void kept_lines(const char *begin, const char *lines, size_t n, const char *end)
{
    roff_form();
    roff_request(".nf");
    roff_request(begin);
    filling = false;
    roff_text_n(lines, n);
    line_end();
    filling = true;
    roff_request(end);
    roff_request(".fi");
}

void roff_example_n(const char *lines, size_t n)
{
    kept_lines(".RS 4", lines, n, ".RE");
}

void roff_example(const char *lines)
{
    roff_example_n(lines, strlen(lines));
}

void roff_code(const char *lines)
{
    kept_lines(".ft B", lines, strlen(lines), ".ft R");
}
