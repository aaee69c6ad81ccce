/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt_damage [TRIALS [SEED]]: a checkpoint of two ranks is damaged in every way that a
 * disk, a copy or a person may: a flipped bit anywhere, pieces of equal size exchanged,
 * shards exchanged, files of another step or another run, cut off, grown, hard links
 * and symbolic links in their place. Each is found by verify, which names the file and,
 * where one is hit, the tensor; a load refuses it, or has every byte right, where the
 * damage is around the tensors.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

enum { RANKS = 2, FILES = RANKS + 1 };

enum way {
    FLIP,
    PIECES,
    SHARDS,
    OTHER_STEP,
    OTHER_RUN,
    CUT,
    GROWN,
    HARD_LINK,
    SYMLINK,
    GONE,
    WAYS
};

static const char *const names[WAYS] = {
    "flipped bits",          "pieces of equal size exchanged", "shards exchanged",
    "files of another step", "files of another run",           "files cut off",
    "files grown",           "hard links to others",           "symbolic links",
    "missing files"
};

static char root[256], dir[300], older[300], other_root[270], other[300], kept[300];
static const char *const file[FILES] = { "rank_00000-of-00002.h5",
                                         "rank_00001-of-00002.h5", "MANIFEST" };
static accel_ckpt_t *whole; /* as it was saved: where its tensors lie */
static uint64_t state;

static int64_t draw(int64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)((state >> 11) % (uint64_t)n);
}

/* ---- checkpoints ----------------------------------------------------------------- */

/* Step `step` of run `run`, with the data of step `data`. */
static void save(const char *where, int64_t step, int64_t data, const char *run)
{
    struct state s;
    struct world w;
    int rc;

    world_start(&w, RANKS);
    state_make(&s, w.rank, w.size, data);
    {
        const accel_ckpt_save_t a = { sizeof(a),      .root = where,
                                      .step = step,   .owner = "17.0",
                                      .run_id = run,  .sharding = "FULL_SHARD",
                                      .boxes = s.box, .box_count = s.boxes,
                                      .keep = 9 };

        rc = accel_ckpt_save(&a, &w.coll, NULL, NULL) != ACCEL_OK;
    }
    state_free(&s);
    if (world_end(&w, rc))
        abort();
}

static void path_in(char out[400], const char *where, int f)
{
    snprintf(out, 400, "%s/%s", where, file[f]);
}

static int64_t size_of(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        abort();
    return st.st_size;
}

/* The tensor that byte `at` of shard f belongs to, or NULL. */
static const char *tensor_at(int f, int64_t at)
{
    const struct ckpt_manifest *m = &whole->m;

    for (size_t i = 0; i < m->boxes; i++)
        if (m->box[i].file == f && at >= m->box[i].at &&
            at < m->box[i].at + m->box[i].bytes)
            return m->tensor[m->box[i].tensor].name;
    return NULL;
}

/* ---- damage ---------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
    static char buf[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ssize_t n;

    while ((n = read(in, buf, sizeof(buf))) > 0)
        if (write(out, buf, (size_t)n) != n)
            abort();
    if (in < 0 || out < 0 || n < 0 || close(in) || close(out))
        abort();
}

/* The file goes to `kept`, until it comes back. */
static void take_away(const char *path)
{
    if (rename(path, kept))
        abort();
}

static void bring_back(const char *path)
{
    unlink(path);
    if (rename(kept, path))
        abort();
}

/* Exchanges n bytes at a of file p with n at b of file q. */
static void exchange(const char *p, int64_t a, const char *q, int64_t b, size_t n)
{
    char *x = malloc(n), *y = malloc(n);
    int fp = open(p, O_RDWR), fq = open(q, O_RDWR);

    if (!x || !y || fp < 0 || fq < 0 || pread(fp, x, n, a) != (ssize_t)n ||
        pread(fq, y, n, b) != (ssize_t)n || pwrite(fp, y, n, a) != (ssize_t)n ||
        pwrite(fq, x, n, b) != (ssize_t)n)
        abort();
    close(fp);
    close(fq);
    free(x);
    free(y);
}

/* Two whole pieces somewhere in the shards. */
static void two_pieces(int f[2], int64_t at[2])
{
    const struct ckpt_manifest *m = &whole->m;

    do
        for (int k = 0; k < 2; k++) {
            const struct ckpt_mbox *b = &m->box[draw((int64_t)m->boxes)];
            const int64_t full = b->bytes / CKPT_PIECE_BYTES;

            f[k] = b->file;
            at[k] = full > 0 ? b->at + CKPT_PIECE_BYTES * draw(full) : -1;
        }
    while (at[0] < 0 || at[1] < 0 || (f[0] == f[1] && at[0] == at[1]));
}

/* ---- what is found --------------------------------------------------------------- */

struct found {
    int lines;
    char text[4000];
};

static void note(void *user, accel_status_t what, const char *line)
{
    struct found *f = user;
    size_t used = strlen(f->text);

    f->lines += what == ACCEL_ECORRUPT;
    snprintf(f->text + used, sizeof(f->text) - used, "%s; ", line);
}

/* Loads all of it as `rank`: refused, or every byte is right. */
static bool refused_or_right(void)
{
    const int rank = (int)draw(RANKS);
    accel_ckpt_t *c = NULL;
    bool good = true;
    struct state s;

    state_make_empty(&s, rank, RANKS);
    if (accel_ckpt_open(&c, dir, NULL) == ACCEL_OK &&
        accel_ckpt_read(c, s.box, s.boxes, NULL) == ACCEL_OK)
        good = state_wrong(&s, 2) == 0;
    accel_ckpt_close(c);
    state_free(&s);
    return good;
}

static int missed, misnamed, used;

static void look(enum way way, const char *name, const char *tensor)
{
    struct found f = { 0 };
    const accel_status_t st = accel_ckpt_verify(dir, note, &f, NULL);

    if ((st != ACCEL_ECORRUPT || f.lines == 0) && missed++ < 5)
        tap_diag("%s of %s, %s: %d %s", names[way], name, tensor ? tensor : "-", st,
                 f.text);
    if ((!strstr(f.text, name) || (tensor && !strstr(f.text, tensor))) &&
        misnamed++ < 5)
        tap_diag("%s of %s, %s: said %s", names[way], name, tensor ? tensor : "-",
                 f.text);
    used += !refused_or_right();
}

static void try_flip(void)
{
    /* a MANIFEST is small, and each of its bytes matters */
    const int f = draw(5) == 0 ? RANKS : (int)draw(RANKS), bit = (int)draw(8);
    char path[400];
    int64_t at;

    path_in(path, dir, f);
    at = draw(size_of(path));
    world_flip(path, at, bit);
    look(FLIP, file[f], f < RANKS ? tensor_at(f, at) : NULL);
    world_flip(path, at, bit);
}

static void try_pieces(void)
{
    char p[400], q[400];
    int64_t at[2];
    int f[2];

    two_pieces(f, at);
    path_in(p, dir, f[0]);
    path_in(q, dir, f[1]);
    exchange(p, at[0], q, at[1], CKPT_PIECE_BYTES);
    look(PIECES, file[f[0]], tensor_at(f[0], at[0]));
    look(PIECES, file[f[1]], tensor_at(f[1], at[1]));
    exchange(p, at[0], q, at[1], CKPT_PIECE_BYTES);
}

static void try_shards(void)
{
    char p[400], q[400];

    path_in(p, dir, 0);
    path_in(q, dir, 1);
    for (int i = 0; i < 2; i++) {
        take_away(p);
        if (rename(q, p) || rename(kept, q))
            abort();
        if (i == 0)
            look(SHARDS, file[draw(RANKS)], NULL);
    }
}

/* Something else in place of one file. */
static void try_instead(enum way way)
{
    /* a whole MANIFEST of another step is named by its directory, which it belies */
    const bool shard = way == OTHER_RUN || way == OTHER_STEP || way == HARD_LINK;
    const int f = (int)draw(shard ? RANKS : FILES);
    char path[400], from[400];

    path_in(path, dir, f);
    take_away(path);
    path_in(from, way == OTHER_RUN ? other : older, f);
    if (way == OTHER_STEP || way == OTHER_RUN)
        copy_file(from, path);
    else if (way == CUT || way == GROWN)
        copy_file(kept, path);
    if ((way == CUT && truncate(path, draw(size_of(path)))) ||
        (way == GROWN && truncate(path, size_of(path) + 1 + draw(5000))) ||
        (way == HARD_LINK && link(from, path)) ||
        (way == SYMLINK && symlink(kept, path)))
        abort();
    look(way, file[f], NULL);
    bring_back(path);
}

static void one_trial(enum way way)
{
    if (way == FLIP)
        try_flip();
    else if (way == PIECES)
        try_pieces();
    else if (way == SHARDS)
        try_shards();
    else
        try_instead(way);
}

int main(int argc, char **argv)
{
    const int trials = argc > 1 ? atoi(argv[1]) : 300;

    state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    world_tmpdir(root, "ckpt-damage");
    snprintf(other_root, sizeof(other_root), "%s/other", root);
    snprintf(other, sizeof(other), "%s/step_00000002", other_root);
    snprintf(dir, sizeof(dir), "%s/step_00000002", root);
    snprintf(older, sizeof(older), "%s/step_00000001", root);
    snprintf(kept, sizeof(kept), "%s/kept", root);
    save(root, 1, 1, "a run");
    save(root, 2, 2, "a run");
    save(other_root, 2, 3, "another run");
    if (accel_ckpt_open(&whole, dir, NULL))
        abort();
    for (int way = 0; way < WAYS; way++) {
        const int n = way == FLIP ? trials : 1 + trials / 50;

        missed = misnamed = used = 0;
        for (int i = 0; i < n; i++)
            one_trial(way);
        tap_is_int(missed, 0, "%s: %d found", names[way], n);
        tap_is_int(misnamed, 0, "%s: file and tensor are named", names[way]);
        tap_is_int(used, 0, "%s: no load has other bytes", names[way]);
    }
    tap_is_int(accel_ckpt_verify(dir, NULL, NULL, NULL), ACCEL_OK,
               "after all of it the checkpoint is as it was");
    accel_ckpt_close(whole);
    world_rmtree(root);
    return tap_done();
}
