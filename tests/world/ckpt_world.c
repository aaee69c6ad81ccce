/* SPDX-License-Identifier: Apache-2.0
 *
 * Forked ranks over sockets (a star around rank 0) and the known test state.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/world/ckpt_world.h"

static accel_status_t io(int fd, void *buf, size_t bytes, bool out, accel_error_t *err)
{
    char *p = buf;

    while (bytes > 0) {
        ssize_t n = out ? send(fd, p, bytes, MSG_NOSIGNAL) : recv(fd, p, bytes, 0);

        if (n <= 0)
            return accel_fail(err, A0502, NULL, "a rank is gone");
        p += n;
        bytes -= (size_t)n;
    }
    return ACCEL_OK;
}

static accel_status_t w_broadcast(void *user, void *buf, size_t bytes, int root,
                                  accel_error_t *err)
{
    struct world *w = user;
    accel_status_t s = ACCEL_OK;

    if (w->rank != 0) {
        if (w->rank == root)
            s = io(w->fd[0], buf, bytes, true, err);
        return s || w->rank == root ? s : io(w->fd[0], buf, bytes, false, err);
    }
    if (root != 0)
        s = io(w->fd[root], buf, bytes, false, err);
    for (int r = 1; r < w->size && !s; r++)
        if (r != root)
            s = io(w->fd[r], buf, bytes, true, err);
    return s;
}

static accel_status_t w_max(void *user, int64_t *value, accel_error_t *err)
{
    struct world *w = user;
    accel_status_t s = ACCEL_OK;

    if (w->rank != 0)
        s = io(w->fd[0], value, sizeof(*value), true, err);
    for (int r = 1; w->rank == 0 && r < w->size && !s; r++) {
        int64_t v = 0;

        s = io(w->fd[r], &v, sizeof(v), false, err);
        *value = v > *value ? v : *value;
    }
    return s ? s : w_broadcast(w, value, sizeof(*value), 0, err);
}

static accel_status_t w_gather(void *user, const void *mine, size_t bytes, int root,
                               void **all, size_t *sizes, accel_error_t *err)
{
    struct world *w = user;
    accel_status_t s = ACCEL_OK;
    char *buf;
    size_t used = bytes;

    if (root != 0)
        return accel_fail(err, A0816, NULL, "gather to rank 0 only");
    if (w->rank != 0) {
        *all = NULL;
        s = io(w->fd[0], &bytes, sizeof(bytes), true, err);
        return s ? s : io(w->fd[0], (void *)mine, bytes, true, err);
    }
    buf = malloc(bytes + 1);
    memcpy(buf, mine, bytes);
    sizes[0] = bytes;
    for (int r = 1; r < w->size && !s; r++) {
        s = io(w->fd[r], &sizes[r], sizeof(size_t), false, err);
        if (s)
            break;
        buf = realloc(buf, used + sizes[r] + 1);
        s = io(w->fd[r], buf + used, sizes[r], false, err);
        used += sizes[r];
    }
    if (s)
        free(buf);
    else
        *all = buf;
    return s;
}

void world_start(struct world *w, int size)
{
    *w = (struct world){ .size = size };
    fflush(NULL);
    for (int r = 1; r < size; r++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
            abort();
        w->pid[r] = fork();
        if (w->pid[r] == 0) {
            for (int k = 1; k < r; k++)
                close(w->fd[k]);
            close(pair[0]);
            w->rank = r;
            w->fd[0] = pair[1];
            break;
        }
        close(pair[1]);
        w->fd[r] = pair[0];
    }
    w->coll = (accel_ckpt_coll_t){ w, w->rank, size, w_gather, w_broadcast, w_max };
}

int world_end(struct world *w, int status)
{
    int bad = status != 0;

    if (w->rank != 0)
        _exit(status);
    for (int r = 1; r < w->size; r++) {
        int st = 0;

        close(w->fd[r]);
        waitpid(w->pid[r], &st, 0);
        bad += st != 0;
    }
    return bad;
}

/* ---- state ----------------------------------------------------------------------- */

static const struct {
    const char *name;
    accel_dtype_t dtype;
    int ndim;
    int64_t shape[4];
} tensors[] = {
    { "model/wte.weight", ACCEL_F32, 2, { 257, 1031 } },
    { "model/h.0.attn.c_attn.weight", ACCEL_F32, 2, { 7, 13 } },
    { "model/h.0.attn.bias", ACCEL_BF16, 1, { 70001 } },
    { "model/h.0.cube", ACCEL_F32, 4, { 3, 5, 7, 11 } },
    { "model/scalar", ACCEL_F64, 0, { 0 } },
    { "model/one", ACCEL_I64, 1, { 1 } },
    { "model/wide", ACCEL_U8, 2, { 3, 1500007 } },
    { "optim/wte.weight/exp_avg", ACCEL_F32, 2, { 257, 1031 } },
    { "optim/wte.weight/step", ACCEL_I32, 1, { 3 } },
};

static unsigned char known_byte(size_t tensor, int64_t byte, int64_t step)
{
    uint64_t x =
        (uint64_t)byte * 0x9e3779b97f4a7c15u + tensor * 77 + (uint64_t)step * 131;

    return (unsigned char)(x ^ x >> 23 ^ x >> 47);
}

/* Where a box begins in the bytes of the whole tensor. Boxes of a flat range are whole
 * there: their byte i is this plus i. */
static int64_t first_byte(const accel_ckpt_box_t *b)
{
    int64_t at = 0;

    for (int d = 0; d < b->ndim; d++)
        at = at * b->global_shape[d] + b->offset[d];
    return at * (int64_t)accel_dtype_bytes(b->dtype);
}

static int64_t box_bytes(const accel_ckpt_box_t *b)
{
    int64_t n = (int64_t)accel_dtype_bytes(b->dtype);

    for (int d = 0; d < b->ndim; d++)
        n *= b->shape[d];
    return n;
}

static size_t tensor_of(const accel_ckpt_box_t *b)
{
    for (size_t t = 0; t < ACCEL_ARRAY_SIZE(tensors); t++)
        if (strcmp(tensors[t].name, b->name) == 0)
            return t;
    return 0;
}

void state_make_empty(struct state *s, int rank, int size)
{
    size_t at = 0;

    *s = (struct state){ 0 };
    s->box = calloc(ACCEL_ARRAY_SIZE(tensors) * 8, sizeof(*s->box));
    for (size_t t = 0; t < ACCEL_ARRAY_SIZE(tensors); t++) {
        accel_ckpt_box_t cut[2 * ACCEL_CKPT_MAX_DIMS] = { 0 };
        int64_t n = 1, each;
        int k;

        for (int d = 0; d < tensors[t].ndim; d++)
            n *= tensors[t].shape[d];
        each = (n + size - 1) / size;
        k = accel_ckpt_boxes_of_range(tensors[t].ndim, tensors[t].shape, rank * each,
                                      (rank + 1) * each, cut);
        for (int i = 0; i < k; i++) {
            accel_ckpt_box_t *b = &s->box[s->boxes++];

            *b = cut[i];
            b->name = tensors[t].name;
            b->dtype = tensors[t].dtype;
            b->ndim = tensors[t].ndim;
            memcpy(b->global_shape, tensors[t].shape, sizeof(tensors[t].shape));
            s->bytes += (size_t)box_bytes(b);
        }
    }
    s->memory = calloc(1, s->bytes + 1);
    for (size_t i = 0; i < s->boxes; i++) {
        s->box[i].data = s->memory + at;
        at += (size_t)box_bytes(&s->box[i]);
    }
}

void state_make(struct state *s, int rank, int size, int64_t step)
{
    state_make_empty(s, rank, size);
    for (size_t i = 0; i < s->boxes; i++) {
        unsigned char *data = s->box[i].data;
        int64_t bytes = box_bytes(&s->box[i]), first = first_byte(&s->box[i]);
        size_t tensor = tensor_of(&s->box[i]);

        for (int64_t k = 0; k < bytes; k++)
            data[k] = known_byte(tensor, first + k, step);
    }
}

long state_wrong(const struct state *s, int64_t step)
{
    long wrong = 0;

    for (size_t i = 0; i < s->boxes; i++) {
        const unsigned char *data = s->box[i].data;
        int64_t bytes = box_bytes(&s->box[i]), first = first_byte(&s->box[i]);
        size_t tensor = tensor_of(&s->box[i]);

        for (int64_t k = 0; k < bytes; k++)
            wrong += data[k] != known_byte(tensor, first + k, step);
    }
    return wrong;
}

void state_free(struct state *s)
{
    free(s->box);
    free(s->memory);
}

accel_status_t world_save(const struct world *w, const char *root, int64_t step,
                          int keep, accel_error_t *err)
{
    char text[64];
    accel_ckpt_blob_t blobs[2] = { { "trainer", text, 0 }, { "rng", "\0\1\2", 3 } };
    accel_ckpt_save_t s = {
        sizeof(s),       .root = root,         .step = step,
        .owner = "17.0", .run_id = "test run", .sharding = "FULL_SHARD",
        .blobs = blobs,  .blob_count = 2,      .keep = keep
    };
    accel_status_t st;
    struct state state;

    snprintf(text, sizeof(text), "step %lld", (long long)step);
    blobs[0].bytes = strlen(text) + 1;
    state_make(&state, w->rank, w->size, step);
    s.boxes = state.box;
    s.box_count = state.boxes;
    st = accel_ckpt_save(&s, w->size > 1 ? &w->coll : NULL, NULL, err);
    state_free(&state);
    return st;
}

int64_t world_load_newest(const char *root, int rank, int size, accel_error_t *err)
{
    accel_ckpt_info_t *list = NULL;
    accel_ckpt_t *c = NULL;
    int64_t step = -1;
    size_t n = 0, i = 0, bytes = 0;
    struct state state;
    char path[400], text[64];
    const char *blob;

    if (accel_ckpt_list(root, &list, &n, err))
        return -1;
    while (i < n && !list[i].complete)
        i++;
    if (i < n) {
        snprintf(path, sizeof(path), "%s/%s", root, list[i].name);
        state_make_empty(&state, rank, size);
        if (accel_ckpt_open(&c, path, err) == ACCEL_OK &&
            accel_ckpt_read(c, state.box, state.boxes, err) == ACCEL_OK &&
            state_wrong(&state, list[i].step) == 0)
            step = list[i].step;
        snprintf(text, sizeof(text), "step %lld", (long long)step);
        blob = c ? accel_ckpt_blob(c, "trainer", &bytes) : NULL;
        if (!blob || bytes != strlen(text) + 1 || memcmp(blob, text, bytes) != 0)
            step = -1;
        accel_ckpt_close(c);
        state_free(&state);
    }
    free(list);
    return step;
}

/* ---- a state of a few bytes ------------------------------------------------------ */

#define NUMBERS 300

accel_status_t numbers_save(const struct world *w, const accel_ckpt_save_t *part,
                            accel_error_t *err)
{
    int64_t data[NUMBERS], each = NUMBERS / w->size;
    accel_ckpt_box_t box = {
        .name = "model/numbers", .dtype = ACCEL_I64, .ndim = 1, .data = data
    };
    accel_ckpt_save_t s = *part;

    s.owner = s.owner ? s.owner : "17.0";
    s.run_id = s.run_id ? s.run_id : "numbers";
    s.sharding = "FULL_SHARD";
    s.boxes = &box;
    s.box_count = 1;
    box.global_shape[0] = NUMBERS;
    box.shape[0] = each;
    box.offset[0] = w->rank * each;
    for (int64_t i = 0; i < each; i++)
        data[i] = s.step * 1000 + box.offset[0] + i;
    return accel_ckpt_save(&s, w->size > 1 ? &w->coll : NULL, NULL, err);
}

accel_status_t numbers_save_alone(const char *root, int64_t step, int keep,
                                  const char *owner, accel_error_t *err)
{
    const struct world one = { .size = 1 };
    const accel_ckpt_save_t s = { sizeof(s), .root = root, .step = step, .keep = keep,
                                  .owner = owner };

    return numbers_save(&one, &s, err);
}

int64_t numbers_load(const char *root)
{
    int64_t data[NUMBERS], step = -1;
    accel_ckpt_box_t box = { .name = "model/numbers",
                             .dtype = ACCEL_I64,
                             .ndim = 1,
                             .global_shape = { NUMBERS },
                             .shape = { NUMBERS },
                             .data = data };
    accel_ckpt_info_t *list = NULL;
    accel_ckpt_t *c = NULL;
    size_t n = 0, i = 0;

    if (accel_ckpt_list(root, &list, &n, NULL))
        return -2;
    while (i < n && !list[i].complete)
        i++;
    if (i < n) {
        char path[700];

        snprintf(path, sizeof(path), "%s/%s", root, list[i].name);
        step = accel_ckpt_open(&c, path, NULL) || accel_ckpt_read(c, &box, 1, NULL)
                   ? -2
                   : list[i].step;
        for (int64_t k = 0; step >= 0 && k < NUMBERS; k++)
            if (data[k] != step * 1000 + k)
                step = -3;
        accel_ckpt_close(c);
    }
    free(list);
    return step;
}

/* ---- a state of one number ------------------------------------------------------- */

accel_ckpt_box_t value_box(double *value)
{
    return (accel_ckpt_box_t){ .name = "model/w",
                               .dtype = ACCEL_F64,
                               .ndim = 1,
                               .global_shape = { 1 },
                               .shape = { 1 },
                               .data = value };
}

double value_in(const char *root, const char *name)
{
    double got = -1;
    const accel_ckpt_box_t box = value_box(&got);
    accel_ckpt_t *c = NULL;
    char dir[600];

    snprintf(dir, sizeof(dir), "%s/%s", root, name);
    if (accel_ckpt_open(&c, dir, NULL) || accel_ckpt_read(c, &box, 1, NULL))
        got = -1;
    accel_ckpt_close(c);
    return got;
}

bool world_is_shard(int fd)
{
    char path[64], to[400] = "";
    size_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, to, sizeof(to) - 1) < 0)
        return false;
    n = strlen(to);
    return n > 3 && strcmp(to + n - 3, ".h5") == 0;
}

void world_tmpdir(char out[256], const char *name)
{
    const char *base = getenv("TMPDIR");

    snprintf(out, 256, "%s/%s.XXXXXX", base && base[0] ? base : "/tmp", name);
    if (!mkdtemp(out))
        abort();
}

static int remove_one(const char *path, const struct stat *st, int flag,
                      struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void world_rmtree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void world_flip(const char *path, int64_t at, int bit)
{
    unsigned char c = 0;
    int fd = open(path, O_RDWR);

    if (fd < 0 || pread(fd, &c, 1, at) != 1)
        abort();
    c ^= (unsigned char)(1 << bit);
    if (pwrite(fd, &c, 1, at) != 1)
        abort();
    close(fd);
}

const char *world_output(const char *fmt, ...)
{
    static char text[2000];
    char cmd[800];
    size_t n = 0;
    va_list ap;
    FILE *p;

    va_start(ap, fmt);
    vsnprintf(cmd, sizeof(cmd), fmt, ap);
    va_end(ap);
    p = popen(cmd, "r");
    if (p) {
        n = fread(text, 1, sizeof(text) - 1, p);
        pclose(p);
    }
    text[n] = '\0';
    return text;
}

int world_names_in(const char *dir, const char *what)
{
    const char *count = world_output("ls -A '%s' | grep -c '%s'", dir, what);

    return *count ? atoi(count) : -1;
}
