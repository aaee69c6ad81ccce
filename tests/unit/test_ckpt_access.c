/* SPDX-License-Identifier: Apache-2.0
 *
 * What cannot be read now is not damage: errors of single calls, once and for good,
 * while a checkpoint is opened, read and listed; few descriptors; what retention may
 * remove; what a save finds under its name, and how that steps aside. The calls fail by
 * --wrap.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/ckpt_internal.h"
#include "checkpoint/ckpt_tools.h"
#include "tests/tap.h"
#include "tests/unit/call_faults.h"
#include "tests/world/ckpt_world.h"

static char root[256];

/* ---- small checkpoints ----------------------------------------------------------- */

static struct {
    const char *run_id, *owner;
    int replaces;
    accel_ckpt_stats_t stats;
    accel_error_t err;
} made = { .run_id = "test run", .owner = "17.0" };

static accel_status_t save(int64_t step, int keep)
{
    double value = (double)step;
    accel_ckpt_box_t box = value_box(&value);
    accel_ckpt_save_t s = { sizeof(s),
                            .root = root,
                            .step = step,
                            .owner = made.owner,
                            .run_id = made.run_id,
                            .sharding = "NO_SHARD",
                            .boxes = &box,
                            .box_count = 1,
                            .keep = keep,
                            .replaces = made.replaces };

    made.err = (accel_error_t){ 0 };
    return accel_ckpt_save(&s, NULL, &made.stats, &made.err);
}

static double value_of(const char *name)
{
    return value_in(root, name);
}

static void shell(const char *fmt, ...)
{
    char what[400], cmd[700];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(cmd, sizeof(cmd), "cd '%s' && %s", root, what);
    if (system(cmd) != 0)
        abort();
}

/* Names in the root that are not hidden, sorted, with blanks between; times are cut
 * off. */
static const char *names(void)
{
    return world_output("cd '%s' && ls | grep -v latest | "
                        "sed 's/-[0-9TZ]*/-T/; s/step_0*/s/' | tr '\\n' ' '",
                        root);
}

/* An empty root; then steps 10 to 10 n are saved. */
static void begin_with(int n)
{
    world_rmtree(root);
    if (mkdir(root, 0777))
        abort();
    for (int64_t step = 10; step <= 10 * n; step += 10)
        save(step, 9);
}

/* ---- open and read --------------------------------------------------------------- */

#define SHARD0 "rank_00000-of-00002.h5"
#define SHARD1 "rank_00001-of-00002.h5"

static const struct {
    const char *call, *name;
    int error;
    accel_status_t status;
} single[] = {
    { "open", "/step_00000007", EIO, ACCEL_EIO },
    { "open", "/step_00000007", EACCES, ACCEL_EPERM },
    { "openat", "MANIFEST", EMFILE, ACCEL_EIO },
    { "openat", "MANIFEST", EACCES, ACCEL_EPERM },
    { "fstat", "MANIFEST", EIO, ACCEL_EIO },
    { "pread", "MANIFEST", EIO, ACCEL_EIO },
    { "openat", SHARD0, EIO, ACCEL_EIO },
    { "openat", SHARD1, ENFILE, ACCEL_EIO },
    { "openat", SHARD1, EPERM, ACCEL_EPERM },
    { "fstat", SHARD1, ESTALE, ACCEL_EIO },
    { "pread", SHARD0, EIO, ACCEL_EIO },
    { "pread", SHARD1, ESTALE, ACCEL_EIO },
    { "pread", SHARD1, EACCES, ACCEL_EPERM },
    { "openat", SHARD1, ENOENT, ACCEL_ECORRUPT },
    { "openat", "MANIFEST", ENOENT, ACCEL_ECORRUPT },
    { "openat", SHARD0, ELOOP, ACCEL_ECORRUPT },
    { "open", "/step_00000007", ENOENT, ACCEL_ENOENT },
};

/* Opens step 7 of two ranks and reads all of it; wrong data are status ACCEL_EBUG. */
static accel_status_t load(accel_error_t *err)
{
    accel_ckpt_t *c = NULL;
    struct state state;
    accel_status_t s;
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/step_00000007", root);
    *err = (accel_error_t){ 0 };
    state_make_empty(&state, 0, 1);
    s = accel_ckpt_open(&c, dir, err);
    if (!s)
        s = accel_ckpt_read(c, state.box, state.boxes, err);
    if (!s && state_wrong(&state, 7))
        s = ACCEL_EBUG;
    accel_ckpt_close(c);
    state_free(&state);
    return s;
}

static void note_what(void *user, accel_status_t what, const char *line)
{
    (void)line;
    *(accel_status_t *)user = what;
}

/* accel_ckpt_verify's own word and that of its findings, which must be the same. */
static accel_status_t verify(void)
{
    accel_status_t what = ACCEL_OK, s;
    accel_error_t err = { 0 };
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/step_00000007", root);
    s = accel_ckpt_verify(dir, note_what, &what, &err);
    if (s == ACCEL_ENOENT) /* no finding */
        return what == ACCEL_OK ? s : ACCEL_EBUG;
    return what == s && err.code == s ? s : ACCEL_EBUG;
}

static void save_of(int ranks, int64_t step)
{
    accel_error_t err = { 0 };
    struct world w;
    accel_status_t s;

    world_start(&w, ranks);
    s = world_save(&w, root, step, 9, &err);
    tap_is_int(world_end(&w, s != ACCEL_OK), 0, "%d ranks save step %lld", ranks,
               (long long)step);
}

static void test_single_errors(void)
{
    accel_error_t err;

    save_of(2, 7);
    tap_is_int(load(&err), ACCEL_OK, "it loads");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(single); i++) {
        const char *call = single[i].call, *name = single[i].name;
        const char *end = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
        bool passes = ckpt_may_pass(single[i].status);

        fail_next(call, name, single[i].error, 1);
        tap_is_int(load(&err), passes ? ACCEL_OK : single[i].status, "%s %s: %s, once",
                   call, end, strerror(single[i].error));
        fail_next(call, name, single[i].error, 1000);
        paused_ms = 0;
        tap_is_int(load(&err), single[i].status, "%s %s: %s, for good", call, end,
                   strerror(single[i].error));
        tap_is_int(paused_ms, passes ? 20 + 100 + 500 : 0, "after pauses of %lld ms",
                   (long long)paused_ms);
        tap_ok(strstr(err.where, end) != NULL, "the file is named: %s: %s", end,
               err.text);
        if (strcmp(call, "pread") != 0) /* O_DIRECT first, then the page cache */
            tap_is_int(fault.met, passes ? 1 + CKPT_TRIES : 1, "and tried %d times",
                       fault.met);
        else
            tap_ok(fault.met <= 2 * (1 + CKPT_TRIES), "and tried %d times", fault.met);
        tap_is_int(verify(), single[i].status, "verify calls it the same");
    }
    no_fault();
    tap_is_int(verify(), ACCEL_OK, "all is whole");
    tap_is_int(load(&err), ACCEL_OK, "and it loads again");
}

/* A checkpoint of eight files where a process may open three more. */
static void test_descriptors(void)
{
    struct rlimit before, few;
    accel_error_t err = { 0 };
    int fd = dup(0);

    save_of(8, 8);
    close(fd);
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = (rlim_t)fd + 4;
    setrlimit(RLIMIT_NOFILE, &few);
    tap_is_int(world_load_newest(root, 0, 1, &err), 8,
               "8 files load with 4 descriptors (%s: %s)", err.where, err.text);
    setrlimit(RLIMIT_NOFILE, &before);
}

/* ---- the list -------------------------------------------------------------------- */

static const struct {
    int64_t step;
    accel_ckpt_state_t state;
    const char *problem;
} states[] = {
    { 80, ACCEL_CKPT_DAMAGED, "not a directory, or a symbolic link" },
    { 70, ACCEL_CKPT_DAMAGED, "not a directory, or a symbolic link" },
    { 60, ACCEL_CKPT_DAMAGED, "the save never finished" },
    { 50, ACCEL_CKPT_DAMAGED, "the manifest is for step 10" },
    { 40, ACCEL_CKPT_UNREADABLE, "step_00000040: cannot open: Permission denied" },
    { 30, ACCEL_CKPT_OTHER_FORMAT,
      "format 2, but this library (" PACKAGE_VERSION ") reads" },
    { 20, ACCEL_CKPT_DAMAGED, "rank_00000-of-00001.h5: cannot open: No such file" },
    { 10, ACCEL_CKPT_COMPLETE, "" },
};

static void test_states(void)
{
    accel_ckpt_info_t *list = NULL;
    accel_error_t err = { 0 };
    size_t n = 0, want = ACCEL_ARRAY_SIZE(states);

    begin_with(4);
    shell("rm step_00000020/*.h5; cp -r step_00000010 step_00000050");
    /* Another format may end otherwise: the hash of this one does not hold. */
    shell("sed -i '1s/1$/2/' step_00000030/MANIFEST");
    shell("mkdir step_00000060; ln -s step_00000010 step_00000070; : >step_00000080");
    shell("mkdir step_00000090.damaged-20260101T000000Z step_9 step_00000011x");
    fail_next("openat", "step_00000040", EACCES, 1000);
    paused_ms = 0;
    tap_is_int(accel_ckpt_list(root, &list, &n, &err), ACCEL_OK, "a list of all kinds");
    no_fault();
    tap_is_int(paused_ms, 20 + 100 + 500, "after one set of pauses");
    tap_is_int((int)n, (int)want, "with each of them, and no other name");
    for (size_t i = 0; i < n && i < want; i++)
        tap_ok(list[i].step == states[i].step && list[i].state == states[i].state &&
                   list[i].complete == (states[i].state == ACCEL_CKPT_COMPLETE) &&
                   strstr(list[i].problem, states[i].problem),
               "step %lld: state %d: %s", (long long)list[i].step, (int)list[i].state,
               list[i].problem);
    free(list);
}

static const struct {
    const char *call;
    int error;
    accel_status_t status;
} roots[] = {
    { "open", EIO, ACCEL_EIO },      { "open", EACCES, ACCEL_EPERM },
    { "readdir", EIO, ACCEL_EIO },   { "readdir", EACCES, ACCEL_EPERM },
    { "openat", EMFILE, ACCEL_EIO }, { "openat", EACCES, ACCEL_EPERM },
};

static void test_list_errors(void)
{
    const char *base = strrchr(root, '/');

    begin_with(0);
    save(1, 9);
    save(2, 9);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(roots); i++) {
        const char *name = strcmp(roots[i].call, "openat") == 0 ? "." : base;
        accel_ckpt_info_t *list = NULL;
        accel_error_t err = { 0 };
        accel_status_t s;
        size_t n = 0;

        fail_next(roots[i].call, name, roots[i].error, 1);
        s = accel_ckpt_list(root, &list, &n, &err);
        tap_ok(s == ACCEL_OK && n == 2, "%s of the root: %s, once", roots[i].call,
               strerror(roots[i].error));
        free(list);
        fail_next(roots[i].call, name, roots[i].error, 1000);
        s = accel_ckpt_list(root, &list, &n, &err);
        tap_is_int(s, roots[i].status, "%s of the root: %s, for good: no short list",
                   roots[i].call, strerror(roots[i].error));
        tap_is_int(fault.met, 1 + CKPT_TRIES, "tried %d times", fault.met);
        no_fault();
    }
}

/* What retention of a live run renames while we look is not there any more. */
static void test_vanishing(void)
{
    accel_ckpt_info_t *list = NULL;
    accel_error_t err = { 0 };
    size_t n = 0;

    begin_with(0);
    save(1, 9);
    save(2, 9);
    fault.vanish = "step_00000001";
    tap_is_int(accel_ckpt_list(root, &list, &n, &err), ACCEL_OK, "one goes meanwhile");
    fault.vanish = NULL;
    tap_ok(n == 1 && list[0].step == 2, "it is not in the list");
    free(list);
}

/* ---- retention ------------------------------------------------------------------- */

static void test_retention(void)
{
    begin_with(3);
    shell("rm step_00000030/*.h5");
    save(25, 2);
    tap_is_str(names(), "s20 s25 s30 ",
               "a newer damaged one does not count, and stays");
    save(40, 2);
    tap_is_str(names(), "s25 s30 s40 ", "older than that, it does not count either");
    save(50, 2);
    tap_is_str(names(), "s40 s50 ", "older than all that is kept, it goes");
    save(45, 1);
    tap_is_str(names(), "s45 s50 ", "a newer whole one stays, and does not count");

    begin_with(2);
    shell("rm step_00000020/*.h5");
    save(30, 2);
    tap_is_str(names(), "s10 s20 s30 ", "an older damaged one does not count");
    shell("cp -r step_00000010 step_00000015; mkdir step_00000016; "
          "echo mine >step_00000016/notes; cp -r step_00000010 step_00000017; "
          "echo >>step_00000017/MANIFEST; : >step_00000018");
    made.run_id = "another run";
    save(19, 9);
    made.run_id = "test run";
    save(40, 1);
    tap_is_str(
        names(), "s15 s16 s17 s18 s19 s40 ",
        "a copy, a directory and file of somebody's, a manifest without its hash and "
        "another run's stay");

    begin_with(3);
    fail_next("openat", "step_00000020", EIO, 1000);
    save(40, 2);
    tap_is_str(names(), "s20 s30 s40 ", "one that cannot be read stays");
    no_fault();
    shell("mv step_00000020 step_00000020.damaged-20260101T000000Z");
    fail_next("openat", "step_00000030", EACCES, 1000);
    save(50, 2);
    no_fault();
    tap_is_str(names(), "s20.damaged-T s30 s40 s50 ", "and does not count");
    made.owner = "18.0";
    save(60, 2);
    tap_is_str(names(), "s20.damaged-T s50 s60 ",
               "another life's of the same run are ours");
    made.owner = "17.0";
}

/* ---- what has the name ----------------------------------------------------------- */

static accel_status_t set_aside(const char *name, char to[192])
{
    return accel_ckpt_set_aside(root, name, 0, to, 192, NULL);
}

static void test_set_aside(void)
{
    char to[192] = "", first[192];

    begin_with(2);
    shell("rm step_00000010/*.h5; cp -r step_00000020 step_00000030");
    tap_is_int(set_aside("step_00000010", to), ACCEL_OK, "a damaged one steps aside");
    tap_ok(strncmp(to, "step_00000010.damaged-20", 24) == 0, "under %s", to);
    strcpy(first, to);
    shell("mkdir step_00000010; ls -d step_0*.damaged-*Z");
    tap_is_int(set_aside("step_00000010", to), ACCEL_OK,
               "and another one of that step");
    tap_ok(strcmp(first, to) != 0, "under %s", to);
    tap_is_int(set_aside("step_00000030", to), ACCEL_OK, "a copy");
    tap_ok(strncmp(to, "step_00000030.aside-", 20) == 0, "under %s", to);
    tap_is_int(set_aside("../step_00000020", to), ACCEL_EINVAL, "no path");
    fail_next("renameat2", "step_00000020", EACCES, 1);
    tap_is_int(set_aside("step_00000020", to), ACCEL_ECREATE, "the system refuses it");
    fail_next("fsync", strrchr(root, '/'), EIO, 1);
    tap_is_int(set_aside("step_00000020", to), ACCEL_EIO, "its fsync fails");
    no_fault();
    tap_ok(value_of("step_00000020") == 20, "and it is where it was");
    fail_next("renameat2", "step_00000020", EINVAL, 1);
    tap_is_int(set_aside("step_00000020", to), ACCEL_OK,
               "a file system without the flag");
    no_fault();
    tap_ok(value_of(to) == 20, "it is whole under its new name");
}

static void test_name_taken(void)
{
    const char *base = strrchr(root, '/');

    begin_with(1);
    tap_is_int(save(10, 9), ACCEL_OK, "the same life saves a step again");
    tap_is_str(names(), "s10 ", "its own one is replaced");
    tap_is_str(made.stats.aside, "", "and nothing stepped aside");
    made.owner = "18.0";
    tap_is_int(save(10, 9), ACCEL_OK, "another life saves that step");
    tap_is_str(names(), "s10 s10.aside-T ", "the first one is kept");
    tap_ok(value_of(made.stats.aside) == 10, "%s is whole, and told", made.stats.aside);
    made.owner = "17.0";
    shell("cp -r step_00000010 step_00000030; mkdir step_00000040; "
          "echo mine >step_00000040/notes");
    save(30, 1);
    tap_is_str(names(), "s10.aside-T s30 s30.aside-T s40 ",
               "a copy with the next name");
    tap_ok(value_of("step_00000030") == 30 && value_of(made.stats.aside) == 10,
           "both hold what they held");
    fail_next("fsync", base, EIO, 1000);
    tap_is_int(save(40, 1), ACCEL_EIO, "fsync of the root fails");
    tap_is_str(names(), "s10.aside-T s30 s30.aside-T s40 ",
               "nothing visible has changed");
    fail_next("renameat2", "step_00000040", EACCES, 1000);
    tap_is_int(save(40, 1), ACCEL_ECREATE, "it cannot step aside: no save");
    no_fault();
    shell("grep -q mine step_00000040/notes");
    save(40, 1);
    tap_is_str(names(), "s10.aside-T s30.aside-T s40 s40.damaged-T ",
               "a directory of somebody's");
    shell("grep -q mine step_00000040.damaged-*/notes");
    shell("cp -r step_00000040 step_00000050; echo >step_00000050/more");
    fail_next("renameat2", "", EINVAL, 1000);
    tap_is_int(save(50, 1), ACCEL_OK, "a file system without flags");
    no_fault();
    tap_ok(value_of("step_00000050") == 50, "the new one has its name");
    shell("ls -d step_00000050.aside-*/more >/dev/null");
}

static void hear_nothing(void *user, const char *name, const char *what,
                         const char *why)
{
    (void)user;
    (void)name;
    (void)what;
    (void)why;
}

/* A life that goes on from a checkpoint replaces it. */
static void test_replaced(void)
{
    begin_with(1);
    made.owner = "18.0";
    made.replaces = 1;
    tap_is_int(save(10, 9), ACCEL_OK, "the step that this life goes on from");
    tap_is_str(names(), "s10 ", "is replaced");
    shell("grep -q '^owner 18.0' step_00000010/MANIFEST");
    made.run_id = "another run";
    tap_is_int(save(10, 9), ACCEL_OK, "another run's");
    tap_is_str(names(), "s10 s10.aside-T ", "is not");
    made.run_id = "test run";
    made.owner = "17.0";
    made.replaces = 0;
}

/* What a kill leaves where names cannot be exchanged: the next life and the tool give
 * the replaced one its name back, or remove it where the new one has it. */
static void test_old(void)
{
    for (int i = 0; i < 2; i++)
        for (int repair = 0; repair < 2; repair++) {
            const struct ckpt_prune p = { .root = root, .report = hear_nothing };

            begin_with(1);
            shell(i ? "cp -r step_00000010 .old-step_00000010"
                    : "mv step_00000010 .old-step_00000010");
            tap_is_int(repair ? ckpt_repair(&p, NULL) : accel_ckpt_fence(root, NULL),
                       ACCEL_OK, "%s, %s", repair ? "repair" : "the next life",
                       i ? "with the new one" : "without");
            tap_is_str(names(), "s10 ", "one is there");
            tap_ok(value_of("step_00000010") == 10, "and whole");
            shell("test ! -e .old-step_00000010");
        }
    begin_with(1);
    shell("mv step_00000010 .old-step_00000010; mkdir step_00000010");
    tap_is_int(accel_ckpt_fence(root, NULL), ACCEL_OK, "with what is neither");
    shell("test -e .old-step_00000010/MANIFEST && test -e step_00000010");
}

/* Each fsync of the root in turn fails: what had the name has it again. */
static void test_taken_back(void)
{
    int n = 0, refused = 0;

    begin_with(1);
    shell("mv step_00000010 step_00000020; echo mine >step_00000020/mine");
    do {
        fail_next("fsync", strrchr(root, '/'), EIO, 1);
        fault.met = -n;
        if (save(20, 9) == ACCEL_OK)
            break;
        tap_is_str(names(), "s20 ", "fsync %d of the root fails: nothing has changed",
                   ++n);
        shell("test -e step_00000020/mine; cp -r step_00000020 look");
        refused += value_of("look") == 10; /* under its own name it is refused */
        shell("rm -rf look");
    } while (n < 10);
    no_fault();
    tap_ok(n == 3 && refused == n, "%d of them: begin, aside, commit", n);
}

/* ---- leftovers of other jobs ----------------------------------------------------- */

static int locked_dir(const char *name)
{
    char path[400];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    if (mkdir(path, 0777))
        abort();
    fd = __real_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || flock(fd, LOCK_EX))
        abort();
    return fd;
}

static void test_leftovers(void)
{
    int a, b;

    begin_with(0);
    a = locked_dir(".tmp-step_00000005.170.0");
    b = locked_dir(".tmp-step_00000005.17.0");
    made.owner = "17.1";
    save(10, 1);
    made.owner = "17.0";
    shell("test -d .tmp-step_00000005.170.0");
    tap_ok(true, "job 17 leaves what job 170 is writing");
    shell("test ! -e .tmp-step_00000005.17.0");
    tap_ok(true, "and removes what its own earlier life left, whoever holds a lock");
    close(a);
    close(b);
}

int main(void)
{
    world_tmpdir(root, "ckpt-access");
    test_single_errors();
    test_descriptors();
    test_states();
    test_list_errors();
    test_vanishing();
    test_retention();
    test_set_aside();
    test_name_taken();
    test_replaced();
    test_old();
    test_taken_back();
    test_leftovers();
    world_rmtree(root);
    return tap_done();
}
