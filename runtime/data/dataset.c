/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a dataset: a path in; checked and opened files with their place in the token
 * stream out. Reads headers, and enough of token files to know the vocabulary. Never
 * writes, and follows nothing but regular files.
 */
#include "common/lfs_pointer.h"
#include "data/data_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* bytes read at most to find the vocabulary */
#define SCAN_MAX_BYTES ((int64_t)256 << 20)

/* By the ending of the name: text has no mark of its own. */
static bool is_token_file(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* The hint depends on what the user can do about it. EMFILE means too many
 * data files. */
accel_status_t data_fail_errno(accel_error_t *err, const char *path, const char *what)
{
    int e = errno;
    enum message code = e == ENOENT || e == ENOTDIR  ? A0701
                        : e == EACCES || e == EPERM  ? A0702
                        : e == EMFILE || e == ENFILE ? A0710
                                                     : A0703;
    const char *hint = code == A0701   ? "check the path of the data"
                       : code == A0702 ? "give this user read permission"
                       : code == A0710
                           ? "merge the files into fewer, or raise ulimit -n"
                           : "check the file system";

    return accel_fail_at(err, code, path, hint, "cannot %s: %s", what, strerror(e));
}

/* ---- one file -------------------------------------------------------------------- */

/* The file's size must agree with its header. */
static accel_status_t read_header(struct data_file *f, accel_error_t *err)
{
    uint8_t raw[TOKEN_FILE_MARKED];
    accel_status_t st;

    if (f->bytes < TOKEN_FILE_HEADER)
        return accel_fail_at(
            err, A0705, f->path,
            "rename text files that end in .bin: this suffix is for token files",
            "%lld bytes are too few for a token file's header of %d",
            (long long)f->bytes, TOKEN_FILE_HEADER);
    ACCEL_CHECK(st, data_pread(f, raw, sizeof(raw), 0, err));
    f->start = TOKEN_FILE_HEADER;
    f->mark = token_file_mark(raw);
    return token_file_read_header(raw, f->path, f->bytes, &f->width, &f->tokens, err);
}

/* Never trained on as if it were the text. */
static accel_status_t refuse_pointer(const struct data_file *f, accel_error_t *err)
{
    char text[sizeof(LFS_POINTER) - 1];
    accel_status_t st = f->bytes < (int64_t)sizeof(text)
                            ? ACCEL_OK
                            : data_pread(f, text, sizeof(text), 0, err);

    if (st || f->bytes < (int64_t)sizeof(text) || !is_lfs_pointer(text, sizeof(text)))
        return st;
    return accel_fail_at(err, A0701, f->path, LFS_POINTER_CURE, LFS_POINTER_TEXT);
}

/* O_NONBLOCK: a FIFO put in the file's place must not hang the run. What is opened is
 * checked, not what had the name before. */
static accel_status_t open_file(struct data_file *f, bool token_file,
                                accel_error_t *err)
{
    struct stat sb;
    accel_status_t st;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        return data_fail_errno(err, f->path, "open");
    if (fstat(f->fd, &sb))
        return data_fail_errno(err, f->path, "stat");
    if (!S_ISREG(sb.st_mode))
        return accel_fail_at(err, A0706, f->path,
                             "give a regular file or a directory of them",
                             "not a regular file");
    f->bytes = f->tokens = sb.st_size;
    f->width = 1;
    st = refuse_pointer(f, err);
    return st || !token_file ? st : read_header(f, err);
}

/* ---- the list of files ----------------------------------------------------------- */

/* Appends dir/name (dir NULL: name alone) to the list, not opened yet. */
static accel_status_t add_path(accel_dataset_t *d, const char *dir, const char *name,
                               accel_error_t *err)
{
    struct data_file *grown;
    size_t len = (dir ? strlen(dir) + 1 : 0) + strlen(name) + 1;
    char *path;

    grown = realloc(d->file, ((size_t)d->files + 1) * sizeof(*grown));
    if (!grown)
        return accel_fail_nomem(err, "list of data files", sizeof(*grown));
    d->file = grown;
    path = malloc(len);
    if (!path)
        return accel_fail_nomem(err, "path of a data file", len);
    snprintf(path, len, "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    grown[d->files] = (struct data_file){ .path = path, .fd = -1 };
    grown[d->files].base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    d->files++;
    return ACCEL_OK;
}

/* Order of bytes, not of the locale: it decides where each token is in the stream, and
 * must be the same on all machines. */
static int by_name(const void *a, const void *b)
{
    const struct data_file *x = a, *y = b;

    return strcmp(x->base, y->base);
}

/* Regular files (also through links) whose names do not start with a dot, sorted. */
static accel_status_t list_dir(accel_dataset_t *d, const char *path, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    struct dirent *e;
    DIR *dir = opendir(path);

    if (!dir)
        return data_fail_errno(err, path, "open the directory");
    for (;;) {
        struct stat sb;

        errno = 0;
        e = readdir(dir);
        if (!e)
            break;
        if (e->d_name[0] == '.')
            continue;
        if (fstatat(dirfd(dir), e->d_name, &sb, 0)) {
            char whole[4096];

            snprintf(whole, sizeof(whole), "%s/%s", path, e->d_name);
            st = data_fail_errno(err, whole, "stat");
            goto out;
        }
        if (!S_ISREG(sb.st_mode))
            continue;
        st = add_path(d, path, e->d_name, err);
        if (st)
            goto out;
    }
    if (errno)
        st = data_fail_errno(err, path, "read the directory");
    else if (d->files == 0)
        st = accel_fail_at(err, A0706, path, "put text or .bin files into it",
                           "the directory holds no regular file");
    else
        qsort(d->file, (size_t)d->files, sizeof(*d->file), by_name);
out:
    closedir(dir);
    return st;
}

/* The files of `path`, a file or a directory. They are all of one kind. */
static accel_status_t list_files(accel_dataset_t *d, const char *path,
                                 accel_error_t *err)
{
    struct stat sb;
    accel_status_t st;

    if (stat(path, &sb))
        return data_fail_errno(err, path, "open");
    ACCEL_CHECK(st, S_ISDIR(sb.st_mode) ? list_dir(d, path, err)
                                        : add_path(d, NULL, path, err));
    d->token_files = is_token_file(d->file[0].path);
    for (int i = 1; i < d->files; i++) {
        if (is_token_file(d->file[i].path) != d->token_files)
            return accel_fail_at(err, A0706, path,
                                 "keep token files and text in separate directories",
                                 "'%s' and '%s' mix .bin token files with text",
                                 d->file[0].base, d->file[i].base);
    }
    return ACCEL_OK;
}

/* An id must mean the same token in all files. Those that accel tokenize has not
 * written have no mark: they differ at most in the width of their tokens. */
static accel_status_t check_one_tokenizer(const accel_dataset_t *d, const char *path,
                                          accel_error_t *err)
{
    const struct data_file *first = &d->file[0];

    for (int i = 1; i < d->files && d->token_files; i++) {
        const struct data_file *f = &d->file[i];

        if (f->width != first->width ||
            (f->mark && first->mark && f->mark != first->mark))
            return accel_fail_at(
                err, A0706, path,
                "tokenize all text with the tokenizer of the model, and keep other "
                "token files in a directory of their own",
                "'%s' and '%s' are of two tokenizers", first->base, f->base);
        first = first->mark ? first : f; /* the first with a mark */
    }
    return ACCEL_OK;
}

/* ---- vocabulary ------------------------------------------------------------------ */

/* Raises *top to the largest token of one file, reading at most `budget` bytes. Of a
 * file that is not read to its end, the unread part counts as the usual vocabulary. */
static accel_status_t find_top(const struct data_file *f, int64_t *budget,
                               uint32_t *top, accel_error_t *err)
{
    enum { CHUNK = 1 << 20 };
    uint32_t usual = (uint32_t)token_file_vocab(f->width) - 1;
    uint8_t *buf = malloc(CHUNK);
    int64_t at = f->start;
    accel_status_t st = ACCEL_OK;

    if (!buf)
        return accel_fail_nomem(err, "read buffer", CHUNK);
    while (!st && *budget > 0 && at < f->bytes) {
        int64_t left = f->bytes - at;
        size_t n = (size_t)(left < CHUNK ? left : CHUNK);

        st = data_pread(f, buf, n, at, err);
        for (size_t i = 0; !st && i < n; i += (size_t)f->width) {
            uint32_t token = token_file_get(buf + i, f->width);

            *top = token > *top ? token : *top;
        }
        at += CHUNK;
        *budget -= CHUNK;
    }
    if (at < f->bytes && *top < usual)
        *top = usual;
    free(buf);
    return st;
}

/* Largest token + 1. More than 256 MiB of data are not read through at every start: the
 * rest counts as the vocabulary that such files are usually made with, and every token
 * is checked when it is read. */
static accel_status_t find_vocab(accel_dataset_t *d, accel_error_t *err)
{
    int64_t budget = SCAN_MAX_BYTES;
    uint32_t top = 0;

    d->vocab = DATA_VOCAB_TEXT;
    if (!d->token_files)
        return ACCEL_OK;
    for (int i = 0; i < d->files; i++) {
        accel_status_t st = find_top(&d->file[i], &budget, &top, err);

        if (st)
            return st;
        if (top >= INT32_MAX)
            return accel_fail_at(err, A0705, d->file[i].path, "create the file again",
                                 "token %u is larger than any vocabulary", top);
    }
    d->vocab = (int)top + 1;
    return ACCEL_OK;
}

/* ---- public ---------------------------------------------------------------------- */

/* Places the files in the stream and cuts it: training samples from the start, the
 * held-out part at the end. A sample needs seq + 1 tokens, but neighbours share one. */
static accel_status_t dataset_split(accel_dataset_t *d, const char *path,
                                    double holdout, accel_error_t *err)
{
    for (int i = 0; i < d->files; i++) {
        d->file[i].first = d->total;
        d->total += d->file[i].tokens;
    }
    d->train = d->total - (int64_t)floor((double)d->total * holdout);
    if (d->train < (int64_t)d->seq + 1)
        return accel_fail_at(
            err, A0707, path,
            "use more data, a shorter sequence length or a smaller holdout",
            "%lld tokens for training, but a sample of %d needs %lld",
            (long long)d->train, d->seq, (long long)d->seq + 1);
    /* The last target of a sample is the first id of the next one; the very last sample
     * needs one token more. */
    d->samples = (d->train - 1) / d->seq;
    if (d->total - d->train > 1)
        d->held_out = (d->total - d->train - 1) / d->seq;
    return ACCEL_OK;
}

/* ids and targets are the two fields, int32 [seq] each. */
accel_status_t accel_dataset_open(accel_dataset_t **out, const char *path, int seq,
                                  double holdout, accel_error_t *err)
{
    accel_dataset_t *d;
    accel_status_t st;

    if (!out || !path || !*path)
        return accel_fail(err, A0708, "give a file or a directory",
                          out ? "no data path given" : "out is NULL");
    if (seq < 1)
        return accel_fail(err, A0708, "use a length of at least 1",
                          "invalid sequence length %d", seq);
    ACCEL_CHECK(st, data_check_holdout(holdout, err));
    d = calloc(1, sizeof(*d));
    if (!d)
        return accel_fail_nomem(err, "dataset", sizeof(*d));
    d->seq = seq;
    d->threads = INT_MAX; /* pread keeps no place */
    d->fields = 2;
    d->field[0] = d->field[1] =
        (accel_field_t){ .dtype = ACCEL_I32, .ndim = 1, .dims = { seq } };
    st = list_files(d, path, err);
    for (int i = 0; !st && i < d->files; i++)
        st = open_file(&d->file[i], d->token_files, err);
    ACCEL_TRY(st, check_one_tokenizer(d, path, err));
    ACCEL_TRY(st, dataset_split(d, path, holdout, err));
    ACCEL_TRY(st, find_vocab(d, err));
    if (st) {
        accel_dataset_close(d);
        return st;
    }
    *out = d;
    return ACCEL_OK;
}

int accel_dataset_vocab(const accel_dataset_t *d)
{
    return d ? d->vocab : 0;
}

const char *data_text_file(const accel_dataset_t *d)
{
    return d->files > 0 && !d->token_files ? d->file[0].path : NULL;
}

/* Also what accel_dataset_open has left half open. */
void accel_dataset_close(accel_dataset_t *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->files; i++) {
        if (d->file[i].fd >= 0)
            close(d->file[i].fd);
        free(d->file[i].path);
    }
    free(d->file);
    free(d);
}
