/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening weights: a path in, a table of tensors over all shards out. Finds the file or
 * index, reads and checks every header, and compares the shards with the index. Never
 * reads data.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lfs_pointer.h"
#include "common/whole_io.h"
#include "st_internal.h"

/* The error for errno `error`: a missing file has a hint of its own. */
static accel_status_t fail_io(const char *where, int error, accel_error_t *err)
{
    if (error == ENOENT || error == ENOTDIR)
        return accel_fail_at(err, A0825, where,
                             "give a .safetensors file, its index, or a directory with "
                             "model.safetensors",
                             "no such file");
    return accel_fail_at(err, A0826, where, "check the disk and the file's permissions",
                         "cannot read: %s", strerror(error));
}

/* Opens a regular file; O_NONBLOCK so that a FIFO in its place does not hang.
 * *bytes_out is its size. *fd_out is -1 after an error. */
static accel_status_t open_file(int at, const char *name, const char *where,
                                int *fd_out, int64_t *bytes_out, accel_error_t *err)
{
    struct stat sb;
    int e = 0;

    *fd_out = TEMP_FAILURE_RETRY(openat(at, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (*fd_out < 0)
        return fail_io(where, errno, err);
    if (fstat(*fd_out, &sb) != 0)
        e = errno;
    else if (S_ISREG(sb.st_mode)) {
        *bytes_out = sb.st_size;
        return ACCEL_OK;
    }
    close(*fd_out);
    *fd_out = -1;
    return e ? fail_io(where, e, err)
             : accel_fail_at(err, A0826, where, "give a regular file",
                             "not a regular file");
}

/* Bytes [at, at + n) of fd in one malloc, with room for a NUL. */
static accel_status_t read_text(int fd, int64_t at, size_t n, const char *where,
                                char **text_out, accel_error_t *err)
{
    char *text = malloc(n + 1);
    ssize_t got;

    if (!text)
        return accel_fail_nomem(err, "the header of a safetensors file", n);
    got = pread_all(fd, text, n, at);
    if (got == (ssize_t)n) {
        *text_out = text;
        return ACCEL_OK;
    }
    free(text);
    return fail_io(where, got < 0 ? errno : EIO, err);
}

/* A clone without git-lfs holds pointers in place of large files. */
static accel_status_t refuse_pointer(int fd, const char *where, accel_error_t *err)
{
    char text[sizeof(LFS_POINTER)] = "";
    const ssize_t got = pread_all(fd, text, sizeof(text) - 1, 0);

    if (got < 0 || !is_lfs_pointer(text, (size_t)got))
        return ACCEL_OK;
    return accel_fail_at(err, A0825, where, LFS_POINTER_CURE, LFS_POINTER_TEXT);
}

/* The header: 8 bytes of length, little endian, and that many of JSON. The length is
 * checked against the file before it is allocated. */
static accel_status_t read_header(struct st_file *f, int64_t bytes, const char *where,
                                  accel_error_t *err)
{
    unsigned char head[8] = { 0 };
    uint64_t n = 0;
    accel_status_t st;

    ACCEL_CHECK(st, refuse_pointer(f->fd, where, err));
    if (bytes < (int64_t)sizeof(head) || pread_all(f->fd, head, 8, 0) != 8)
        return accel_fail_at(err, A0824, where, "give a file in safetensors format",
                             "the file is too short for a header: %lld bytes",
                             (long long)bytes);
    /* the length of the header, little endian */
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    /* before anything is allocated: n is any 64 bits */
    if (n > ST_HEADER_MAX || (int64_t)n > bytes - 8)
        return accel_fail_at(
            err, A0824, where, "give a file in safetensors format",
            "the header claims to have %llu bytes, %s", (unsigned long long)n,
            n > ST_HEADER_MAX ? "more than 100 million" : "more than the file");
    f->data_at = 8 + (int64_t)n;
    f->data_bytes = bytes - f->data_at;
    st = read_text(f->fd, 8, (size_t)n, where, &f->text, err);
    ACCEL_TRY(
        st, st_header_parse(&f->header, f->text, (size_t)n, f->data_bytes, where, err));
    if (!st)
        /* advice only: ranks read ranges of tensors front to back */
        posix_fadvise(f->fd, f->data_at, f->data_bytes, POSIX_FADV_SEQUENTIAL);
    return st;
}

/* One more file of s: `name` in directory `at`; `where` is its path in errors. What was
 * allocated belongs to s, also after an error. */
static accel_status_t add_file(struct accel_safetensors *s, int at, const char *name,
                               const char *where, accel_error_t *err)
{
    /* The list moves when it grows: no pointer into it is kept. */
    struct st_file *list =
                       reallocarray(s->file, (size_t)s->files + 1, sizeof(*s->file)),
                   *f;
    const char *last = strrchr(name, '/');
    int64_t bytes = 0;
    accel_status_t st;

    if (!list)
        return accel_fail_nomem(err, "the list of shards", sizeof(*list));
    s->file = list;
    f = &list[s->files++];
    /* counted in s->files already, so that closing s frees it */
    *f = (struct st_file){ .name = strdup(last ? last + 1 : name), .fd = -1 };
    if (!f->name)
        return accel_fail_nomem(err, "the list of shards", strlen(name));
    st = open_file(at, name, where, &f->fd, &bytes, err);
    return st ? st : read_header(f, bytes, where, err);
}

/* Of equal names, which are neighbours, the one that lies where the index says: a shard
 * may hold a stale copy. Without an index that says so (NULL: none at all) no tensor
 * may be in two files. */
static accel_status_t drop_stale(struct accel_safetensors *s, const struct st_index *x,
                                 accel_error_t *err)
{
    char shown[ST_SHOWN];
    size_t kept = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct st_tensor *t = &s->tensor[i];
        const char *file;

        if (kept == 0 || st_tensor_compare(&s->tensor[kept - 1], t) != 0) {
            s->tensor[kept++] = *t;
            continue;
        }
        file = x ? st_index_find(x, t->pub.name) : NULL;
        if (file && strcmp(file, t->pub.file) == 0)
            s->tensor[kept - 1] = *t;
        else if (!file || strcmp(file, s->tensor[kept - 1].pub.file) != 0)
            return accel_fail_at(err, A0824, s->path,
                                 "copy or download the shards again",
                                 "tensor %s is in both %s and %s",
                                 st_shown(t->pub.name, shown, sizeof(shown)),
                                 s->tensor[kept - 1].pub.file, t->pub.file);
    }
    s->count = kept;
    return ACCEL_OK;
}

/* The tables of all files as one; x NULL: there is no index. */
static accel_status_t join(struct accel_safetensors *s, const struct st_index *x,
                           accel_error_t *err)
{
    size_t n = 0;

    for (int f = 0; f < s->files; f++)
        n += s->file[f].header.count;
    s->tensor = calloc(n + 1, sizeof(*s->tensor));
    if (!s->tensor)
        return accel_fail_nomem(err, "the table of tensors", n * sizeof(*s->tensor));
    for (int f = 0; f < s->files; f++)
        for (size_t i = 0; i < s->file[f].header.count; i++) {
            struct st_tensor *t = &s->tensor[s->count++];

            *t = s->file[f].header.tensor[i];
            t->file = f;
            t->pub.file = s->file[f].name;
        }
    if (n)
        qsort(s->tensor, n, sizeof(*s->tensor), st_tensor_compare);
    return drop_stale(s, x, err);
}

/* ---- shards ---------------------------------------------------------------------- */

/* Names of the index's files, each once, sorted. *names_out is one malloc of pointers
 * into the index's text. */
static accel_status_t shard_names(const struct st_index *x, const char ***names_out,
                                  size_t *count_out, const char *where,
                                  accel_error_t *err)
{
    const char **name = calloc(x->count + 1, sizeof(*name));
    size_t n = 0;

    if (!name)
        return accel_fail_nomem(err, "the list of shards", x->count * sizeof(*name));
    for (size_t i = 0; i < x->count; i++)
        name[i] = x->entry[i].value;
    qsort(name, x->count, sizeof(*name), st_text_compare);
    for (size_t i = 0; i < x->count; i++)
        if (n == 0 || strcmp(name[n - 1], name[i]) != 0)
            name[n++] = name[i];
    *names_out = name;
    *count_out = n;
    if (n <= ST_SHARDS_MAX)
        return ACCEL_OK;
    free(name);
    return accel_fail_at(err, A0824, where, "copy or download the index again",
                         "the index names too many files: %zu", n);
}

/* Looks for all shards before any is opened: one message names the
 * missing ones, up to 8. */
static accel_status_t check_present(int dirfd, const char *const *name, size_t n,
                                    const char *where, accel_error_t *err)
{
    struct strbuf list = { 0 };
    char shown[ST_SHOWN];
    size_t missing = 0;
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < n; i++)
        if (faccessat(dirfd, name[i], F_OK, 0) != 0 && errno == ENOENT) {
            /* all are counted, the first few are named */
            if (missing++ < 8)
                strbuf_printf(&list, "%s%s", missing > 1 ? ", " : "",
                              st_shown(name[i], shown, sizeof(shown)));
        }
    if (missing)
        st = accel_fail_at(err, A0825, where, "copy or download the missing files",
                           "%zu of the %zu shards are missing: %s%s", missing, n,
                           list.s ? list.s : "", missing > 8 ? ", ..." : "");
    strbuf_free(&list);
    return st;
}

/* Every tensor of the index is in the file that it says. */
static accel_status_t check_map(const struct accel_safetensors *s,
                                const struct st_index *x, const char *where,
                                accel_error_t *err)
{
    char shown[ST_SHOWN];

    for (size_t i = 0; i < x->count; i++) {
        const accel_safetensors_tensor_t *t =
            accel_safetensors_find(s, x->entry[i].key);

        /* a stale index, or shards of another export */
        if (!t || strcmp(t->file, x->entry[i].value) != 0)
            return accel_fail_at(
                err, A0824, where, "copy or download the index and its shards again",
                "tensor %s is not in %s%s%s",
                st_shown(x->entry[i].key, shown, sizeof(shown)), x->entry[i].value,
                t ? ", but in " : "", t ? t->file : "");
    }
    return ACCEL_OK;
}

/* Opens the shards of index x, which lie in `dir`, and checks them against it. */
static accel_status_t open_shards(struct accel_safetensors *s, int dirfd,
                                  const struct st_index *x, const char *dir,
                                  const char *where, accel_error_t *err)
{
    const char **name = NULL;
    size_t n = 0;
    accel_status_t st;

    ACCEL_CHECK(st, shard_names(x, &name, &n, where, err));
    st = check_present(dirfd, name, n, where, err);
    for (size_t i = 0; i < n && !st; i++) {
        char shown[ST_SHOWN], at[PATH_MAX];

        snprintf(at, sizeof(at), "%s/%s", dir, st_shown(name[i], shown, sizeof(shown)));
        st = add_file(s, dirfd, name[i], at, err);
    }
    ACCEL_TRY(st, join(s, x, err));
    ACCEL_TRY(st, check_map(s, x, where, err));
    free(name);
    return st;
}

/* Reads the index at `path`, then its shards. They are opened relative to its
 * directory's descriptor. */
static accel_status_t open_index(struct accel_safetensors *s, const char *path,
                                 accel_error_t *err)
{
    struct st_index x = { 0 };
    char dir[PATH_MAX], *text = NULL, *slash;
    int64_t bytes = 0;
    int fd = -1, dirfd = -1;
    accel_status_t st = open_file(AT_FDCWD, path, path, &fd, &bytes, err);

    if (!st && bytes > ST_INDEX_MAX)
        st = accel_fail_at(err, A0824, path, "give the index of a model",
                           "the file is too long for an index: %lld bytes",
                           (long long)bytes);
    ACCEL_TRY(st, refuse_pointer(fd, path, err));
    ACCEL_TRY(st, read_text(fd, 0, (size_t)bytes, path, &text, err));
    ACCEL_TRY(st, st_index_parse(&x, text, (size_t)bytes, path, err));
    snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    /* "/x.json" lies in "/", "x.json" in "." */
    if (slash)
        slash[slash == dir] = '\0';
    else
        strcpy(dir, ".");
    if (!st) {
        dirfd = TEMP_FAILURE_RETRY(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        st = dirfd < 0 ? fail_io(dir, errno, err)
                       : open_shards(s, dirfd, &x, dir, path, err);
    }
    if (dirfd >= 0)
        close(dirfd);
    if (fd >= 0)
        close(fd);
    st_index_free(&x);
    free(text);
    return st;
}

/* ---- paths ----------------------------------------------------------------------- */

/* What to open for a directory, into buf[len]. Weights that exist only as pickles are
 * refused with a hint of their own: loading a pickle runs a program. */
static accel_status_t look_into(const char *dir, char *buf, size_t len,
                                accel_error_t *err)
{
    /* in this order: a single file wins over an index */
    static const char *const names[] = { ST_SINGLE, ST_INDEX };
    static const char *const pickled[] = { "pytorch_model.bin",
                                           "pytorch_model.bin.index.json" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        snprintf(buf, len, "%s/%s", dir, names[i]);
        if (access(buf, F_OK) == 0)
            return ACCEL_OK;
    }
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pickled); i++) {
        snprintf(buf, len, "%s/%s", dir, pickled[i]);
        if (access(buf, F_OK) == 0)
            return accel_fail_at(
                err, A0825, dir,
                "save the model again with transformers, which writes safetensors",
                "the only weights are in %s, which is code to execute, not data",
                pickled[i]);
    }
    return accel_fail_at(err, A0825, dir,
                         "give a .safetensors file, its index, or a directory with "
                         "model.safetensors",
                         "the directory has neither " ST_SINGLE " nor " ST_INDEX);
}

/* Does s end with `tail`? */
static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);

    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* A file is an index if its name ends with .json. */
accel_status_t accel_safetensors_open(accel_safetensors_t **weights_out,
                                      const char *path, accel_error_t *err)
{
    struct accel_safetensors *s;
    char file[PATH_MAX];
    struct stat sb;
    accel_status_t st = ACCEL_OK;

    /* room for the longest name that look_into appends */
    if (!path || !*path || strlen(path) + sizeof(ST_INDEX) + 1 > sizeof(file))
        return accel_fail(err, A0825, "give a file or a directory",
                          "the path is empty or too long");
    if (stat(path, &sb) != 0)
        return fail_io(path, errno, err);
    snprintf(file, sizeof(file), "%s", path);
    if (S_ISDIR(sb.st_mode))
        st = look_into(path, file, sizeof(file), err);
    if (st)
        return st;
    s = calloc(1, sizeof(*s));
    if (s)
        s->path = strdup(path);
    if (!s || !s->path)
        st = accel_fail_nomem(err, "the table of tensors", sizeof(*s));
    else if (ends_with(file, ".json"))
        st = open_index(s, file, err);
    else if (!(st = add_file(s, AT_FDCWD, file, file, err)))
        st = join(s, NULL, err);
    if (st)
        accel_safetensors_close(s);
    else
        *weights_out = s;
    return st;
}

void accel_safetensors_close(accel_safetensors_t *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->files; i++) {
        if (s->file[i].fd >= 0)
            close(s->file[i].fd);
        st_header_free(&s->file[i].header);
        free(s->file[i].text);
        free(s->file[i].name);
    }
    free(s->file);
    free(s->tensor);
    free(s->path);
    free(s);
}

size_t accel_safetensors_count(const accel_safetensors_t *s)
{
    return s->count;
}

const accel_safetensors_tensor_t *accel_safetensors_at(const accel_safetensors_t *s,
                                                       size_t i)
{
    return i < s->count ? &s->tensor[i].pub : NULL;
}

/* A key with nothing but the name is enough for st_tensor_compare. */
const accel_safetensors_tensor_t *accel_safetensors_find(const accel_safetensors_t *s,
                                                         const char *name)
{
    struct st_tensor key = { .pub = { .name = name } };
    struct st_tensor *t =
        s->count ? bsearch(&key, s->tensor, s->count, sizeof(key), st_tensor_compare)
                 : NULL;

    return t ? &t->pub : NULL;
}

const char *accel_safetensors_metadata(const accel_safetensors_t *s, const char *key)
{
    for (int f = 0; f < s->files; f++)
        for (size_t i = 0; i < s->file[f].header.metas; i++)
            if (strcmp(s->file[f].header.meta[i].key, key) == 0)
                return s->file[f].header.meta[i].value;
    return NULL;
}
