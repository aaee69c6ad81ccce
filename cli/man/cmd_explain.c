/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel explain [CODE]`: the page of a message from messages.def: what accel saw, why
 * it stops, what to do. Without a code: the list of all messages.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/man/areas.h"
#include "cli/cli.h"
#include "cli/output.h"

/* Width of a page, and the largest number that four digits hold. */
enum { PAGE_COLUMNS = 78, NUMBER_MAX = 9999 };

struct explain_args {
    /* NULL: list all. */
    const char *code;
    bool json;
};

static error_t parse_explain_args(int key, char *arg, struct argp_state *state)
{
    struct explain_args *a = state->input;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->code)
            argp_error(state, "one code at a time; '%s' is a second one", arg);
        a->code = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The number of "A0301", "a301" or "301"; -1: none of these. */
static int number_of(const char *code)
{
    char *end;
    long n;

    code += *code == 'A' || *code == 'a';
    n = strtol(code, &end, 10);
    return *code >= '0' && *code <= '9' && !*end && n <= NUMBER_MAX ? (int)n : -1;
}

/* ---- areas ----------------------------------------------------------------------- */

/* One row per hundred numbers, without gaps: the hundreds digit is the index. */
static const struct message_area areas[] = {
    { 0, "system and command line", "accel(1), `accel doctor`" },
    { 100, "config file", "accel-config(5), `accel check --keys`" },
    { 200, "sources of the config", "accel-config(5), `accel config show --origin`" },
    { 300, "launch and Slurm plugin", "accel(7), srun(1), `accel doctor`" },
    { 400, "start-up, cores and GPUs", "accel(7), `accel topo`, `accel env`" },
    { 500, "collectives", "accel(7), libaccel(3)" },
    { 600, "tensors, model, shards", "libaccel(3)" },
    { 700, "data and logs", "libaccel(3)" },
    { 800, "checkpoints", "`accel ckpt ls`, `accel ckpt verify`" },
    { 900, "training and preemption", "accel(7), libaccel(3)" },
};

const struct message_area *message_areas(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(areas);
    return areas;
}

const struct message_area *message_area_of(int number)
{
    return &areas[number / 100 % (int)ACCEL_ARRAY_SIZE(areas)];
}

/* ---- all messages ---------------------------------------------------------------- */

/* A row per message, in the order of their numbers. */
static int list_all(bool json)
{
    static const char *const columns[] = { "CODE", "STATUS", "#EXIT", "TITLE", NULL };
    struct cli_table *t = cli_table_new("messages", columns);
    size_t n;
    const struct message_page *p = message_pages(&n);

    if (!t)
        return cli_no_memory("the table");
    for (size_t i = 0; i < n; i++) {
        char code[8], exit_code[8];

        snprintf(code, sizeof(code), "A%04d", p[i].number);
        snprintf(exit_code, sizeof(exit_code), "%d", accel_exit_code(p[i].status));
        cli_table_row(t, (const char *[]){ code, accel_status_name(p[i].status),
                                           exit_code, p[i].title });
    }
    return cli_table_print(t, json);
}

/* ---- one page -------------------------------------------------------------------- */

/* A heading and its paragraph, indented by two and filled to PAGE_COLUMNS. */
static void print_filled(const char *heading, const char *text)
{
    size_t column = 0;

    printf("\n%s\n", heading);
    while (*text) {
        size_t word = strcspn(text, " ");

        /* A word longer than the page gets a line of its own. */
        if (column == 0 || column + 1 + word > PAGE_COLUMNS) {
            printf("%s  %.*s", column ? "\n" : "", (int)word, text);
            column = 2 + word;
        } else {
            printf(" %.*s", (int)word, text);
            column += 1 + word;
        }
        text += word + (text[word] == ' ');
    }
    puts("");
}

/* The page for a terminal: title, status and exit code, why, cure, where to read on. */
static void print_page(const struct message_page *p)
{
    const struct message_area *area = message_area_of(p->number);

    printf("A%04d: %s\n", p->number, p->title);
    printf("%s, exit code %d:\n%s\n", accel_status_name(p->status),
           accel_exit_code(p->status), status_meaning(p->status));
    print_filled("Why", p->why);
    print_filled("Cure", p->cure);
    print_filled("See also", area->see);
}

/* The same for scripts; the words are not filled. */
static int print_page_json(const struct message_page *p)
{
    char code[8];
    json_t *o;

    snprintf(code, sizeof(code), "A%04d", p->number);
    o = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s}", "code", code, "status",
                  accel_status_name(p->status), "exit", accel_exit_code(p->status),
                  "area", message_area_of(p->number)->title, "title", p->title, "why",
                  p->why, "cure", p->cure, "see_also", message_area_of(p->number)->see);
    return cli_print_json(o, JSON_INDENT(2), "the page");
}

/* Suggests the nearest number. Spelling does not matter: codes of one area are
 * about the same things. */
static int unknown_code(const char *wanted, int number)
{
    size_t n, near = 0;
    const struct message_page *p = message_pages(&n);
    char hint[160];

    for (size_t i = 1; i < n && number >= 0; i++)
        if (abs(p[i].number - number) < abs(p[near].number - number))
            near = i;
    if (number >= 0)
        snprintf(hint, sizeof(hint), "did you mean A%04d, %s? accel explain lists all",
                 p[near].number, p[near].title);
    else
        snprintf(hint, sizeof(hint), "a code looks like A%04d; accel explain lists all",
                 p[0].number);
    return cli_error(A0014, NULL, hint, "there is no message '%s'", wanted);
}

static const struct argp_option options[] = {
    { "json", 'j', NULL, 0, "Print JSON instead of text", 0 }, { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_explain_args,
    .args_doc = "\nCODE",
    .doc = "Explains the code of a message, such as A0301: what accel found, why it "
           "stops, and what to do. Without a code, lists all codes."
};

/* A word that is no code (-1) matches no page, and so gets the suggestion. */
static int run_explain(int argc, char **argv)
{
    struct explain_args a = { 0 };
    size_t n;
    const struct message_page *p = message_pages(&n);
    int number;

    cli_parse(&cli_explain, argc, argv, &a);
    if (!a.code)
        return list_all(a.json);
    number = number_of(a.code);
    for (size_t i = 0; i < n; i++) {
        if (p[i].number != number)
            continue;
        if (a.json)
            return print_page_json(&p[i]);
        print_page(&p[i]);
        return cli_finish(0);
    }
    return unknown_code(a.code, number);
}

const struct cli_command cli_explain = {
    .name = "explain",
    .run = run_explain,
    .summary = "what a message code means, and its cure",
    .example = "accel explain A0301",
    .argp = &argp,
    .everyday = false,
};
