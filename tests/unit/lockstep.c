/* SPDX-License-Identifier: Apache-2.0
 *
 * Watched collectives and faults: see lockstep.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "accel_ckpt.h"
#include "comm/comm.h"
#include "handle/run.h"
#include "tests/unit/lockstep.h"

enum { EVENTS = 1 << 16 };

enum event {
    BEGINS = 1,
    ENDS_WELL,
    FAILS,
    JUDGED,
    OPENS,
    SPLITS,
    ALLOCATES,
    GATHERS,
    SCATTERS,
    REDUCES,
    BROADCASTS,
    WAITS,
    COLLECTS,
    EXCHANGES,
};
static const char *const event_names[] = {
    "",
    "the next call",
    "success",
    "failure",
    "a judgement",
    "comm_open",
    "comm_split",
    "comm_alloc",
    "comm_all_gather",
    "comm_reduce_scatter",
    "comm_all_reduce",
    "comm_broadcast",
    "comm_barrier",
    "comm_gather",
    "boot_exchange",
};

/* A place of the program: how many collectives of the call came before it. */
struct fault_point {
    const char *what;
    const void *from;
    uint32_t after;
    bool kept;
};

/* Shared by the ranks and their parent. */
static struct shared {
    struct lane {
        _Atomic uint32_t count;
        unsigned char event[EVENTS];
        accel_status_t st;
        char text[200];
    } lane[LOCKSTEP_RANKS];
    struct fault_point fault[LOCKSTEP_FAULTS];
    atomic_int faults, dead, at, rank, agreements, wrong;
    atomic_bool told;
} * shared;

/* Of all worlds: where agreements are. */
static struct sites {
    const void *_Atomic at[LOCKSTEP_SITES];
} * sites;

static const char the_status[] = "the status";
static int me = -1;
static const char *call_name;
static uint32_t began;
static enum lockstep_which listed;
static bool listing, failing_rank, tells;
static int fault_at = -1;
/* inside a collective, or a fault: neither is watched again */
static __thread int depth;
static pid_t main_thread;

void lockstep_start(void)
{
    if (!shared)
        shared = fork_shared(sizeof(*shared));
    if (!sites)
        sites = fork_shared(sizeof(*sites));
    memset(shared, 0, sizeof(*shared));
}

int lockstep_at(void)
{
    return shared->at;
}

int lockstep_rank(void)
{
    return shared->rank;
}

static bool is_status(const struct fault_point *f)
{
    return f->what == the_status;
}

static bool watched(void)
{
    return me >= 0 && depth == 0 && gettid() == main_thread;
}

/* ---- the ranks' steps ------------------------------------------------------------ */

static void say_fault(char *buf, size_t len)
{
    const struct fault_point *f = fault_at >= 0 ? &shared->fault[fault_at] : NULL;

    if (f)
        snprintf(buf, len, "%s fails at %p, after %u collectives", f->what, f->from,
                 f->after);
    else
        snprintf(buf, len, "nothing fails");
}

/* A rank without memory for the call, or for the struct that the agreement is about,
 * gives up: the others end with it where they wait. */
static bool may_be_told(const struct lane *mine)
{
    return shared->told &&
           ((tells && mine->st == ACCEL_ENOMEM) || strstr(mine->text, "shard state"));
}

static void end_world(int other, uint32_t n)
{
    const struct lane *mine = &shared->lane[me];
    char what[120];

    say_fault(what, sizeof(what));
    if (fault_at < 0 && me == 0)
        shared->wrong++;
    if ((failing_rank && !may_be_told(mine)) || (fault_at < 0 && me == 0))
        fprintf(stderr,
                "# %s: %s in rank %d: it comes to %s ('%s'), rank %d to %s ('%s')\n",
                call_name, what, me, event_names[mine->event[n % EVENTS]], mine->text,
                other, event_names[shared->lane[other].event[n % EVENTS]],
                shared->lane[other].text);
    if (failing_rank && !may_be_told(mine))
        shared->wrong++;
    _exit(LOCKSTEP_EXIT);
}

static void step(enum event event)
{
    struct lane *mine = &shared->lane[me];
    const uint32_t n = mine->count;

    mine->event[n % EVENTS] = (unsigned char)event;
    atomic_store(&mine->count, n + 1);
    syscall(SYS_futex, &mine->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int r = 0; r < LOCKSTEP_RANKS; r++) {
        struct lane *other = &shared->lane[r];
        const struct timespec look = { .tv_nsec = 200000000 };
        uint32_t seen;

        while ((seen = other->count) <= n && !shared->dead)
            syscall(SYS_futex, &other->count, FUTEX_WAIT, seen, &look, NULL, 0);
        if (seen <= n)
            _exit(LOCKSTEP_EXIT);
        if (other->event[n % EVENTS] != event)
            end_world(r, n);
    }
}

static void died(int sig)
{
    char what[120];

    say_fault(what, sizeof(what));
    fprintf(stderr, "# %s: %s: signal %d\n", call_name, what, sig);
    shared->dead = 1;
    shared->wrong++;
    signal(sig, SIG_DFL);
    raise(sig);
}

void lockstep_begin(const char *name, bool may_tell)
{
    me = -1;
    call_name = name;
    tells = may_tell;
    failing_rank = listing = false;
    fault_at = -1;
}

static void round_begin(int rank)
{
    me = rank;
    main_thread = gettid();
    signal(SIGSEGV, died);
    signal(SIGABRT, died);
    step(BEGINS);
    began = shared->lane[me].count;
}

void lockstep_list(int failing, enum lockstep_which which)
{
    const int rank = open_world_rank();

    listed = which;
    fault_at = -1;
    if (rank == failing)
        shared->faults = 0;
    listing = rank == failing;
    failing_rank = false;
    shared->agreements = 0;
    round_begin(rank);
}

bool lockstep_fault(int failing, int i)
{
    listing = false;
    if (i >= shared->faults)
        return false;
    failing_rank = open_world_rank() == failing;
    fault_at = i;
    shared->at = i;
    shared->rank = failing;
    shared->told = false;
    round_begin(open_world_rank());
    return true;
}

/* Between two collectives the first place that fails and the last, and each status. */
static void keep_few(void)
{
    struct fault_point *f = shared->fault;
    int n = 0;

    for (int i = 0; i < shared->faults; i++) {
        const bool first = i == 0 || f[i - 1].after != f[i].after,
                   last = i + 1 == shared->faults || f[i + 1].after != f[i].after ||
                          is_status(&f[i + 1]);

        f[i].kept = is_status(&f[i]) || (listed == LOCKSTEP_FEW && (first || last));
    }
    for (int i = 0; i < shared->faults; i++)
        if (f[i].kept)
            f[n++] = f[i];
    shared->faults = n;
}

void lockstep_end(accel_status_t st, const accel_error_t *err)
{
    struct lane *mine = &shared->lane[me];
    int with_text = 0;

    if (listing && listed != LOCKSTEP_ALL)
        keep_few();
    listing = false;
    mine->st = st;
    snprintf(mine->text, sizeof(mine->text), "%.190s", st ? err->text : "");
    step(st ? FAILS : ENDS_WELL);
    for (int r = 0; r < LOCKSTEP_RANKS; r++) {
        with_text += shared->lane[r].text[0] != '\0';
        if (shared->lane[r].st != st) {
            fprintf(stderr, "# %s: status %d and %d\n", call_name, (int)st,
                    (int)shared->lane[r].st);
            end_world(r, mine->count - 1);
        }
    }
    if (st && !with_text)
        end_world(0, mine->count - 1);
    step(JUDGED);
    me = -1;
}

int lockstep_wrong(void)
{
    return shared->wrong;
}

int lockstep_agreements(void)
{
    return shared->agreements;
}

static void note_site(const void *from)
{
    for (int i = 0; i < LOCKSTEP_SITES; i++) {
        const void *seen = NULL;

        if (atomic_compare_exchange_strong(&sites->at[i], &seen, from) || seen == from)
            return;
    }
}

int lockstep_sites(const void *at_out[LOCKSTEP_SITES])
{
    int n = 0;

    while (n < LOCKSTEP_SITES && sites->at[n]) {
        at_out[n] = sites->at[n];
        n++;
    }
    return n;
}

/* ---- faults ---------------------------------------------------------------------- */

/* Is this the call that fails? */
static bool strikes(const char *what, const void *from)
{
    struct fault_point f = { what, from, 0, false };

    if (!watched() || !(listing || failing_rank))
        return false;
    f.after = shared->lane[me].count - began;
    if (failing_rank) {
        const struct fault_point *want = &shared->fault[fault_at];

        if (want->from != from || want->after != f.after || want->what != what)
            return false;
        return true;
    }
    for (int i = 0; i < shared->faults; i++)
        if (shared->fault[i].from == from && shared->fault[i].after == f.after)
            return false;
    if (shared->faults < LOCKSTEP_FAULTS)
        shared->fault[shared->faults++] = f;
    return false;
}

#define HERE __builtin_return_address(0)

#define ALLOCATION(name, args, values, ...)                                            \
    void *__real_##name(__VA_ARGS__);                                                  \
    void *__wrap_##name(__VA_ARGS__);                                                  \
    void *__wrap_##name args                                                           \
    {                                                                                  \
        if (strikes(#name, HERE)) {                                                    \
            errno = ENOMEM;                                                            \
            return NULL;                                                               \
        }                                                                              \
        return __real_##name values;                                                   \
    }
ALLOCATION(malloc, (size_t n), (n), size_t)
ALLOCATION(calloc, (size_t n, size_t each), (n, each), size_t, size_t)
ALLOCATION(realloc, (void *p, size_t n), (p, n), void *, size_t)
ALLOCATION(reallocarray, (void *p, size_t n, size_t each), (p, n, each), void *, size_t,
           size_t)
ALLOCATION(strdup, (const char *s), (s), const char *)

#define DISK(type, name, args, values, ...)                                            \
    type __real_##name(__VA_ARGS__);                                                   \
    type __wrap_##name(__VA_ARGS__);                                                   \
    type __wrap_##name args                                                            \
    {                                                                                  \
        if (strikes(#name, HERE)) {                                                    \
            errno = EIO;                                                               \
            return -1;                                                                 \
        }                                                                              \
        return __real_##name values;                                                   \
    }
DISK(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), int, void *,
     size_t, off_t)
DISK(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), int,
     const void *, size_t, off_t)
DISK(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), int, void *, size_t)
DISK(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), int, const void *,
     size_t)
DISK(int, fsync, (int fd), (fd), int)
DISK(int, fstat, (int fd, struct stat *st), (fd, st), int, struct stat *)
DISK(int, mkdir, (const char *name, mode_t mode), (name, mode), const char *, mode_t)
DISK(int, mkdirat, (int fd, const char *name, mode_t mode), (fd, name, mode), int,
     const char *, mode_t)
DISK(int, renameat, (int fd, const char *from, int to, const char *name),
     (fd, from, to, name), int, const char *, int, const char *)
DISK(int, renameat2,
     (int fd, const char *from, int to, const char *name, unsigned flags),
     (fd, from, to, name, flags), int, const char *, int, const char *, unsigned)

/* What is tried again fails again, without a pause. */
int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    return me >= 0 && failing_rank ? 0 : __real_nanosleep(t, left);
}

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    if (strikes("openat", HERE)) {
        errno = EIO;
        return -1;
    }
    return __real_openat(dir, name, flags, mode);
}

/* The status before an agreement: this rank has failed. */
static accel_status_t failed_before(const void *from, accel_status_t st,
                                    accel_error_t *err)
{
    if (watched() && listing) {
        shared->agreements++;
        note_site(from);
    }
    return st == ACCEL_OK && strikes(the_status, from)
               ? accel_error_set(err, ACCEL_EIO, "said by the test", "cure")
               : st;
}

accel_status_t __real_run_agree(accel_t *run, accel_status_t st, accel_error_t *err);
accel_status_t __wrap_run_agree(accel_t *run, accel_status_t st, accel_error_t *err);
accel_status_t __wrap_run_agree(accel_t *run, accel_status_t st, accel_error_t *err)
{
    return __real_run_agree(run, failed_before(HERE, st, err), err);
}

accel_status_t __real_ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t st,
                                 accel_error_t *err);
accel_status_t __wrap_ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t st,
                                 accel_error_t *err);
accel_status_t __wrap_ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t st,
                                 accel_error_t *err)
{
    return __real_ckpt_agree(c, failed_before(HERE, st, err), err);
}

/* ---- collectives ----------------------------------------------------------------- */

#define COLLECTIVE(event, name, args, values, ...)                                     \
    accel_status_t __real_##name(__VA_ARGS__);                                         \
    accel_status_t __wrap_##name(__VA_ARGS__);                                         \
    accel_status_t __wrap_##name args                                                  \
    {                                                                                  \
        accel_status_t st;                                                             \
                                                                                       \
        if (watched())                                                                 \
            step(event);                                                               \
        depth++;                                                                       \
        st = __real_##name values;                                                     \
        depth--;                                                                       \
        return st;                                                                     \
    }
COLLECTIVE(OPENS, comm_open,
           (struct comm * *c, struct boot *b, const struct comm_options *o,
            accel_error_t *err),
           (c, b, o, err), struct comm **, struct boot *, const struct comm_options *,
           accel_error_t *)
COLLECTIVE(EXCHANGES, boot_exchange,
           (struct boot * b, const void *mine, size_t n, struct boot_blobs *all,
            accel_error_t *err),
           (b, mine, n, all, err), struct boot *, const void *, size_t,
           struct boot_blobs *, accel_error_t *)
COLLECTIVE(SPLITS, comm_split,
           (struct comm * c, int color, int key, struct comm **out, accel_error_t *err),
           (c, color, key, out, err), struct comm *, int, int, struct comm **,
           accel_error_t *)
COLLECTIVE(ALLOCATES, comm_alloc,
           (struct comm * c, enum backend_memory kind, size_t bytes, void **out,
            accel_error_t *err),
           (c, kind, bytes, out, err), struct comm *, enum backend_memory, size_t,
           void **, accel_error_t *)
COLLECTIVE(GATHERS, comm_all_gather,
           (struct comm * c, void *buf, size_t n, accel_dtype_t t, accel_error_t *err),
           (c, buf, n, t, err), struct comm *, void *, size_t, accel_dtype_t,
           accel_error_t *)
COLLECTIVE(SCATTERS, comm_reduce_scatter,
           (struct comm * c, const void *in, float *out, size_t n, accel_dtype_t t,
            float scale, bool add, accel_error_t *err),
           (c, in, out, n, t, scale, add, err), struct comm *, const void *, float *,
           size_t, accel_dtype_t, float, bool, accel_error_t *)
COLLECTIVE(REDUCES, comm_all_reduce,
           (struct comm * c, void *buf, size_t n, accel_dtype_t t, enum comm_op op,
            accel_error_t *err),
           (c, buf, n, t, op, err), struct comm *, void *, size_t, accel_dtype_t,
           enum comm_op, accel_error_t *)
COLLECTIVE(BROADCASTS, comm_broadcast,
           (struct comm * c, void *buf, size_t n, int root, accel_error_t *err),
           (c, buf, n, root, err), struct comm *, void *, size_t, int, accel_error_t *)
COLLECTIVE(WAITS, comm_barrier, (struct comm * c, accel_error_t *err), (c, err),
           struct comm *, accel_error_t *)
COLLECTIVE(COLLECTS, comm_gather,
           (struct comm * c, const void *mine, size_t n, int root, void **all,
            size_t *sizes, accel_error_t *err),
           (c, mine, n, root, all, sizes, err), struct comm *, const void *, size_t,
           int, void **, size_t *, accel_error_t *)

/* The others learn of a failure from the steps that a rank does not make. */
void __real_comm_abandon(struct comm *c, const accel_error_t *why);
void __wrap_comm_abandon(struct comm *c, const accel_error_t *why);
void __wrap_comm_abandon(struct comm *c, const accel_error_t *why)
{
    if (me < 0)
        __real_comm_abandon(c, why);
    else if (c && failing_rank && why->text[0])
        shared->told = true;
}
