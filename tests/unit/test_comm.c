/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/: every collective, dtype and size against a scalar reference on forked ranks,
 * in private and in window memory; the same bits from every backend; failures.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef HAVE_UCX
#include <dlfcn.h>
#include <ucp/api/ucp.h>
#endif

#include "comm/comm.h"
#include "tests/tap.h"
#include "tests/unit/comm_ref.h"
#include "tests/world/fork_world.h"

enum difference { OTHER_CALLS, OTHER_SIZES, ONE_SPLITS };

struct job {
    const char *backend;
    size_t max_elems;
    bool no_pull; /* rank 0 may not read its peers' memory */
    int timeout_ms;
    enum difference how;    /* two ranks differ */
    const char *hint;       /* what the cure must mention */
    _Atomic uint64_t *hash; /* shared: sum over the ranks */
    char (*text)[1024];     /* shared: [rank] error text */
};

static int open_comm(struct comm **c, struct boot *b, const struct job *job)
{
    struct comm_options o = { .backend = job->backend, .timeout_ms = job->timeout_ms };
    accel_error_t err = { 0 };

    if (comm_open(c, b, &o, &err) == ACCEL_OK)
        return 0;
    fprintf(stderr, "# rank %d: %s\n", b->rank, err.text);
    return 1;
}

#ifdef HAVE_UCX
static const bool have_ucx = true;
#else
static const bool have_ucx = false;
#endif

/* ---- results --------------------------------------------------------------------- */

/* What containers do that forbid reading other processes' memory. */
static int forbid_pull(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = ACCEL_ARRAY_SIZE(code), .filter = code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int run_reference(struct boot *b, void *arg)
{
    const struct job *job = arg;
    int fds = tap_open_files();

    if (job->no_pull && b->rank == 0 && forbid_pull() != 0)
        return 77;

    for (int round = 0; round < 2; round++) { /* two communicators in sequence */
        uint64_t hash = 0xcbf29ce484222325u;
        struct comm *c;

        if (open_comm(&c, b, job) != 0)
            return 2;
        if (strcmp(comm_backend(c), job->backend) != 0)
            return 3;
        if (comm_ref_check(c, round ? 1000 : job->max_elems, &hash) != 0)
            return 1;
        if (round && comm_ref_groups(c) != 0)
            return 5;
        comm_close(c);
        atomic_fetch_add(job->hash, hash);
        if (strcmp(job->backend, "shm") == 0 && tap_open_files() != fds)
            return 4;
    }
    return 0;
}

static void test_no_pull(struct job *job, int n, uint64_t want)
{
    int rc;

    job->no_pull = true;
    atomic_store(job->hash, 0);
    rc = fork_world(n, run_reference, job, 240);
    job->no_pull = false;
    if (rc == 77) {
        tap_skip(2, "this system allows no seccomp filter");
        return;
    }
    tap_is_int(rc, 0, "shm, %d ranks that may not read each other's memory", n);
    tap_ok(atomic_load(job->hash) == want, "the same bits");
}

static void test_results(struct job *job)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 8 };
    uint64_t shm_hash;

    for (size_t i = TAP_SANITIZED; i < ACCEL_ARRAY_SIZE(ranks);
         i += 1 + 2 * TAP_SANITIZED) {
        int n = ranks[i];

        job->max_elems = n == 2 ? 1u << 20 : n <= 4 ? 70001 : 4099;
        if (TAP_SANITIZED) /* still in several pieces */
            job->max_elems /= 8;
        job->backend = "shm";
        atomic_store(job->hash, 0);
        tap_is_int(fork_world(n, run_reference, job, 240), 0, "shm, %d ranks", n);
        shm_hash = atomic_load(job->hash);
        if (n == 2 || n == 5)
            test_no_pull(job, n, shm_hash);
        if (!have_ucx)
            continue;
        job->backend = "ucx";
        atomic_store(job->hash, 0);
        tap_is_int(fork_world(n, run_reference, job, 240), 0, "ucx, %d ranks", n);
        tap_ok(shm_hash == atomic_load(job->hash), "the same bits from shm and ucx");
    }
}

/* ---- failures -------------------------------------------------------------------- */

static void keep_text(const struct job *job, int rank, const accel_error_t *err)
{
    snprintf(job->text[rank], sizeof(job->text[rank]), "%s", err->text);
}

/* A failed communicator gives the same error again, at once, and closes. */
static int stays_failed(struct comm *c, const accel_error_t *first)
{
    accel_error_t again = { 0 };
    int64_t start = clock_ns();

    if (comm_barrier(c, &again) != first->code || strcmp(again.text, first->text) != 0)
        return 5;
    comm_close(c);
    return clock_ns() - start < 6000000000 ? 0 : 6;
}

/* The last rank stays away from the second call until the others have given up. */
static int silent_rank(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 };
    float x[8] = { 0 };
    struct comm *c;

    if (open_comm(&c, b, job) != 0 || comm_barrier(c, &err) != ACCEL_OK)
        return 2;
    if (b->rank == b->size - 1) {
        while (atomic_load(job->hash) != (uint64_t)b->size - 1)
            sched_yield();
        comm_close(c);
        return 0;
    }
    if (comm_all_gather(c, x, 1, ACCEL_F32, &err) != ACCEL_EPEER)
        return 3;
    keep_text(job, b->rank, &err);
    atomic_fetch_add(job->hash, 1);
    return stays_failed(c, &err);
}

static int dead_rank(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 };
    struct comm *c;

    if (open_comm(&c, b, job) != 0 || comm_barrier(c, &err) != ACCEL_OK)
        return 2;
    if (b->rank == 1)
        raise(SIGKILL);
    if (comm_barrier(c, &err) != ACCEL_EPEER)
        return 3;
    keep_text(job, b->rank, &err);
    return stays_failed(c, &err);
}

/* The two ranks make different calls. */
static accel_status_t different_call(struct comm *c, int rank, enum difference how,
                                     accel_error_t *err)
{
    float in[160] = { 0 }, out[80] = { 0 };
    struct comm *group;

    if (how == OTHER_SIZES)
        return comm_all_reduce(c, in, rank ? 41 : 40, ACCEL_F32, COMM_SUM, err);
    if (how == ONE_SPLITS)
        return rank ? comm_barrier(c, err) : comm_split(c, 0, 0, &group, err);
    return rank ? comm_reduce_scatter(c, in, out, 40, ACCEL_F32, 1, false, err)
                : comm_all_gather(c, in, 32, ACCEL_F32, err);
}

static int differing(struct boot *b, void *arg)
{
    struct job *job = arg;
    accel_error_t err = { 0 };
    struct comm *c;

    if (open_comm(&c, b, job) != 0)
        return 2;
    if (different_call(c, b->rank, job->how, &err) != ACCEL_EMISMATCH)
        return 3;
    keep_text(job, b->rank, &err);
    return stays_failed(c, &err);
}

static void test_failures(struct job *job, const char *backend)
{
    int status[3];

    job->backend = backend;
    job->timeout_ms = 700;
    atomic_store(job->hash, 0);
    tap_is_int(fork_world(3, silent_rank, job, 240), 0, "%s: a silent rank", backend);
    tap_is_str(job->text[0], "all_gather #2: rank 2 did not arrive within 0.7 s",
               "  is named, with the call");
    job->timeout_ms = HANG_S * 1000;
    fork_world_nodes(3, 1, dead_rank, job, 90, status);
    tap_ok(status[0] == 0 && status[1] == 137 && status[2] == 0,
           "%s: a dead rank ends the others' wait (%d %d %d)", backend, status[0],
           status[1], status[2]);
    /* rank 0 may have been the first to see it, and told */
    tap_ok(strstr(job->text[2], "barrier #2: rank 1 ") != NULL, "  %s", job->text[2]);
    job->how = OTHER_CALLS;
    tap_is_int(fork_world(2, differing, job, 240), 0, "%s: differing calls", backend);
    tap_ok(strstr(job->text[0], "rank 1 called reduce_scatter") &&
               strstr(job->text[0], "rank 0 all_gather of 32 float32"),
           "  %s", job->text[0]);
    job->how = OTHER_SIZES;
    tap_is_int(fork_world(2, differing, job, 240), 0, "%s: differing sizes", backend);
    tap_diag("  %s", job->text[1]);
    job->how = ONE_SPLITS;
    tap_is_int(fork_world(2, differing, job, 240), 0, "%s: a split by one rank",
               backend);
}

/* ---- choice of the backend ------------------------------------------------------- */

static int open_fails(struct boot *b, void *arg)
{
    struct job *job = arg;
    struct comm_options o = { .backend = job->backend };
    accel_error_t err = { 0 };
    struct comm *c;

    if (comm_open(&c, b, &o, &err) != ACCEL_EUNAVAIL)
        return 1;
    keep_text(job, b->rank, &err);
    return strstr(err.hint, job->hint) ? 0 : 2;
}

/* Rank 1 may not make files as large as its window. */
static int unshared_ranks(struct boot *b, void *arg)
{
    struct job *job = arg;
    const struct rlimit small = { 64u << 20, RLIM_INFINITY };
    struct comm_options o = { .backend = job->backend, .window_bytes = 256u << 20 };
    accel_error_t err = { 0 };
    uint64_t hash = 1;
    struct comm *c;
    int rc;

    if (b->rank == 1 && setrlimit(RLIMIT_FSIZE, &small) != 0)
        return 3;
    if (comm_open(&c, b, &o, &err) != ACCEL_OK) {
        keep_text(job, b->rank, &err);
        return err.code == ACCEL_EUNAVAIL && strstr(err.hint, job->hint) ? 1 : 2;
    }
    rc = strcmp(comm_backend(c), "ucx") == 0 ? comm_ref_check(c, 1000, &hash) : 4;
    comm_close(c);
    return rc;
}

static void test_choice(struct job *job)
{
    static const char refusal[] = "the ranks cannot share memory: rank 1: ftruncate";

    job->backend = "shm";
    job->hint = "use the backend ucx";
    tap_is_int(fork_world(3, unshared_ranks, job, 240), 1,
               "shm is refused on all ranks when one cannot share");
    tap_ok(strncmp(job->text[2], refusal, strlen(refusal)) == 0, "  %s", job->text[2]);
    job->backend = NULL;
    job->hint = "libucx-dev";
    tap_is_int(fork_world(3, unshared_ranks, job, 240), have_ucx ? 0 : 1,
               "a free choice then means ucx");
    if (have_ucx)
        return;
    tap_is_int(fork_world_nodes(2, 2, open_fails, job, 240, NULL), 0,
               "without UCX two nodes are refused, with the package to install");
    tap_is_str(job->text[1],
               "2 ranks on 2 nodes need UCX, but this accel was built without UCX",
               "  said plainly");
}

#ifdef HAVE_UCX
/* How UCX answers the first attempts of a rank to open it. */
static ucs_status_t answer;
static int refusals;

/* In place of UCX's own, which it calls. */
ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                               ucp_worker_h *worker_p)
{
    static __typeof__(&ucp_worker_create) real;

    if (refusals > 0) {
        refusals--;
        return answer;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_worker_create");
    return real(context, params, worker_p);
}

static int refused_rank(struct boot *b, void *arg)
{
    struct comm *c;
    int rc = open_comm(&c, b, arg);

    if (rc == 0)
        comm_close(c);
    return rc;
}

/* Interfaces may come and go while UCX opens them. */
static void test_refusals(struct job *job)
{
    static const struct {
        ucs_status_t answer;
        int rc;
    } rows[] = { { UCS_ERR_NO_DEVICE, 0 },
                 { UCS_ERR_IO_ERROR, 0 },
                 { UCS_ERR_UNREACHABLE, 0 },
                 { UCS_ERR_NO_MEMORY, 1 } };

    job->backend = "ucx";
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        answer = rows[i].answer;
        refusals = 2;
        tap_is_int(fork_world(2, refused_rank, job, 240), rows[i].rc,
                   "ucx, twice \"%s\": %s", ucs_status_string(answer),
                   rows[i].rc ? "given up at once" : "opened in the end");
    }
    refusals = 0;
}
#endif

/* Two nodes of two ranks: the groups of a node share its memory, those across do
 * not. */
static int node_groups(struct boot *b, void *arg)
{
    const struct job *job = arg;
    struct comm_options o = { .timeout_ms = job->timeout_ms };
    struct comm *c, *node, *across;
    accel_error_t err = { 0 };
    int bad;

    if (comm_open(&c, b, &o, &err) != ACCEL_OK ||
        comm_split(c, b->node, b->rank, &node, &err) != ACCEL_OK ||
        comm_split(c, b->local_rank, b->rank, &across, &err) != ACCEL_OK)
        return 2;
    bad = strcmp(comm_backend(node), "shm") != 0 ||
          strcmp(comm_backend(across), "ucx") != 0 || comm_size(node) != 2 ||
          comm_size(across) != 2 || comm_rank(node) != b->local_rank;
    bad = bad || comm_ref_groups(c) || comm_ref_groups(node) || comm_ref_groups(across);
    comm_close(across);
    comm_close(node);
    comm_close(c);
    return bad;
}

/* ---- the window of a rank -------------------------------------------------------- */

/* What this process has mapped of windows, in bytes; how many in *count_out. */
static size_t mapped_windows(int *count_out)
{
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    size_t bytes = 0;
    char line[600];

    *count_out = 0;
    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, "memfd:accel-window") &&
            sscanf(line, "%lx-%lx", &from, &to) == 2) {
            bytes += to - from;
            ++*count_out;
        }
    if (f)
        fclose(f);
    return bytes;
}

static const struct window_row {
    int ranks;
    size_t limit; /* of the address space, in GiB; 0: none */
} windows[] = { { 2, 0 }, { 3, 0 }, { 4, 0 }, { 2, 16 }, { 3, 16 }, { 4, 7 } };

/* Twice a rank's share of the memory; of a limit all windows take half. Huge
 * pages that are begun are whole. */
static int window_rank(struct boot *b, void *arg)
{
    const struct window_row *r = arg;
    const struct comm_options o = { .backend = "shm", .timeout_ms = HANG_S * 1000 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)b->size,
                 memory = (size_t)sysconf(_SC_PHYS_PAGES) * page,
                 limit = r->limit << 30;
    const struct rlimit most = { limit, limit };
    size_t want = memory / n * 2, got;
    accel_error_t err = { 0 };
    struct comm *c;
    int count;

    if (limit && limit / 2 / n < want)
        want = limit / 2 / n;
    if ((limit && setrlimit(RLIMIT_AS, &most)) || comm_open(&c, b, &o, &err))
        return 2;
    got = mapped_windows(&count) / n;
    if (got < want || got > want + ((size_t)16 << 20)) {
        fprintf(stderr, "# %d windows of %zu bytes, not %zu\n", count, got, want);
        return 1;
    }
    comm_close(c);
    return mapped_windows(&count) ? 3 : 0;
}

static void test_windows(void)
{
    if (TAP_SANITIZED) {
        tap_skip(ACCEL_ARRAY_SIZE(windows), "sanitizers reserve more address space");
        return;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(windows); i++) {
        struct window_row row = windows[i];

        tap_is_int(fork_world(row.ranks, window_rank, &row, HANG_S), 0,
                   "windows of %d ranks within %zu GiB (0: no limit)", row.ranks,
                   row.limit);
    }
}

static int shm_entries(void)
{
    DIR *d = opendir("/dev/shm");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strstr(e->d_name, "accel") != NULL;
    if (d)
        closedir(d);
    return n;
}

int main(void)
{
    struct job job = { .timeout_ms = HANG_S * 1000,
                       .hash = fork_shared(sizeof(*job.hash)),
                       .text = fork_shared(8 * sizeof(*job.text)) };

    test_results(&job);
    test_failures(&job, "shm");
    if (have_ucx)
        test_failures(&job, "ucx");
    test_choice(&job);
    test_windows();
#ifdef HAVE_UCX
    test_refusals(&job);
#endif
    if (have_ucx)
        tap_is_int(fork_world_nodes(4, 2, node_groups, &job, 240, NULL), 0,
                   "groups choose for themselves: shm inside a node, ucx between two");
    tap_is_int(shm_entries(), 0, "nothing of ours is left in /dev/shm");
    return tap_done();
}
