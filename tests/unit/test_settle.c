/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of the checkpoints on the nodes when a run has chosen where it begins.
 * A row is a list, newest first: h, in the directory; s, on this run's nodes; a, on
 * other nodes; S and A, the same with a record that cannot be deleted, or renamed. By
 * one and by two ranks: status, message, what is left and what is said, each once.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "state/state.h"
#include "tests/tap.h"
#include "tests/world/ranks_world.h"
#include "tests/world/run_folder.h"

enum { MOST = 4, TOP = 9 }; /* TOP: the newest step; each has one less */

static char root[] = "/tmp/accel-settle.XXXXXX";

static struct seen {
    char dir[64], said[4096];
    const char *list;
    int resumed; /* the step; -1: none */
    int st[2];
    char text[1024]; /* of rank 0 */
} * seen;

static void note(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    strcat(strcat(seen->said, level == ACCEL_LOG_WARN ? "warn " : "? "), line);
    strcat(seen->said, "\n");
}

/* The record of the candidate at i: one that is a directory of this name, or cannot be
 * deleted ("."), or is not there. */
static void name_of(int i, char out[64])
{
    const char kind = seen->list[i];

    snprintf(out, 64, kind == 'S' ? "." : kind == 'h' ? "" : ".local-%c%d", kind, i);
}

static void settle(accel_t *run, void *arg)
{
    struct candidate list[MOST] = { 0 };
    struct found own = { .list = list };
    accel_error_t err = { 0 };

    (void)arg;
    run->log = (struct accel_log){ .fn = note, .level = ACCEL_LOG_INFO };
    run->progress.resumed = seen->resumed >= 0;
    run->progress.step = seen->resumed;
    snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s", seen->dir);
    for (int i = 0; seen->list[i]; i++, own.count++) {
        const char kind = seen->list[i];
        char name[64];

        name_of(i, name);
        list[i].at.step = list[i].staged.step = TOP - i;
        snprintf(list[i].staged.name, sizeof(list[i].staged.name), "%s", name);
        list[i].away = kind == 'a' || kind == 'A';
        own.here += kind == 'h';
    }
    seen->st[run->boot.rank] = resume_settle(run, &own, &err);
    if (run->boot.rank == 0)
        snprintf(seen->text, sizeof(seen->text), "%s", err.text);
}

/* Records are moved aside in the list's order, and only then are others deleted. */
static void want_of(char said[4096], char left[256])
{
    const char *list = seen->list, *bad_away = strchr(list, 'A'),
               *bad = bad_away ? bad_away : strchr(list, 'S');
    const int begin = seen->resumed + 1;

    said[0] = left[0] = '\0';
    for (int i = 0; list[i]; i++)
        if (list[i] != 'h' && TOP - i > seen->resumed) {
            sprintf(said,
                    "warn steps %d to %d are lost and will be done again: the newest "
                    "checkpoint in %s is ",
                    begin ? begin : 1, TOP - i, seen->dir);
            sprintf(said + strlen(said), seen->resumed < 0 ? "none\n" : "of step %d\n",
                    seen->resumed);
            break;
        }
    for (int i = 0; list[i]; i++) {
        const bool reached = !bad || list + i < bad;

        if (list[i] == 'a' && (reached || !bad_away)) {
            sprintf(left + strlen(left), ".away-a%d ", i);
            sprintf(said + strlen(said),
                    "warn %s/.local-a%d is now called .away-a%d: renamed back, with "
                    "step_... of later steps moved away, it is resumed from on its "
                    "nodes\n",
                    seen->dir, i, i);
        } else if (list[i] == 'a' || (list[i] == 's' && (bad_away || !reached))) {
            sprintf(left + strlen(left), ".local-%c%d ", list[i], i);
        }
    }
}

static int of_records(const struct dirent *e)
{
    return strncmp(e->d_name, ".local", 6) == 0 || strncmp(e->d_name, ".away", 5) == 0;
}

/* The names in the order of the list. */
static void left_of(char left[256])
{
    struct dirent **e;
    const int n = scandir(seen->dir, &e, of_records, alphasort);

    left[0] = '\0';
    for (int i = 0; i < MOST; i++)
        for (int k = 0; k < n; k++)
            if (e[k]->d_name[strlen(e[k]->d_name) - 1] == '0' + i)
                strcat(strcat(left, e[k]->d_name), " ");
    for (int k = 0; k < n; k++)
        free(e[k]);
    free(n < 0 ? NULL : e);
}

static void check(const char *list, int resumed, int ranks)
{
    const accel_status_t st = strchr(list, 'A')   ? ACCEL_ECREATE
                              : strchr(list, 'S') ? ACCEL_EIO
                                                  : ACCEL_OK;
    char said[4096], left[256], got[256], name[64], path[160];

    memset(seen, 0, sizeof(*seen));
    seen->list = list;
    seen->resumed = resumed;
    snprintf(seen->dir, sizeof(seen->dir), "%s/%s.%d.%d", root, list, resumed, ranks);
    mkdir(seen->dir, 0755);
    for (int i = 0; list[i]; i++) {
        name_of(i, name);
        snprintf(path, sizeof(path), "%s/%s", seen->dir, name);
        if ((list[i] == 's' || list[i] == 'a') && mkdir(path, 0755))
            tap_diag("%s: %m", path);
    }
    tap_is_int(ranks_world(ranks, false, settle, NULL), 0, "%s: %d ranks", list, ranks);
    want_of(said, left);
    left_of(got);
    tap_is_str(got, left, "%s: what is left", list);
    tap_is_str(seen->said, said, "%s from %d: what is said", list, resumed);
    for (int r = 0; r < ranks; r++)
        tap_is_int(seen->st[r], st, "%s: how rank %d ends", list, r);
    tap_ok(strstr(seen->text, st == ACCEL_OK      ? ""
                              : strchr(list, 'A') ? "cannot move the record"
                                                  : "cannot delete the record"),
           "%s: rank 0 says '%s'", list, seen->text);
}

int main(void)
{
    static const char *const lists[] = { "h",  "s",  "a",   "hs", "sh", "ss",  "ha",
                                         "as", "sa", "hsa", "S",  "sS", "Ss",  "hS",
                                         "A",  "sA", "As",  "aA", "Aa", "hsA", "aS" };

    run_folder_new(root);
    seen = fork_shared(sizeof(*seen));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lists); i++)
        for (int ranks = 1; ranks <= 2; ranks++)
            check(lists[i], ranks == 1 ? -1 : TOP - 1, ranks);
    run_folder_remove(root);
    return tap_done();
}
