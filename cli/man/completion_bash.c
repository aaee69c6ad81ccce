/* SPDX-License-Identifier: Apache-2.0
 *
 * The completion script for bash, from the table of sub-commands and their options, the
 * config schema, the messages, the published models, the functions of libaccel and
 * Accelerate's flags. It offers what the parsers take and no more. Out: text on stdout.
 *
 * The lists are written into the script, so that completing runs no program.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "nn/models/any.h"
#include "cli/cli.h"
#include "cli/man/completion.h"
#include "cli/config/json_schema.h"
#include "cli/launch/launch.h"
#include "cli/man/man_pages.h"

/* argp ends its options with a row of zeros. A row with only a text is a heading. */
static bool is_last(const struct argp_option *o)
{
    return !o->name && !o->key && !o->doc && !o->group;
}

/* ---- lists of words -------------------------------------------------------------- */

/* Each list is a variable of the script, words divided by line ends. */
static void print_keys(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    printf("_accel_keys=\"");
    for (size_t i = 0; i < n; i++) {
        char path[128];

        config_key_path(&k[i], path, sizeof(path));
        printf("%s%s", i ? "\n" : "", path);
    }
    printf("\"\n");
}

/* Codes as they are typed, A0301. */
static void print_codes(void)
{
    size_t n;
    const struct message_page *p = message_pages(&n);

    printf("_accel_codes=\"");
    for (size_t i = 0; i < n; i++)
        printf("%sA%04d", i ? "\n" : "", p[i].number);
    printf("\"\n");
}

/* Published models, for `accel plan --model`. */
static void print_models(void)
{
    const char *name;

    printf("_accel_models=\"");
    for (size_t i = 0; (name = model_preset_name(i)) != NULL; i++)
        printf("%s%s", i ? "\n" : "", name);
    printf("\"\n");
}

/* The functions that have a page, for `accel man`. */
static void print_functions(void)
{
    struct api_cursor at = { 0 };
    char name[API_NAME_BYTES];

    printf("_accel_functions=\"");
    for (bool first = true; api_next_function(&at, name); first = false)
        printf("%s%s", first ? "" : "\n", name);
    printf("\"\n");
}

/* Accelerate's flags in two lists: with a value, as all keys of a config have, and
 * without one. A key whose name another row has as well is offered once. */
static void print_flags(void)
{
    static const char *const lists[] = { "_accel_flags", "_accel_value_flags" };
    const struct config_key *k;
    const char *name;
    size_t n;
    bool value;

    for (int with = 0; with < 2; with++) {
        printf("%s=\"", lists[with]);
        for (size_t i = 0; (name = launch_flag_name(i, &value)) != NULL; i++)
            if (value == with)
                printf("--%s\n", name);
        k = config_schema(&n);
        for (size_t i = 0; with && i < n; i++)
            if (config_row(k[i].name) == (int)i)
                printf("--%s\n", k[i].name);
        printf("\"\n");
    }
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
static void print_values(void)
{
    size_t n;
    const struct config_key *k = config_schema(&n);

    printf("# Offers the values of a config key.\n"
           "_accel_values() {\n    case $1 in\n");
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
    printf("    esac\n}\n");
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
static void print_option_arguments(const struct cli_command *c)
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

/* The commands as a variable: all of them, or those with --json. */
static void print_names(const char *variable, bool only_json)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    printf("%s=\"", variable);
    for (size_t i = 0; i < n; i++)
        if (!only_json || takes_json(commands[i]))
            printf("%s ", commands[i]->name);
    printf("\"\n");
}

/* ---- the script ------------------------------------------------------------------ */

/* Functions that need nothing from the tables. COMPREPLY is bash's list of offers. */
static const char helpers[] =
    "# Adds what begins with the word being typed.\n"
    "_accel_words() {\n"
    "    local word\n"
    "    for word in $1; do\n"
    "        case $word in \"$cur\"*) COMPREPLY+=(\"$word\") ;; esac\n"
    "    done\n}\n"
    "_accel_files() {\n"
    "    local kind name\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    for kind in \"$@\"; do\n"
    "        while IFS= read -r name; do COMPREPLY+=(\"$name\"); done \\\n"
    "            < <(compgen \"$kind\" -- \"$cur\")\n"
    "    done\n}\n"
    "# KEY=VALUE: the keys, then the values of one.\n"
    "_accel_settings() {\n"
    "    local word\n"
    "    case $cur in *=*)\n"
    "        word=${cur%%=*} cur=${cur#*=}\n"
    "        _accel_values \"$word\"\n"
    "        return\n"
    "        ;;\n"
    "    esac\n"
    "    compopt -o nospace 2>/dev/null\n"
    "    for word in $_accel_keys; do\n"
    "        case $word in \"$cur\"*) COMPREPLY+=(\"$word=\") ;; esac\n"
    "    done\n}\n"
    "# Accelerate's flags, written with _ or -, once a letter says that one is meant.\n"
    "_accel_launch_flags() {\n"
    "    local flags=\"$_accel_flags $_accel_value_flags\"\n"
    "    case $cur in\n"
    "    --*-*) flags=--${flags//_/-} flags=${flags#--} ;;\n"
    "    --?*) ;;\n"
    "    *) return ;;\n"
    "    esac\n"
    "    _accel_words \"$flags\"\n}\n"
    "# Does the option (COMMAND:OPTION) take an argument? Offers what fits there.\n"
    "_accel_argument() {\n"
    "    local flag\n"
    "    case $1 in\n";

/* Accelerate's flags after `accel launch`: with - or _, a value
 * where the key has one. */
static const char launch_argument[] =
    "    launch:--*)\n"
    "        flag=${1#launch:--} flag=${flag//-/_}\n"
    "        case \" ${_accel_value_flags//$'\\n'/ } \" in\n"
    "        *\" --$flag \"*) ;;\n"
    "        *) return 1 ;;\n"
    "        esac\n"
    "        case $flag in\n"
    "        config_file) _accel_files -f ;;\n"
    "        *) _accel_values \"$flag\" ;;\n"
    "        esac\n"
    "        ;;\n"
    "    *) return 1 ;;\n"
    "    esac\n}\n";

/* _accel: finds command, option and number of operands in front of the cursor, then
 * falls into the case arms that print_command adds. */
static const char body[] =
    "_accel() {\n"
    "    local cur='' command='' option='' word before='' operands=0 json='' i\n"
    "    local -a words=()\n"
    "    # bash takes \"=\" for a word of its own: --set=KEY and KEY=VALUE are joined "
    "again.\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [ \"$word\" = \"=\" ] || { [ \"$before\" = \"=\" ] && [ -n \"$word\" "
    "]; }; then\n"
    "            cur+=$word\n"
    "        else\n"
    "            [ \"$i\" -eq 1 ] || words+=(\"$cur\")\n"
    "            cur=$word\n"
    "        fi\n"
    "        before=$word\n"
    "    done\n"
    "    for word in \"${words[@]}\"; do\n"
    "        if [ -n \"$option\" ]; then\n"
    "            option=''\n"
    "            continue\n"
    "        fi\n"
    "        case $command:$word in\n"
    "        :--" CLI_JSON_NAME " | :-j) json=yes ;;\n"
    "        :-*) return ;;\n"
    "        :*) command=$word ;;\n"
    "        *:--*=*) ;;\n"
    "        *:-?*) ! (_accel_argument \"$command:$word\") || option=$word ;;\n"
    "        launch:*) # the rest belongs to the program\n"
    "            COMPREPLY=()\n"
    "            _accel_files -f\n"
    "            return\n"
    "            ;;\n"
    "        *) operands=$((operands + 1)) ;;\n"
    "        esac\n"
    "    done\n"
    "    COMPREPLY=()\n"
    "    case $command:$option$cur in\n"
    "    :*)\n"
    "        _accel_words \"${json:+$_accel_json_commands}\"\n"
    "        [ -n \"$json\" ] || _accel_words \"$_accel_commands --help --version "
    "--" CLI_JSON_NAME "\"\n"
    "        return\n"
    "        ;;\n"
    "    *:--*=*)\n"
    "        if [ -z \"$option\" ]; then\n"
    "            option=${cur%%=*} cur=${cur#*=}\n"
    "        fi\n"
    "        ;;\n"
    "    esac\n"
    "    if [ -n \"$option\" ]; then\n"
    "        _accel_argument \"$command:$option\"\n"
    "        return\n"
    "    fi\n"
    "    case $command in\n";

/* The order is that of a script: lists, functions, then _accel, which uses both. */
void completion_bash(void)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    printf("# bash completion for accel %s, made by `accel completion bash`\n\n",
           accel_version());
    print_names("_accel_commands", false);
    print_names("_accel_json_commands", true);
    print_keys();
    print_codes();
    print_models();
    print_functions();
    print_flags();
    printf("\n");
    print_values();
    fputs(helpers, stdout);
    for (size_t i = 0; i < n; i++)
        print_option_arguments(commands[i]);
    fputs(launch_argument, stdout);
    fputs(body, stdout);
    for (size_t i = 0; i < n; i++)
        print_command(commands[i]);
    printf("    esac\n}\ncomplete -F _accel accel\n");
}
