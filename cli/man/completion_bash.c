/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills completion.bash.in from the table of sub-commands and their options, the config
 * schema, the messages, the published models, the functions of libaccel and the flags
 * of Accelerate: the script offers what the parsers accept and no more. Out: text on
 * stdout.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "models/any.h"
#include "cli/cli.h"
#include "cli/man/completion.h"
#include "cli/config/json_schema.h"
#include "cli/launch/launch.h"
#include "cli/man/man_pages.h"
#include "cli/man/template.h"

/* argp ends its options with a row of zeros. A row with only a text is a heading. */
static bool is_last(const struct argp_option *o)
{
    return !o->name && !o->key && !o->doc && !o->group;
}

/* ---- lists of words -------------------------------------------------------------- */

/* Words of a list are divided by line ends. */
static void print_keys(void *arg)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    (void)arg;
    for (size_t i = 0; i < n; i++) {
        char path[128];

        config_key_path(&k[i], path, sizeof(path));
        printf("%s%s", i ? "\n" : "", path);
    }
}

/* Codes as they are typed, A0301. */
static void print_codes(void *arg)
{
    size_t n;
    const struct message_page *p = message_pages(&n);

    (void)arg;
    for (size_t i = 0; i < n; i++)
        printf("%sA%04d", i ? "\n" : "", p[i].number);
}

/* Published models, for `accel plan --model`. */
static void print_models(void *arg)
{
    const char *name;

    (void)arg;
    for (size_t i = 0; (name = model_preset_name(i)) != NULL; i++)
        printf("%s%s", i ? "\n" : "", name);
}

/* The functions that have a page, for `accel man`. */
static void print_functions(void *arg)
{
    struct api_cursor at = { 0 };
    char name[API_NAME_BYTES];

    (void)arg;
    for (bool first = true; api_next_function(&at, name); first = false)
        printf("%s%s", first ? "" : "\n", name);
}

/* Accelerate's own flags: those with a value, or those without one. */
static void print_accelerate_flags(bool with)
{
    const char *name;
    bool value;

    for (size_t i = 0; (name = launch_flag_name(i, &value)) != NULL; i++)
        if (value == with)
            printf("--%s\n", name);
}

static void print_flags(void *arg)
{
    (void)arg;
    print_accelerate_flags(false);
}

/* All keys of a config have a value. A key that two rows name is offered once. */
static void print_value_flags(void *arg)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    (void)arg;
    print_accelerate_flags(true);
    for (size_t i = 0; i < n; i++)
        if (config_row(k[i].name) == (int)i)
            printf("--%s\n", k[i].name);
}

/* May the key be written without its map? Its name must differ from every top-level
 * key, and be the first of its kind. */
static bool stands_alone(const struct config_key *k, size_t n, size_t row)
{
    for (size_t i = 0; i < n; i++)
        if (!k[i].section[0] && !strcmp(k[i].name, k[row].name))
            return false;
    return config_row(k[row].name) == (int)row;
}

/* The values of a key, found by its path and, where that is clear, by its name. */
static void print_values(void *arg)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    (void)arg;
    for (size_t i = 0; i < n; i++) {
        char path[128];

        /* Numbers and free text have nothing to offer. */
        if (k[i].type != TYPE_BOOL && !k[i].values)
            continue;
        config_key_path(&k[i], path, sizeof(path));
        printf("    %s", path);
        if (stands_alone(k, n, i))
            printf(" | %s", k[i].name);
        printf(") _accel_words \"%s", k[i].type == TYPE_BOOL ? "true false" : "");
        for (int v = 0; k[i].values && k[i].values[v]; v++)
            printf(" %s", k[i].values[v]);
        printf("\" ;;\n");
    }
}

/* ---- placeholders ---------------------------------------------------------------- */

/* The call of the script that offers words for a placeholder of a form or of an
 * option's argument. ":" offers nothing. */
static void print_offer(const char *what, size_t n)
{
    static const struct {
        const char *word, *call;
    } offers[] = {
        { "FILE", "_accel_files -f" },
        { "PATH", "_accel_files -f" },
        { "DIR", "_accel_files -d" },
        { "PROGRAM", "_accel_files -c -f" },
        { "KEY=VALUE", "_accel_settings" },
        { "KEY", "_accel_words \"$_accel_keys\"" },
        { "CODE", "_accel_words \"$_accel_codes\"" },
        { "MODEL", "_accel_words \"$_accel_models\"" },
        { "FUNCTION", "_accel_words \"$_accel_functions\"" },
    };

    /* KEY=VALUE stands before KEY, which it begins with. */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(offers); i++) {
        size_t len = strlen(offers[i].word);

        if (n >= len && !strncmp(what, offers[i].word, len)) {
            printf("%s", offers[i].call);
            return;
        }
    }
    /* A literal word offers itself. */
    if (n > 0 && (islower(*what) || isdigit(*what)))
        printf("_accel_words %.*s", (int)n, what);
    else
        printf(":");
}

/* Case arms for the word after an option that takes an argument. "a|B"
 * makes one call for each. */
static void print_arguments_of(const struct cli_command *c)
{
    for (const struct argp_option *o = c->argp->options; o && !is_last(o); o++) {
        if (!o->arg || !o->name)
            continue;
        printf("    %s:--%s", c->name, o->name);
        /* Keys that are letters have a short form. */
        if (isgraph(o->key))
            printf(" | %s:-%c", c->name, o->key);
        printf(")\n");
        for (const char *arg = o->arg; *arg;
             arg += strcspn(arg, "|"), arg += *arg == '|') {
            printf("        ");
            print_offer(arg, strcspn(arg, "|"));
            printf("\n");
        }
        printf("        ;;\n");
    }
}

static void print_option_arguments(void *arg)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    (void)arg;
    for (size_t i = 0; i < n; i++)
        print_arguments_of(commands[i]);
}

/* ---- commands -------------------------------------------------------------------- */

/* --json in front of the command completes only to commands that take it. */
static bool takes_json(const struct cli_command *c)
{
    const struct argp_option *o = c->argp->options;

    while (o && !is_last(o) && (!o->name || strcmp(o->name, CLI_JSON_NAME) != 0))
        o++;
    return o && !is_last(o);
}

/* All long options of a command, --help first; hidden aliases stay hidden. */
static void print_options(const struct cli_command *c)
{
    printf("--%s", CLI_HELP_OPTION);
    for (const struct argp_option *o = c->argp->options; o && !is_last(o); o++)
        if (o->name && !(o->flags & OPTION_HIDDEN))
            printf(" --%s", o->name);
}

/* The operands of the longest form; 0: any number ("..."). */
static int most_operands(const char *forms)
{
    int most = 0;

    if (strstr(forms, "..."))
        return 0;
    for (int words = 1; *forms; forms++) {
        words = *forms == '\n' ? 1 : words + (*forms == ' ');
        most = words > most ? words : most;
    }
    return most;
}

/* Offers every literal word of the forms as the first operand, then what the first
 * placeholder of any form stands for. */
static void print_operands(const struct cli_command *c)
{
    const char *line = c->argp->args_doc ? c->argp->args_doc : "";
    const char *place = NULL;
    int most = most_operands(line);

    /* The parser takes no more operands than the longest form has. */
    if (most)
        printf("        [ \"$operands\" -lt %d ] || return\n", most);
    printf("        [ \"$operands\" -ne 0 ] || _accel_words \"");
    /* One form per line; literal words are in lower case, placeholders in capitals. */
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strcspn(line, " \n");
        const char *p = line;

        if (islower(*line) || isdigit(*line))
            printf("%.*s ", (int)n, line);
        while (*p && *p != '\n' && !isupper(*p))
            p++;
        if (isupper(*p) && !place && *line != '-')
            place = p;
    }
    printf("\"\n        ");
    print_offer(place ? place : "", place ? strcspn(place, " ]\n") : 0);
    printf("\n");
}

/* The case arm of one command: options after a dash, else operands. */
static void print_command(const struct cli_command *c)
{
    printf("    %s)\n        case $cur in -*)\n            _accel_words \"", c->name);
    print_options(c);
    printf("\"\n%s            return\n            ;;\n        esac\n",
           c == &cli_launch ? "            _accel_launch_flags\n" : "");
    print_operands(c);
    printf("        ;;\n");
}

static void print_command_arms(void *arg)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    (void)arg;
    for (size_t i = 0; i < n; i++)
        print_command(commands[i]);
}

/* All commands, or those with --json. */
static void print_names(bool only_json)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    for (size_t i = 0; i < n; i++)
        if (!only_json || takes_json(commands[i]))
            printf("%s ", commands[i]->name);
}

static void print_command_names(void *arg)
{
    (void)arg;
    print_names(false);
}

static void print_json_names(void *arg)
{
    (void)arg;
    print_names(true);
}

/* ---- the script ------------------------------------------------------------------ */

static void print_script_version(void *arg)
{
    (void)arg;
    fputs(accel_version(), stdout);
}

static void print_script(const char *text, size_t n)
{
    fwrite(text, 1, n, stdout);
}

void completion_bash(void)
{
    static const struct template_place places[] = {
        { "VERSION", print_script_version },
        { "COMMANDS", print_command_names },
        { "JSON_COMMANDS", print_json_names },
        { "KEYS", print_keys },
        { "CODES", print_codes },
        { "MODELS", print_models },
        { "FUNCTIONS", print_functions },
        { "FLAGS", print_flags },
        { "VALUE_FLAGS", print_value_flags },
        { "VALUES", print_values },
        { "OPTION_ARGUMENTS", print_option_arguments },
        { "COMMAND_ARMS", print_command_arms },
        { 0 }
    };

    template_print(template_completion_bash, places, print_script, NULL);
}
