/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel man 1|3|5|7|FUNCTION`: the manual pages, as man(7) markup on stdout.
 * accel-config.5.in is filled here from the schema table, the others in man_*.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/config/json_schema.h"
#include "cli/man/man_pages.h"
#include "cli/man/roff.h"
#include "cli/man/template.h"

static error_t parse_man_args(int key, char *arg, struct argp_state *state)
{
    const char **page = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        if (*page)
            argp_error(state, "one page at a time, not '%s' as well", arg);
        *page = arg;
        return 0;
    case ARGP_KEY_END:
        if (!*page)
            argp_error(state, "say which page: 1, 3, 5, 7 or a function of libaccel");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- accel-config(5) ------------------------------------------------------------- */

/* What a key may hold: "One of a, b", "A whole number from 1 to 9" ..., its default and
 * the values that are refused. */
static void man_values_text(const struct config_key *k, struct strbuf *out)
{
    switch (k->type) {
    case TYPE_BOOL:
        strbuf_printf(out, "true or false");
        break;
    case TYPE_INT:
        strbuf_printf(out, "A whole number from %.0f to %.0f", k->min, k->max);
        break;
    case TYPE_NUMBER:
        strbuf_printf(out, "A number from %g to %.10g", k->min, k->max);
        break;
    case TYPE_STRING:
        strbuf_printf(out, "Text of at most %.0f bytes", k->max);
        break;
    case TYPE_BOOLS:
        strbuf_printf(out, "Three of true and false");
        break;
    case TYPE_ENUM:
        strbuf_printf(out, "One of");
        break;
    }
    /* Words beside a number or a text are further choices: ", or auto". */
    for (int i = 0; k->values && k->values[i]; i++)
        strbuf_printf(out, "%s %s",
                      i                      ? ","
                      : k->type == TYPE_ENUM ? ""
                                             : ", or",
                      k->values[i]);
    if (k->default_text && k->default_text[0])
        strbuf_printf(out, ". Default: %s", k->default_text);
    strbuf_printf(out, ".");
    for (int i = 0; k->refused && k->refused[i]; i++)
        strbuf_printf(out, "%s %s", i ? "," : " Refused:", k->refused[i]);
    if (k->refused && k->refused[0])
        strbuf_printf(out, ".");
}

/* Who acts on the key, and the variable that sets it. `ours`: the values libaccel
 * accepts, "*" for all of them. */
static void use_text(const struct config_key *k, struct strbuf *out)
{
    char variable[96];
    size_t n;

    if (k->use == USE_HONOURED && (!k->ours || !strcmp(k->ours, "*")))
        strbuf_printf(out, "\nUsed by libaccel and passed on to the program.");
    else if (k->use == USE_HONOURED)
        strbuf_printf(out, "\nPassed on to the program; libaccel supports: ");
    else if (k->use == USE_HANDED_ON && k->ours && strcmp(k->ours, "*") != 0)
        strbuf_printf(out, "\nPassed on to the program; libaccel accepts: ");
    else if (k->use == USE_HANDED_ON)
        strbuf_printf(out, "\nPassed on to the program%s.",
                      k->ours   ? "; libaccel supports every value"
                      : k->moot ? ""
                                : "; libaccel refuses it");
    if (k->use <= USE_HANDED_ON && k->ours && strcmp(k->ours, "*") != 0) {
        for (const char *p = k->ours; *p; p++)
            strbuf_append(out, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
        strbuf_printf(out, ".");
    }
    if (k->moot)
        strbuf_printf(out, "\n%s has no effect in libaccel: %s.",
                      k->ours ? "Any other value" : "It", k->why);
    /* The variable goes with the row; some keys have none. */
    config_env_name((size_t)(k - config_schema(&n)), variable, sizeof(variable));
    if (variable[0])
        strbuf_printf(out, "\nEnvironment: %s.", variable);
}

/* One key as a tagged paragraph: its help, its values, who uses it. */
static accel_status_t print_config_key(const struct config_key *k, accel_error_t *err)
{
    struct strbuf text = { 0 };
    accel_status_t st = ACCEL_OK;

    /* A refused key may still have values that change nothing. */
    if (k->use != USE_REFUSED) {
        strbuf_printf(&text, "%s%s.\n",
                      k->use == USE_REPLACED    ? "Replaced, with a note: "
                      : k->use == USE_NO_EFFECT ? "Accepted, without effect: "
                                                : "",
                      k->help);
        man_values_text(k, &text);
    } else if (k->ours) {
        strbuf_printf(&text, "Accepted: %s.\nOther values are refused: %s.", k->ours,
                      k->help);
    } else {
        strbuf_printf(&text, "Refused: %s.", k->help);
    }
    if (k->use != USE_REFUSED)
        use_text(k, &text);
    roff_tag();
    roff_bold(k->name);
    roff_tag_end();
    if (text.failed)
        st = accel_fail_nomem(err, "the page", text.cap);
    else
        roff_text(text.s);
    roff_tag_end();
    strbuf_free(&text);
    return st;
}

/* The rows of one map, with the note on its prefix in front. The table has
 * honoured keys first. */
static accel_status_t print_section_keys(const char *section, accel_error_t *err)
{
    size_t n, skip;
    const struct config_key *k = config_schema(&n);
    char line[160];
    accel_status_t st = ACCEL_OK;

    roff_subsection(section[0] ? section : "Top level");
    /* All keys of a map have the same prefix, or none. */
    for (size_t i = 0; i < n; i++)
        if (!strcmp(k[i].section, section) && (skip = config_key_prefix(&k[i])) > 0) {
            snprintf(line, sizeof(line), "The prefix %.*s may be omitted.", (int)skip,
                     k[i].name);
            roff_paragraph(line);
            break;
        }
    for (size_t i = 0; i < n && st == ACCEL_OK; i++)
        if (!strcmp(k[i].section, section))
            st = print_config_key(&k[i], err);
    return st;
}

/* How the page went: keys need memory for their texts. */
struct config_page {
    accel_status_t st;
    accel_error_t *err;
};

/* Maps in the order in which the table first names them. */
static void print_config_keys(void *arg)
{
    struct config_page *page = arg;
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n && page->st == ACCEL_OK; i++) {
        size_t j = 0;

        while (strcmp(k[j].section, k[i].section) != 0)
            j++;
        /* The first row of its map: print all of the map here. */
        if (j == i)
            page->st = print_section_keys(k[i].section, page->err);
    }
}

static accel_status_t man_config(accel_error_t *err)
{
    static const struct template_place places[] = {
        { "DATE", roff_date },
        { "VERSION", roff_version },
        { "KEYS", print_config_keys },
        { 0 },
    };
    struct config_page page = { ACCEL_OK, err };

    template_print(template_accel_config_5, places, roff_markup, &page);
    return page.st;
}

static const struct argp argp = {
    .parser = parse_man_args,
    .args_doc = "1\n3\n5\n7\nFUNCTION",
    .doc =
        "Prints a manual page, generated from the tables of the program: 1 is "
        "accel(1), 3 libaccel(3), 5 accel-config(5), 7 accel(7). The name of a "
        "libaccel function prints the page of that function, such as accel_open(3). To "
        "read a page: accel man 7 | man -l -"
};

/* Suggests the function with the nearest spelling. */
static int unknown_page(const char *name)
{
    enum { FUNCTIONS = 256 };
    /* Static for its size: 16 KiB. */
    static char names[FUNCTIONS][API_NAME_BYTES];
    const char *list[FUNCTIONS], *near;
    struct api_cursor at = { 0 };
    char hint[2 * API_NAME_BYTES] =
        "the pages are 1, 3, 5, 7 and the functions of libaccel";
    accel_error_t err;
    size_t n = 0;

    while (n < FUNCTIONS && api_next_function(&at, names[n])) {
        list[n] = names[n];
        n++;
    }
    near = suggest_nearest(name, list, n);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean %s?", near);
    accel_fail_at(&err, A0010, "accel man", hint, "there is no page '%s'", name);
    return cli_fail(&err);
}

/* A digit is a section's page, any other word a function's. */
static int run_man(int argc, char **argv)
{
    const char *page = NULL;
    accel_error_t err;

    cli_parse(&cli_man, argc, argv, &page);
    if (!strcmp(page, "1"))
        man_accel();
    else if (!strcmp(page, "3"))
        man_libaccel();
    else if (!strcmp(page, "7"))
        man_overview();
    else if (!strcmp(page, "5") && man_config(&err))
        return cli_fail(&err);
    else if (strcmp(page, "5") != 0 && !man_function(page))
        return unknown_page(page);
    return cli_finish(0);
}

const struct cli_command cli_man = {
    .name = "man",
    .run = run_man,
    .summary = "print manual pages",
    .example = "accel man 1 | man -l -",
    .argp = &argp,
};
