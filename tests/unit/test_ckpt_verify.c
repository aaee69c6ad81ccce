/* SPDX-License-Identifier: Apache-2.0
 *
 * What verify makes of a directory with another step's name, and of one that is removed
 * or replaced while it looks; and the process in which `accel ckpt verify` runs
 * libhdf5: what crashes, hangs, eats memory or talks without end is contained.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_internal.h"
#include "cli/data/isolate.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/unit/disk_shim.h"

static char root[256];

struct found {
    int lines;
    accel_status_t what; /* of the first */
    char text[1200];
};

static void note(void *user, accel_status_t what, const char *line)
{
    struct found *f = user;

    if (f->lines++ == 0) {
        f->what = what;
        snprintf(f->text, sizeof(f->text), "%s", line);
    }
}

static void save(int64_t step)
{
    if (numbers_save_alone(root, step, 9, NULL, NULL))
        abort();
}

static void path_of(char out[400], int64_t step)
{
    snprintf(out, 400, "%s/step_%08lld", root, (long long)step);
}

/* ---- names ----------------------------------------------------------------------- */

static void test_names(void)
{
    char three[410], six[400], copy[400], link[400];
    accel_ckpt_info_t *list = NULL;
    accel_error_t err = { 0 };
    struct found f = { 0 };
    accel_ckpt_t *c = NULL;
    size_t n = 0;

    save(3);
    path_of(three, 3);
    path_of(six, 6);
    snprintf(copy, sizeof(copy), "%s/best", root);
    snprintf(link, sizeof(link), "%s/step_00000007", root);
    if (rename(three, six))
        abort();
    tap_is_int(accel_ckpt_verify(six, note, &f, &err), ACCEL_ECORRUPT,
               "step 3 under the name of step 6: verify refuses");
    tap_ok(f.lines == 1 && strstr(f.text, "step 3: the directory was renamed"), "%s",
           f.text);
    tap_is_int(accel_ckpt_open(&c, six, &err), ACCEL_ECORRUPT, "so does opening it");
    tap_ok(!accel_ckpt_list(root, &list, &n, &err) && n == 1 && !list[0].complete &&
               strstr(list[0].problem, "was renamed"),
           "and the list");
    free(list);
    snprintf(three, sizeof(three), "%s/./", six);
    tap_is_int(accel_ckpt_verify(three, NULL, NULL, NULL), ACCEL_ECORRUPT,
               "by a path that does not end in the name");
    if (rename(six, copy) || symlink("best", link))
        abort();
    tap_is_int(accel_ckpt_verify(copy, NULL, NULL, NULL), ACCEL_OK,
               "a name of one's own promises no step");
    tap_is_int(accel_ckpt_verify(link, NULL, NULL, NULL), ACCEL_OK,
               "the name of a link is not the directory's");
    unlink(link);
    world_rmtree(copy);
}

/* ---- removed meanwhile ----------------------------------------------------------- */

static char victim[400], trash[400], spare[400];
static const char *moment; /* the file that is about to be opened */

static int remove_now(const char *call, const char *name, int fd)
{
    char path[700];

    (void)fd;
    if (strcmp(call, "openat") != 0 || strncmp(name, moment, strlen(moment)) != 0 ||
        rename(victim, trash))
        return 0;
    snprintf(path, sizeof(path), "%s/MANIFEST", trash);
    unlink(path);
    snprintf(path, sizeof(path), "%s/rank_00000-of-00001.h5", trash);
    unlink(path);
    if (spare[0] && rename(spare, victim))
        abort();
    return 0;
}

static void test_removed(const char *at, bool replaced)
{
    accel_error_t err = { 0 };
    struct found f = { 0 };

    save(4);
    path_of(victim, 4);
    snprintf(trash, sizeof(trash), "%s/.trash-step_00000004.0", root);
    spare[0] = '\0';
    if (replaced) {
        snprintf(spare, sizeof(spare), "%s/spare", root);
        if (rename(victim, spare))
            abort();
        save(4);
    }
    moment = at;
    disk_hook = remove_now;
    tap_is_int(accel_ckpt_verify(victim, note, &f, &err), ACCEL_ENOENT,
               "%s before %s is opened", replaced ? "replaced" : "removed", at);
    disk_hook = NULL;
    tap_is_int(f.lines, 0, "nothing is said to be damaged %s", f.text);
    tap_ok(strstr(err.text, "removed or replaced") != NULL, "the error: %s", err.text);
    world_rmtree(trash);
    world_rmtree(victim);
}

/* Damage in a directory that stays is damage, whatever its link does. */
static void test_stays(void)
{
    char path[500], link[400];
    accel_error_t err = { 0 };
    struct found f = { 0 };

    save(4);
    path_of(victim, 4);
    snprintf(path, sizeof(path), "%s/rank_00000-of-00001.h5", victim);
    snprintf(link, sizeof(link), "%s/latest", root);
    if (unlink(path))
        abort();
    tap_is_int(accel_ckpt_verify(victim, note, &f, NULL), ACCEL_ECORRUPT,
               "a file that is missing is damage: %s", f.text);
    tap_is_int(accel_ckpt_verify(link, note, &f, NULL), ACCEL_ECORRUPT,
               "through a link as well");
    tap_is_int(f.lines, 2, "and is said");
    world_rmtree(victim);
    unlink(link);
    f.lines = 0;
    tap_ok(accel_ckpt_verify(victim, note, &f, &err) == ACCEL_ENOENT && f.lines == 0 &&
               err.code == ACCEL_ENOENT,
           "what is not there is not damaged: %s", err.text);
}

/* ---- a process of its own -------------------------------------------------------- */

static accel_status_t work_fine(void *arg, isolate_say *say, void *user,
                                accel_error_t *err)
{
    (void)arg;
    say(user, ACCEL_EPERM, "one\n\033[2Jtwo");
    return accel_fail_at(err, A0840, "there", NULL, "that\n%d", 7);
}

enum badly { CRASHES, LEAVES, SPINS, WAITS, TALKS };

static accel_status_t work_badly(void *arg, isolate_say *say, void *user,
                                 accel_error_t *err)
{
    (void)err;
    switch (*(const enum badly *)arg) {
    case CRASHES:
        say(user, ACCEL_OK, "before");
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would make a report of it */
        raise(SIGSEGV);
        break;
    case LEAVES:
        _exit(0);
    case SPINS:
        for (volatile unsigned i = 0;; i++)
            ;
    case WAITS:
        for (;;)
            pause();
    case TALKS:
        for (;;)
            say(user, ACCEL_OK, "again");
    }
    return ACCEL_OK;
}

#ifndef __SANITIZE_ADDRESS__
/* Memory and files to write are refused, not fatal. */
static accel_status_t work_greedy(void *arg, isolate_say *say, void *user,
                                  accel_error_t *err)
{
    char path[400];
    void *p = malloc((size_t)1 << 30);
    int fd;

    (void)arg;
    if (p)
        memset(p, 1, 1 << 20);
    say(user, ACCEL_OK, p ? "memory" : "no memory");
    free(p);
    signal(SIGXFSZ, SIG_IGN);
    snprintf(path, sizeof(path), "%s/written", root);
    fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (write(fd, "x", 1) == 1)
        return accel_fail(err, A0801, NULL, "it wrote");
    return printf("to nobody\n") < 0;
}
#endif

static enum isolate_end isolated(isolate_work *work, const enum badly *how, int cpu,
                                 int wall, struct found *f, accel_status_t *s,
                                 accel_error_t *err)
{
    const struct isolate_limits limits = { cpu, wall, (size_t)256 << 20 };
    enum isolate_end end = ISOLATE_DONE;

    *f = (struct found){ 0 };
    *s = ACCEL_OK;
    if (isolate_run(work, (void *)(uintptr_t)how, &limits, note, f, &end, s, err))
        abort();
    return end;
}

static void test_isolate(void)
{
    static const struct {
        const char *what;
        enum badly how;
        int cpu, wall;
        enum isolate_end end;
        int lines, or_more; /* that are heard */
    } rows[] = {
        { "a crash", CRASHES, 60, 60, ISOLATE_CRASHED, 1, 0 },
        { "an exit without a result", LEAVES, 60, 60, ISOLATE_CRASHED, 0, 0 },
        { "a loop without an end", SPINS, 1, 120, ISOLATE_TOO_LONG, 0, 0 },
        { "waiting for ever", WAITS, 60, 1, ISOLATE_TOO_LONG, 0, 0 },
        { "talking without an end", TALKS, 60, 60, ISOLATE_TOO_LONG, 1000, 1 },
    };
    accel_error_t err = { 0 };
    accel_status_t s;
    struct found f;

    tap_is_int(isolated(work_fine, NULL, 60, 60, &f, &s, &err), ISOLATE_DONE,
               "work in a child");
    tap_ok(s == ACCEL_ECORRUPT && strcmp(err.where, "there") == 0 &&
               strcmp(err.text, "that?7") == 0 && err.message == 840,
           "its status and error come back");
    tap_is_str(f.text, "one??[2Jtwo", "its lines, printable");
    tap_is_int(f.what, ACCEL_EPERM, "and of what kind they are");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        tap_is_int(
            isolated(work_badly, &rows[i].how, rows[i].cpu, rows[i].wall, &f, &s, &err),
            rows[i].end, "%s", rows[i].what);
        tap_ok(f.lines >= rows[i].lines && f.lines <= rows[i].lines + rows[i].or_more,
               "what it said before is heard, or cut off (%d lines)", f.lines);
    }
#ifdef __SANITIZE_ADDRESS__
    tap_skip(3, "a sanitizer ends a process without memory");
#else
    tap_is_int(isolated(work_greedy, NULL, 60, 60, &f, &s, &err), ISOLATE_DONE,
               "more memory and files than it may have");
    tap_is_int(s, ACCEL_OK, "it cannot write");
    tap_is_str(f.text, "no memory", "it gets none");
#endif
}

int main(void)
{
    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    world_tmpdir(root, "ckpt-verify");
    test_names();
    test_removed("MANIFEST", false);
    test_removed("rank_", false);
    test_removed("MANIFEST", true);
    test_removed("rank_", true);
    test_stays();
    test_isolate();
    world_rmtree(root);
    return tap_done();
}
