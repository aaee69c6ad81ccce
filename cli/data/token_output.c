/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids in, a token file out, under a temporary name until it is whole and durable.
 * Never leaves a part of a file behind, whatever ends the program, except SIGKILL.
 */
#include "cli/data/token_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path_dir.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

/* A multiple of both token widths, so that a token never straddles two writes. */
enum { BUFFER = 1 << 20 };

/* Name of the file being written, for the signal handler; "": none. */
static char temporary[4096];
/* Signals that end a program by default and that a terminal or Slurm sends. */
static const int ending[] = { SIGHUP, SIGINT, SIGTERM };

/* Handler: removes the file and lets the signal end the program as it would have.
 * unlink, signal and raise are safe here. */
static void remove_and_end(int sig)
{
    unlink(temporary);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* A0719 with errno's text. */
static accel_status_t tokens_not_written(const struct token_output *o,
                                         accel_error_t *err)
{
    return accel_fail_at(err, A0719, o->path, "free space, or write to another place",
                         "cannot write the tokens: %s", strerror(errno));
}

static accel_status_t write_token_bytes(const struct token_output *o, const void *from,
                                        size_t bytes, accel_error_t *err)
{
    const char *p = from;

    while (bytes > 0) {
        ssize_t n = write(o->fd, p, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tokens_not_written(o, err);
        p += n;
        bytes -= (size_t)n;
    }
    return ACCEL_OK;
}

/* The header is written with 0 tokens first; the count follows with the commit.
 * mkostemp makes the file 0600, so the umask's mode is set by hand. */
accel_status_t token_output_open(struct token_output *o, const char *path,
                                 const accel_tokenizer_t *t, accel_error_t *err)
{
    uint8_t header[TOKEN_FILE_HEADER];
    /* umask can only be read by setting it. */
    mode_t mask = umask(0);

    umask(mask);
    *o = (struct token_output){ .path = path,
                                .fd = -1,
                                .width = token_file_width(accel_tokenizer_vocab(t)),
                                .mark = tokenizer_mark(t),
                                .buf = malloc(BUFFER) };
    if (!o->buf)
        return accel_fail_nomem(err, "buffer of tokens", BUFFER);
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >=
        sizeof(temporary)) {
        temporary[0] = '\0';
        errno = ENAMETOOLONG;
    } else {
        o->fd = mkostemp(temporary, O_CLOEXEC);
    }
    if (o->fd < 0) {
        temporary[0] = '\0';
        return accel_fail_at(err, A0718, path, "write to another directory",
                             "cannot create the file: %s", strerror(errno));
    }
    /* Before the first byte; a signal that nohup ignores stays ignored. */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ending); i++)
        if (signal(ending[i], remove_and_end) == SIG_IGN)
            signal(ending[i], SIG_IGN);
    if (fchmod(o->fd, 0666 & ~mask))
        return tokens_not_written(o, err);
    token_file_header(header, o->width, 0, o->mark);
    return write_token_bytes(o, header, sizeof(header), err);
}

accel_status_t token_output_add(struct token_output *o, const int32_t *ids, size_t n,
                                accel_error_t *err)
{
    /* Written so that the sum cannot overflow. */
    if ((int64_t)n > TOKEN_FILE_MAX - o->tokens)
        return accel_fail_at(err, A0717, o->path,
                             "write several .bin files into one directory and train on "
                             "that",
                             "more than %d tokens, the limit of the header",
                             TOKEN_FILE_MAX);
    o->tokens += (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        if (o->used == BUFFER) {
            accel_status_t st = write_token_bytes(o, o->buf, BUFFER, err);

            if (st)
                return st;
            o->used = 0;
        }
        token_file_put(o->buf + o->used, o->width, (uint32_t)ids[i]);
        o->used += (size_t)o->width;
    }
    return ACCEL_OK;
}

/* Header, then fsync, then rename: a name never stands for a file that is not whole. A
 * reader of a crashed machine sees the old file or the new one. A directory that cannot
 * be synced is no error: the file is there. */
accel_status_t token_output_commit(struct token_output *o, accel_error_t *err)
{
    uint8_t header[TOKEN_FILE_HEADER];
    accel_status_t st = write_token_bytes(o, o->buf, o->used, err);

    if (st)
        return st;
    /* Now that the count is known, over the header at the beginning. */
    token_file_header(header, o->width, o->tokens, o->mark);
    if (lseek(o->fd, 0, SEEK_SET))
        return tokens_not_written(o, err);
    ACCEL_CHECK(st, write_token_bytes(o, header, sizeof(header), err));
    if (fsync(o->fd) || rename(temporary, o->path))
        return tokens_not_written(o, err);
    temporary[0] = '\0';
    (void)path_sync_name(o->path);
    return ACCEL_OK;
}

void token_output_close(struct token_output *o)
{
    /* "" after a commit: the file has its name then. */
    if (temporary[0])
        unlink(temporary);
    temporary[0] = '\0';
    if (o->fd >= 0)
        close(o->fd);
    free(o->buf);
}
