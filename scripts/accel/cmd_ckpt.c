/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt ls|verify DIR`: what checkpoints there are and whether every byte of them is
 * as it was written. Changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accel_ckpt.h"
#include "scripts/accel/cli.h"

struct ckpt_args {
    const char *verb, *dir;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
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
            argp_error(state, "say ls or verify, and a directory");
        if (strcmp(a->verb, "ls") != 0 && strcmp(a->verb, "verify") != 0)
            argp_error(state, "unknown verb '%s': ls or verify", a->verb);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool exists(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;

    return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
           stat(path, &st) == 0;
}

static int no_memory(void)
{
    accel_error_t err = { 0 };

    accel_fail_nomem(&err, "the table", 0);
    return cli_fail(&err);
}

static int list(const char *dir, bool json)
{
    static const char *const columns[] = { "NAME",  "STEP",    "RANKS", "SIZE",
                                           "STATE", "PROBLEM", NULL };
    accel_ckpt_info_t *info = NULL;
    struct cli_table *t;
    accel_error_t err = { 0 };
    size_t n = 0;

    if (accel_ckpt_list(dir, &info, &n, &err))
        return cli_fail(&err);
    t = cli_table_new("checkpoints", columns);
    if (!t) {
        free(info);
        return no_memory();
    }
    for (size_t i = 0; i < n; i++) {
        char step[24], ranks[16] = "", size[32] = "";

        snprintf(step, sizeof(step), "%lld", (long long)info[i].step);
        if (info[i].world_size) {
            snprintf(ranks, sizeof(ranks), "%d", info[i].world_size);
            format_bytes((double)info[i].bytes, size, sizeof(size));
        }
        cli_table_row(t, (const char *[]){ info[i].name, step, ranks, size,
                                           info[i].complete ? "complete" : "damaged",
                                           info[i].problem });
    }
    free(info);
    return cli_table_print(t, json);
}

struct rows {
    struct cli_table *t;
    const char *name;
};

static void finding(void *user, const char *line)
{
    struct rows *r = user;

    cli_table_row(r->t, (const char *[]){ r->name, "damaged", line });
}

/* Returns the exit code of one checkpoint directory. */
static int verify_one(struct cli_table *t, const char *dir, const char *name)
{
    struct rows rows = { t, name };
    accel_error_t err = { 0 };
    accel_status_t s = accel_ckpt_verify(dir, finding, &rows, &err);

    if (s == ACCEL_OK)
        cli_table_row(t, (const char *[]){ name, "whole", NULL });
    return accel_exit_code(s);
}

static int verify_root(struct cli_table *t, const char *root, int *code)
{
    accel_ckpt_info_t *info = NULL;
    accel_error_t err = { 0 };
    size_t n = 0;

    if (accel_ckpt_list(root, &info, &n, &err))
        return cli_fail(&err);
    for (size_t i = 0; i < n; i++) {
        char dir[4096];
        int c;

        snprintf(dir, sizeof(dir), "%s/%s", root, info[i].name);
        c = verify_one(t, dir, info[i].name);
        *code = *code ? *code : c;
    }
    free(info);
    return 0;
}

static int verify(const char *dir, bool json)
{
    static const char *const columns[] = { "NAME", "STATE", "FINDING", NULL };
    struct cli_table *t = cli_table_new("verified", columns);
    const char *slash = strrchr(dir, '/');
    int code = 0, failed = 0;

    if (!t)
        return no_memory();
    if (exists(dir, "MANIFEST") || strncmp(slash ? slash + 1 : dir, "step_", 5) == 0)
        code = verify_one(t, dir, slash && slash[1] ? slash + 1 : dir);
    else
        failed = verify_root(t, dir, &code);
    if (cli_table_print(t, json) && !code)
        code = 74;
    return failed ? failed : code;
}

int cmd_ckpt(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "json", 'j', NULL, 0, "print JSON", 0 },
        { 0 },
    };
    static const struct argp argp = {
        options,
        parse,
        "ls DIR\nverify DIR",
        "List checkpoints, or read every byte of them and check every hash.\v"
        "DIR is accel.checkpoint.dir or one step_... directory in it. verify exits 74 "
        "when anything is damaged and names each damaged file and tensor.",
        NULL,
        NULL,
        NULL
    };
    struct ckpt_args a = { 0 };
    struct stat st;

    cli_parse(&argp, "accel ckpt ls out/checkpoints\naccel ckpt verify out/checkpoints",
              argc, argv, &a);
    if (stat(a.dir, &st) || !S_ISDIR(st.st_mode)) {
        accel_error_t err = { 0 };

        accel_fail_at(&err, ACCEL_ENOENT, a.dir, "give a checkpoint directory",
                      "no such directory");
        return cli_fail(&err);
    }
    return strcmp(a.verb, "ls") == 0 ? list(a.dir, a.json) : verify(a.dir, a.json);
}
