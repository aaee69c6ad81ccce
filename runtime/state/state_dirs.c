/* SPDX-License-Identifier: Apache-2.0
 *
 * The directories of accel_save_state and accel_load_state: one of the program's
 * choice, or checkpoint_N. Each is a checkpoint directory that holds a single
 * checkpoint, so all of libaccelckpt's rules hold: complete or absent, hashed, nothing
 * overwritten. Never touches the step_N directories.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/save/save.h"
#include "state/state.h"
#include "handle/run.h"

#define AUTO_PREFIX "checkpoint_"

/* ---- numbers --------------------------------------------------------------------- */

/* N of "checkpoint_N" as it is written, or -1. */
static int64_t auto_number(const char *name)
{
    char *end, again[48];
    long long n;

    if (strncmp(name, AUTO_PREFIX, strlen(AUTO_PREFIX)) != 0)
        return -1;
    errno = 0;
    n = strtoll(name + strlen(AUTO_PREFIX), &end, 10);
    if (errno || n < 0 || *end)
        return -1;
    snprintf(again, sizeof(again), AUTO_PREFIX "%lld", n);
    return strcmp(again, name) == 0 ? n : -1;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Rank 0. The numbers of the checkpoint_N of the run, ascending; one malloc. */
static accel_status_t list_numbers(const accel_t *run, int64_t **list_out,
                                   size_t *n_out, accel_error_t *err)
{
    DIR *dir = opendir(run->ckpt_dir);
    int64_t *list = NULL, number;
    struct dirent *entry;
    size_t n = 0;

    if (!dir)
        return accel_fail_at(
            err, A0803, run->ckpt_dir, "check the directory and its permissions",
            "cannot read the checkpoint directory: %s", strerror(errno));
    for (;;) {
        int64_t *more;

        errno = 0;
        entry = readdir(dir);
        if (!entry)
            break;
        number = auto_number(entry->d_name);
        if (number < 0)
            continue;
        more = reallocarray(list, n + 1, sizeof(*list));
        if (!more) {
            free(list);
            closedir(dir);
            return accel_fail_nomem(err, "the list of checkpoints", n * sizeof(*list));
        }
        list = more;
        list[n++] = number;
    }
    if (errno) {
        accel_fail_at(err, A0812, run->ckpt_dir, "check the storage, then try again",
                      "cannot list the checkpoint directory: %s", strerror(errno));
        free(list);
        closedir(dir);
        return ACCEL_EIO;
    }
    closedir(dir);
    if (n)
        qsort(list, n, sizeof(*list), by_number);
    *list_out = list;
    *n_out = n;
    return ACCEL_OK;
}

static void auto_path(const accel_t *run, int64_t number, char *buf, size_t len)
{
    snprintf(buf, len, "%s/" AUTO_PREFIX "%lld", run->ckpt_dir, (long long)number);
}

/* Rank 0: the newest checkpoint below `dir`, or `dir` where it is one; a complete one
 * before all others. `whole`: only a complete one. Else the newest is tried, so that
 * opening it says what it lacks. False: there is none. */
static bool newest_below(const char *dir, bool whole, char *buf, size_t len,
                         accel_status_t *st_out, accel_error_t *err)
{
    char manifest[PATH_MAX + 16];
    accel_ckpt_info_t *list = NULL;
    size_t n = 0, at = 0;

    snprintf(manifest, sizeof(manifest), "%s/MANIFEST", dir);
    if (!whole && access(manifest, F_OK) == 0) {
        snprintf(buf, len, "%s", dir);
        return true;
    }
    *st_out = accel_ckpt_list(dir, &list, &n, err);
    while (at < n && !list[at].complete)
        at++;
    if (at == n && n > 0 && !whole)
        at = 0;
    if (at < n)
        snprintf(buf, len, "%s/%s", dir, list[at].name);
    free(list);
    return at < n;
}

static int remove_entry(const char *path, const struct stat *sb, int kind,
                        struct FTW *at)
{
    (void)sb;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Rank 0, in the background's thread, when the newest is durable: retention_keep
 * complete ones stay, and all below the lowest of them goes, what a killed save left
 * included. What is deleted half-way, or cannot be, is left to the next save; so is the
 * rest when a stop has been asked for. */
void state_dirs_drop_lowest(accel_t *run)
{
    char path[PATH_MAX], ignored[PATH_MAX];
    accel_error_t why = { 0 };
    accel_status_t st;
    int64_t *list = NULL, left = retention_keep(run);
    size_t n = 0;

    if (list_numbers(run, &list, &n, &why) != ACCEL_OK)
        n = 0;
    while (n-- > 0 && retention_may_delete()) {
        auto_path(run, list[n], path, sizeof(path));
        if (left > 0)
            left -= newest_below(path, true, ignored, sizeof(ignored), &st, &why);
        else
            (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    free(list);
}

/* ---- where a save goes ----------------------------------------------------------- */

/* Rank 0: the directory to write to. */
accel_status_t state_dirs_choose(accel_t *run, const char *dir, char *buf, size_t len,
                                 accel_error_t *err)
{
    accel_ckpt_info_t *found = NULL;
    int64_t *list = NULL;
    size_t n = 0;
    accel_status_t st;

    if (!dir) {
        st = list_numbers(run, &list, &n, err);
        if (!st)
            auto_path(run, n ? list[n - 1] + 1 : 0, buf, len);
        free(list);
        return st;
    }
    if (!*dir || strlen(dir) >= len)
        return accel_fail_at(err, A0902, dir, "use a shorter path",
                             "accel_save_state: the path is empty or too long");
    snprintf(buf, len, "%s", dir);
    st = accel_ckpt_list(buf, &found, &n, err);
    if (!st && n > 0)
        st = accel_fail_at(err, A0835, buf, "name a new directory, or pass NULL",
                           "the directory holds a checkpoint already (%s)",
                           found[0].name);
    free(found);
    return st;
}

/* ---- finding --------------------------------------------------------------------- */

/* Rank 0. Of the numbered ones the newest that is complete. */
static accel_status_t find_source(const accel_t *run, const char *dir, char *buf,
                                  size_t len, accel_error_t *err)
{
    char path[PATH_MAX];
    int64_t *list = NULL;
    size_t n = 0;
    bool found = false;
    accel_status_t st = ACCEL_OK;

    if (dir) {
        found = newest_below(dir, false, buf, len, &st, err);
    } else {
        st = list_numbers(run, &list, &n, err);
        while (!st && n-- > 0 && !found) {
            auto_path(run, list[n], path, sizeof(path));
            found = newest_below(path, true, buf, len, &st, err);
        }
        free(list);
    }
    if (st || found)
        return st;
    return accel_fail_at(err, A0837, dir ? dir : run->ckpt_dir,
                         "list what is there: accel ckpt ls DIR",
                         "there is no checkpoint%s",
                         dir ? "" : " that is complete in a directory checkpoint_N");
}

accel_status_t state_dirs_find(accel_t *run, const char *dir, char *buf, size_t len,
                               accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    memset(buf, 0, len);
    if (run->boot.rank == 0)
        st = find_source(run, dir, buf, len, err);
    st = run_agree(run, st, err);
    return st ? st : comm_broadcast(run->comm, buf, len, 0, err);
}

accel_status_t state_call_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                              accel_error_t *err)
{
    if (st == ACCEL_EPEER)
        return run_report(run, st, e, err);
    if (st && err)
        *err = *e;
    return st;
}

/* A load that has written on one rank leaves the run half old, half new. Collective,
 * but for the loss of a peer. */
accel_status_t state_dirs_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                              accel_error_t *err)
{
    int64_t overwritten = run->program.overwritten;
    accel_error_t ignored = { 0 };

    if (!st)
        return ACCEL_OK;
    if (st == ACCEL_EPEER ||
        comm_all_reduce(run->comm, &overwritten, 1, ACCEL_I64, COMM_MAX, &ignored) ||
        overwritten)
        return run_report(run, st, e, err);
    return state_call_end(run, st, e, err);
}
