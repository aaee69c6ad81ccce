/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt ls|verify DIR`: which checkpoints there are, and whether every byte of
 * them is as it was written. Lists them itself; accel-verify, a program of its own,
 * verifies them. Changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accel_ckpt.h"
#include "cli/own_program.h"

struct ckpt_args {
    const char *verb;
    /* argv's own word: slashes at its end are cut off in place. */
    char *dir;
    bool json;
};

static error_t parse_ckpt_args(int key, char *arg, struct argp_state *state)
{
    struct ckpt_args *a = state->input;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!a->verb)
            a->verb = arg;
        else if (!a->dir)
            a->dir = arg;
        else
            argp_error(state, "one directory at a time");
        return 0;
    case ARGP_KEY_END:
        if (!a->verb || !a->dir)
            argp_error(state, "give ls or verify, and a directory");
        if (strcmp(a->verb, "ls") != 0 && strcmp(a->verb, "verify") != 0)
            argp_error(state, "unknown verb '%s': ls or verify", a->verb);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Is there a file or directory of this name in `dir`? */
static bool exists_in(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;

    return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
           stat(path, &st) == 0;
}

/* An empty table looks like a success, so say that nothing is there. */
static void say_none(const char *dir)
{
    fprintf(stderr, "no checkpoints in %s\n", dir);
}

/* Ranks and bytes are known only where the manifest could be read. */
static void list_row(struct cli_table *t, const accel_ckpt_info_t *info, bool json)
{
    static const char *const states[] = {
        [ACCEL_CKPT_COMPLETE] = "complete",
        [ACCEL_CKPT_DAMAGED] = "damaged",
        [ACCEL_CKPT_UNREADABLE] = "unreadable",
        [ACCEL_CKPT_OTHER_FORMAT] = "other format",
    };
    char step[24], ranks[16] = "", size[32] = "";

    snprintf(step, sizeof(step), "%lld", (long long)info->step);
    /* 0 ranks: the manifest could not be read. */
    if (info->world_size) {
        snprintf(ranks, sizeof(ranks), "%d", info->world_size);
        if (json)
            snprintf(size, sizeof(size), "%lld", (long long)info->bytes);
        else
            format_bytes((double)info->bytes, size, sizeof(size));
    }
    cli_table_row(t, (const char *[]){ info->name, step, ranks, size,
                                       states[info->state], info->problem });
}

/* Lists the checkpoints of `root`; `only`: the one to show, NULL: all of them. An
 * incomplete one that is gone by now is left out: a run is writing or removing it. */
static int list_checkpoints(const char *root, const char *only, bool json)
{
    static const char *const columns[] = { "NAME",  "#STEP",   "#RANKS", "#SIZE",
                                           "STATE", "PROBLEM", NULL };
    accel_ckpt_info_t *info = NULL;
    struct cli_table *t;
    accel_error_t err = { 0 };
    size_t n = 0, shown = 0;

    if (accel_ckpt_list(root, &info, &n, &err))
        return cli_fail(&err);
    t = cli_table_new("checkpoints", columns);
    if (!t) {
        free(info);
        accel_fail_nomem(&err, "the table", 0);
        return cli_fail(&err);
    }
    for (size_t i = 0; i < n; i++)
        if ((!only || strcmp(only, info[i].name) == 0) &&
            (info[i].complete || exists_in(root, info[i].name))) {
            list_row(t, &info[i], json);
            shown++;
        }
    free(info);
    /* On stderr: the table on stdout stays one a script can read. */
    if (!shown)
        say_none(root);
    return cli_table_print(t, json);
}

/* The name of the checkpoint if `dir` is one, with what is above it in *root_out; NULL
 * if it is the directory of all. Cuts the slashes off the end of dir. */
static const char *one_checkpoint(char *dir, const char **root_out)
{
    char *slash;
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = '\0';
    slash = strrchr(dir, '/');
    if (!exists_in(dir, "MANIFEST") &&
        strncmp(slash ? slash + 1 : dir, "step_", 5) != 0)
        return NULL;
    /* A bare name lies in the current directory. */
    *root_out = slash ? dir : ".";
    return slash ? slash + 1 : dir;
}

/* Becomes accel-verify. Returns only on failure. */
static int become_verify(char *dir, const char *only, bool json)
{
    char path[PATH_MAX];
    char *argv[] = { path, json ? (char *)"--json" : (char *)"--table", dir,
                     (char *)only, NULL };
    accel_error_t err;

    if (cli_own_program("accel-verify", "accel ckpt verify", path, &err))
        return cli_fail(&err);
    return cli_become(path, argv);
}

/* Runs a verb on a writable copy of the path. */
static int run_verb(const char *verb, char *dir, bool json)
{
    const char *root = dir, *only = one_checkpoint(dir, &root);

    if (strcmp(verb, "verify") == 0)
        return become_verify(dir, only, json);
    /* List what is above, and show the one. */
    if (only && only > dir)
        dir[only - dir - 1] = '\0';
    return list_checkpoints(root[0] ? root : "/", only, json);
}

/* The verbs are operands, as the args_doc of argp has them. */
static const struct argp_option options[] = {
    { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 },
    { 0 },
};
static const struct argp argp = {
    options,
    parse_ckpt_args,
    "ls DIR\nverify DIR",
    "ls lists checkpoints; verify reads every byte of them and checks every hash.\vDIR "
    "is accel.checkpoint.dir or one step_... directory in it. verify exits with 74 if "
    "anything is damaged, and names each damaged file and tensor. It also compares the "
    "HDF5 structures of the files with the manifest, to ensure that HDF5 tools read "
    "the same data. A checkpoint that an active run removes during verification does "
    "not count as damaged.",
    NULL,
    NULL,
    NULL
};

/* The directory is checked first: a wrong path would look like a directory
 * without checkpoints. */
static int run_ckpt(int argc, char **argv)
{
    struct ckpt_args a = { 0 };
    struct stat st;

    cli_parse(&cli_ckpt, argc, argv, &a);
    if (stat(a.dir, &st) || !S_ISDIR(st.st_mode)) {
        accel_error_t err = { 0 };

        accel_fail_at(&err, A0811, a.dir, "give a checkpoint directory",
                      "no such directory");
        return cli_fail(&err);
    }
    return run_verb(a.verb, a.dir, a.json);
}

const struct cli_command cli_ckpt = {
    .name = "ckpt",
    .run = run_ckpt,
    .summary = "list and verify checkpoints",
    .example = "accel ckpt ls out/checkpoints\n"
               "accel ckpt verify out/checkpoints",
    .argp = &argp,
    .everyday = true,
};
