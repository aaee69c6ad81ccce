/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sub-commands of `accel` share: entry points, argument parsing with an example
 * first, errors as exit codes, tables as text or JSON.
 */
#ifndef ACCEL_CLI_H
#define ACCEL_CLI_H

#include <argp.h>

#include "common/common.h"

/* A sub-command. Parser, --help, completion and man page are made from this one table. */
struct cli_command {
    const char *name;
    /* Gets its own argv ("accel check", ...) and returns the exit code. */
    int (*run)(int argc, char **argv);
    const char *summary; /* half a line, no full stop */
    const char *example; /* one or more lines, each "accel ..." */
    /* args_doc: a line per form; lower-case words stand for themselves, FILE, PATH, DIR,
     * PROGRAM, KEY, KEY=VALUE, CODE, MODEL and FUNCTION for what completion offers. An
     * option's argument "a|B" lists both. */
    const struct argp *argp;
    bool everyday; /* shown first by `accel` and its --help */
};

extern const struct cli_command cli_config, cli_to_fsdp2, cli_check, cli_env, cli_ckpt,
    cli_launch, cli_schema, cli_completion, cli_man, cli_topo, cli_plan, cli_doctor,
    cli_test, cli_explain, cli_tokenize;

/* All sub-commands in the order of the help; the array has *count_out entries. */
const struct cli_command *const *cli_commands(size_t *count_out);
enum { CLI_MAX_COMMANDS = 32 };
/* What exit code `code` means, from the status table, into buf; false: it is not used. */
bool cli_exit_meaning(int code, char *buf, size_t len);

/* Prints the error to stderr as "error: WHERE: TEXT" and "  cure: HINT"; returns its exit
 * code. */
int cli_fail(const accel_error_t *err);

/* As argp_parse with ARGP_IN_ORDER. --help prints the example, then argp's help, to stdout
 * and exits 0; wrong usage exits 64, with what argp or argp_error says as message A0010. */
void cli_parse(const struct cli_command *command, int argc, char **argv, void *input);
/* The option that cli_parse adds to every command. */
#define CLI_HELP_OPTION "help"
enum { CLI_HELP_KEY = '?' };
#define CLI_HELP_TEXT "Show this help"

/* Options and parser of a command that takes --json and nothing else; the input is a
 * bool. */
extern const struct argp_option cli_json_options[];
error_t cli_parse_json(int key, char *arg, struct argp_state *state);
/* The same for a parser that has options of its own and hands on the rest. */
#define CLI_JSON_NAME "json"
#define CLI_JSON_OPTION                                                                \
    {                                                                                  \
        CLI_JSON_NAME, 'j', NULL, 0, "Print JSON instead of a table", 0                \
    }
error_t cli_parse_json_into(int key, struct argp_state *state, bool *json_out);

/* Flushes stdout. Returns `code`, or the exit code of a failed write when that is 0. */
int cli_finish(int code);

/* A table with fixed columns, printed by libsmartcols. */
struct cli_table;
/* `name` is the key of the rows in JSON; `columns` is NULL-terminated, "#X" holds numbers
 * (right-aligned, unquoted in JSON). NULL: no memory. */
struct cli_table *cli_table_new(const char *name, const char *const *columns);
/* Adds a row of as many texts as there are columns; NULL stands for an empty cell. */
void cli_table_row(struct cli_table *t, const char *const *cells);
/* Prints to stdout, as JSON when asked, and frees. Returns the exit code. */
int cli_table_print(struct cli_table *t, bool json);

/* Absolute or relative path of `name` as execvp would find it, or NULL; malloc'ed. */
char *cli_find_program(const char *name);
/* First line that `command`, run by the shell, prints and that holds `needle`, without its
 * newline, into buf; false: there is none. */
bool cli_output_line(const char *command, const char *needle, char *buf, size_t len);

#endif
