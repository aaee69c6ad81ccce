/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/save/write.c and stage.c under a disk that does what disks may: interrupts,
 * short writes, O_DIRECT refused or cut at odd places, no room, errors. What was saved
 * is read back and compared; what could not be saved is an error with nothing visible.
 * And how a write is spread, by a clock that only its naps move.
 */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/save/ckpt_commit.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

/* The linker sends the library's system calls through these. `lock` guards them: two
 * threads write. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct disk {
    int every;    /* every n-th call goes wrong; 0: none */
    int error;    /* so: this error, or a short write */
    size_t least; /* no call does more than this; 0: no limit */
    int direct;   /* this error of every O_DIRECT write; EINTR: of the first only */
    size_t odd; /* an O_DIRECT write ends this many bytes into its last page; 0: not */
    int room;   /* error of fallocate; EINTR: of the first only */
    int calls, directs, in_place, rooms;
    size_t longest;       /* write */
    int unsynced, synced; /* writes of shards since the last fsync; fsyncs of them */
    const char *own;      /* the caller's memory */
    size_t own_bytes;
    /* the first write from staging takes until `hold` that lie behind it have ended */
    int hold, held, changed; /* changed: the memory that was held */
    off_t held_at;
} disk;

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __wrap_fallocate(int fd, int mode, off_t at, off_t n);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

/* ---- time: of the thread that writes ---------------------------------------------- */

enum { WRITES = 64 };

static struct {
    bool on;
    atomic_llong now; /* ns */
    int naps, at_nap; /* what is done at that nap; 0: nothing */
    void (*act)(accel_ckpt_saving_t *g);
    accel_ckpt_saving_t *saving;
    long longest; /* nap */
    struct {
        int64_t at, ns;
    } write[WRITES];
    int writes;
} clk;

int64_t __real_clock_ns(void);
int64_t __wrap_clock_ns(void);
int __real_nanosleep(const struct timespec *want, struct timespec *left);
int __wrap_nanosleep(const struct timespec *want, struct timespec *left);

int64_t __wrap_clock_ns(void)
{
    return clk.on ? clk.now : __real_clock_ns();
}

int __wrap_nanosleep(const struct timespec *want, struct timespec *left)
{
    const long ns = (long)want->tv_sec * 1000000000 + want->tv_nsec;

    if (!clk.on)
        return __real_nanosleep(want, left);
    clk.now += ns;
    clk.longest = ns > clk.longest ? ns : clk.longest;
    if (++clk.naps == clk.at_nap)
        clk.act(clk.saving);
    return 0;
}

static void note_time(int64_t at)
{
    if (!clk.on)
        return;
    if (clk.writes == WRITES)
        abort();
    clk.write[clk.writes].at = at;
    clk.write[clk.writes++].ns = clk.now;
}

/* The bytes this call may do; 0: it fails. */
static size_t allowed(size_t n)
{
    bool wrong = disk.every && ++disk.calls % disk.every == 0;

    if (wrong && disk.error) {
        errno = disk.error;
        return 0;
    }
    if (disk.least && n > disk.least)
        n = disk.least;
    return wrong && n > 1 ? n / 2 : n;
}

static bool in_place(const void *p)
{
    return (const char *)p >= disk.own && (const char *)p < disk.own + disk.own_bytes;
}

/* Has the lock. What a slow write writes stays as it is. A minute is for a hang. */
static void hold_back(const void *p, size_t n, off_t at)
{
    struct timespec end;
    char *was = malloc(n);

    if (!was || clock_gettime(CLOCK_REALTIME, &end))
        abort();
    end.tv_sec += 60;
    memcpy(was, p, n);
    disk.held = 1;
    disk.held_at = at;
    while (disk.hold > 0)
        if (pthread_cond_timedwait(&ended, &lock, &end))
            break;
    disk.changed += memcmp(was, p, n) != 0;
    free(was);
}

/* Before the write. False: it fails. */
static bool account(int fd, const void *p, size_t *n, off_t at, bool direct)
{
    bool may = true;

    pthread_mutex_lock(&lock);
    disk.unsynced += world_is_shard(fd);
    if (world_is_shard(fd))
        note_time(at);
    disk.longest = *n > disk.longest ? *n : disk.longest;
    disk.directs += direct;
    disk.in_place += direct && in_place(p);
    if (disk.hold > 0 && !disk.held && world_is_shard(fd) && !in_place(p))
        hold_back(p, *n, at);
    if (!direct)
        may = *n && (*n = allowed(*n)) != 0;
    else if (disk.direct && (errno = disk.direct))
        may = disk.direct == EINTR && disk.directs > 1;
    pthread_mutex_unlock(&lock);
    return may;
}

static ssize_t one_pwrite(int fd, const void *p, size_t n, off_t at)
{
    bool direct = fcntl(fd, F_GETFL) & O_DIRECT;

    if (!account(fd, p, &n, at, direct))
        return -1;
    if (direct) {
        /* What the kernel takes is whole pages; the odd rest is lost and said to be. */
        if (disk.odd && n > CKPT_PAGE) {
            ssize_t done = __real_pwrite(fd, p, n - CKPT_PAGE, at);

            return done < 0 ? done : done - CKPT_PAGE + (ssize_t)disk.odd;
        }
    }
    return __real_pwrite(fd, p, n, at);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
    const ssize_t done = one_pwrite(fd, p, n, at);
    const int error = errno;

    pthread_mutex_lock(&lock);
    disk.hold -= disk.held && at > disk.held_at;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    bool direct = fcntl(fd, F_GETFL) & O_DIRECT;

    if (direct)
        return __real_pread(fd, p, n, at);
    n = n ? allowed(n) : 0;
    return n ? __real_pread(fd, p, n, at) : -1;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
    (void)fd;
    (void)mode;
    (void)at;
    (void)n;
    errno = disk.room ? disk.room : EOPNOTSUPP;
    return disk.rooms++ && disk.room == EINTR ? 0 : -1;
}

/* Newer kernels give large mappings at multiples of huge pages; others do not. */
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    char *p;

    if (at || fd >= 0)
        return __real_mmap(at, n, prot, flags, fd, offset);
    p = __real_mmap(NULL, n + CKPT_PAGE, prot, flags, fd, offset);
    if (p == MAP_FAILED)
        return p;
    munmap(p, CKPT_PAGE);
    return p + CKPT_PAGE;
}

int __wrap_fsync(int fd)
{
    if (world_is_shard(fd)) {
        disk.synced++;
        disk.unsynced = 0;
    }
    return __real_fsync(fd);
}

/* ---- one call -------------------------------------------------------------------- */

static void test_calls(void)
{
    static const struct {
        const char *what;
        struct disk disk;
        int want; /* errno; 0: all is done */
    } cases[] = {
        { "all at once", { 0 }, 0 },
        { "interrupts", { .every = 2, .error = EINTR }, 0 },
        { "short ones", { .least = 100 }, 0 },
        { "both", { .every = 3, .error = EINTR, .least = 7 }, 0 },
        { "no room", { .every = 1, .error = ENOSPC }, ENOSPC },
        { "an error later", { .every = 5, .error = EIO, .least = 99 }, EIO },
    };
    char name[] = "/tmp/accel-write.XXXXXX", data[1000], got[1003];
    int fd = mkstemp(name);

    unlink(name);
    for (int i = 0; i < 1000; i++)
        data[i] = (char)(i * 7);
    for (size_t i = 0; fd >= 0 && i < ACCEL_ARRAY_SIZE(cases); i++) {
        int r;

        disk = (struct disk){ 0 };
        if (ftruncate(fd, 0))
            abort();
        disk = cases[i].disk;
        errno = 0;
        r = pwrite_all(fd, data, sizeof(data), 3);
        tap_ok(r == (cases[i].want ? -1 : 0) && (!r || errno == cases[i].want),
               "write, %s: %d", cases[i].what, r);
        if (r == 0) {
            disk = (struct disk){ 0 };
            tap_ok(__real_pread(fd, got, sizeof(got), 0) == 1003 &&
                       memcmp(got, "\0\0\0", 3) == 0 &&
                       memcmp(got + 3, data, 1000) == 0,
                   "write, %s: in their places", cases[i].what);
        }
        disk = (struct disk){ 0 };
        if (pwrite_all(fd, data, sizeof(data), 3))
            abort();
        disk = cases[i].disk;
        memset(got, -1, sizeof(got));
        errno = 0;
        r = (int)pread_all(fd, got, sizeof(data), 3);
        tap_ok(cases[i].want ? r == -1 && errno == cases[i].want
                             : r == 1000 && memcmp(got, data, 1000) == 0,
               "read, %s: %d", cases[i].what, r);
    }
    disk = (struct disk){ 0 };
    tap_is_int(pread_all(fd, got, 1000, 500), 503,
               "read across the end: what is there");
    tap_is_int(pread_all(fd, got, 10, 5000), 0, "read behind the end: nothing");
    close(fd);
}

/* ---- a save ---------------------------------------------------------------------- */

static char root[256];

/* Large and aligned, large and not, and many small neighbours. */
static accel_ckpt_box_t box[104];
static char *memory;
#define MEMORY_BYTES ((int64_t)64 << 20)

static void describe(void)
{
    static const int64_t bytes[] = { (9 << 20) + 5, 4 << 20, (40 << 20) + 1, 70001 };
    static char name[104][24];
    int64_t at = 0;

    for (int i = 0; i < 104; i++) {
        accel_ckpt_box_t *b = &box[i];

        snprintf(name[i], sizeof(name[i]), "model/t%03d", i);
        *b = (accel_ckpt_box_t){ .name = name[i], .dtype = ACCEL_U8, .ndim = 1 };
        b->global_shape[0] = b->shape[0] = i < 4 ? bytes[i] : 50000 + 37 * i;
        b->data = memory + at;
        at += b->shape[0];
        if (i < 2) /* the first two begin on a page, the others anywhere */
            at = (at + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
    }
    if (at > MEMORY_BYTES)
        abort();
}

static unsigned char value(int64_t i)
{
    return (unsigned char)((uint64_t)i * 0x9e3779b97f4a7c15u >> 40);
}

static accel_ckpt_save_t args(int64_t step)
{
    return (accel_ckpt_save_t){ sizeof(accel_ckpt_save_t),
                                .root = root,
                                .step = step,
                                .owner = "1.0",
                                .run_id = "r",
                                .sharding = "NO_SHARD",
                                .boxes = box,
                                .box_count = ACCEL_ARRAY_SIZE(box),
                                .keep = 2 };
}

static accel_status_t save(int64_t step, int *direct, accel_error_t *err)
{
    const accel_ckpt_save_t s = args(step);
    accel_ckpt_stats_t stats = { 0 };
    accel_status_t st;

    for (int64_t i = 0; i < MEMORY_BYTES; i++)
        memory[i] = (char)value(i);
    disk.own = memory;
    disk.own_bytes = MEMORY_BYTES;
    st = accel_ckpt_save(&s, NULL, &stats, err);
    *direct = stats.direct_io;
    return st;
}

/* Bytes that are not what was saved; -1: cannot be read. */
static long wrong_bytes(int64_t step)
{
    char dir[300];
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    long wrong = 0;

    snprintf(dir, sizeof(dir), "%s/step_%08lld", root, (long long)step);
    memset(memory, 0, MEMORY_BYTES);
    if (accel_ckpt_open(&c, dir, &err) ||
        accel_ckpt_read(c, box, ACCEL_ARRAY_SIZE(box), &err) ||
        accel_ckpt_verify(dir, NULL, NULL, &err)) {
        tap_diag("%s: %s", err.where, err.text);
        wrong = -1;
    }
    accel_ckpt_close(c);
    for (size_t k = 0; wrong >= 0 && k < ACCEL_ARRAY_SIZE(box); k++)
        for (int64_t i = 0; i < box[k].shape[0]; i++) {
            const unsigned char *at = (unsigned char *)box[k].data + i;

            wrong += *at != value((const char *)at - memory);
        }
    return wrong;
}

static void test_saves(void)
{
    static const struct {
        const char *what;
        struct disk disk;
        int direct; /* what the statistics say; -1: either */
    } cases[] = {
        { "a good disk", { 0 }, 1 },
        { "a file system that can reserve, once interrupted", { .room = EINTR }, 1 },
        { "O_DIRECT interrupted", { .direct = EINTR }, 1 },
        { "O_DIRECT refused", { .direct = EINVAL }, 0 },
        { "interrupts", { .every = 2, .error = EINTR }, -1 },
        { "short writes", { .least = 5000 }, -1 },
        { "O_DIRECT refused, short writes",
          { .direct = EINVAL, .least = 300001, .every = 3 },
          0 },
        { "O_DIRECT cut inside a page", { .odd = 512 }, -1 },
        { "O_DIRECT cut before a page's end", { .odd = 4095 }, -1 },
        { "a slow write", { .hold = 7 }, -1 },
    };
    int direct;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_error_t err = { 0 };
        struct disk after;

        disk = cases[i].disk;
        if (save((int64_t)i, &direct, &err)) {
            tap_ok(false, "%s: %s: %s", cases[i].what, err.where, err.text);
            continue;
        }
        after = disk;
        disk = (struct disk){ 0 };
        tap_is_int(wrong_bytes((int64_t)i), 0, "%s: every byte", cases[i].what);
        tap_ok(after.longest <= CKPT_IO_BYTES,
               "%s: no more than a slot at a time (%zu)", cases[i].what, after.longest);
        tap_ok(after.synced == 1 && after.unsynced == 0,
               "%s: flushed after the last write", cases[i].what);
        if (after.directs == 0) {
            tap_skip(1, "no O_DIRECT on this file system");
            continue;
        }
        tap_ok(cases[i].direct < 0 || direct == cases[i].direct, "%s: O_DIRECT %d",
               cases[i].what, direct);
        if (i == 0)
            tap_ok(after.in_place >= 3,
                   "aligned memory is written where it is (%d of %d)", after.in_place,
                   after.directs);
        if (cases[i].direct == 0)
            tap_ok(after.directs <= 2, "%s: not tried again (%d)", cases[i].what,
                   after.directs); /* two threads may meet it */
        if (cases[i].disk.hold)
            tap_ok(after.hold <= 0 && after.held && !after.changed,
                   "%s: others were written, none in its memory", cases[i].what);
    }
}

static void test_failures(void)
{
    static const struct {
        const char *what;
        struct disk disk;
        int message; /* A0801 or A0802 */
        const char *text;
    } cases[] = {
        { "no room to reserve", { .room = ENOSPC }, 802, "cannot reserve" },
        { "quota", { .room = EDQUOT }, 802, "cannot reserve" },
        { "beyond the size limit", { .room = EFBIG }, 801, "cannot reserve" },
        { "reserving fails", { .room = EIO }, 801, "cannot reserve" },
        { "an error in the middle",
          { .direct = EINVAL, .least = 100000, .every = 60, .error = EIO },
          801,
          "write: " },
        { "the disk is full",
          { .direct = EINVAL, .least = 100000, .every = 50, .error = ENOSPC },
          802,
          "write: " },
        { "an error of O_DIRECT", { .direct = EIO }, 801, "write: " },
    };
    int direct;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_error_t err = { 0 };
        accel_ckpt_info_t *list = NULL;
        accel_status_t st;
        size_t n = 0;

        disk = cases[i].disk;
        st = save(100, &direct, &err);
        if (st == ACCEL_OK && disk.directs == 0 && cases[i].disk.direct == EIO) {
            tap_skip(2, "no O_DIRECT on this file system");
            continue;
        }
        disk = (struct disk){ 0 };
        tap_ok(st != ACCEL_OK && err.message == cases[i].message &&
                   strstr(err.text, cases[i].text) &&
                   strstr(err.where, "rank_00000-of-00001.h5"),
               "%s: A%04d %s: %s", cases[i].what, err.message, err.where, err.text);
        if (accel_ckpt_list(root, &list, &n, &err))
            abort();
        tap_ok(n == 2 && list[0].step == 9 && list[0].complete,
               "%s: nothing visible has changed", cases[i].what);
        free(list);
    }
}

/* ---- spread over time -------------------------------------------------------------- */

#define SECONDS 10.0

static int hasty;

static int has_time(void)
{
    return !hasty;
}

static void make_hasty(accel_ckpt_saving_t *g)
{
    (void)g;
    hasty = 1;
}

/* A save that is spread, up to the write; at_nap: what is done then. */
static accel_status_t spread_write(int64_t step, int at_nap,
                                   void (*act)(accel_ckpt_saving_t *g))
{
    accel_ckpt_save_t s = args(step);
    accel_error_t err = { 0 };
    accel_status_t st;

    for (int64_t i = 0; i < MEMORY_BYTES; i++)
        memory[i] = (char)value(i);
    s.spread_seconds = SECONDS;
    s.may_delete = has_time;
    disk = (struct disk){ 0 };
    memset(&clk, 0, sizeof(clk));
    clk.on = true;
    if (accel_ckpt_save_begin(&clk.saving, &s, NULL, &err))
        abort();
    clk.at_nap = at_nap;
    clk.act = act;
    st = accel_ckpt_save_write(clk.saving, &err);
    clk.on = false;
    return st;
}

/* When a byte of the file is due, in ns. The first write is that of the first byte. */
static double due(int64_t at, int64_t bytes)
{
    const int64_t from = clk.write[0].at;

    return (double)(at - from) / (double)(bytes - from) * SECONDS * 1e9;
}

/* Writes that do not begin when their slot is due. What is not whole pages comes behind
 * the rest of its slot, at once. */
static int untimely(int64_t bytes)
{
    int n = 0;

    for (int i = 0; i < clk.writes; i++) {
        const double ns = (double)clk.write[i].ns;
        const int64_t at = clk.write[i].at;

        n += ns > due(at, bytes) + 1 || ns < due(at - CKPT_IO_BYTES, bytes) - 1;
    }
    return n;
}

static void test_spread(void)
{
    static const double bad[] = { -1, NAN, INFINITY, 1e7 };
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t err = { 0 };
    char path[400];
    struct stat sb;
    int direct;

    tap_is_int(spread_write(300, 0, NULL), ACCEL_OK, "a write over 10 s");
    if (accel_ckpt_save_publish(clk.saving, NULL, &stats, &err))
        tap_diag("%s: %s", err.where, err.text);
    tap_ok(fabs(stats.spread_seconds - (double)clk.now * 1e-9) < 1e-9,
           "it says how long it waited (%g s)", stats.spread_seconds);
    accel_ckpt_save_free(clk.saving);
    snprintf(path, sizeof(path), "%s/step_00000300/rank_00000-of-00001.h5", root);
    if (stat(path, &sb))
        abort();
    tap_ok(clk.writes > 4 && untimely(sb.st_size) == 0, "each slot in its time");
    tap_ok((double)clk.now <= SECONDS * 1e9 &&
               (double)clk.now >= due(sb.st_size - 2 * CKPT_IO_BYTES, sb.st_size),
           "to the end, and no longer (%lld ns)", (long long)clk.now);
    tap_ok(clk.longest <= 10000000, "in naps (%ld ns)", clk.longest);
    tap_is_int(wrong_bytes(300), 0, "every byte");

    tap_is_int(spread_write(301, 3, accel_ckpt_save_hurry), ACCEL_OK, "hurried");
    tap_is_int(clk.naps, 3, "from then on without naps");
    tap_is_int(accel_ckpt_save_publish(clk.saving, NULL, NULL, &err), ACCEL_OK,
               "published");
    accel_ckpt_save_free(clk.saving);
    tap_is_int(wrong_bytes(301), 0, "every byte");

    tap_ok(spread_write(304, 3, make_hasty) == ACCEL_OK && clk.naps == 3,
           "the caller has no time any more: no naps (%d)", clk.naps);
    hasty = 0;
    accel_ckpt_save_free(clk.saving);
    tap_ok(spread_write(302, 3, accel_ckpt_save_cancel) != ACCEL_OK && clk.naps == 3,
           "cancelled: ended at once (%d)", clk.naps);
    accel_ckpt_save_free(clk.saving);
    memset(&clk, 0, sizeof(clk));
    clk.on = true;
    tap_is_int(save(303, &direct, &err), ACCEL_OK, "one that is not spread");
    clk.on = false;
    tap_is_int(clk.naps, 0, "has no naps");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        accel_ckpt_save_t s = args(304);

        s.spread_seconds = bad[i];
        tap_ok(accel_ckpt_save(&s, NULL, NULL, &err) == ACCEL_EINVAL &&
                   strstr(err.text, "spread_seconds"),
               "over %g s: %s", bad[i], err.text);
    }
}

/* ---- libhdf5 --------------------------------------------------------------------- */

static herr_t own_handler(hid_t stack, void *user)
{
    (void)stack;
    ++*(int *)user;
    return 0;
}

/* What libhdf5 cannot do is an error with its cause; neither stderr nor the program's
 * own handler of HDF5's errors sees it. */
static void test_hdf5(void)
{
    struct rlimit before, low;
    H5E_auto2_t handler = NULL;
    void *user = NULL;
    char name[] = "/tmp/accel-stderr.XXXXXX";
    accel_error_t err = { 0 };
    int calls = 0, direct, out = mkstemp(name), kept = dup(2);
    accel_status_t st;

    unlink(name);
    fflush(stderr);
    H5Eset_auto2(H5E_DEFAULT, own_handler, &calls);
    if (getrlimit(RLIMIT_FSIZE, &before) || out < 0 || dup2(out, 2) < 0)
        abort();
    low = before;
    low.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN); /* stdout may be a file */
    setrlimit(RLIMIT_FSIZE, &low);
    st = save(200, &direct, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    H5Eget_auto2(H5E_DEFAULT, &handler, &user);
    tap_ok(st == ACCEL_EIO && err.message == 806 &&
               strstr(err.where, "rank_00000-of-00001.h5"),
           "a file that may have 100 bytes: A%04d", err.message);
    tap_is_int(lseek(out, 0, SEEK_END), 0, "nothing on stderr");
    tap_ok(calls == 0 && handler == own_handler && user == &calls,
           "the program's handler stays");
    tap_is_int(save(201, &direct, &err), ACCEL_OK, "and the next save works");
    H5Eget_auto2(H5E_DEFAULT, &handler, &user);
    tap_ok(handler == own_handler && user == &calls, "after which it is there, too");
    tap_is_int(wrong_bytes(201), 0, "every byte");
    close(out);
}

/* ---- staging memory -------------------------------------------------------------- */

static long pages_mapped(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (!f || fscanf(f, "%ld", &pages) != 1)
        abort();
    fclose(f);
    return pages;
}

static void test_staging(void)
{
    static const size_t bytes[] = { 1,       4096,          (2 << 20) - 1,
                                    2 << 20, (2 << 20) + 1, 5 << 20 };
    long before = 0;
    int wrong = 0;

    for (int round = 0; round < 40; round++) {
        /* The first rounds may leave something of the C library behind. */
        if (round == 10)
            before = pages_mapped();
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bytes); i++) {
            char *p = ckpt_stage_map(bytes[i]);

            if (!p)
                abort();
            wrong += (uintptr_t)p % (2 << 20) != 0 || p[0] || p[bytes[i] - 1];
            memset(p, 1, bytes[i]);
            ckpt_stage_unmap(p, bytes[i]);
        }
    }
    tap_is_int(wrong, 0, "staging: aligned and zeroed");
    tap_is_int(pages_mapped() - before, 0, "and nothing of it is left mapped");
    ckpt_stage_unmap(NULL, 4096);
    tap_ok(!ckpt_stage_map(SIZE_MAX / 2), "more than there is: none");
}

int main(void)
{
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    world_tmpdir(root, "ckpt-write");
    describe();
    test_calls();
    test_saves();
    test_failures();
    disk = (struct disk){ 0 };
    test_spread();
    test_hdf5();
    test_staging();
    world_rmtree(root);
    return tap_done();
}
