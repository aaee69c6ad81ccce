/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing weights. In: names and shapes at once, then values in any order. Out: one
 * file, or shards with their index. The whole layout is known before the first value,
 * so values go straight to their place. Files appear by rename, the index last.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "common/whole_io.h"
#include "st_internal.h"

/* elements converted at a time */
#define PIECE_ELEMS (128 << 10)

/* An entry, and where it goes. */
struct out_tensor {
    char *name;
    int ndim;
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    const struct st_dtype *dtype;
    /* begin: byte in the data of its shard */
    int64_t elems, begin;
    /* elements so far; must be elems at the commit */
    int64_t written;
    int shard;
};

/* A file in progress; fd is -1 until it is created. */
struct out_shard {
    char name[48];
    int fd;
    bool published; /* under its final name */
    /* where its data begins, and how much there is */
    int64_t data_at, bytes;
};

/* Everything of one export. The files exist, under temporary names and with their final
 * size, from accel_safetensors_create on. */
struct accel_safetensors_writer {
    char *dir;
    int dirfd;
    const struct st_dtype *dtype;
    struct out_tensor *tensor;
    size_t count;
    struct out_shard *shard;
    int shards;
    bool committed;
    /* the directory is of this writer: it goes again if it stays empty */
    bool made;
    /* PIECE_ELEMS in an entry's dtype, then as many floats */
    char *buffer;
};

/* The error for errno, which is read first. */
static accel_status_t fail_write(const struct accel_safetensors_writer *w,
                                 const char *name, const char *what, accel_error_t *err)
{
    char where[256];
    int e = errno;

    snprintf(where, sizeof(where), "%.150s/%s", w->dir, name);
    return accel_fail_at(err, A0829, where,
                         "check the disk, the quota and the permissions", "%s: %s",
                         what, strerror(e));
}

/* ".NAME.tmp": the name of a file until it is whole. */
static void temporary(const char *name, char name_out[80])
{
    snprintf(name_out, 80, ".%.70s.tmp", name);
}

/* May float32 values become elements of this dtype? */
static bool takes_floats(const struct st_dtype *d)
{
    return st_is_float(d) && d->bits <= 32;
}

/* ---- layout ---------------------------------------------------------------------- */

/* Copies an entry. elems * 64 fits an int64, so later products cannot overflow. */
static accel_status_t take_entry(struct accel_safetensors_writer *w,
                                 const accel_safetensors_entry_t *e, accel_error_t *err)
{
    struct out_tensor *t = &w->tensor[w->count];
    char shown[ST_SHOWN];
    bool good = e->name && e->ndim >= 0 && e->ndim <= ACCEL_CKPT_MAX_DIMS;

    t->elems = 1;
    t->dtype = e->dtype ? st_dtype_find(e->dtype) : w->dtype;
    good = good && t->dtype && t->dtype->bits >= 8;
    for (int d = 0; good && d < e->ndim; d++) {
        good = e->shape[d] >= 0 &&
               !__builtin_mul_overflow(t->elems, e->shape[d], &t->elems) &&
               t->elems <= INT64_MAX / 64;
        t->shape[d] = e->shape[d];
    }
    if (!good)
        return accel_fail_at(err, A0815, w->dir, "see accel_safetensors.h",
                             "tensor %s has an invalid shape or dtype",
                             e->name ? st_shown(e->name, shown, sizeof(shown)) : "");
    t->ndim = e->ndim;
    t->name = strdup(e->name);
    if (!t->name)
        return accel_fail_nomem(err, "the table of tensors", strlen(e->name));
    w->count++;
    return ACCEL_OK;
}

/* Each name once, and none that the format uses itself. */
static accel_status_t check_names(const struct accel_safetensors_writer *w,
                                  accel_error_t *err)
{
    const char **name = calloc(w->count + 1, sizeof(*name));
    accel_status_t st = ACCEL_OK;
    char shown[ST_SHOWN];

    if (!name)
        return accel_fail_nomem(err, "the table of tensors", w->count * sizeof(*name));
    for (size_t i = 0; i < w->count; i++)
        name[i] = w->tensor[i].name;
    qsort(name, w->count, sizeof(*name), st_text_compare);
    for (size_t i = 0; i < w->count && !st; i++)
        if ((i && strcmp(name[i - 1], name[i]) == 0) ||
            strcmp(name[i], "__metadata__") == 0)
            st = accel_fail_at(err, A0815, w->dir, "give each tensor a different name",
                               "tensor %s appears twice, or its name is reserved",
                               st_shown(name[i], shown, sizeof(shown)));
    free(name);
    return st;
}

/* Places tensors in the order of the entries; a shard ends before the tensor that would
 * exceed the limit. A single tensor larger than that has a shard of its own. */
static accel_status_t lay_out(struct accel_safetensors_writer *w, int64_t limit,
                              accel_error_t *err)
{
    int64_t at = 0;
    int shard = 0;

    for (size_t i = 0; i < w->count; i++) {
        struct out_tensor *t = &w->tensor[i];
        int64_t bytes = t->elems * (t->dtype->bits / 8);

        /* at > 0: never an empty shard in front of a large tensor */
        if (limit > 0 && at > 0 && bytes > limit - at) {
            at = 0;
            shard++;
        }
        t->shard = shard;
        t->begin = at;
        if (__builtin_add_overflow(at, bytes, &at))
            /* too large in total: refused below */
            shard = ST_SHARDS_MAX;
    }
    w->shards = shard + 1;
    if (w->shards > ST_SHARDS_MAX)
        return accel_fail_at(err, A0815, w->dir, "allow larger shards",
                             "the weights need more than %d files", ST_SHARDS_MAX);
    w->shard = calloc((size_t)w->shards, sizeof(*w->shard));
    if (!w->shard)
        return accel_fail_nomem(err, "the table of shards",
                                (size_t)w->shards * sizeof(*w->shard));
    for (int i = 0; i < w->shards; i++) {
        w->shard[i].fd = -1;
        if (w->shards == 1)
            strcpy(w->shard[i].name, ST_SINGLE);
        else
            snprintf(w->shard[i].name, sizeof(w->shard[i].name),
                     "model-%05d-of-%05d.safetensors", i + 1, w->shards);
    }
    for (size_t i = 0; i < w->count; i++)
        w->shard[w->tensor[i].shard].bytes +=
            w->tensor[i].elems * (w->tensor[i].dtype->bits / 8);
    return ACCEL_OK;
}

/* A JSON text; UTF-8 is passed on as it is. */
static void put_text(struct strbuf *b, const char *s)
{
    strbuf_append(b, "\"", 1);
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\')
            strbuf_printf(b, "\\u%04x", (unsigned char)*s);
        else
            strbuf_append(b, s, 1);
    strbuf_append(b, "\"", 1);
}

/* The header of a shard, padded with blanks to a multiple of 8 bytes. */
static void put_header(const struct accel_safetensors_writer *w, int shard,
                       struct strbuf *b)
{
    strbuf_printf(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < w->count; i++) {
        const struct out_tensor *t = &w->tensor[i];

        if (t->shard != shard)
            continue;
        strbuf_append(b, ",", 1);
        put_text(b, t->name);
        strbuf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype->name);
        for (int d = 0; d < t->ndim; d++)
            strbuf_printf(b, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        strbuf_printf(b, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin,
                      (long long)(t->begin + t->elems * (t->dtype->bits / 8)));
    }
    strbuf_append(b, "}", 1);
    /* a strbuf that ran out of memory does not grow: no endless loop */
    while (b->len % 8 && !b->failed)
        strbuf_append(b, " ", 1);
}

/* Creates a file under its temporary name; one that a crash left is removed first. The
 * descriptor, or -1 with errno. */
static int open_new(int dirfd, const char *name)
{
    char tmp[80];

    temporary(name, tmp);
    if (unlinkat(dirfd, tmp, 0) != 0 && errno != ENOENT)
        return -1;
    return TEMP_FAILURE_RETRY(
        openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
}

/* Creates a shard with its header and its final size. */
static accel_status_t open_shard(struct accel_safetensors_writer *w, int i,
                                 accel_error_t *err)
{
    struct out_shard *s = &w->shard[i];
    struct strbuf b = { 0 };
    unsigned char head[8];
    accel_status_t st = ACCEL_OK;

    put_header(w, i, &b);
    if (b.failed || b.len > ST_HEADER_MAX) {
        strbuf_free(&b);
        return accel_fail_nomem(err, "the header of the weights", ST_HEADER_MAX);
    }
    /* little endian, whatever the machine */
    for (int k = 0; k < 8; k++)
        head[k] = (unsigned char)(b.len >> 8 * k);
    s->data_at = 8 + (int64_t)b.len;
    s->fd = open_new(w->dirfd, s->name);
    /* ftruncate makes the file as long as it will be; what is not
     * written yet reads as 0 */
    if (s->fd < 0 || pwrite_all(s->fd, head, 8, 0) ||
        pwrite_all(s->fd, b.s, b.len, 8) ||
        ftruncate(s->fd, s->data_at + s->bytes) != 0)
        st = fail_write(w, s->name, "cannot begin the file", err);
    strbuf_free(&b);
    return st;
}

/* ---- directory ------------------------------------------------------------------- */

/* Creates the directory if need be, one level only: a typo in the path must not create
 * a tree. One that holds weights already is refused. */
static accel_status_t open_dir(struct accel_safetensors_writer *w, accel_error_t *err)
{
    static const char *const taken[] = { ST_SINGLE, ST_INDEX };
    accel_status_t st;

    /* one that is there is fine if it holds no weights */
    w->made = mkdir(w->dir, 0777) == 0;
    if (!w->made && errno != EEXIST)
        return accel_fail_at(err, A0828, w->dir,
                             "check the permissions of its parent directories",
                             "cannot create the directory: %s", strerror(errno));
    ACCEL_CHECK(st, path_open_dir(w->dir, &w->dirfd, err));
    if (w->dirfd < 0)
        return accel_fail_at(err, A0828, w->dir, "give a directory",
                             "cannot open the directory: %s", strerror(errno));
    /* a dangling link counts as taken as well */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(taken); i++)
        if (faccessat(w->dirfd, taken[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return accel_fail_at(err, A0828, w->dir,
                                 "give a new directory, or move the old weights away",
                                 "%s already exists and is not replaced", taken[i]);
    return ACCEL_OK;
}

/* Nothing is made on disk before all entries are checked. */
accel_status_t accel_safetensors_create(accel_safetensors_writer_t **writer_out,
                                        const char *dir, const char *dtype,
                                        const accel_safetensors_entry_t *entry,
                                        size_t n, int64_t shard_bytes,
                                        accel_error_t *err)
{
    struct accel_safetensors_writer *w = calloc(1, sizeof(*w));
    accel_status_t st = ACCEL_OK;

    /* a NULL among these is looked at below; writer_close frees the rest */
    if (w) {
        w->dirfd = -1;
        w->dir = strdup(dir);
        w->tensor = calloc(n + 1, sizeof(*w->tensor));
        w->buffer = malloc(2 * PIECE_ELEMS * sizeof(float));
        w->dtype = st_dtype_find(dtype);
    }
    if (!w || !w->dir || !w->tensor || !w->buffer)
        st = accel_fail_nomem(err, "the weights to write", n * sizeof(*w->tensor));
    else if (!w->dtype || !takes_floats(w->dtype))
        st = accel_fail_at(err, A0815, dir, "use F32, BF16 or F16",
                           "weights cannot be written as %.20s", dtype);
    for (size_t i = 0; i < n && !st; i++)
        st = take_entry(w, &entry[i], err);
    ACCEL_TRY(st, check_names(w, err));
    ACCEL_TRY(st, lay_out(w, shard_bytes, err));
    ACCEL_TRY(st, open_dir(w, err));
    for (int i = 0; !st && i < w->shards; i++)
        st = open_shard(w, i, err);
    if (st)
        accel_safetensors_writer_close(w);
    else
        *writer_out = w;
    return st;
}

/* ---- values ---------------------------------------------------------------------- */

/* count is compared by subtraction: begin + count of a wrong call may overflow.
 * `floats`: the values are float32, to be rounded. */
static accel_status_t check_range(struct accel_safetensors_writer *w, size_t i,
                                  int64_t begin, int64_t count, bool floats,
                                  accel_error_t *err)
{
    bool inside = i < w->count && begin >= 0 && count >= 0 &&
                  begin <= w->tensor[i].elems && count <= w->tensor[i].elems - begin;

    if (inside && floats && !takes_floats(w->tensor[i].dtype))
        return accel_fail_at(err, A0815, w->dir, "use accel_safetensors_write_stored",
                             "entry %zu is %s: it takes no float32 values", i,
                             w->tensor[i].dtype->name);
    if (inside)
        return ACCEL_OK;
    return accel_fail_at(err, A0815, w->dir, "stay within the tensor",
                         "entry %zu of %zu has no elements %lld to %lld", i, w->count,
                         (long long)begin, (long long)(begin + count));
}

/* Converts at most PIECE_ELEMS values and writes them from element `first` on. */
static accel_status_t st_put_values(struct accel_safetensors_writer *w,
                                    const struct out_tensor *t, int64_t first,
                                    int64_t n, const float *values, accel_error_t *err)
{
    const struct out_shard *s = &w->shard[t->shard];
    int64_t size = t->dtype->bits / 8;

    st_from_f32(w->buffer, values, (size_t)n, t->dtype);
    if (pwrite_all(s->fd, w->buffer, (size_t)(n * size),
                   s->data_at + t->begin + first * size))
        return fail_write(w, s->name, "cannot write", err);
    return ACCEL_OK;
}

accel_status_t accel_safetensors_write(accel_safetensors_writer_t *w, size_t i,
                                       int64_t begin, int64_t count,
                                       const float *values, accel_error_t *err)
{
    accel_status_t st = check_range(w, i, begin, count, true, err);

    /* in pieces that fit the buffer */
    for (int64_t k = 0; k < count && !st; k += PIECE_ELEMS)
        st = st_put_values(w, &w->tensor[i], begin + k,
                           count - k < PIECE_ELEMS ? count - k : PIECE_ELEMS,
                           values + k, err);
    if (!st)
        w->tensor[i].written += count;
    return st;
}

accel_status_t accel_safetensors_write_stored(accel_safetensors_writer_t *w, size_t i,
                                              int64_t begin, int64_t count,
                                              const void *values, accel_error_t *err)
{
    accel_status_t st = check_range(w, i, begin, count, false, err);
    const struct out_tensor *t = st ? NULL : &w->tensor[i];

    if (st || count == 0)
        return st;
    if (pwrite_all(
            w->shard[t->shard].fd, values, (size_t)(count * (t->dtype->bits / 8)),
            w->shard[t->shard].data_at + t->begin + begin * (t->dtype->bits / 8)))
        return fail_write(w, w->shard[t->shard].name, "cannot write", err);
    w->tensor[i].written += count;
    return ACCEL_OK;
}

/* Each stored row gets the values of n columns, collected with a stride of R into the
 * float half of the buffer. */
accel_status_t accel_safetensors_write_transposed(accel_safetensors_writer_t *w,
                                                  size_t i, int64_t begin,
                                                  int64_t count, const float *values,
                                                  accel_error_t *err)
{
    accel_status_t st;
    float *row = (float *)(void *)w->buffer + PIECE_ELEMS;
    struct out_tensor *t;
    int64_t rows, cols, c0, n;

    ACCEL_CHECK(st, check_range(w, i, begin, count, true, err));
    t = &w->tensor[i];
    rows = t->shape[0];
    if (t->ndim != 2 || (rows && (begin % rows || count % rows)))
        return accel_fail_at(err, A0815, w->dir, "write whole rows of a matrix",
                             "entry %zu: elements %lld to %lld are not whole rows", i,
                             (long long)begin, (long long)(begin + count));
    if (count == 0)
        return ACCEL_OK;
    /* c0: the first stored column that these values are */
    cols = t->shape[1];
    c0 = begin / rows;
    n = count / rows; /* columns of the stored matrix */
    /* stored row r, columns c0 .. c0 + n */
    for (int64_t r = 0; r < rows && !st; r++)
        for (int64_t c = 0; c < n && !st; c += PIECE_ELEMS) {
            int64_t m = n - c < PIECE_ELEMS ? n - c : PIECE_ELEMS;

            for (int64_t k = 0; k < m; k++)
                row[k] = values[(c + k) * rows + r];
            st = st_put_values(w, t, r * cols + c0 + c, m, row, err);
        }
    if (!st)
        t->written += count;
    return st;
}

/* ---- commit ---------------------------------------------------------------------- */

/* Gives a file its final name. */
static accel_status_t publish(struct accel_safetensors_writer *w, const char *name,
                              accel_error_t *err)
{
    char tmp[80];

    temporary(name, tmp);
    if (renameat(w->dirfd, tmp, w->dirfd, name) != 0)
        return fail_write(w, name, "cannot rename", err);
    return ACCEL_OK;
}

/* A small text file, durable before it has its name. */
static accel_status_t put_file(struct accel_safetensors_writer *w, const char *name,
                               const char *text, size_t len, accel_error_t *err)
{
    int fd = open_new(w->dirfd, name);
    bool good = fd >= 0 && pwrite_all(fd, text, len, 0) == 0 && fsync(fd) == 0;
    accel_status_t st = good ? ACCEL_OK : fail_write(w, name, "cannot write", err);
    char tmp[80];

    /* some network file systems report a failed write only here */
    if (fd >= 0 && close(fd) != 0 && good)
        st = fail_write(w, name, "cannot write", err);
    ACCEL_TRY(st, publish(w, name, err));
    temporary(name, tmp);
    if (st)
        unlinkat(w->dirfd, tmp, 0);
    return st;
}

/* The index of the shards, in the form that transformers writes. */
static accel_status_t put_index(struct accel_safetensors_writer *w, accel_error_t *err)
{
    struct strbuf b = { 0 };
    int64_t total = 0;
    accel_status_t st;

    for (int i = 0; i < w->shards; i++)
        total += w->shard[i].bytes;
    strbuf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n",
                  (long long)total);
    /* every tensor, in the order of the entries */
    strbuf_printf(&b, "  \"weight_map\": {\n");
    for (size_t i = 0; i < w->count; i++) {
        strbuf_printf(&b, "    ");
        put_text(&b, w->tensor[i].name);
        strbuf_printf(&b, ": \"%s\"%s\n", w->shard[w->tensor[i].shard].name,
                      i + 1 < w->count ? "," : "");
    }
    strbuf_printf(&b, "  }\n}\n");
    /* b.failed covers all appends: one look at the end is enough */
    st = b.failed ? accel_fail_nomem(err, "the index of the weights", b.cap)
                  : put_file(w, ST_INDEX, b.s, b.len, err);
    strbuf_free(&b);
    return st;
}

/* Takes back the names of a commit that failed: another one to the same directory would
 * be refused. What leads readers to the others goes first. */
static void withdraw(const struct accel_safetensors_writer *w)
{
    bool all = w->shards > 1;

    for (int i = 0; i < w->shards; i++)
        all = all && w->shard[i].published;
    if (all)
        unlinkat(w->dirfd, ST_INDEX, 0);
    for (int i = 0; i < w->shards; i++)
        if (w->shard[i].published)
            unlinkat(w->dirfd, w->shard[i].name, 0);
}

/* The name of the new directory. -1 with errno. */
static int sync_made(const struct accel_safetensors_writer *w)
{
    errno = path_sync_name(w->dir);
    return errno ? -1 : 0;
}

/* Readers start from the index or the single file, so that these appear last. All data
 * is durable before the first rename. */
accel_status_t accel_safetensors_commit(accel_safetensors_writer_t *w, const char *name,
                                        const char *text, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    char shown[ST_SHOWN];

    for (size_t i = 0; i < w->count; i++)
        if (w->tensor[i].written != w->tensor[i].elems)
            return accel_fail_at(err, A0815, w->dir, "write every element once",
                                 "tensor %s: %lld of %lld elements were written",
                                 st_shown(w->tensor[i].name, shown, sizeof(shown)),
                                 (long long)w->tensor[i].written,
                                 (long long)w->tensor[i].elems);
    /* durable before any name appears */
    for (int i = 0; i < w->shards && !st; i++)
        if (fsync(w->shard[i].fd) != 0)
            st = fail_write(w, w->shard[i].name, "cannot write", err);
    if (!st && name)
        st = put_file(w, name, text, strlen(text), err);
    for (int i = 0; i < w->shards && !st; i++) {
        st = publish(w, w->shard[i].name, err);
        w->shard[i].published = !st;
    }
    if (!st && w->shards > 1)
        st = put_index(w, err);
    if (!st && (fsync(w->dirfd) != 0 || (w->made && sync_made(w) != 0)))
        st = fail_write(w, "", "cannot write the directory", err);
    /* from here on writer_close removes nothing */
    w->committed = !st;
    if (st)
        withdraw(w);
    return st;
}

/* Before the commit succeeded, temporary names are removed. */
void accel_safetensors_writer_close(accel_safetensors_writer_t *w)
{
    char tmp[80];

    if (!w)
        return;
    for (int i = 0; w->shard && i < w->shards; i++) {
        temporary(w->shard[i].name, tmp);
        if (w->shard[i].fd >= 0) {
            close(w->shard[i].fd);
            if (!w->committed)
                unlinkat(w->dirfd, tmp, 0);
        }
    }
    for (size_t i = 0; i < w->count; i++)
        free(w->tensor[i].name);
    if (w->dirfd >= 0)
        close(w->dirfd);
    if (w->made && !w->committed)
        (void)rmdir(w->dir);
    free(w->tensor);
    free(w->shard);
    free(w->buffer);
    free(w->dir);
    free(w);
}
