/* SPDX-License-Identifier: Apache-2.0
 *
 * Manual pages in man(7) markup on stdout. Text is escaped, so that no word of a table
 * can become a request or lose its hyphens. The writer keeps its place in static
 * variables: one page at a time.
 */
#ifndef ACCEL_ROFF_H
#define ACCEL_ROFF_H

#include <stddef.h>

/* Markup as it stands, text[n]: what a template has between its places. */
void roff_markup(const char *text, size_t n);
/* For .TH: the date of $SOURCE_DATE_EPOCH, or today's; accel's version. */
void roff_date(void *arg);
void roff_version(void *arg);
void roff_subsection(const char *name);
/* Open a section or a subsection; words are its heading until it ends. */
void roff_section_begin(void);
void roff_section_end(void);
void roff_subsection_begin(void);
void roff_subsection_end(void);
/* A paragraph; empty text prints nothing. A line end begins a new line. Ends at a
 * vertical tab, which divides the text of a command for argp. */
void roff_paragraph(const char *text);
/* Begins a paragraph that words will fill. */
void roff_form(void);
/* Words inside a line: bold, italic, plain. No line end is added. */
void roff_bold(const char *text);
void roff_italic(const char *text);
void roff_text(const char *text);
/* The same for text[n]. */
void roff_italic_n(const char *text, size_t n);
void roff_text_n(const char *text, size_t n);
/* Opens a tagged paragraph: what is printed until roff_tag_end is the tag, what
 * follows is its text. */
void roff_tag(void);
void roff_tag_end(void);
/* Begins an item of a list with a dot in front. */
void roff_bullet(void);
/* Lines kept as they are, indented. */
void roff_example(const char *lines);
void roff_example_n(const char *lines, size_t n);
/* Declarations: lines kept as they are, bold, not indented. */
void roff_code(const char *lines);

#endif
