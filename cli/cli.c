/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the sub-commands: help with the example first, errors, tables, PATH search.
 * In: argv, errors, rows. Out: text on stdout and stderr, exit codes.
 */
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_fail(const accel_error_t *err)
{
    char text[2048];

    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "%s\n", text);
    return accel_exit_code(err->code);
}

int cli_error(enum message code, const char *where, const char *hint, const char *fmt,
              ...)
{
    accel_error_t err, said;
    va_list ap;

    va_start(ap, fmt);
    text_vformat(said.text, sizeof(said.text), fmt, ap);
    va_end(ap);
    accel_fail_at(&err, code, where, hint, "%s", said.text);
    return cli_fail(&err);
}

int cli_no_memory(const char *what)
{
    accel_error_t err;

    accel_fail_nomem(&err, what, 0);
    return cli_fail(&err);
}

static bool lacks_memory;

void cli_lacks_memory(void)
{
    lacks_memory = true;
}

/* stdio reports a full disk or a closed pipe only when it flushes; without this check a
 * truncated `accel check >file` would exit 0. */
int cli_finish(int code)
{
    const bool whole = !fflush(stdout) && !ferror(stdout) && !lacks_memory;

    if (whole || code)
        return code;
    if (lacks_memory)
        return cli_error(A0001, NULL, "free some memory and try again",
                         "out of memory: the output is not complete");
    return cli_error(A0012, NULL, "check where the output goes",
                     "cannot write to standard output");
}

/* ---- arguments ------------------------------------------------------------------- */

/* Input of the outer parser: what --help prints first, and the inner parser's input. */
struct help_parser {
    const char *example;
    void *input;
};

/* The outer parser knows --help alone. argp's own --help cannot print the example
 * before the options, so it is switched off (ARGP_NO_HELP) and replaced by this one. */
static error_t parse_help(int key, char *arg, struct argp_state *state)
{
    struct help_parser *h = state->input;

    (void)arg;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = h->input;
        return 0;
    }
    if (key != CLI_HELP_KEY)
        return ARGP_ERR_UNKNOWN;
    printf("Example: %s\n\n", h->example);
    argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC);
    exit(0);
}

/* argp and getopt write their complaints to stderr and exit. They are caught here and
 * shown in the form of every other error. argp offers no hook for this, so stderr
 * points at a memory stream while it parses. */
static struct {
    const struct cli_command *command;
    FILE *stderr_before, *stream;
    char *text;
    size_t len;
} caught;

/* "did you mean '--json'? " for the unknown long option that `text` complains about. */
static void add_near_option(const char *text, char *hint, size_t len)
{
    const char *names[64] = { CLI_HELP_OPTION }, *dashes = strstr(text, "'--"), *near;
    char word[64];
    size_t n = 1;

    if (!strstr(text, "unrecognized") || !dashes)
        return;
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(dashes + 3, "'="), dashes + 3);
    for (const struct argp_option *o = caught.command->argp->options;
         o && (o->name || o->doc) && n < ACCEL_ARRAY_SIZE(names); o++)
        if (o->name)
            names[n++] = o->name;
    near = suggest_nearest(word, names, n);
    if (near)
        snprintf(hint, len, "did you mean '--%s'? ", near);
}

/* Gives stderr back and shows what was caught. Also runs from on_exit, since argp_error
 * exits from within the parser, with a status; it does nothing the second time. */
static void end_catching(int status, void *unused)
{
    char where[64], hint[160] = "";
    char *text;

    (void)unused;
    if (!caught.stream)
        return;
    fclose(caught.stream);
    caught.stream = NULL;
    stderr = caught.stderr_before;
    snprintf(where, sizeof(where), "accel %s", caught.command->name);
    text = caught.text;
    if (text && *text) {
        /* argp's second line, "Try ... --help", is what our hint says. */
        text[strcspn(text, "\n")] = '\0';
        /* argp begins with the program's name, which is our place already. */
        if (!strncmp(text, where, strlen(where)) &&
            !strncmp(text + strlen(where), ": ", 2))
            text += strlen(where) + 2;
        add_near_option(text, hint, sizeof(hint));
        snprintf(hint + strlen(hint), sizeof(hint) - strlen(hint), "see %s --help",
                 where);
        cli_error(A0010, where, hint, "%s", text);
    }
    if (status && (!caught.text || !*caught.text))
        cli_error(A0001, NULL, "free some memory and try again",
                  "out of memory: cannot say what is wrong with the command line");
    free(caught.text);
    caught.text = NULL;
}

/* Without memory for the stream argp's complaints stay as they are: worse
 * form, same exit code. */
static void start_catching(const struct cli_command *command)
{
    caught.command = command;
    caught.stream = open_memstream(&caught.text, &caught.len);
    if (!caught.stream)
        return;
    caught.stderr_before = stderr;
    stderr = caught.stream;
    on_exit(end_catching, NULL);
}

/* Two nested parsers: the outer one has the texts and --help, the inner one (a child in
 * argp's terms) is the command's own, unchanged. */
void cli_parse(const struct cli_command *command, int argc, char **argv, void *input)
{
    const struct argp *argp = command->argp;
    static const struct argp_option options[] = {
        { CLI_HELP_OPTION, CLI_HELP_KEY, NULL, 0, CLI_HELP_TEXT, -1 }, { 0 }
    };
    struct argp_child children[] = { { argp, 0, NULL, 0 }, { 0 } };
    struct argp outer = { .options = options,
                          .parser = parse_help,
                          .args_doc = argp->args_doc,
                          .doc = argp->doc,
                          .children = children };
    struct argp inner = *argp;
    struct help_parser h = { command->example, input };
    error_t error;

    /* The outer parser shows these texts; the inner one would repeat them. */
    inner.doc = NULL;
    inner.args_doc = NULL;
    children[0].argp = &inner;
    /* Wrong usage exits inside argp_parse; what it returns are errors of the system,
     * such as a lack of memory. */
    start_catching(command);
    error = argp_parse(&outer, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &h);
    end_catching(0, NULL);
    if (error)
        exit(cli_error(A0001, NULL, "free some memory and try again",
                       "out of memory: cannot read the command line (%s)",
                       strerror(error)));
}

const struct argp_option cli_json_options[] = { CLI_JSON_OPTION, { 0 } };

error_t cli_parse_json_into(int key, struct argp_state *state, bool *json_out)
{
    if (key == 'j')
        *json_out = true;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "takes no arguments");
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

error_t cli_parse_json(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    return cli_parse_json_into(key, state, state->input);
}

/* ---- tables ---------------------------------------------------------------------- */

struct cli_table {
    struct libscols_table *table;
    size_t columns;
    /* A call of libsmartcols failed, for lack of memory: told when printed. */
    bool failed;
};

struct cli_table *cli_table_new(const char *name, const char *const *columns)
{
    struct cli_table *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->table = scols_new_table();
    if (!t->table) {
        free(t);
        return NULL;
    }
    /* A row stays one line on any terminal: mpirun gives every
     * rank one of 80 columns. */
    t->failed = scols_table_set_name(t->table, name) ||
                scols_table_set_termforce(t->table, SCOLS_TERMFORCE_NEVER);
    for (; columns[t->columns]; t->columns++) {
        bool number = columns[t->columns][0] == '#';
        struct libscols_column *c = scols_table_new_column(
            t->table, columns[t->columns] + number, 0.1, number ? SCOLS_FL_RIGHT : 0);

        if (!c || (number && scols_column_set_json_type(c, SCOLS_JSON_NUMBER)))
            t->failed = true;
    }
    return t;
}

void cli_table_row(struct cli_table *t, const char *const *cells)
{
    struct libscols_line *line = scols_table_new_line(t->table, NULL);

    if (!line) {
        t->failed = true;
        return;
    }
    for (size_t i = 0; i < t->columns; i++)
        if (scols_line_set_data(line, i, cells[i] ? cells[i] : ""))
            t->failed = true;
}

/* The flush belongs to the table: a failed write must turn the exit code, and the
 * table's caller often ends with it. */
void cli_table_free(struct cli_table *t)
{
    scols_unref_table(t->table);
    free(t);
}

int cli_table_print(struct cli_table *t, bool json)
{
    bool failed;

    if (json)
        scols_table_enable_json(t->table, 1);
    failed = t->failed || lacks_memory || scols_print_table(t->table);
    cli_table_free(t);
    if (failed)
        return cli_no_memory("the table");
    if (!fflush(stdout))
        return 0;
    return cli_error(A0012, NULL, "check where the output goes",
                     "cannot write to standard output");
}

/* ---- programs -------------------------------------------------------------------- */

/* An empty entry of PATH means the current directory, as for execvp. Without PATH the
 * default of the shell counts. */
char *cli_find_program(const char *name)
{
    const char *path = getenv("PATH");
    char *dirs, *rest, *found = NULL;

    if (strchr(name, '/'))
        return access(name, X_OK) ? NULL : strdup(name);
    dirs = strdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
    if (!dirs)
        return NULL;
    rest = dirs;
    for (char *d = strsep(&rest, ":"); d && !found; d = strsep(&rest, ":")) {
        char *full;

        if (asprintf(&full, "%s/%s", *d ? d : ".", name) < 0)
            break;
        if (access(full, X_OK))
            free(full);
        else
            found = full;
    }
    free(dirs);
    return found;
}

bool cli_output_line(const char *command, const char *needle, char *buf, size_t len)
{
    FILE *f = popen(command, "re");
    char line[512];
    bool found = false;

    if (!f)
        return false;
    /* Read to the end: a program whose reader closes the pipe early may complain. */
    while (fgets(line, sizeof(line), f)) {
        if (found || !strstr(line, needle))
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, len, "%s", line);
        found = true;
    }
    pclose(f);
    return found;
}
