/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel completion bash`: a completion script made from the table of sub-commands, their
 * options and the config schema, so that it offers what the parser takes and no more.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "scripts/accel/cli.h"
#include "scripts/accel/json_schema.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
    const char **shell = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        if (strcmp(arg, "bash") != 0)
            argp_error(state, "no completion for '%s'; there is: bash", arg);
        *shell = arg;
        return 0;
    case ARGP_KEY_END:
        if (!*shell)
            argp_error(state, "say for which shell: bash");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Options as argp ends them. */
static bool is_last(const struct argp_option *o)
{
    return !o->name && !o->key && !o->doc && !o->group;
}

/* What to offer for a placeholder, as a call of the script. */
static void print_offer(const char *what, size_t n)
{
    if (n >= 4 && !strncmp(what, "FILE", 4))
        printf("_accel_files -f");
    else if (n >= 3 && !strncmp(what, "DIR", 3))
        printf("_accel_files -d");
    else if (n >= 7 && !strncmp(what, "PROGRAM", 7))
        printf("_accel_files -c -f");
    else if (n >= 3 && !strncmp(what, "KEY", 3))
        printf("_accel_words \"$_accel_keys\"");
    else
        printf(":");
}

/* "a|b" as words, else what the placeholder stands for. */
static void print_argument(const char *arg)
{
    if (!strchr(arg, '|')) {
        print_offer(arg, strlen(arg));
        return;
    }
    printf("_accel_words \"");
    for (; *arg; arg++)
        putchar(*arg == '|' ? ' ' : *arg);
    printf("\"");
}

/* Case arms for the word after an option that takes one. */
static void print_option_arguments(const struct cli_command *c)
{
    for (const struct argp_option *o = c->argp->options; o && !is_last(o); o++) {
        if (!o->arg || !o->name)
            continue;
        printf("    %s:--%s", c->name, o->name);
        if (isgraph(o->key))
            printf(" | %s:-%c", c->name, o->key);
        printf(")\n        ");
        print_argument(o->arg);
        printf("\n        return\n        ;;\n");
    }
}

static void print_options(const struct cli_command *c)
{
    printf("--%s", CLI_HELP_OPTION);
    for (const struct argp_option *o = c->argp->options; o && !is_last(o); o++)
        if (o->name && !(o->flags & OPTION_HIDDEN))
            printf(" --%s", o->name);
}

/* Every word of the forms that stands for itself, in the first place; then what the first
 * placeholder of any form offers. */
static void print_operands(const struct cli_command *c)
{
    const char *line = c->argp->args_doc ? c->argp->args_doc : "";
    const char *place = NULL;

    printf("        [ \"$COMP_CWORD\" -ne 2 ] || _accel_words \"");
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

static void print_command(const struct cli_command *c)
{
    printf("    %s)\n        case $cur in -*)\n            _accel_words \"", c->name);
    print_options(c);
    printf("\"\n            return\n            ;;\n        esac\n");
    print_operands(c);
    printf("        ;;\n");
}

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
    printf("\"\n\n");
}

static void print_bash(void)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    printf("# bash completion for accel %s, made by `accel completion bash`\n\n",
           accel_version());
    print_keys();
    printf("# Adds what begins with the word being typed.\n"
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
           "_accel() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _accel_words \"");
    for (size_t i = 0; i < n; i++)
        printf("%s ", commands[i]->name);
    printf("--help --version\"\n        return\n    fi\n"
           "    case ${COMP_WORDS[1]}:$prev in\n");
    for (size_t i = 0; i < n; i++)
        print_option_arguments(commands[i]);
    printf("    esac\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++)
        print_command(commands[i]);
    printf("    esac\n}\ncomplete -F _accel accel\n");
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "bash",
    .doc = "Prints the completion script of a shell. An installation puts it where "
           "bash-completion finds it; by hand: source <(accel completion bash)"
};

static int run_completion(int argc, char **argv)
{
    const char *shell = NULL;

    cli_parse(&cli_completion, argc, argv, &shell);
    print_bash();
    return cli_finish(0);
}

const struct cli_command cli_completion = {
    .name = "completion",
    .run = run_completion,
    .summary = "completion script for bash",
    .example = "accel completion bash",
    .argp = &argp,
};
