/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel man 1|3|5|7|FUNCTION`: shows a manual page that was made when accel was built,
 * as man(7) markup on stdout, or through man on a terminal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/own_program.h"

/* Functions of the public headers: each has a page. Made with accel; NULL ends them. */
extern const char *const api_functions[];

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

static const struct argp argp = {
    .parser = parse_man_args,
    .args_doc = "1\n3\n5\n7\nFUNCTION",
    .doc =
        "Prints a manual page, generated from the tables of the program: 1 is "
        "accel(1), 3 libaccel(3), 5 accel-config(5), 7 accel(7). The name of a "
        "libaccel function prints the page of that function, such as accel_open(3). To "
        "read a page: accel man 7 | man -l -"
};

/* Packages compress pages: man reads those, too, and gzip prints them. Each place is
 * searched for both, or an installation that was moved would show another's page. */
static int show_page(const char *name)
{
    static const char *const roots[] = { "cli/man/", "../share/man/", MANDIR "/" };
    char path[PATH_MAX], packed[PATH_MAX], packed_name[128];
    char *man = isatty(STDOUT_FILENO) ? cli_find_program("man") : NULL;
    bool has_man = man != NULL, plain = false, found = false;

    free(man);
    snprintf(packed_name, sizeof(packed_name), "%s.gz", name);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(roots) && !found; i++) {
        const char *const root[] = { roots[i], NULL };

        plain = cli_own_file(root, name, F_OK, path);
        found = plain || cli_own_file(root, packed_name, F_OK, packed);
    }
    if (found && has_man)
        return cli_become("man", (char *[]){ "man", plain ? path : packed, NULL });
    if (found && !plain)
        return cli_become("gzip", (char *[]){ "gzip", "-dc", packed, NULL });
    return cli_print_file(path);
}

/* Suggests the function with the nearest spelling. */
static int unknown_page(const char *name, size_t functions)
{
    const char *near = suggest_nearest(name, api_functions, functions);
    char hint[128] = "the pages are 1, 3, 5, 7 and the functions of libaccel";

    if (near)
        snprintf(hint, sizeof(hint), "did you mean %s?", near);
    return cli_error(A0010, "accel man", hint, "there is no page '%s'", name);
}

/* A digit is a section's page, any other word a function's. */
static int run_man(int argc, char **argv)
{
    static const struct {
        const char *word, *file;
    } main_pages[] = {
        { "1", "man1/accel.1" },
        { "3", "man3/libaccel.3" },
        { "5", "man5/accel-config.5" },
        { "7", "man7/accel.7" },
    };
    const char *page = NULL;
    char file[128];
    size_t n = 0;

    cli_parse(&cli_man, argc, argv, &page);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(main_pages); i++)
        if (!strcmp(page, main_pages[i].word))
            return show_page(main_pages[i].file);
    while (api_functions[n] && strcmp(page, api_functions[n]) != 0)
        n++;
    if (!api_functions[n])
        return unknown_page(page, n);
    snprintf(file, sizeof(file), "man3/%s.3", page);
    return show_page(file);
}

const struct cli_command cli_man = {
    .name = "man",
    .run = run_man,
    .summary = "print manual pages",
    .example = "accel man 1 | man -l -",
    .argp = &argp,
};
