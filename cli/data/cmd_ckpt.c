/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt ls|verify DIR`: which checkpoints there are, and whether every byte of
 * them is as it was written. Changes nothing. A running job may remove checkpoints
 * meanwhile; that is no damage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accel_ckpt.h"
#include "cli/cli.h"
#include "cli/data/isolate.h"

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

/* A table that could not be made, as an exit code. */
static int ckpt_no_memory(void)
{
    accel_error_t err = { 0 };

    accel_fail_nomem(&err, "the table", 0);
    return cli_fail(&err);
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
        return ckpt_no_memory();
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

/* The table of verify and the checkpoint whose rows are being added. */
struct rows {
    struct cli_table *t;
    const char *name;
    /* The directory itself, links resolved. */
    const char *path;
    /* Identity of the directory before reading (`known`), to notice
     * that it was replaced. */
    struct stat as_it_was;
    bool known, gone;
    /* Rows added for this checkpoint. */
    size_t count;
};

/* accel_ckpt_verify's callback: one row per finding. */
static void add_finding(void *user, accel_status_t what, const char *line)
{
    struct rows *r = user;
    const char *state = what == ACCEL_ECORRUPT ? "damaged" : "unreadable";

    r->count++;
    cli_table_row(r->t, (const char *[]){ r->name, state, line });
}

/* An isolate_say. The child reads open files and cannot tell whether the
 * directory is still there, so the parent looks: what a run removes while it is
 * read is not damaged. */
static void tree_finding(void *user, const char *line)
{
    struct rows *r = user;
    struct stat now;

    /* Once gone it stays gone: a new one of this name is another checkpoint. */
    r->gone = r->gone ||
              (r->known && (stat(r->path, &now) || now.st_dev != r->as_it_was.st_dev ||
                            now.st_ino != r->as_it_was.st_ino));
    /* What was read of a removed checkpoint says nothing. */
    if (!r->gone)
        add_finding(user, ACCEL_ECORRUPT, line);
}

/* The row of a checkpoint that a run removed or replaced while it was read. */
static void say_gone(struct cli_table *t, const char *name)
{
    cli_table_row(t,
                  (const char *[]){ name, "removed",
                                    "it was removed or replaced during verification" });
}

/* An error as a row: place and text. */
static void error_finding(struct rows *r, const accel_error_t *e)
{
    char line[1100];

    snprintf(line, sizeof(line), "%s%s%s", e->where, e->where[0] ? ": " : "", e->text);
    tree_finding(r, line);
}

/* What the isolated child gets: the open checkpoint and the
 * number of the shard file. */
struct tree_work {
    const accel_ckpt_t *c;
    int file;
};

/* An isolate_work: the comparison itself, in the child. */
static accel_status_t compare_tree(void *arg, isolate_say *say, void *user,
                                   accel_error_t *err)
{
    const struct tree_work *w = arg;

    return accel_ckpt_verify_hdf5(w->c, w->file, say, user, err);
}

/* libhdf5 parses a file that anybody may have written: it runs in a process of its own,
 * with 120 s of processor time, 600 s in all and 1 GiB. */
static accel_status_t verify_tree(accel_ckpt_t *c, int file, struct rows *r,
                                  accel_error_t *err)
{
    static const struct isolate_limits limits = { 120, 600, (size_t)1 << 30 };
    struct tree_work work = { c, file };
    accel_status_t work_st = ACCEL_OK, st;
    enum isolate_end end;
    char where[256];

    st =
        isolate_run(compare_tree, &work, &limits, tree_finding, r, &end, &work_st, err);
    /* The child's own status, whose findings are in the table already. */
    if (st != ACCEL_OK || end == ISOLATE_DONE)
        return st != ACCEL_OK ? st : work_st;
    snprintf(where, sizeof(where), "%.200s/rank_%05d-of-%05d.h5", r->path, file,
             accel_ckpt_world_size(c));
    st = accel_fail_at(
        err, A0841, where, "use another checkpoint", "the HDF5 library %s",
        end == ISOLATE_CRASHED ? "crashes on it" : "does not finish with it");
    error_finding(r, err);
    return st;
}

/* Compares each shard file's HDF5 tree with the manifest, once all hashes held. Goes on
 * after damage, ends with the first other error. */
static accel_status_t verify_trees(struct rows *r, accel_error_t *err)
{
    accel_ckpt_t *c = NULL;
    accel_status_t st = accel_ckpt_open(&c, r->path, err), worst = st;

    for (int f = 0; !st && f < accel_ckpt_world_size(c); f++) {
        st = verify_tree(c, f, r, err);
        /* The first failure is the result; damage lets the other files be read. */
        worst = worst ? worst : st;
        st = st == ACCEL_ECORRUPT ? ACCEL_OK : st;
    }
    if (st && st != ACCEL_EUNAVAIL)
        error_finding(r, err);
    accel_ckpt_close(c);
    return r->gone && !r->count ? ACCEL_ENOENT : st ? st : worst;
}

/* Verifies one checkpoint directory and returns its exit code. */
static int verify_one(struct cli_table *t, const char *dir, const char *name)
{
    struct rows rows = { .t = t, .name = name };
    char *path = realpath(dir, NULL);
    accel_error_t err = { 0 };
    accel_status_t st;

    rows.path = path ? path : dir;
    /* Before anything is read: what changes from here on was not damage. */
    rows.known = stat(rows.path, &rows.as_it_was) == 0;
    st = accel_ckpt_verify(dir, add_finding, &rows, &err);
    /* The HDF5 library is only let near files whose hashes held. */
    if (st == ACCEL_OK)
        st = verify_trees(&rows, &err);
    free(path);
    if (st == ACCEL_OK) {
        cli_table_row(t, (const char *[]){ name, "whole", NULL });
    } else if (st == ACCEL_EUNAVAIL) { /* no HDF5 in this build: the hashes held */
        cli_table_row(t, (const char *[]){ name, "whole", err.text });
        return 0;
    } else if (st == ACCEL_ENOENT && !rows.count) {
        say_gone(t, name);
    }
    return accel_exit_code(st);
}

/* Verifies every checkpoint of the directory. *code keeps the exit code of the first
 * that is bad; the result is that of a failure to look at all. */
static int verify_root(struct cli_table *t, const char *root, int *code)
{
    accel_ckpt_info_t *info = NULL;
    accel_error_t err = { 0 };
    size_t n = 0;

    if (accel_ckpt_list(root, &info, &n, &err))
        return cli_fail(&err);
    /* For a verification nothing is a failure; for `ls` it is an answer. */
    if (n == 0) {
        free(info);
        accel_fail_at(&err, A0811, root, "give accel.checkpoint.dir",
                      "there is no checkpoint to verify");
        return cli_fail(&err);
    }
    for (size_t i = 0; i < n; i++) {
        char dir[4096];
        int c;

        snprintf(dir, sizeof(dir), "%s/%s", root, info[i].name);
        c = verify_one(t, dir, info[i].name);
        /* Removed since they were listed: the run's right. */
        if (c != accel_exit_code(ACCEL_ENOENT))
            *code = *code ? *code : c;
    }
    free(info);
    return 0;
}

/* 74 (I/O) where the table could not be printed: a script must not take
 * silence for success. */
static int verify_checkpoints(const char *dir, const char *only, bool json)
{
    static const char *const columns[] = { "NAME", "STATE", "FINDING", NULL };
    struct cli_table *t = cli_table_new("verified", columns);
    int code = 0, failed = 0;

    if (!t)
        return ckpt_no_memory();
    if (only)
        code = verify_one(t, dir, only);
    else
        failed = verify_root(t, dir, &code);
    if (cli_table_print(t, json) && !code)
        code = 74;
    return failed ? failed : code;
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

/* Runs a verb on a writable copy of the path. */
static int run_verb(const char *verb, char *dir, bool json)
{
    const char *root = dir, *only = one_checkpoint(dir, &root);

    if (strcmp(verb, "verify") == 0)
        return verify_checkpoints(dir, only, json);
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
