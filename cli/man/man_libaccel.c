/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills libaccel.3.in, accel.h as a manual page, declarations and their comments in the
 * order of the header; and function.3.in, the page of one function. In: the table that
 * header.awk cuts. Out: man(7) markup on stdout.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/man/man_pages.h"
#include "cli/man/roff.h"
#include "cli/man/template.h"

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

static void print_rules(void *arg)
{
    (void)arg;
    print_comment(api_rules);
}

/* Sections of the header become sections of the page; entries keep their order. */
static void print_entries(void *arg)
{
    (void)arg;
    for (const struct api_entry *e = api_table; e->text; e++) {
        if (e->section)
            print_heading(e->section);
        if (e->code[0])
            roff_code(e->code);
        print_comment(e->text);
    }
}

void man_libaccel(void)
{
    static const struct template_place places[] = {
        { "DATE", roff_date },
        { "VERSION", roff_version },
        { "RULES", print_rules },
        { "ENTRIES", print_entries },
        { 0 },
    };

    template_print(template_libaccel_3, places, roff_markup, NULL);
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

/* What a page is about: the function, the entry that declares it, and the entry that
 * its section begins with. */
struct function_page {
    const char *name;
    const struct api_entry *entry, *section;
};

/* The name in capitals, as titles have it. */
static void print_function_title(void *arg)
{
    const struct function_page *page = arg;

    for (const char *c = page->name; *c; c++)
        putchar(toupper((unsigned char)*c));
}

static void print_function_name(void *arg)
{
    const struct function_page *page = arg;

    roff_text(page->name);
}

/* Half a line about the function: the first sentence of its comment, if it is short and
 * made of words, else the heading of its section. */
static void print_summary(void *arg)
{
    const struct function_page *page = arg;
    const char *text = page->entry->text, *heading = page->section->section;
    size_t n = strcspn(text, ".:;(");
    char words[SUMMARY_BYTES];

    if (n == 0 || n >= sizeof(words) || !isupper((unsigned char)*text)) {
        roff_text_n(heading, strcspn(heading, ";"));
        return;
    }
    snprintf(words, sizeof(words), "%.*s", (int)n, text);
    for (char *c = words; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    words[0] = (char)tolower((unsigned char)words[0]);
    words[strlen(words) - (words[strlen(words) - 1] == ' ')] = '\0';
    roff_text(words);
}

static void print_synopsis(void *arg)
{
    const struct function_page *page = arg;

    roff_code("#include <accel.h>");
    roff_code(page->entry->code);
}

static void print_description(void *arg)
{
    const struct function_page *page = arg;

    print_comment(page->entry->text);
}

/* What the header says once for all functions of a section. */
static void print_section_rules(void *arg)
{
    const struct function_page *page = arg;

    if (!page->section->text[0])
        return;
    print_heading(page->section->section);
    print_comment(page->section->text);
}

/* The functions declared in the same entry, then the pages of the whole. */
static void print_see_also(void *arg)
{
    const struct function_page *page = arg;

    for (const char *f = page->entry->functions; *f;
         f += strcspn(f, " "), f += *f == ' ') {
        char word[API_NAME_BYTES];

        snprintf(word, sizeof(word), "%.*s", (int)strcspn(f, " "), f);
        if (strcmp(word, page->name) != 0)
            print_page_name(word, "(3), ");
    }
    print_page_name("libaccel", "(3), ");
    print_page_name("accel", "(1)\n");
}

bool man_function(const char *name)
{
    static const struct template_place places[] = {
        { "DATE", roff_date },
        { "VERSION", roff_version },
        { "TITLE", print_function_title },
        { "FUNCTION", print_function_name },
        { "SUMMARY", print_summary },
        { "SYNOPSIS", print_synopsis },
        { "COMMENT", print_description },
        { "SECTION", print_section_rules },
        { "SEE_ALSO", print_see_also },
        { 0 },
    };
    struct function_page page = { .name = name };

    page.entry = find_function(name, &page.section);
    if (!page.entry)
        return false;
    template_print(template_function_3, places, roff_markup, &page);
    return true;
}
