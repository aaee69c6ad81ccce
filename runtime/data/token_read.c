/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading: sample numbers in, token ids out; and the digest of what is read. Nothing is
 * kept between calls, so any thread may read. A file need not be what it was when it
 * was opened: every read and every token is checked.
 */
#include "data/data_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/whole_io.h"

/* A file that ends too early has been cut off while the run used it. */
accel_status_t data_pread(const struct data_file *f, void *buf, size_t bytes,
                          int64_t offset, accel_error_t *err)
{
    const ssize_t n = pread_all(f->fd, buf, bytes, offset);

    if (n < 0)
        return accel_fail_at(err, A0703, f->path, "check the file system",
                             "cannot read at byte %" PRId64 ": %s", offset,
                             strerror(errno));
    if ((size_t)n < bytes)
        return accel_fail_at(err, A0704, f->path,
                             "do not change data files while a run uses them",
                             "the file ends at byte %" PRId64 "; it had %" PRId64
                             " when the run started",
                             offset + n, f->bytes);
    return ACCEL_OK;
}

/* The file that holds token `at`: the last one that starts at or before it. Where empty
 * files start at the same place, that is the one behind them. */
static int file_of(const accel_dataset_t *d, int64_t at)
{
    int lo = 0, hi = d->files - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;

        if (d->file[mid].first <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Widens n raw tokens, which lie at the start of out's own memory. From the back, so
 * that nothing is overwritten before it is read. */
static void widen(int width, int32_t *out, int64_t n)
{
    const uint8_t *raw = (const uint8_t *)out;

    for (int64_t i = n - 1; i >= 0; i--)
        out[i] = (int32_t)token_file_get(raw + width * i, width);
}

/* Tokens [at, at + n) of the stream of all files, n <= seq + 1, each checked against
 * the vocabulary. May cross from one file to the next. */
static accel_status_t data_read(const accel_dataset_t *d, int64_t at, int64_t n,
                                int32_t *tokens_out, accel_error_t *err)
{
    for (int i = file_of(d, at); n > 0; i++) {
        const struct data_file *f = &d->file[i];
        int64_t skip = at - f->first;
        int64_t take = f->tokens - skip < n ? f->tokens - skip : n;
        accel_status_t st;

        if (take <= 0)
            continue; /* an empty file between two others */
        ACCEL_CHECK(st, data_pread(f, tokens_out, (size_t)(take * f->width),
                                   f->start + skip * f->width, err));
        widen(f->width, tokens_out, take);
        for (int64_t t = 0; t < take; t++) {
            if (tokens_out[t] < 0 || tokens_out[t] >= d->vocab)
                return accel_fail_at(
                    err, A0709, f->path,
                    "create the token file again with a tokenizer of that vocabulary",
                    "token %" PRId64 " is %u, but the vocabulary has %d", skip + t,
                    (unsigned)tokens_out[t], d->vocab);
        }
        at += take;
        tokens_out += take;
        n -= take;
    }
    return ACCEL_OK;
}

/* The two arrays overlap in all but one token: ids are read once and copied to their
 * place among the targets, shifted; the last target is read alone. The held-out part
 * starts at a token of its own: no training sample reaches into it. */
accel_status_t data_tokens(const accel_dataset_t *d, int64_t index, int32_t *ids_out,
                           int32_t *targets_out, accel_error_t *err)
{
    int64_t at =
        index < d->samples ? index * d->seq : d->train + (index - d->samples) * d->seq;
    accel_status_t st;

    ACCEL_CHECK(st, data_read(d, at, d->seq, ids_out, err));
    memcpy(targets_out, ids_out + 1, ((size_t)d->seq - 1) * sizeof(*ids_out));
    return data_read(d, at + d->seq, 1, targets_out + d->seq - 1, err);
}

/* ---- digest ---------------------------------------------------------------------- */

#define PIECES 64
#define PIECE  4096 /* bytes */

/* Little-endian, so that the digest is the same on every machine. */
static void hash_i64(XXH3_state_t *h, int64_t v)
{
    uint8_t raw[8];

    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)((uint64_t)v >> (8 * i));
    XXH3_64bits_update(h, raw, sizeof(raw));
}

/* PIECE bytes from `offset` on, or what the file has there. */
static accel_status_t hash_piece(XXH3_state_t *h, const struct data_file *f,
                                 int64_t offset, accel_error_t *err)
{
    unsigned char buf[PIECE];
    int64_t left = f->bytes - offset;
    size_t n = (size_t)(left < PIECE ? left : PIECE);
    accel_status_t st = data_pread(f, buf, n, offset, err);

    if (!st)
        XXH3_64bits_update(h, buf, n);
    return st;
}

/* All of the data would take too long at every start; 64 pieces tell different data
 * apart, but not a single changed token between them. */
accel_status_t data_tokens_digest(const accel_dataset_t *d, XXH3_state_t *h,
                                  accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    hash_i64(h, d->token_files);
    hash_i64(h, d->total);
    for (int i = 0; i < d->files; i++) {
        XXH3_64bits_update(h, d->file[i].base, strlen(d->file[i].base) + 1);
        hash_i64(h, d->file[i].bytes);
    }
    for (int p = 0; p < PIECES && !st; p++) {
        /* total * p / PIECES without overflow */
        int64_t at = d->total / PIECES * p + d->total % PIECES * p / PIECES;
        const struct data_file *f = &d->file[file_of(d, at)];

        st = hash_piece(h, f, f->start + (at - f->first) * f->width, err);
    }
    return st;
}
