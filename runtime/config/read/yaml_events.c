/* SPDX-License-Identifier: Apache-2.0
 *
 * Capped YAML reader: the bytes of a file come in, a small tree with places goes out.
 * Uses libyaml's event interface only: its cost is linear, and the caps stop it early.
 * Refuses what a config does not need and an attacker likes: anchors and aliases (a few
 * lines can expand to gigabytes), tags, several documents, NUL.
 */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "config/read/document.h"

/* libyaml counts from 0, we count from 1. A token of several lines gets one caret. */
static struct place mark_place(yaml_mark_t start, yaml_mark_t end)
{
    struct place p = { .line = (int)start.line + 1,
                       .col = (int)start.column + 1,
                       .width = 1 };

    if (start.line == end.line && end.column > start.column)
        p.width = (int)(end.column - start.column);
    return p;
}

/* Characters that YAML allows in a file (libyaml's set). */
static bool is_yaml_char(uint32_t cp)
{
    return cp == '\t' || cp == '\n' || cp == '\r' || (cp >= 0x20 && cp < 0x7f) ||
           cp == 0x85 || (cp >= 0xa0 && cp != 0xfeff && cp < 0xfffe) || cp >= 0x10000;
}

/* Looks for bytes that libyaml would refuse without a line number, and reports them
 * with their place. True: there are none. */
static bool check_bytes(struct config_report *r)
{
    static const char re_save[] = "save the file as UTF-8 text";
    struct place at = { .line = 1, .col = 1, .width = 1 };
    size_t pos = r->in.len >= 3 && !memcmp(r->in.text, "\xef\xbb\xbf", 3) ? 3 : 0;

    /* A byte order mark of UTF-16 is the usual cause of "not UTF-8" on files
     * from Windows. */
    if (r->in.len >= 2 &&
        (!memcmp(r->in.text, "\xff\xfe", 2) || !memcmp(r->in.text, "\xfe\xff", 2))) {
        report_add(r, A0112, (struct place){ 0 }, re_save,
                   "the file is UTF-16 text; only UTF-8 is supported");
        return false;
    }
    while (pos < r->in.len) {
        const char *s = r->in.text + pos;
        size_t left = r->in.len - pos, br = line_break(s, left);
        uint32_t cp = 0;
        size_t len = br ? br : utf8_next(s, left, &cp);

        if (br) {
            at.line++;
            at.col = 1;
        } else if (len && is_yaml_char(cp)) {
            at.col++;
        } else {
            if (len)
                report_add(r, A0112, at, "remove it",
                           cp ? "control character 0x%02x" : "NUL byte (0x%02x)", cp);
            else
                report_add(r, A0112, at, re_save, "byte 0x%02x is not UTF-8 text",
                           (unsigned char)*s);
            return false;
        }
        pos += len;
    }
    return true;
}

/* Blanks that look like a space, or like nothing, and are letters to YAML. Editors and
 * web pages put them where a space was typed. */
static bool is_odd_blank(uint32_t cp)
{
    return cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200b) ||
           cp == 0x202f || cp == 0x205f || cp == 0x2060 || cp == 0x3000;
}

/* Reports the first odd blank of the lines from..to that is not in a comment. */
static bool odd_blank_told(struct config_report *r, int from, int to)
{
    struct place at = { .line = 1, .col = 1, .width = 1 };
    size_t pos = r->in.len >= 3 && !memcmp(r->in.text, "\xef\xbb\xbf", 3) ? 3 : 0;
    bool comment = false;
    char before = ' ';

    while (pos < r->in.len && at.line <= to) {
        const char *s = r->in.text + pos;
        size_t left = r->in.len - pos, br = line_break(s, left);
        uint32_t cp = 0;

        if (br) {
            at.line++;
            at.col = 1;
            comment = false;
            before = ' ';
            pos += br;
            continue;
        }
        pos += utf8_next(s, left, &cp);
        comment |= cp == '#' && (before == ' ' || before == '\t');
        before = *s;
        if (at.line >= from && !comment && is_odd_blank(cp)) {
            report_add(r, A0112, at, "type a plain space, or remove it",
                       "U+%04X looks like %s, but YAML takes it for a letter", cp,
                       cp == 0x200b || cp == 0x2060 ? "nothing" : "a space");
            return true;
        }
        at.col++;
    }
    return false;
}

/* Does a plain scalar begin or end with an odd blank, or have one after a colon? Inside
 * a name or a path it may be meant. */
static bool has_odd_blank(const char *s, size_t len)
{
    char before = '\0';

    for (size_t pos = 0; pos < len;) {
        uint32_t cp = 0;
        size_t n = utf8_next(s + pos, len - pos, &cp);

        if (is_odd_blank(cp) && (!before || before == ':' || pos + n == len))
            return true;
        before = s[pos];
        pos += n;
    }
    return false;
}

/* Reports what libyaml found. The cures go by its fixed English texts; an unknown text
 * only costs the better cure. */
static void syntax_error(struct config_report *r, const yaml_parser_t *p)
{
    struct place at = mark_place(p->problem_mark, p->problem_mark);
    const char *problem = p->problem ? p->problem : "not valid YAML";
    const char *hint = "correct the YAML at this place";

    if (p->error == YAML_MEMORY_ERROR) {
        r->no_memory = true;
        return;
    }
    if (odd_blank_told(r, (int)p->context_mark.line + 1, at.line))
        return;
    if (strstr(problem, "cannot start any token"))
        hint = "indent with spaces, not tabs; quote values that begin with @, ` or %";
    else if (strstr(problem, "mapping values are not allowed"))
        hint = "indent all keys of a map equally; quote a value that contains ': '";
    else if (strstr(problem, "could not find expected ':'"))
        hint = "write 'key: value', with a space after the colon";
    else if (strstr(problem, "did not find expected"))
        hint = "close brackets and quotes, and indent all keys of a map equally";
    else if (strstr(problem, "unexpected end of stream")) {
        hint = "close this quote";
        at = mark_place(p->context_mark, p->context_mark);
    }
    report_add(r, A0109, at, hint, "not valid YAML: %s%s%s", problem,
               p->context ? " " : "", p->context ? p->context : "");
}

/* Adds a node; returns its index, -1 when out of memory. Pointers into the array are no
 * longer valid then. */
static int add_node(struct yaml_tree *t, struct config_report *r, enum node_kind kind,
                    struct place at)
{
    if (t->count == t->cap) {
        /* Doubling; CONFIG_MAX_EVENTS bounds it. */
        int cap = t->cap ? 2 * t->cap : 64;
        struct yaml_node *grown = realloc(t->node, (size_t)cap * sizeof(*grown));

        if (!grown) {
            r->no_memory = true;
            return -1;
        }
        t->node = grown;
        t->cap = cap;
    }
    t->node[t->count] =
        (struct yaml_node){ .kind = kind, .at = at, .first = -1, .next = -1 };
    return t->count++;
}

/* A quoted "\0" is legal YAML but would cut C strings: it is refused and the value
 * becomes empty, so that reading can go on. */
static bool copy_scalar(struct yaml_node *n, const yaml_event_t *e,
                        struct config_report *r)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;

    if (memchr(s, '\0', len)) {
        report_add(r, A0112, n->at, "remove the \\0", "a value must not contain NUL");
        len = 0;
    }
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    n->text = strndup(s, len);
    if (!n->text)
        r->no_memory = true;
    return n->text != NULL;
}

/* Reports anchors and tags, and reads on, so that all problems are shown. */
static void check_decoration(struct config_report *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    struct place at = mark_place(e->start_mark, e->end_mark);

    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    }
    if (anchor)
        report_add(r, A0110, at,
                   "remove the anchor, and write the full value wherever it is used",
                   "anchors (&name) are not allowed in a config file");
    if (tag)
        report_add(r, A0110, at, "remove the tag",
                   "tags (!name) are not allowed in a config file");
}

/* Where the builder stands: the open maps and lists by index, and the last child of
 * each (-1: none yet), to which the next child is linked. */
struct builder {
    struct yaml_tree *tree;
    struct config_report *report;
    int open[CONFIG_MAX_DEPTH], last[CONFIG_MAX_DEPTH];
    int depth, documents, events;
    bool done;
};

/* Appends a scalar, map or list to the innermost open one. False: stop. */
static bool take_node(struct builder *b, const yaml_event_t *e, enum node_kind kind)
{
    struct yaml_tree *t = b->tree;
    struct place at = mark_place(e->start_mark, e->end_mark);
    int n = add_node(t, b->report, kind, at);

    if (n < 0)
        return false;
    check_decoration(b->report, e);
    if (b->depth > 0) {
        /* The first child is linked from its parent, every other one from
         * its sibling. */
        int *last = &b->last[b->depth - 1];

        if (*last < 0)
            t->node[b->open[b->depth - 1]].first = n;
        else
            t->node[*last].next = n;
        *last = n;
    }
    if (kind == NODE_SCALAR && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        has_odd_blank((const char *)e->data.scalar.value, e->data.scalar.length) &&
        odd_blank_told(b->report, at.line, (int)e->end_mark.line + 1))
        return false;
    if (kind == NODE_SCALAR)
        return copy_scalar(&t->node[n], e, b->report);
    if (b->depth == CONFIG_MAX_DEPTH) {
        report_add(b->report, A0111, at, "use at most 3 levels",
                   "maps and lists nest deeper than %d levels", CONFIG_MAX_DEPTH);
        return false;
    }
    b->open[b->depth] = n;
    b->last[b->depth++] = -1;
    return true;
}

/* One event of libyaml. False: stop. */
static bool take_event(struct builder *b, const yaml_event_t *e)
{
    struct place at = mark_place(e->start_mark, e->end_mark);

    if (++b->events > CONFIG_MAX_EVENTS) {
        report_add(b->report, A0111, at, "check that this is a config file",
                   "more than %d YAML events", CONFIG_MAX_EVENTS);
        return false;
    }
    switch (e->type) {
    /* An empty file has no document, and that is fine. */
    case YAML_DOCUMENT_START_EVENT:
        if (b->documents++ == 0)
            return true;
        report_add(b->report, A0110, at, "keep one document per file",
                   "a second YAML document begins here");
        return false;
    case YAML_SCALAR_EVENT:
        return take_node(b, e, NODE_SCALAR);
    case YAML_MAPPING_START_EVENT:
        return take_node(b, e, NODE_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return take_node(b, e, NODE_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        /* libyaml guarantees that starts and ends match. */
        b->depth--;
        return true;
    case YAML_ALIAS_EVENT:
        report_add(b->report, A0110, at, "write the full value in its place",
                   "aliases (*name) are not allowed in a config file");
        return false;
    case YAML_STREAM_END_EVENT:
        b->done = true;
        return true;
    default:
        return true;
    }
}

/* Stops at the first syntax error: libyaml cannot resume after one. */
bool yaml_tree_read(struct yaml_tree *tree_out, struct config_report *r)
{
    struct builder b = { .tree = tree_out, .report = r };
    yaml_parser_t parser;
    bool good = true;

    memset(tree_out, 0, sizeof(*tree_out));
    if (!check_bytes(r))
        return false;
    if (!yaml_parser_initialize(&parser)) {
        r->no_memory = true;
        return false;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    /* Since the encoding is set, libyaml does not skip a byte order mark by itself. */
    size_t skip = r->in.len >= 3 && !memcmp(r->in.text, "\xef\xbb\xbf", 3) ? 3 : 0;
    yaml_parser_set_input_string(&parser, (const unsigned char *)r->in.text + skip,
                                 r->in.len - skip);
    while (good && !b.done) {
        yaml_event_t e;

        /* libyaml leaves no event to delete here. */
        if (!yaml_parser_parse(&parser, &e)) {
            syntax_error(r, &parser);
            good = false;
            break;
        }
        good = take_event(&b, &e) && !r->no_memory;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    return good;
}

/* Also frees a tree that is not complete. */
void yaml_tree_free(struct yaml_tree *t)
{
    for (int i = 0; i < t->count; i++)
        free(t->node[i].text);
    free(t->node);
    memset(t, 0, sizeof(*t));
}
