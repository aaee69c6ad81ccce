/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the tables of the program that manual pages and completion are made of: runs
 * when accel is built, and is not installed. Out: a row per line on stdout, its kind
 * and tabs in front of NAME=TEXT; a form feed is a line end inside a text. tables.awk
 * reads them.
 */
#include <ctype.h>
#include <stdio.h>

#include "models/family.h"
#include "cli/cli.h"
#include "config/config.h"
#include "cli/launch/launch.h"
#include "cli/man/areas.h"

/* A row of names and their texts, NULL for none. */
#define ROW(kind, ...)                                                                 \
    put_row(kind, (const char *const[]){ __VA_ARGS__ },                                \
            ACCEL_ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })))

static void put_row(const char *kind, const char *const *fields, size_t n)
{
    printf("%s", kind);
    for (size_t i = 0; i + 1 < n; i += 2) {
        printf("\t%s=", fields[i]);
        for (const char *c = fields[i + 1]; c && *c; c++)
            putchar(*c == '\n' ? '\f' : *c);
    }
    putchar('\n');
}

/* ---- commands -------------------------------------------------------------------- */

/* Keys that are no letters have no short form. */
static void put_option(const struct argp_option *o)
{
    bool is_letter = o->key > 0 && o->key < 128 && isgraph(o->key);
    const char letter[2] = { is_letter ? (char)o->key : '\0' };

    ROW("option", "name", o->name, "letter", letter, "arg", o->arg, "doc", o->doc,
        "hidden", o->flags & OPTION_HIDDEN ? "yes" : NULL);
}

/* Options follow their command, --help, which cli_parse adds, last. argp ends them with
 * a row of zeros; a row with only a text is a heading. */
static void put_command(const struct cli_command *c)
{
    static const struct argp_option help = {
        CLI_HELP_OPTION, CLI_HELP_KEY, NULL, 0, CLI_HELP_TEXT, 0
    };
    const struct argp_option *o = c->argp->options;

    ROW("command", "name", c->name, "summary", c->summary, "example", c->example,
        "forms", c->argp->args_doc, "doc", c->argp->doc, "takes",
        o ? " [OPTION...]" : NULL);
    for (; o && (o->name || o->key || o->doc || o->group); o++)
        if (o->name)
            put_option(o);
    put_option(&help);
}

static void put_commands(void)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    for (size_t i = 0; i < n; i++)
        put_command(commands[i]);
}

/* Only codes that some status has. */
static void put_exit_codes(void)
{
    for (int code = 0; code < 256; code++) {
        char number[8], meaning[256];

        snprintf(number, sizeof(number), "%d", code);
        if (cli_exit_meaning(code, meaning, sizeof(meaning)))
            ROW("exit", "name", number, "text", meaning);
    }
}

/* ---- the config ------------------------------------------------------------------ */

/* What a key may hold; the words it takes, and those it refuses, follow it. */
static void put_key(const struct config_key *k, size_t i)
{
    static const char *const types[] = {
        [TYPE_BOOL] = "bool",     [TYPE_INT] = "int",   [TYPE_NUMBER] = "number",
        [TYPE_STRING] = "string", [TYPE_ENUM] = "enum", [TYPE_BOOLS] = "bools",
    };
    static const char *const uses[] = {
        [USE_HONOURED] = "honoured", [USE_HANDED_ON] = "handed on",
        [USE_REPLACED] = "replaced", [USE_NO_EFFECT] = "no effect",
        [USE_REFUSED] = "refused",
    };
    char path[128], variable[96], prefix[96], min[32], max[32];

    snprintf(prefix, sizeof(prefix), "%.*s", (int)config_key_prefix(k), k->name);
    snprintf(min, sizeof(min), "%.17g", k->min);
    snprintf(max, sizeof(max), "%.17g", k->max);
    /* A name that several rows have belongs to one of them. */
    ROW("key", "section", k->section, "name", k->name, "path",
        config_key_path(k, path, sizeof(path)), "variable",
        config_env_name(i, variable, sizeof(variable)), "prefix", prefix, "first",
        config_row(k->name) == (int)i ? "yes" : NULL, "type", types[k->type], "min",
        min, "max", max, "default", k->default_text, "use", uses[k->use], "ours",
        k->ours, "moot", k->moot, "why", k->why, "help", k->help);
    for (int v = 0; k->values && k->values[v]; v++)
        ROW("value", "name", k->values[v]);
    for (int v = 0; k->refused && k->refused[v]; v++)
        ROW("refused", "name", k->refused[v]);
}

static void put_keys(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    for (size_t i = 0; i < n; i++)
        put_key(&k[i], i);
}

/* Accelerate's own flags. */
static void put_flags(void)
{
    const char *name;
    bool value;

    for (size_t i = 0; (name = launch_flag_name(i, &value)) != NULL; i++)
        ROW(value ? "value flag" : "flag", "name", name);
}

/* ---- messages and models --------------------------------------------------------- */

/* Codes as they are typed (A0301), and areas (A03xx) with their count of messages. */
static void put_messages(void)
{
    size_t n, count;
    const struct message_area *areas = message_areas(&n);
    const struct message_page *pages = message_pages(&count);
    char tag[32], text[160];

    for (size_t p = 0; p < count; p++) {
        snprintf(tag, sizeof(tag), "A%04d", pages[p].number);
        ROW("code", "name", tag);
    }
    for (size_t i = 0; i < n; i++) {
        int of_area = 0;

        for (size_t p = 0; p < count; p++)
            of_area += message_area_of(pages[p].number) == &areas[i];
        snprintf(tag, sizeof(tag), "A%02dxx", areas[i].first / 100);
        snprintf(text, sizeof(text), "%s (%d messages)", areas[i].title, of_area);
        ROW("area", "name", tag, "text", text);
    }
}

static void put_models(void)
{
    const struct model_family *f;

    for (size_t i = 0; (f = model_family_at(i)) != NULL; i++)
        for (const struct model_preset *p = f->presets; p->name; p++)
            ROW("model", "name", p->name);
}

int main(void)
{
    ROW("version", "name", accel_version());
    ROW("sysconfdir", "name", SYSCONFDIR);
    put_commands();
    put_exit_codes();
    put_keys();
    put_flags();
    put_messages();
    put_models();
    return cli_finish(0);
}
