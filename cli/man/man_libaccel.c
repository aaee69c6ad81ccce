/* SPDX-License-Identifier: Apache-2.0
 *
 * libaccel(3): accel.h as a manual page, declarations and their comments in the order
 * of the header; and a page for each function. In: the table that header.awk cuts. Out:
 * man(7) markup on stdout.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/man/man_pages.h"
#include "cli/man/roff.h"

/* Longest summary in a NAME line, with its end. */
enum { SUMMARY_BYTES = 72 };

/* ---- comments -------------------------------------------------------------------- */

/* How a line of a comment relates to the one before it. */
enum line_kind { LINE_TEXT, LINE_NEW, LINE_BULLET, LINE_CODE, LINE_BLANK };

/* The header's comments have four forms: bullets " - ", their continuation
 * (three blanks), code (two blanks, or more than three) and plain text.
 * "Errors:" begins a line of its own. */
static enum line_kind kind_of(const char *line)
{
    if (*line == '\n' || !*line)
        return LINE_BLANK;
    if (!strncmp(line, " - ", 3))
        return LINE_BULLET;
    if (!strncmp(line, "   ", 3) && line[3] != ' ')
        return LINE_TEXT; /* goes on in a bullet */
    if (!strncmp(line, "  ", 2))
        return LINE_CODE;
    return !strncmp(line, "Errors:", 7) ? LINE_NEW : LINE_TEXT;
}

/* Bytes of the first line, its end included. */
static size_t line_length(const char *line)
{
    size_t n = strcspn(line, "\n");

    return n + (line[n] == '\n');
}

/* Bytes of the lines of code that `text` begins with, without the last line end. */
static size_t code_length(const char *text)
{
    size_t n = 0;

    while (kind_of(text + n) == LINE_CODE)
        n += line_length(text + n);
    return n - (text[n - 1] == '\n');
}

/* Lines of a comment as paragraphs, bullets and examples. */
static void print_comment(const char *text)
{
    bool open = false;

    while (*text) {
        enum line_kind kind = kind_of(text);
        size_t n = line_length(text),
               skip = kind == LINE_BULLET ? 3 : strspn(text, " ");

        if (kind == LINE_CODE) {
            n = code_length(text);
            roff_example_n(text, n);
            n += text[n] == '\n';
        } else if (kind == LINE_BULLET) {
            roff_bullet();
            roff_text_n(text + skip, n - skip);
        } else if (kind != LINE_BLANK) {
            if (!open || kind == LINE_NEW)
                roff_form();
            roff_text_n(text + skip, n - skip);
        }
        /* Is a paragraph open that the next line goes on with? */
        open = kind != LINE_BLANK && kind != LINE_CODE;
        text += n;
    }
}

/* A section's heading in capitals, as manual pages have them. */
static void print_heading(const char *words)
{
    roff_section_begin();
    for (; *words; words++) {
        const char letter = (char)toupper((unsigned char)*words);

        roff_text_n(&letter, 1);
    }
    roff_section_end();
}

static void print_page_name(const char *name, const char *section)
{
    roff_bold(name);
    roff_text(section);
}

/* ---- the whole header ------------------------------------------------------------ */

/* Sections of the header become sections of the page; entries keep their order. */
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
    roff_text("Every function also has its own page, such as accel_open(3).\n");
    print_comment(api_rules);
    for (const struct api_entry *e = api_table; e->text; e++) {
        if (e->section)
            print_heading(e->section);
        if (e->code[0])
            roff_code(e->code);
        print_comment(e->text);
    }
    roff_section("SEE ALSO");
    print_page_name("accel", "(1), ");
    print_page_name("accel-config", "(5), ");
    print_page_name("accel", "(7)\n");
}

/* ---- one function ---------------------------------------------------------------- */

/* Walks the words of `functions`, entry by entry; entries without
 * functions are passed over. */
bool api_next_function(struct api_cursor *at, char name[API_NAME_BYTES])
{
    size_t n;

    while (!at->next || !*at->next) {
        const struct api_entry *e = &api_table[at->entry];

        if (!e->text)
            return false;
        at->entry++;
        at->next = e->functions;
    }
    n = strcspn(at->next, " ");
    snprintf(name, API_NAME_BYTES, "%.*s", (int)n, at->next);
    at->next += n + (at->next[n] == ' ');
    return true;
}

/* The entry that declares the function; *section_out: the entry that its
 * section begins with. */
static const struct api_entry *find_function(const char *name,
                                             const struct api_entry **section_out)
{
    struct api_cursor at = { 0 };
    char word[API_NAME_BYTES];

    while (api_next_function(&at, word)) {
        const struct api_entry *found = &api_table[at.entry - 1], *section = found;

        if (strcmp(word, name) != 0)
            continue;
        /* The first entry of the table begins a section, so this ends. */
        while (!section->section)
            section--;
        *section_out = section;
        return found;
    }
    return NULL;
}

/* Half a line about the function: the first sentence of its comment, if it is short and
 * made of words, else the heading of its section. */
static void print_summary(const struct api_entry *e, const struct api_entry *section)
{
    size_t n = strcspn(e->text, ".:;(");
    char words[SUMMARY_BYTES];

    if (n == 0 || n >= sizeof(words) || !isupper((unsigned char)e->text[0])) {
        roff_text_n(section->section, strcspn(section->section, ";"));
    } else {
        snprintf(words, sizeof(words), "%.*s", (int)n, e->text);
        for (char *c = words; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        words[0] = (char)tolower((unsigned char)words[0]);
        words[strlen(words) - (words[strlen(words) - 1] == ' ')] = '\0';
        roff_text(words);
    }
    roff_text("\n");
}

/* SEE ALSO: the functions declared in the same entry. */
static void print_others(const struct api_entry *e, const char *name)
{
    for (const char *f = e->functions; *f; f += strcspn(f, " "), f += *f == ' ') {
        char word[API_NAME_BYTES];

        snprintf(word, sizeof(word), "%.*s", (int)strcspn(f, " "), f);
        if (strcmp(word, name) != 0)
            print_page_name(word, "(3), ");
    }
}

/* The entry's own comment, then that of its section: rules that hold for all of it. */
bool man_function(const char *name)
{
    const struct api_entry *section, *e = find_function(name, &section);
    char title[API_NAME_BYTES] = "";

    if (!e)
        return false;
    for (size_t i = 0; name[i]; i++)
        title[i] = (char)toupper((unsigned char)name[i]);
    roff_title(title, 3, "Library Functions");
    roff_section("NAME");
    roff_text(name);
    roff_text(" - ");
    print_summary(e, section);
    roff_section("SYNOPSIS");
    roff_code("#include <accel.h>");
    roff_code(e->code);
    roff_section("DESCRIPTION");
    print_comment(e->text);
    roff_form();
    roff_text("The rules for all functions of the library (status and errors, "
              "ownership, threads, collective calls) are in ");
    print_page_name("libaccel", "(3).\n");
    /* What the header says once for all functions of a section. */
    if (section->text[0]) {
        print_heading(section->section);
        print_comment(section->text);
    }
    roff_section("SEE ALSO");
    print_others(e, name);
    print_page_name("libaccel", "(3), ");
    print_page_name("accel", "(1)\n");
    return true;
}
