/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sub-commands of `accel` share: entry points, argument parsing with an
 * example first, errors as exit codes, tables as text or JSON.
 *
 * Every sub-command follows the same stages: its table below is read by the parser,
 * cli_parse fills the command's own struct, the work returns accel_status_t, and
 * cli_fail turns a failure into the exit code. Results go to stdout, problems to
 * stderr; nothing is collective, and all functions belong to the program's one thread.
 */
#ifndef ACCEL_CLI_H
#define ACCEL_CLI_H

#include <argp.h>

#include "common/common.h"

/* A sub-command. Parser, --help, completion and manual page all read this one table. */
struct cli_command {
    const char *name;
    /* Gets its own argv ("accel check", ...) and returns the exit code. */
    int (*run)(int argc, char **argv);
    /* Half a line, no full stop. */
    const char *summary;
    /* One or more lines, each "accel ..."; shown before argp's help. */
    const char *example;
    /* args_doc has one form of the command per line. Lower-case words stand
     * for themselves; FILE, PATH, DIR, PROGRAM, KEY, KEY=VALUE, CODE, MODEL
     * and FUNCTION tell completion what to offer. An option whose argument
     * reads "a|B" offers both. */
    const struct argp *argp;
    /* Listed first by `accel` and its --help. */
    bool everyday;
};

extern const struct cli_command cli_config, cli_to_fsdp2, cli_check, cli_env, cli_ckpt,
    cli_launch, cli_schema, cli_completion, cli_man, cli_topo, cli_plan, cli_doctor,
    cli_test, cli_explain, cli_tokenize, cli_merge_weights;

/* All sub-commands in the order of the help. The array is static and has
 * *count_out entries. */
const struct cli_command *const *cli_commands(size_t *count_out);
/* Room for callers that keep an array beside the commands. */
enum { CLI_MAX_COMMANDS = 32 };
/* The meaning of exit code `code`, from the status table, into buf. False:
 * the code is not used. */
bool cli_exit_meaning(int code, char *buf, size_t len);

/* Prints the error to stderr as "error: WHERE: TEXT" and " cure: HINT" and
 * returns its exit code. */
int cli_fail(const accel_error_t *err);
/* The same for an error that is made here, with the arguments of accel_fail_at. */
int cli_error(enum message code, const char *where, const char *hint, const char *fmt,
              ...) __attribute__((format(printf, 4, 5)));
/* The same for memory that `what` ("the table") did not get. */
int cli_no_memory(const char *what);

/* argp_parse with ARGP_IN_ORDER. --help prints the example, then argp's help, to
 * stdout and exits 0. Wrong usage exits 64 and shows what argp or argp_error
 * said as message A0010. */
void cli_parse(const struct cli_command *command, int argc, char **argv, void *input);
/* The option that cli_parse adds to every command. */
#define CLI_HELP_OPTION "help"
enum { CLI_HELP_KEY = '?' };
#define CLI_HELP_TEXT "Show this help"

/* Options and parser of a command that takes --json and nothing else.
 * Its input is a bool. */
extern const struct argp_option cli_json_options[];
error_t cli_parse_json(int key, char *arg, struct argp_state *state);
/* The same for a parser with options of its own: it passes on the
 * keys it does not know. */
#define CLI_JSON_NAME "json"
#define CLI_JSON_OPTION                                                                \
    {                                                                                  \
        CLI_JSON_NAME, 'j', NULL, 0, "Print JSON instead of a table", 0                \
    }
error_t cli_parse_json_into(int key, struct argp_state *state, bool *json_out);

/* Notes that a part of the output is missing for lack of memory; cli_finish and
 * cli_table_print tell. */
void cli_lacks_memory(void);
/* Flushes stdout. Returns `code`, or the exit code of a failed write or of an output
 * that is not complete when that is 0. */
int cli_finish(int code);

/* A table with fixed columns, printed by libsmartcols. A row that could not be added is
 * remembered, and cli_table_print reports it: callers need not check each row. */
struct cli_table;
/* `name` is the key of the rows in JSON. `columns` ends with NULL; a column "#X" holds
 * numbers (right-aligned, unquoted in JSON). NULL: out of memory. */
struct cli_table *cli_table_new(const char *name, const char *const *columns);
/* Adds a row with one text per column, copied; NULL is an empty cell. */
void cli_table_row(struct cli_table *t, const char *const *cells);
/* Prints the table to stdout, as JSON when asked, and frees it.
 * Returns the exit code. */
int cli_table_print(struct cli_table *t, bool json);
/* Frees a table that is not printed. */
void cli_table_free(struct cli_table *t);

/* The path of `name` as execvp would find it, or NULL. The caller frees it. */
char *cli_find_program(const char *name);
/* Runs `command` in the shell and copies the first line of its output that contains
 * `needle`, without the newline, into buf. False: there is no such line. */
bool cli_output_line(const char *command, const char *needle, char *buf, size_t len);

#endif
