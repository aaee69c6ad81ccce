/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of several ranks: tensors of random shapes saved by 1 to 8 ranks come back bit
 * for bit on 1 to 8, in every cut, also after chains of changes, and no more bytes are
 * read from the files than that needs. Then errors and damage, seen by all ranks or by
 * one. With an argument: that many ranks, for the long form.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state/run_boxes.h"
#include "checkpoint/ckpt_internal.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"
#include "tests/world/run_folder.h"

#define TENSORS   24
#define BOXES_MAX (TENSORS * 2 * ACCEL_CKPT_MAX_DIMS)
#define RANKS_MAX 64

/* How ranks share a tensor: flat ranges of all tensors together (FULL_SHARD,
 * SHARD_GRAD_OP), blocks of rows, blocks of columns, copies of the whole (NO_SHARD),
 * two copies of flat ranges (HYBRID_SHARD). */
enum cut { FLAT, ROWS, COLUMNS, WHOLE, HYBRID, CUTS };
static const char *const cut_name[] = { "flat", "rows", "columns", "whole", "hybrid" };

static struct tensor {
    char name[32];
    accel_dtype_t dtype;
    int ndim;
    int64_t shape[4], elems, bytes;
    /* its right contents */
    unsigned char *image;
} tensors[TENSORS];
static int64_t total_bytes;

/* Of every checkpoint: byte i is BLOB_BYTE(i). */
#define BLOB_BYTES   ((1 << 20) + 5)
#define BLOB_BYTE(i) ((unsigned char)((i)*37 >> 3))
static unsigned char blob[BLOB_BYTES];

static char root[] = "/tmp/accel-together.XXXXXX";

/* One load or save of a world. */
struct job {
    int ranks;
    enum cut cut;
    int64_t step;
    /* after the load, the loaded memory is saved as this step; 0: not */
    int64_t next;
    /* a save alone */
    bool save;
};

/* What goes wrong, and what came of it; shared memory. */
static struct shared {
    /* this rank's reads fail with `error`; -1: none, RANKS_MAX: all of them */
    int rank, error;
    /* so many of them */
    atomic_int left;
    /* this rank asks for a tensor that is not there; -1: none */
    int asks;
    /* this rank opens the checkpoint of that step in place of the job's; 0: none */
    int64_t other_step;
    /* only the opening is looked at, whose reads fail, too */
    bool opens;
    /* by the opening; and the rest */
    int64_t blob_read[RANKS_MAX];
    _Atomic int64_t read[RANKS_MAX];
    accel_status_t status[RANKS_MAX];
    accel_error_t err[RANKS_MAX];
} * shared;

/* ---- the disk -------------------------------------------------------------------- */

static int this_rank;
/* the checkpoint is open */
static bool is_open;

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

/* Counts what is read from shard files. */
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    char path[64], to[400] = "";
    ssize_t got;

    if (is_open && (shared->rank == this_rank || shared->rank == RANKS_MAX) &&
        atomic_fetch_sub(&shared->left, 1) > 0) {
        errno = shared->error;
        return -1;
    }
    got = __real_pread(fd, p, n, at);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (got > 0 && readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, ".h5"))
        atomic_fetch_add(&shared->read[this_rank], got);
    return got;
}

static int64_t bytes_read(void)
{
    int64_t sum = 0;

    for (int r = 0; r < RANKS_MAX; r++)
        sum += atomic_load(&shared->read[r]);
    return sum;
}

enum { NO_READ = 0, EVERY_READ = 1 << 30 };

/* So many reads of that rank fail. */
static void begin_case(int rank, int reads)
{
    memset(shared, 0, sizeof(*shared));
    shared->rank = rank;
    shared->error = EIO;
    shared->left = reads;
    shared->asks = -1;
}

/* ---- tensors --------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* One of several pieces, then 0 to 4 dimensions of 0, 1 or a prime. */
static void make_tensors(uint64_t seed)
{
    static const int64_t dim[] = { 1, 2, 3, 5, 7, 11, 13, 0 };
    static const accel_dtype_t type[] = { ACCEL_F32, ACCEL_BF16, ACCEL_U8, ACCEL_I64 };

    total_bytes = 0;
    for (int t = 0; t < TENSORS; t++) {
        struct tensor *x = &tensors[t];

        snprintf(x->name, sizeof(x->name), "model/t%d.weight", t);
        x->dtype = type[t % 4];
        x->ndim = t == 0 ? 2 : t % 5;
        x->elems = 1;
        for (int d = 0; d < x->ndim; d++) {
            x->shape[d] =
                t == 0 ? (d ? 701 : 1009) : dim[draw(&seed) % (t < 20 ? 7 : 8)];
            x->elems *= x->shape[d];
        }
        x->bytes = x->elems * (int64_t)accel_dtype_bytes(x->dtype);
        free(x->image);
        x->image = malloc((size_t)x->bytes + 1);
        for (int64_t i = 0; i < x->bytes; i++)
            x->image[i] = (unsigned char)draw(&seed);
        total_bytes += x->bytes;
    }
}

static int64_t box_bytes(const accel_ckpt_box_t *b)
{
    int64_t n = (int64_t)accel_dtype_bytes(b->dtype);

    for (int d = 0; d < b->ndim; d++)
        n *= b->shape[d];
    return n;
}

/* Calls fn on every contiguous run of the box: its bytes, and where they are in the
 * whole tensor. */
static int64_t each_run(const accel_ckpt_box_t *b, const struct tensor *x,
                        int64_t (*fn)(char *mine, unsigned char *whole, size_t bytes))
{
    const int last = b->ndim - 1;
    const int64_t size = (int64_t)accel_dtype_bytes(b->dtype);
    const int64_t run = b->ndim ? b->shape[last] : 1, all = box_bytes(b) / size;
    int64_t sum = 0;

    for (int64_t i = 0; run > 0 && i < all; i += run) {
        int64_t rest = i, at = 0, stride = 1;

        for (int d = last; d >= 0; d--) {
            at += (b->offset[d] + rest % b->shape[d]) * stride;
            rest /= b->shape[d];
            stride *= b->global_shape[d];
        }
        sum +=
            fn((char *)b->data + i * size, x->image + at * size, (size_t)(run * size));
    }
    return sum;
}

static int64_t fill_run(char *mine, unsigned char *whole, size_t bytes)
{
    memcpy(mine, whole, bytes);
    return 0;
}

static int64_t wrong_run(char *mine, unsigned char *whole, size_t bytes)
{
    return memcmp(mine, whole, bytes) != 0;
}

/* The boxes of tensor x of one rank: offsets and shapes. first: of x among all elements
 * of all tensors, of which each rank has `share`. */
static int cut_tensor(const struct tensor *x, enum cut cut, int rank, int ranks,
                      int64_t first, int64_t share, accel_ckpt_box_t *box)
{
    const int d = cut == COLUMNS ? x->ndim - 1 : 0;
    int64_t each;

    if (cut == WHOLE || (x->ndim == 0 && (cut == ROWS || cut == COLUMNS)))
        return cut != WHOLE && rank
                   ? 0
                   : accel_ckpt_boxes_of_range(x->ndim, x->shape, 0, x->elems, box);
    if (cut == FLAT || cut == HYBRID)
        return accel_ckpt_boxes_of_range(x->ndim, x->shape, rank * share - first,
                                         (rank + 1) * share - first, box);
    each = (x->shape[d] + ranks - 1) / ranks;
    if (accel_ckpt_boxes_of_range(x->ndim, x->shape, 0, x->elems, box) == 0 ||
        rank * each >= x->shape[d])
        return 0;
    box->offset[d] = rank * each;
    box->shape[d] = x->shape[d] - rank * each < each ? x->shape[d] - rank * each : each;
    return 1;
}

struct mine {
    accel_ckpt_box_t box[BOXES_MAX];
    size_t boxes;
    char *memory;
};

static const struct tensor *tensor_of(const accel_ckpt_box_t *b)
{
    return &tensors[atoi(b->name + strlen("model/t"))];
}

static void mine_make(struct mine *m, enum cut cut, int rank, int ranks)
{
    const int parts = cut == HYBRID ? (ranks + 1) / 2 : ranks;
    int64_t elems = 0, first = 0, at = 0;

    m->boxes = 0;
    for (int t = 0; t < TENSORS; t++)
        elems += tensors[t].elems;
    for (int t = 0; t < TENSORS; t++) {
        accel_ckpt_box_t part[2 * ACCEL_CKPT_MAX_DIMS] = { 0 };
        int n = cut_tensor(&tensors[t], cut, rank % parts, parts, first,
                           (elems + parts - 1) / parts, part);

        first += tensors[t].elems;
        for (int i = 0; i < n; i++) {
            part[i].name = tensors[t].name;
            part[i].dtype = tensors[t].dtype;
            part[i].ndim = tensors[t].ndim;
            memcpy(part[i].global_shape, tensors[t].shape, sizeof(tensors[t].shape));
            m->box[m->boxes++] = part[i];
        }
    }
    for (size_t i = 0; i < m->boxes; i++)
        at += box_bytes(&m->box[i]);
    m->memory = calloc(1, (size_t)at + 1);
    at = 0;
    for (size_t i = 0; i < m->boxes; i++) {
        m->box[i].data = m->memory + at;
        at += box_bytes(&m->box[i]);
    }
}

static int64_t mine_visit(struct mine *m,
                          int64_t (*fn)(char *, unsigned char *, size_t))
{
    int64_t sum = 0;

    for (size_t i = 0; i < m->boxes; i++)
        sum += each_run(&m->box[i], tensor_of(&m->box[i]), fn);
    return sum;
}

/* ---- one rank -------------------------------------------------------------------- */

static accel_status_t save_step(struct comm *c, const struct mine *m, int64_t step,
                                accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(c);
    const accel_ckpt_save_t save = { sizeof(save),
                                     .root = root,
                                     .step = step,
                                     .owner = "test",
                                     .run_id = "together",
                                     .sharding = "FULL_SHARD",
                                     .boxes = m->box,
                                     .box_count = m->boxes,
                                     .blobs = &(accel_ckpt_blob_t){ "objects", blob,
                                                                    sizeof(blob) },
                                     .blob_count = 1,
                                     .keep = 1000 };

    return accel_ckpt_save(&save, &coll, NULL, err);
}

/* Whole copies, and each part of the two copies, are stored once. */
static accel_status_t save_loaded(struct comm *c, const struct job *j, struct mine *m,
                                  accel_error_t *err)
{
    const int rank = comm_rank(c);
    struct mine flat;
    accel_status_t st;

    if (j->cut == HYBRID && rank >= (j->ranks + 1) / 2)
        m->boxes = 0;
    if (j->cut != WHOLE)
        return save_step(c, m, j->next, err);
    for (size_t i = 0; i < m->boxes; i++)
        memcpy(tensor_of(&m->box[i])->image, m->box[i].data,
               (size_t)box_bytes(&m->box[i]));
    mine_make(&flat, FLAT, rank, j->ranks);
    mine_visit(&flat, fill_run);
    st = save_step(c, &flat, j->next, err);
    free(flat.memory);
    return st;
}

/* The blob of rank 0 is everyone's. */
static accel_status_t open_step(const char *dir, struct comm *c, accel_ckpt_t **ckpt,
                                accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(c);
    accel_status_t st = accel_ckpt_open_together(ckpt, dir, &coll, err);
    size_t bytes = 0;
    const void *found = st ? NULL : accel_ckpt_blob(*ckpt, "objects", &bytes);

    if (!st && (!found || bytes != sizeof(blob) || memcmp(found, blob, bytes) != 0))
        abort();
    return st;
}

/* As a run reads: with communicators of its own for copies of shards. */
static accel_status_t load_step(struct boot *b, struct comm *c, const struct job *j,
                                struct mine *m, accel_error_t *err)
{
    static accel_t run;
    struct run_boxes boxes = { .all = m->box,
                               .count = m->boxes,
                               .shard_count = m->boxes };
    accel_ckpt_t *ckpt = NULL;
    char dir[256];
    accel_status_t st;

    snprintf(dir, sizeof(dir), "%s/step_%08lld", root,
             (long long)(shared->other_step && b->rank ? shared->other_step : j->step));
    is_open = shared->opens;
    atomic_store(&shared->read[b->rank], 0);
    st = open_step(dir, c, &ckpt, err);
    shared->blob_read[b->rank] = atomic_exchange(&shared->read[b->rank], 0);
    if (st || shared->opens) {
        accel_ckpt_close(ckpt);
        return st;
    }
    is_open = true;
    if (shared->asks == b->rank)
        m->box[0].name = "model/none";
    run.boot = *b;
    run.mesh.layout = (struct plan_layout){
        .replicate = 2, .shard = (j->ranks + 1) / 2, .cp = 1, .sp = 1, .tp = 1
    };
    run.mesh.at[AXIS_SHARD] = b->rank % run.mesh.layout.shard;
    run.comm = c;
    run.mesh.copies = j->cut == HYBRID ? c : NULL;
    st = run_boxes_read(&run, ckpt, &boxes, err);
    accel_ckpt_close(ckpt);
    return st;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct job *j = arg;
    const struct comm_options options = { .timeout_ms = HANG_S * 1000 };
    accel_error_t *err = &shared->err[b->rank];
    struct comm *c = NULL;
    static struct mine m;
    int64_t wrong = 0;
    accel_status_t st = comm_open(&c, b, &options, err);

    this_rank = b->rank;
    if (st)
        return 2;
    mine_make(&m, j->cut, b->rank, j->ranks);
    if (j->save) {
        mine_visit(&m, fill_run);
        st = save_step(c, &m, j->step, err);
    } else {
        st = load_step(b, c, j, &m, err);
        wrong = st || shared->opens ? 0 : mine_visit(&m, wrong_run);
    }
    if (!st && j->next)
        st = save_loaded(c, j, &m, err);
    shared->status[b->rank] = st;
    free(m.memory);
    comm_close(c);
    return wrong ? 3 : 0;
}

/* 0 when every rank is well. */
static int world(const struct job *j)
{
    struct job job = *j;
    int bad = fork_world(j->ranks, rank_main, &job, HANG_S);

    for (int r = 0; r < j->ranks && !bad; r++)
        if (shared->status[r]) {
            tap_diag("rank %d: %s", r, shared->err[r].text);
            bad = 1;
        }
    if (bad > 1)
        tap_diag("a rank ended with %d", bad);
    return bad;
}

/* ---- the matrix ------------------------------------------------------------------ */

/* What `ranks` ranks may read: all bytes once, where most want them or no two want the
 * same; pieces that two ranks share, which are read whole by both; and whole pages. */
static int64_t allowed(enum cut cut, int ranks)
{
    const int64_t boundaries = cut == WHOLE || cut == COLUMNS ? 0 : ranks - 1;

    return total_bytes + total_bytes / 20 + boundaries * CKPT_PIECE_BYTES +
           ranks * 4 * CKPT_PAGE;
}

/* Every each-th number of ranks; those that load are others for each that saved. Flat
 * parts are long runs of a file: what is read of them is little more than is wanted. */
static void test_matrix(enum cut saved, int most, int each)
{
    int wrong = 0, much = 0;

    for (int n = 1; n <= most; n += each) {
        const int64_t step = 100 * (int64_t)saved + n;

        begin_case(-1, NO_READ);
        wrong += world(&(struct job){
                     .ranks = n, .cut = saved, .step = step, .save = true }) != 0;
        for (int m = 1 + n / each % each; m <= most; m += each)
            for (enum cut cut = FLAT; cut < CUTS; cut++) {
                const struct job j = { .ranks = m, .cut = cut, .step = step };

                begin_case(-1, NO_READ);
                if (world(&j)) {
                    tap_diag("%d -> %d ranks, %s", n, m, cut_name[cut]);
                    wrong++;
                }
                if (saved != FLAT)
                    continue;
                if (bytes_read() > allowed(cut, m) || bytes_read() < total_bytes) {
                    tap_diag("%d -> %d ranks, %s: %lld bytes of %lld", n, m,
                             cut_name[cut], (long long)bytes_read(),
                             (long long)total_bytes);
                    much++;
                }
            }
    }
    tap_is_int(wrong, 0, "1..%d -> 1..%d ranks, %s -> every cut: bit for bit", most,
               most, cut_name[saved]);
    if (saved == FLAT)
        tap_is_int(much, 0,
                   "and each byte is read once, beyond pieces that ranks share");
}

/* Saves of what was loaded, five times in a row. */
static void test_chains(int most)
{
    uint64_t seed = 7;
    int wrong = 0;

    for (int chain = 0; chain < 6; chain++) {
        int64_t step = 1000 + 10 * chain;

        make_tensors(100 + (uint64_t)chain);
        begin_case(-1, NO_READ);
        wrong +=
            world(&(struct job){
                .ranks = 1 + chain, .cut = COLUMNS, .step = step, .save = true }) != 0;
        for (int i = 0; i < 5; i++, step++)
            wrong +=
                world(&(struct job){ .ranks = 1 + (int)(draw(&seed) % (uint64_t)most),
                                     .cut = (enum cut)(draw(&seed) % CUTS),
                                     .step = step,
                                     .next = step + 1 }) != 0;
        wrong += world(&(struct job){ .ranks = 3, .cut = WHOLE, .step = step }) != 0;
    }
    tap_is_int(wrong, 0, "six chains of five changes: bit for bit");
}

/* ---- shares, errors, damage ------------------------------------------------------ */

static struct job four = { .ranks = 4, .cut = WHOLE, .step = 2000 };

static void test_shares(void)
{
    int64_t most = 0;
    int bad = 0;

    tensors[0].shape[0] = 17011;
    tensors[0].elems = tensors[0].shape[0] * tensors[0].shape[1];
    total_bytes -= tensors[0].bytes;
    tensors[0].bytes = tensors[0].elems * (int64_t)accel_dtype_bytes(ACCEL_F32);
    total_bytes += tensors[0].bytes;
    tensors[0].image = realloc(tensors[0].image, (size_t)tensors[0].bytes);
    for (int64_t i = 0; i < tensors[0].bytes; i++)
        tensors[0].image[i] = (unsigned char)(i * 7 / 5);
    begin_case(-1, NO_READ);
    world(&(struct job){ .ranks = 3, .step = four.step, .save = true });
    begin_case(-1, NO_READ);
    tap_is_int(world(&four), 0, "48 MB to four ranks that want all");
    for (int r = 0; r < 4; r++)
        most = shared->read[r] > most ? shared->read[r] : most;
    tap_ok(bytes_read() <= total_bytes + total_bytes / 20,
           "read once: %lld of %lld bytes", (long long)bytes_read(),
           (long long)total_bytes);
    tap_ok(most <= total_bytes / 4 + CKPT_IO_BYTES, "in equal shares: %lld bytes",
           (long long)most);
    for (int i = 0; i < 5; i++) {
        begin_case(-1, NO_READ);
        bad += world(&(struct job){ .ranks = 1, .cut = WHOLE, .step = four.step }) != 0;
    }
    tap_is_int(bad, 0, "more spans than slots, to one rank, five times");
}

static void test_errors(void)
{
    int refused = 0;

    begin_case(2, 1);
    tap_is_int(world(&four), 0, "a read that fails once is tried again");

    begin_case(2, EVERY_READ);
    tap_is_int(world(&four), 1, "where one rank cannot read, none has wrong data");
    tap_ok(shared->status[2] == ACCEL_EIO && !shared->status[0] && !shared->status[1] &&
               !shared->status[3],
           "that rank has the error, and the others have the data");
    tap_ok(bytes_read() > total_bytes + total_bytes / 20,
           "which they read themselves where it was to");

    begin_case(RANKS_MAX, EVERY_READ);
    world(&four);
    tap_ok(shared->status[0] == ACCEL_EIO && shared->status[3] == ACCEL_EIO,
           "where nobody can read all ranks say so");

    begin_case(-1, NO_READ);
    shared->asks = 1;
    world(&four);
    for (int r = 0; r < 4; r++)
        refused += shared->status[r] == ACCEL_EMISMATCH;
    tap_is_int(refused, 4, "one rank's wrong request fails on all");
    tap_ok(strstr(shared->err[3].text, "rank 1: ") && bytes_read() == 0,
           "with its rank, and nothing is read: %s", shared->err[3].text);
}

static int64_t blob_reads(void)
{
    int64_t sum = 0;

    for (int r = 0; r < 4; r++)
        sum += shared->blob_read[r];
    return sum;
}

static void test_blobs(void)
{
    begin_case(-1, NO_READ);
    shared->opens = true;
    tap_is_int(world(&four), 0, "four ranks open a checkpoint");
    tap_ok(blob_reads() >= BLOB_BYTES && blob_reads() < BLOB_BYTES + BLOB_BYTES / 20,
           "and read its blob once: %lld bytes of %d", (long long)blob_reads(),
           BLOB_BYTES);

    begin_case(2, EVERY_READ);
    shared->opens = true;
    world(&four);
    tap_ok(shared->status[2] == ACCEL_EIO && !shared->status[0] && !shared->status[1] &&
               !shared->status[3],
           "a rank that cannot open it has the error, and the others have the blob");
    tap_ok(blob_reads() >= 3 * BLOB_BYTES, "which each of them reads");

    begin_case(-1, NO_READ);
    shared->opens = true;
    shared->other_step = four.step + 1;
    world(&(struct job){ .ranks = 3, .step = shared->other_step, .save = true });
    tap_is_int(world(&four), 0, "of two checkpoints each rank has its own blob");

    begin_case(-1, NO_READ);
    shared->opens = true;
    shared->other_step = 9999;
    world(&(struct job){ .ranks = 2, .step = four.step });
    tap_ok(shared->status[1] == ACCEL_ENOENT && !shared->status[0],
           "where one of two ranks has none, the other reads alone");
}

/* Flips one bit of every megabyte of a shard file. */
static void damage(int64_t step)
{
    char path[300];
    unsigned char c;
    int fd;

    snprintf(path, sizeof(path), "%s/step_%08lld/rank_00001-of-00003.h5", root,
             (long long)step);
    fd = open(path, O_RDWR);
    for (off_t at = 5 << 19; __real_pread(fd, &c, 1, at) == 1; at += 1 << 20) {
        c ^= 4;
        if (pwrite(fd, &c, 1, at) != 1)
            abort();
    }
    close(fd);
}

static void test_damage(void)
{
    int found = 0;

    begin_case(-1, NO_READ);
    shared->other_step = four.step + 1;
    world(&(struct job){ .ranks = 3, .step = shared->other_step, .save = true });
    tap_is_int(world(&four), 0, "ranks that see different checkpoints read alone");
    tap_ok(bytes_read() >= 4 * total_bytes, "each all of it");

    damage(four.step);
    begin_case(-1, NO_READ);
    world(&four);
    for (int r = 0; r < 4; r++)
        found += shared->status[r] == ACCEL_ECORRUPT &&
                 strstr(shared->err[r].where, "rank_00001-of-00003.h5") &&
                 strstr(shared->err[r].text, "do not match their hash");
    tap_is_int(found, 4, "every rank finds the damage itself");
    tap_ok(bytes_read() < total_bytes / 2 * 3, "and none reads on when all have");
}

int main(int argc, char **argv)
{
    const bool all = argc > 1 && !strcmp(argv[1], "all");
    const int most = argc > 1 && !all ? atoi(argv[1]) : 8;

    shared = fork_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(blob); i++)
        blob[i] = BLOB_BYTE(i);
    if (most < 1 || most > RANKS_MAX)
        return 1;
    run_folder_new(root);
    make_tensors(1);
    if (argc > 1 && !all) {
        begin_case(-1, NO_READ);
        tap_is_int(world(&(struct job){ .ranks = most, .step = 1, .save = true }), 0,
                   "%d ranks save", most);
        for (enum cut cut = FLAT; cut < CUTS; cut++) {
            begin_case(-1, NO_READ);
            tap_is_int(world(&(struct job){ .ranks = most, .cut = cut, .step = 1 }), 0,
                       "%d ranks load, %s", most, cut_name[cut]);
            /* columns: small tensors have pieces that several ranks read */
            tap_ok(cut == COLUMNS || bytes_read() <= allowed(cut, most),
                   "and read %lld bytes of %lld", (long long)bytes_read(),
                   (long long)total_bytes);
        }
        begin_case(-1, NO_READ);
        tap_is_int(world(&(struct job){ .ranks = 3, .cut = WHOLE, .step = 1 }), 0,
                   "3 ranks load what they saved");
    } else {
        test_matrix(FLAT, most, all ? 1 : TAP_SANITIZED ? 9 : 3);
        test_matrix(ROWS, most, all ? 1 : 7);
        test_matrix(COLUMNS, most, all ? 1 : 7);
        test_chains(most);
        test_shares();
        test_errors();
        test_blobs();
        test_damage();
    }
    run_folder_remove(root);
    return tap_done();
}
