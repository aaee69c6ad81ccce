/* SPDX-License-Identifier: Apache-2.0
 *
 * What an earlier life saved on its nodes stays as long as it cannot be read: the life
 * ends, and changes nothing. When the mishap is over, the next life has the step. Only
 * what is copied or proven damaged goes, or what a person gives up.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/staging_world.h"

/* ---- mishaps --------------------------------------------------------------------- */

/* What happens to the last rank's node, or to all. */
struct mishap {
    const char *what;
    accel_status_t status;
    enum message message;
    /* a call that fails there */
    const char *call, *name;
    int error;
    /* in place of local_dir; another node there; the node with another disk */
    const char *dir;
    bool moved, other_disk;
    uint64_t seed; /* of another run */
    /* begins it, ends it; NULL: nothing more to do */
    void (*on)(void), (*off)(void);
};

static char place[300], away[340]; /* of the node */
static int hit;                    /* the rank */

static void unmount(void)
{
    if (rename(place, away))
        abort();
}
static void mount_again(void)
{
    (void)rmdir(place);
    if (rename(away, place))
        abort();
}
static void unmount_empty(void)
{
    unmount();
    if (mkdir(place, 0700))
        abort();
}
static void chown_part(const char *dir)
{
    if (chown(dir, 65534, 65534))
        abort();
}
static void chown_back(const char *dir)
{
    if (chown(dir, geteuid(), getegid()))
        abort();
}
static void give_away(void)
{
    parts(hit, chown_part);
}
static void take_again(void)
{
    parts(hit, chown_back);
}

static const struct mishap mishaps[] = {
    { "no local_dir", ACCEL_EIO, A0863, .dir = "" },
    { "another local_dir", ACCEL_EIO, A0863, .moved = true, .other_disk = true },
    { "not mounted", ACCEL_EIO, A0863, .on = unmount, .off = mount_again },
    { "nothing mounted there", ACCEL_EIO, A0863, .on = unmount_empty,
      .off = mount_again },
    { "EIO on a file", ACCEL_EIO, A0863, .call = "openat", .name = "rank_",
      .error = EIO },
    { "EMFILE on a file", ACCEL_EIO, A0863, .call = "openat", .name = "rank_",
      .error = EMFILE },
    { "EIO on its directory", ACCEL_EIO, A0863, .call = "openat", .name = "step_",
      .error = EIO },
    { "EACCES on a file", ACCEL_EPERM, A0864, .call = "openat", .name = "rank_",
      .error = EACCES },
    { "EACCES on all of them", ACCEL_EPERM, A0864, .call = "openat", .name = "accel-",
      .error = EACCES },
    { "parts of another user", ACCEL_EPERM, A0864, .on = give_away, .off = take_again },
    { "other nodes", ACCEL_EIO, A0863, .moved = true },
    { "another run", ACCEL_EMISMATCH, A0818, .seed = 7 },
};

/* A number for what is below a directory: names, sizes, inodes. */
static uint64_t fingerprint(const char *dir)
{
    uint64_t sum = 0;
    struct dirent *e;
    DIR *d = opendir(dir);

    while (d && (e = readdir(d))) {
        char path[900];
        struct stat sb;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, ".lock") == 0 || strcmp(e->d_name, "history") == 0 ||
            strncmp(e->d_name, ".t", 2) == 0) /* .tmp- of a copy, .trash- */
            continue;
        snprintf(path, sizeof(path), "%.600s/%.250s", dir, e->d_name);
        if (lstat(path, &sb))
            abort();
        sum += ckpt_run_hash(e->d_name) * (2 * (uint64_t)sb.st_ino + 1) +
               (uint64_t)sb.st_size * (S_ISREG(sb.st_mode) != 0);
        if (S_ISDIR(sb.st_mode))
            sum += fingerprint(path);
    }
    if (d)
        closedir(d);
    return sum;
}

static uint64_t all(void)
{
    char dir[180], disks[180];

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    snprintf(disks, sizeof(disks), "%s.nodes", out_dir);
    return fingerprint(dir) + 31 * fingerprint(disks);
}

static int ends(struct boot *b, void *arg)
{
    const struct mishap *m = arg;
    struct number_run k;

    gate(false);
    if (m->call && (!apart || b->rank == b->size - 1))
        fail(m->call, m->name, m->error);
    EXPECT(begin(&k, 100) == m->status && (b->rank || message_of(&k.err) == m->message),
           "ended: %d %s", (int)k.err.code, k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* NULL: all is well. */
static void set_place(const struct mishap *m)
{
    local_dir = m ? m->dir : NULL;
    moved_rank = m && m->moved ? hit : -1;
    other_disk = m && m->other_disk;
    held_seed = m ? m->seed : 0;
}

static void meets(int world, const struct mishap *m)
{
    uint64_t before;

    if (m->on == give_away && geteuid() != 0) {
        tap_skip(2, "only root can have files of another user");
        return;
    }
    set_place(m);
    if (m->on)
        m->on();
    before = all();
    life(world, m->what, ends, (void *)m, 0);
    tap_ok(all() == before, "%s: nothing has changed", m->what);
    set_place(NULL);
    if (m->off)
        m->off();
}

static void hit_last(int world)
{
    hit = world - 1;
    node_dir(hit, place, sizeof(place));
    snprintf(away, sizeof(away), "%s.away", place);
}

/* All mishaps one after the other, in an order; then none. */
static void test_mishaps(int world, const char *name,
                         int (*dies)(struct boot *, void *), int64_t step, int order)
{
    const int n = (int)ACCEL_ARRAY_SIZE(mishaps);

    new_case(world, name, "");
    hit_last(world);
    life(world, "killed", dies, NULL, KILLED);
    for (int i = 0; i < n; i++)
        meets(world, &mishaps[order == 0   ? i
                              : order == 1 ? n - 1 - i
                                           : (5 * i + 3) % n]);
    life_finds(world, "all is well again: the step is there", step,
               "was on the nodes: copied to ");
}

static int goes_on(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && accel_steps_done(k.run) == 2, "from step 2: %s",
           k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* ---- names ----------------------------------------------------------------------- */

/* The output directory gets another name; its old one may be that of another run. */
static void test_renamed(int world)
{
    char to[180];

    new_case(world, "renamed", "");
    life(world, "killed", dies_later, NULL, KILLED);
    snprintf(to, sizeof(to), "%.100s-2", out_dir);
    tap_ok(rename(out_dir, to) == 0, "renamed");
    life(world, "a run with its old name, and its nodes", dies_between, NULL, KILLED);
    life(world, "goes on", goes_on, NULL, 0);
    snprintf(out_dir, 100, "%.99s", to);
    life_finds(world, "the renamed one has its step", 4, NULL);
}

/* What older releases left: no word on the nodes, and their directory has a name that
 * follows from the path of the checkpoints. */
static void make_old(int world)
{
    char cmd[1200], dir[180], node[300], *real;

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    real = realpath(dir, NULL);
    snprintf(cmd, sizeof(cmd),
             "cd %s && rm staging && for r in .local-step_*; do rm $r/PLACES && "
             "mv $r ${r%%@*} || exit 1; done",
             dir);
    if (!real || system(cmd))
        abort();
    for (int r = 0; r < (apart ? world : 1); r++) {
        node_dir(r, node, sizeof(node));
        snprintf(cmd, sizeof(cmd), "cd %s && mv accel-* accel-%016" PRIx64, node,
                 ckpt_run_hash(real));
        if (system(cmd))
            abort();
    }
    free(real);
}

static void test_old(int world)
{
    new_case(world, "old", "");
    hit_last(world);
    life(world, "killed", dies_with_two, NULL, KILLED);
    make_old(world);
    meets(world, &mishaps[2]);
    meets(world, &mishaps[9]);
    life_finds(world, "an older release's is taken", 4, NULL);
}

/* ---- a person gives it up -------------------------------------------------------- */

static int gives_up(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)b;
    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && accel_steps_done(k.run) == 2, "from step 2: %s",
           k.err.text);
    EXPECT(staged(&n) == -1 && n == 0, "no record is left");
    accel_close(k.run, NULL);
    return 0;
}

static void test_given_up(int world)
{
    static const struct mishap none = { .what = "none",
                                        .status = ACCEL_EUSAGE,
                                        .message = A0342 };
    char path[220];

    new_case(world, "given", "");
    hit_last(world);
    life(world, "killed", dies_later, NULL, KILLED);
    set_place(&mishaps[1]);
    setenv("ACCEL_RESUME", "none", 1);
    life(world, "a fresh start is refused", ends, (void *)&none, 0);
    snprintf(path, sizeof(path), "%s/checkpoints/step_00000002", out_dir);
    setenv("ACCEL_RESUME", path, 1);
    setenv("ACCEL_RESTART_COUNT", "1", 1);
    life(world, "a restart is nobody's word", ends, (void *)&mishaps[1], 0);
    unsetenv("ACCEL_RESTART_COUNT");
    life(world, "a person names the older one", gives_up, NULL, 0);
    unsetenv("ACCEL_RESUME");
    set_place(NULL);
    life_finds(world, "the older history goes on", 2, NULL);
}

/* ---- records --------------------------------------------------------------------- */

/* Does `cmd` in the record of step 4. */
static void in_record(const char *cmd)
{
    char line[600];

    snprintf(line, sizeof(line), "cd %s/checkpoints/.local-step_00000004.* && %s",
             out_dir, cmd);
    if (system(line))
        abort();
}

static void test_records(int world)
{
    static const char *const damage[][2] = {
        { "an empty MANIFEST", ": >MANIFEST" },
        { "a fifo", "rm MANIFEST && mkfifo MANIFEST" },
        { "one that is too long", "truncate -s 300M MANIFEST" },
        { "none", "rm MANIFEST" },
        { "another byte", "printf X | dd of=MANIFEST bs=1 seek=40 conv=notrunc 2>dd" },
    };
    static char path[200];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(damage); i++) {
        char name[20];

        snprintf(name, sizeof(name), "record-%zu", i);
        new_case(world, name, "");
        life(world, "killed", i % 2 ? dies_with_two : dies_later, NULL, KILLED);
        in_record(damage[i][1]);
        snprintf(path, sizeof(path), "%.100s/checkpoints/.local-step_00000004.",
                 out_dir);
        life_finds(world, damage[i][0], 2, path);
    }
    new_case(world, "places", "");
    life(world, "killed", dies_later, NULL, KILLED);
    in_record("rm PLACES && mkfifo PLACES");
    life_finds(world, "no word on the nodes is no damage", 4, NULL);
}

/* The newest in the shared directory is damaged: one on the nodes is newer than what is
 * left there. */
static void test_order(int world)
{
    char cmd[1200];

    new_case(world, "order", "");
    life(world, "killed with steps 2 and 4", dies_with_two, NULL, KILLED);
    snprintf(cmd, sizeof(cmd),
             "cd %s/checkpoints && for s in 6 4; do mkdir step_0000000$s && "
             "echo x >step_0000000$s/MANIFEST || exit 1; done",
             out_dir);
    tap_ok(system(cmd) == 0, "those in the shared directory are damaged");
    life_finds(world, "the one on the nodes is taken", 4, NULL);
}

int main(void)
{
    staging_world_begin();
    if (!TAP_SANITIZED) {
        test_mishaps(1, "first", dies_between, 2, 0);
        test_mishaps(1, "later", dies_later, 4, 1);
        test_records(1);
        test_mishaps(2, "shared", dies_later, 4, 2);
    }
    apart = true; /* two nodes */
    test_mishaps(2, "two", dies_with_two, 4, 1);
    test_mishaps(2, "later", dies_later, 4, 0);
    test_renamed(2);
    test_old(2);
    test_given_up(2);
    test_order(2);
    staging_world_end();
    return tap_done();
}
