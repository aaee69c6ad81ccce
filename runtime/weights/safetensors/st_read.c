/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads elements of a tensor into float32, straight or transposed. In: a range of
 * elements. Out: the caller's memory. Goes through a buffer that stays in the cache, so
 * that memory is bounded; float32 read straight needs none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/whole_io.h"
#include "st_internal.h"

/* of the buffer that elements are read into */
#define BUFFER_BYTES (512 << 10)
/* gaps up to this many bytes between two wanted runs are read along */
#define GAP_BYTES 4096
/* rows transposed at a time: two cache lines of the output */
#define TILE 32

/* What is being read. */
struct source {
    accel_safetensors_t *s;
    const struct st_tensor *t;
    int fd;
    /* of element 0 in the file */
    int64_t at;
};

/* The error for errno `error`; ENODATA stands for a file that ended too early. */
static accel_status_t fail_read(const struct source *r, int error, accel_error_t *err)
{
    char shown[ST_SHOWN];

    if (error == ENODATA)
        return accel_fail_at(err, A0824, r->t->pub.file,
                             "copy or download the file again",
                             "tensor %s: the file was truncated while it was open",
                             st_shown(r->t->pub.name, shown, sizeof(shown)));
    return accel_fail_at(
        err, A0826, r->t->pub.file, "check the disk and the file's permissions",
        "tensor %s: cannot read: %s", st_shown(r->t->pub.name, shown, sizeof(shown)),
        strerror(error));
}

/* Elements [first, first + n) as they are stored, into to[n]. */
static accel_status_t fetch(const struct source *r, int64_t first, int64_t n, void *to,
                            accel_error_t *err)
{
    int64_t size = r->t->dtype->bits / 8;
    ssize_t got = pread_all(r->fd, to, (size_t)(n * size), r->at + first * size);

    if (got == n * size)
        return ACCEL_OK;
    return fail_read(r, got < 0 ? errno : ENODATA, err);
}

/* Checks range and dtype. t must be one of s's: pub is the first field of st_tensor. */
static accel_status_t st_read_start(accel_safetensors_t *s,
                                    const accel_safetensors_tensor_t *t, int64_t begin,
                                    int64_t count, struct source *source_out,
                                    accel_error_t *err)
{
    const struct st_tensor *own = (const struct st_tensor *)(const void *)t;
    char shown[ST_SHOWN];

    /* by subtraction: begin + count could overflow */
    if (begin < 0 || count < 0 || begin > t->elems || count > t->elems - begin)
        return accel_fail_at(
            err, A0815, t->file, "stay within the tensor",
            "tensor %s has %lld elements; cannot read %lld from %lld on",
            st_shown(t->name, shown, sizeof(shown)), (long long)t->elems,
            (long long)count, (long long)begin);
    if (!st_is_float(own->dtype))
        return accel_fail_at(err, A0827, t->file,
                             "use weights in F32, BF16, F16 or F64",
                             "tensor %s has the unsupported dtype %s",
                             st_shown(t->name, shown, sizeof(shown)), t->dtype);
    *source_out = (struct source){ .s = s, .t = own, .fd = s->file[own->file].fd };
    source_out->at = s->file[own->file].data_at + own->begin;
    return ACCEL_OK;
}

/* float32 goes straight into the caller's memory. */
accel_status_t accel_safetensors_read(accel_safetensors_t *s,
                                      const accel_safetensors_tensor_t *t,
                                      int64_t begin, int64_t count, float *values_out,
                                      accel_error_t *err)
{
    struct source r;
    accel_status_t st = st_read_start(s, t, begin, count, &r, err);
    int64_t block;
    void *buffer;

    if (st || count == 0)
        return st;
    if (strcmp(t->dtype, "F32") == 0)
        return fetch(&r, begin, count, values_out, err);
    buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        return accel_fail_nomem(err, "read buffers", BUFFER_BYTES);
    /* elements that fit the buffer */
    block = BUFFER_BYTES / (r.t->dtype->bits / 8);
    for (int64_t i = 0; i < count && !st; i += block) {
        int64_t n = count - i < block ? count - i : block;

        st = fetch(&r, begin + i, n, buffer, err);
        if (!st)
            st_to_f32(values_out + i, buffer, (size_t)n, r.t->dtype);
    }
    free(buffer);
    return st;
}

/* ---- transposed ------------------------------------------------------------------ */

/* Stored [R, C]; element (r, c) is number c * R + r of the transpose. Of stored
 * row r the wanted elements [begin, end) are columns [low(r), high(r)), which are
 * nearly the same for all rows. One band of rows is fetched at a time and
 * transposed tile by tile. */

struct turn {
    /* as stored: R and C */
    int64_t rows, cols;
    /* elements of the transpose */
    int64_t begin, end;
    float *out;
    /* a band as stored */
    char *raw;
    /* the same in float32, one row every `step` elements */
    float *band;
    /* columns of the band */
    int64_t low, width;
    int64_t step;
    /* stored as float32: raw and band are the same memory */
    bool plain;
};

/* The first column c with c * rows + r >= at. */
static int64_t column(const struct turn *w, int64_t r, int64_t at)
{
    return at <= r ? 0 : (at - r + w->rows - 1) / w->rows;
}

/* Transposes rows [first, first + n), columns [c0, c1) of a band that begins with row
 * r0, one element at a time. */
static void turn_edge(const struct turn *w, int64_t r0, int64_t first, int64_t n,
                      int64_t c0, int64_t c1)
{
    for (int64_t c = c0; c < c1; c++) {
        const float *from = w->band + (c - w->low) - r0 * w->step;
        int64_t at = c * w->rows - w->begin;

        for (int64_t r = first; r < first + n; r++)
            w->out[at + r] = from[r * w->step];
    }
}

/* four floats in a register, and the shuffle of two of them */
typedef float quad __attribute__((vector_size(16)));
typedef int quad_index __attribute__((vector_size(16)));
#ifdef __clang__
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){ i, j, k, l })
#endif

/* 4 x 4: rows of `from`, `step` elements apart, become rows of `to`, `rows` apart. */
static void turn_quad(const float *from, int64_t step, float *to, int64_t rows)
{
    quad a, b, c, d, ab, cd, out[4];

    memcpy(&a, from, sizeof(a));
    memcpy(&b, from + step, sizeof(b));
    memcpy(&c, from + 2 * step, sizeof(c));
    memcpy(&d, from + 3 * step, sizeof(d));
    ab = MIX(a, b, 0, 4, 1, 5);
    cd = MIX(c, d, 0, 4, 1, 5);
    out[0] = MIX(ab, cd, 0, 1, 4, 5);
    out[1] = MIX(ab, cd, 2, 3, 6, 7);
    ab = MIX(a, b, 2, 6, 3, 7);
    cd = MIX(c, d, 2, 6, 3, 7);
    out[2] = MIX(ab, cd, 0, 1, 4, 5);
    out[3] = MIX(ab, cd, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++)
        memcpy(to + i * rows, &out[i], sizeof(out[i]));
}

/* The same for any size. Four columns at a time, so that 32 rows of them are whole
 * cache lines of the output. */
static void turn_tile(const struct turn *w, int64_t r0, int64_t first, int64_t n,
                      int64_t c0, int64_t c1)
{
    int64_t whole_n = n / 4 * 4, c = c0;

    for (; c + 4 <= c1; c += 4) {
        const float *from = w->band + (first - r0) * w->step + (c - w->low);
        float *to = w->out + (c * w->rows + first - w->begin);

        for (int64_t r = 0; r < whole_n; r += 4)
            turn_quad(from + r * w->step, w->step, to + r, w->rows);
        turn_edge(w, r0, first + whole_n, n - whole_n, c, c + 4);
    }
    turn_edge(w, r0, first, n, c, c1);
}

/* Rows [r0, r0 + n) of the band. Columns [whole, stop) are wanted in every row; the
 * first and the last column may be wanted in some rows only. */
static void turn_band(const struct turn *w, int64_t r0, int64_t n)
{
    int64_t whole = column(w, r0, w->begin); /* from here on every row has it */
    int64_t stop = column(w, r0 + n - 1, w->end);

    /* the columns that every row has: tile by tile */
    for (int64_t r = r0; whole < stop && r < r0 + n; r += TILE)
        turn_tile(w, r0, r, r0 + n - r < TILE ? r0 + n - r : TILE, whole, stop);
    /* the rest, at most a column or two on either side */
    for (int64_t r = r0; r < r0 + n; r++) {
        int64_t low = column(w, r, w->begin), high = column(w, r, w->end);

        for (int64_t c = low; c < (high < whole ? high : whole); c++)
            turn_edge(w, r0, r, 1, c, c + 1);
        for (int64_t c = low > stop ? low : stop; c < high; c++)
            turn_edge(w, r0, r, 1, c, c + 1);
    }
}

/* Reads columns [low, low + width) of rows [r0, r0 + n) into the band: at once where
 * the gaps between rows are small, else row by row. */
static accel_status_t fetch_band(const struct source *src, const struct turn *w,
                                 int64_t r0, int64_t n, bool at_once,
                                 accel_error_t *err)
{
    int64_t size = src->t->dtype->bits / 8, stride = at_once ? w->cols : w->width;
    accel_status_t st = ACCEL_OK;

    if (at_once)
        st = fetch(src, r0 * w->cols + w->low, (n - 1) * w->cols + w->width, w->raw,
                   err);
    for (int64_t r = 0; r < n && !st; r++) {
        char *row = w->raw + r * stride * size;

        if (!at_once)
            st = fetch(src, (r0 + r) * w->cols + w->low, w->width, row, err);
        if (!st && !w->plain)
            st_to_f32(w->band + r * w->step, row, (size_t)w->width, src->t->dtype);
    }
    return st;
}

/* Chooses the height of a band, a multiple of TILE that fits the buffer, then fetches
 * and transposes band by band. */
static accel_status_t turn_all(const struct source *src, struct turn *w,
                               accel_error_t *err)
{
    int64_t size = src->t->dtype->bits / 8, stride, band;
    size_t raw_bytes, bytes;
    accel_status_t st = ACCEL_OK;
    bool at_once;

    /* The last row has the lowest first column, row 0 the highest last one:
     * the band covers both. */
    w->low = column(w, w->rows - 1, w->begin);
    w->width = column(w, 0, w->end) - w->low;
    w->plain = strcmp(src->t->dtype->name, "F32") == 0;
    at_once = (w->cols - w->width) * size <= GAP_BYTES;
    stride = at_once ? w->cols : w->width;
    w->step = w->plain ? stride : w->width;
    /* whole tiles, at least one, at most all rows */
    band = BUFFER_BYTES / (stride * size) / TILE * TILE;
    band = band < TILE ? TILE : band;
    band = band > w->rows ? w->rows : band;
    /* the float32 band follows the raw one at a multiple of 64 bytes */
    raw_bytes = ((size_t)(band * stride * size) + 63) / 64 * 64;
    bytes = raw_bytes + (w->plain ? 0 : (size_t)(band * w->width) * sizeof(float));
    w->raw = malloc(bytes);
    if (!w->raw)
        return accel_fail_nomem(err, "read buffers", bytes);
    w->band = (float *)(void *)(w->plain ? w->raw : w->raw + raw_bytes);
    for (int64_t r = 0; r < w->rows && !st; r += band) {
        int64_t n = w->rows - r < band ? w->rows - r : band;

        st = fetch_band(src, w, r, n, at_once, err);
        if (!st)
            turn_band(w, r, n);
    }
    free(w->raw);
    return st;
}

accel_status_t accel_safetensors_read_transposed(accel_safetensors_t *s,
                                                 const accel_safetensors_tensor_t *t,
                                                 int64_t begin, int64_t count,
                                                 float *values_out, accel_error_t *err)
{
    struct source src;
    accel_status_t st;
    int64_t most;

    ACCEL_CHECK(st, st_read_start(s, t, begin, count, &src, err));
    if (t->ndim != 2)
        return accel_fail_at(err, A0815, t->file, "transpose matrices only",
                             "a tensor of %d dimensions cannot be transposed", t->ndim);
    /* Of a wide matrix only some columns at a time, so that 32 rows of
     * them fit the buffer. */
    most = BUFFER_BYTES / TILE / (src.t->dtype->bits / 8) * t->shape[0];
    for (int64_t i = 0; i < count && !st; i += most) {
        int64_t n = count - i < most ? count - i : most;
        struct turn w = { .rows = t->shape[0],
                          .cols = t->shape[1],
                          .begin = begin + i,
                          .end = begin + i + n,
                          .out = values_out + i };

        st = turn_all(&src, &w, err);
    }
    return st;
}
