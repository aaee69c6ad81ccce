/* SPDX-License-Identifier: Apache-2.0
 *
 * libaccel(3): accel.h as a manual page, declarations and their comments in the order of
 * the header. In: the table that header.awk cuts. Out: man(7) markup on stdout.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "scripts/accel/man_pages.h"
#include "scripts/accel/roff.h"

enum { LINE_MAX_BYTES = 256 };

/* How a line of a comment goes on with the one before it. */
enum line_kind { LINE_TEXT, LINE_NEW, LINE_BULLET, LINE_CODE, LINE_BLANK };

static enum line_kind kind_of(const char *line)
{
    if (!*line)
        return LINE_BLANK;
    if (!strncmp(line, " - ", 3))
        return LINE_BULLET;
    if (!strncmp(line, "   ", 3) && line[3] != ' ')
        return LINE_TEXT; /* goes on in a bullet */
    if (!strncmp(line, "  ", 2))
        return LINE_CODE;
    return !strncmp(line, "Errors:", 7) ? LINE_NEW : LINE_TEXT;
}

/* Lines of a comment as paragraphs, bullets and examples. */
static void print_comment(const char *text)
{
    bool open = false;
    char code[1024] = "";

    while (*text) {
        size_t n = strcspn(text, "\n");
        char line[LINE_MAX_BYTES];
        enum line_kind kind;

        snprintf(line, sizeof(line), "%.*s", (int)n, text);
        text += n + (text[n] == '\n');
        kind = kind_of(line);
        if (kind == LINE_CODE) {
            snprintf(code + strlen(code), sizeof(code) - strlen(code), "%s%s",
                     code[0] ? "\n" : "", line);
            open = false;
            continue;
        }
        if (code[0])
            roff_example(code);
        code[0] = '\0';
        if (kind == LINE_BLANK) {
            open = false;
        } else if (kind == LINE_BULLET) {
            roff_bullet();
            roff_text(line + 3);
            roff_text("\n");
            open = true;
        } else {
            if (!open || kind == LINE_NEW)
                roff_form();
            roff_text(line + strspn(line, " "));
            roff_text("\n");
            open = true;
        }
    }
    if (code[0])
        roff_example(code);
}

static void print_heading(const char *words)
{
    char heading[96];
    size_t n = 0;

    for (; words[n] && n < sizeof(heading) - 1; n++)
        heading[n] = (char)toupper((unsigned char)words[n]);
    heading[n] = '\0';
    roff_section(heading);
}

void man_libaccel(void)
{
    roff_title("LIBACCEL", 3, "Library Functions");
    roff_section("NAME");
    roff_text("libaccel - distributed, sharded, preemption-safe training in C\n");
    roff_section("SYNOPSIS");
    roff_example("#include <accel.h>\n"
                 "\n"
                 "cc train.c $(pkg-config --cflags --libs accel)");
    roff_section("DESCRIPTION");
    print_comment(api_rules);
    for (const struct api_entry *e = api_table; e->text; e++) {
        if (e->section)
            print_heading(e->section);
        if (e->code[0])
            roff_code(e->code);
        print_comment(e->text);
    }
    roff_section("SEE ALSO");
    roff_bold("accel");
    roff_text("(1), ");
    roff_bold("accel-config");
    roff_text("(5), ");
    roff_bold("accel");
    roff_text("(7)\n");
}
