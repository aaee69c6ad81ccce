/* SPDX-License-Identifier: Apache-2.0
 *
 * accel(1): a section for each sub-command from its table, exit codes from the status
 * table. Out: man(7) markup on stdout.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/man/man_pages.h"
#include "cli/man/roff.h"

/* "-j, --json=ARG" as a tag and its help as the text. Keys above
 * ASCII have no letter. */
static void print_option(const struct argp_option *o)
{
    char letter[3] = { '-', (char)o->key, '\0' };

    roff_tag();
    if (o->key > 0 && o->key < 128 && isgraph(o->key)) {
        roff_bold(letter);
        roff_text(", ");
    }
    roff_bold("--");
    roff_bold(o->name);
    if (o->arg) {
        roff_text("=");
        roff_italic(o->arg);
    }
    roff_tag_end();
    roff_text(o->doc ? o->doc : "");
    roff_tag_end();
}

/* The forms of a command, one per line of args_doc. */
static void print_forms(const struct cli_command *c)
{
    const char *line = c->argp->args_doc ? c->argp->args_doc : "";

    do {
        size_t n = strcspn(line, "\n");

        roff_form();
        roff_bold("accel ");
        roff_bold(c->name);
        if (c->argp->options)
            roff_text(" [OPTION...]");
        if (n) {
            roff_text(" ");
            roff_italic_n(line, n);
        }
        roff_tag_end();
        line += n + (line[n] == '\n');
    } while (*line);
}

/* The same texts as --help: form, description, options, what stands behind argp's
 * vertical tab, example. */
static void print_command(const struct cli_command *c)
{
    static const struct argp_option help = {
        CLI_HELP_OPTION, CLI_HELP_KEY, NULL, 0, CLI_HELP_TEXT, 0
    };
    const char *doc = c->argp->doc ? c->argp->doc : "";
    /* argp shows what stands behind \v after the options. */
    const char *after = strchr(doc, '\v');

    roff_subsection_begin();
    roff_text("accel ");
    roff_text(c->name);
    roff_text(": ");
    roff_text(c->summary);
    roff_subsection_end();
    print_forms(c);
    roff_paragraph(doc);
    for (const struct argp_option *o = c->argp->options; o && (o->name || o->doc); o++)
        if (o->name && !(o->flags & OPTION_HIDDEN))
            print_option(o);
    print_option(&help);
    if (after)
        roff_paragraph(after + 1);
    roff_paragraph("Example:");
    roff_example(c->example);
}

/* Only codes that some status has. */
static void print_exit_codes(void)
{
    roff_section("EXIT STATUS");
    /* The table has statuses, not codes; several may share one. */
    for (int code = 0; code < 256; code++) {
        char number[8], meaning[256];

        if (!cli_exit_meaning(code, meaning, sizeof(meaning)))
            continue;
        snprintf(number, sizeof(number), "%d", code);
        roff_tag();
        roff_bold(number);
        roff_tag_end();
        roff_text(meaning);
        roff_tag_end();
    }
    roff_paragraph("accel launch returns the exit status of the program. A training "
                   "program that uses libaccel exits with the same codes.");
}

/* What stands here in words is what no table has. */
void man_accel(void)
{
    size_t n;
    const struct cli_command *const *commands = cli_commands(&n);

    roff_title("ACCEL", 1, "User Commands");
    roff_section("NAME");
    roff_text("accel - check, start and manage distributed training under Slurm\n");
    roff_section("SYNOPSIS");
    roff_bold("accel");
    roff_text(" [--json] ");
    roff_italic("COMMAND");
    roff_text(" [OPTION...] [ARGUMENT...]\n");
    roff_paragraph("accel --help\naccel --version");
    roff_section("DESCRIPTION");
    roff_text("One option of srun makes a training program distributed, sharded and "
              "preemption-safe:\n");
    roff_example("srun --accel-config=fsdp.yaml ./train");
    roff_paragraph("The accel command checks such config files, starts programs "
                   "without Slurm, and lists and verifies checkpoints. Results go to "
                   "standard output, problems and their cures to standard error.");
    roff_section("COMMANDS");
    for (size_t i = 0; i < n; i++)
        print_command(commands[i]);
    print_exit_codes();
    roff_section("SEE ALSO");
    roff_bold("accel");
    roff_text("(7), ");
    roff_bold("accel-config");
    roff_text("(5), ");
    roff_bold("libaccel");
    roff_text("(3), ");
    roff_bold("srun");
    roff_text("(1)\n");
}
