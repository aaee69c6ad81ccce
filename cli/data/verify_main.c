/* SPDX-License-Identifier: Apache-2.0
 *
 * accel-verify: compares every byte of checkpoints with what was written, for
 * `accel ckpt verify`. A program of its own, so that `accel` starts without the HDF5
 * library. A running job may remove checkpoints meanwhile; that is no damage.
 *
 *     accel-verify FLAGS DIR         every checkpoint in DIR
 *     accel-verify FLAGS DIR NAME    the checkpoint DIR, shown as NAME
 *
 * FLAGS begins with a dash: d to compare HDF5 structures as well, j for JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/ckpt_tools.h"
#include "cli/cli.h"
#include "cli/data/ckpt_cmd.h"
#include "cli/data/isolate.h"

/* What was asked for, and where the answer goes. */
struct asked {
    struct cli_table *t;
    bool deep, json;
    struct ckpt_progress progress;
};

/* The checkpoint whose rows are being added. */
struct rows {
    struct asked *of;
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
    cli_table_row(r->of->t, (const char *[]){ r->name, state, line });
}

/* A file that lies beside the checkpoint's is no fault of it. */
static void add_stranger(void *user, const char *name)
{
    struct rows *r = user;
    char line[400];

    snprintf(line, sizeof(line),
             "%.255s is not part of the checkpoint: nothing reads or deletes it", name);
    cli_table_row(r->of->t, (const char *[]){ r->name, "foreign", line });
}

static void add_progress(void *user, const char *name, int64_t done, int64_t total)
{
    struct rows *r = user;

    ckpt_progress_to(&r->of->progress, name, done, total);
}

/* An isolate_say. The child reads open files and cannot tell whether the
 * directory is still there, so the parent looks: what a run removes while it is
 * read is not damaged. */
static void tree_finding(void *user, accel_status_t what, const char *line)
{
    struct rows *r = user;
    struct stat now;

    /* Once gone it stays gone: a new one of this name is another checkpoint. */
    r->gone = r->gone ||
              (r->known && (stat(r->path, &now) || now.st_dev != r->as_it_was.st_dev ||
                            now.st_ino != r->as_it_was.st_ino));
    /* What was read of a removed checkpoint says nothing. */
    if (!r->gone)
        add_finding(user, what, line);
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
    tree_finding(r, e->code, line);
}

/* What the isolated child gets: the open checkpoint and the
 * number of the shard file; the world's size stands for the index. */
struct tree_work {
    const accel_ckpt_t *c;
    int file;
};

/* An isolate_work: the comparison itself, in the child. */
static accel_status_t compare_tree(void *arg, isolate_say *say, void *user,
                                   accel_error_t *err)
{
    const struct tree_work *w = arg;

    if (w->file == accel_ckpt_world_size(w->c))
        return ckpt_index_check(w->c, say, user, err);
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
    if (file == accel_ckpt_world_size(c))
        snprintf(where, sizeof(where), "%.200s/index.h5", r->path);
    else
        snprintf(where, sizeof(where), "%.200s/rank_%05d-of-%05d.h5", r->path, file,
                 accel_ckpt_world_size(c));
    st = accel_fail_at(
        err, A0841, where, "use another checkpoint", "the HDF5 library %s",
        end == ISOLATE_CRASHED ? "crashes on it" : "does not finish with it");
    error_finding(r, err);
    return st;
}

/* Compares each shard file's HDF5 tree, and then an index that is there, with the
 * manifest, once all hashes held. Goes on after damage, ends with the first other
 * error. */
static accel_status_t verify_trees(struct rows *r, accel_error_t *err)
{
    accel_ckpt_t *c = NULL;
    accel_status_t st = accel_ckpt_open(&c, r->path, err), worst = st;
    size_t rows = r->count;

    for (int f = 0; !st && f <= accel_ckpt_world_size(c); f++) {
        rows = r->count;
        st = verify_tree(c, f, r, err);
        /* The first failure is the result; damage lets the other files be read. */
        worst = worst ? worst : st;
        st = st == ACCEL_ECORRUPT ? ACCEL_OK : st;
    }
    /* what the child has found is a row already */
    if (st && st != ACCEL_EUNAVAIL && r->count == rows)
        error_finding(r, err);
    accel_ckpt_close(c);
    return r->gone && !r->count ? ACCEL_ENOENT : st ? st : worst;
}

/* Verifies one checkpoint directory and returns its exit code. */
static int verify_one(struct asked *a, const char *dir, const char *name)
{
    struct rows rows = { .of = a, .name = name };
    const struct ckpt_check check = { .dir = dir,
                                      .name = name,
                                      .report = add_finding,
                                      .stranger = add_stranger,
                                      .progress = add_progress,
                                      .user = &rows };
    struct cli_table *t = a->t;
    char *path = realpath(dir, NULL);
    accel_error_t err = { 0 };
    accel_status_t st;

    rows.path = path ? path : dir;
    /* Before anything is read: what changes from here on was not damage. */
    rows.known = stat(rows.path, &rows.as_it_was) == 0;
    st = ckpt_check(&check, &err);
    ckpt_progress_end(&a->progress);
    /* The HDF5 library is only let near files whose hashes held. */
    if (st == ACCEL_OK && a->deep)
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
static int verify_root(struct asked *a, const char *root, int *code)
{
    accel_ckpt_info_t *info = NULL;
    accel_error_t err = { 0 };
    size_t n = 0;

    if (accel_ckpt_list(root, &info, &n, &err))
        return cli_fail(&err);
    /* For a verification nothing is a failure; for `ls` it is an answer. */
    if (n == 0) {
        free(info);
        return cli_error(A0811, root, "give accel.checkpoint.dir",
                         "there is no checkpoint to verify");
    }
    for (size_t i = 0; i < n; i++) {
        char dir[4096];
        int c;

        snprintf(dir, sizeof(dir), "%s/%s", root, info[i].name);
        c = verify_one(a, dir, info[i].name);
        /* Removed since they were listed: the run's right. */
        if (c != accel_exit_code(ACCEL_ENOENT))
            *code = *code ? *code : c;
    }
    free(info);
    return 0;
}

/* 74 (I/O) where the table could not be printed: a script must not take
 * silence for success. */
static int verify_checkpoints(struct asked *a, const char *dir, const char *only)
{
    static const char *const columns[] = { "NAME", "STATE", "FINDING", NULL };
    int code = 0, failed = 0;

    a->t = cli_table_new("verified", columns);
    if (!a->t)
        return cli_no_memory("the table");
    if (only)
        code = verify_one(a, dir, only);
    else
        failed = verify_root(a, dir, &code);
    if (cli_table_print(a->t, a->json) && !code)
        code = 74;
    return failed ? failed : code;
}

/* No argp here: `accel ckpt` is the only caller, and it checks its own command line. */
int main(int argc, char **argv)
{
    struct asked a = { .t = NULL };

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "accel-verify: run `accel ckpt verify`\n");
        return accel_exit_code(ACCEL_EUSAGE);
    }
    a.deep = strchr(argv[1], 'd') != NULL;
    a.json = a.progress.off = strchr(argv[1], 'j') != NULL;
    return verify_checkpoints(&a, argv[2], argv[3]);
}
