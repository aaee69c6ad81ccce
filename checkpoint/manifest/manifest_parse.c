/* SPDX-License-Identifier: Apache-2.0
 *
 * MANIFEST text -> struct ckpt_manifest. Strict: the self hash first, then one fixed
 * order of lines, one spelling of every number, checked arithmetic, sorted names.
 * Trusts nothing; never reads outside text[len]. Memory is bounded by a multiple of
 * len.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"

/* a C or X line: letter, blank, 32 digits, newline */
#define SELF_BYTES 35

/* A position in the text, line by line. */
struct parser {
    /* end: where the X line starts */
    const char *at, *end;
    /* the newline of the current line */
    const char *line_end;
    const char *where;
    long line;
    accel_error_t *err;
};

/* The error of the current line. */
static accel_status_t bad(const struct parser *p, const char *what)
{
    return accel_fail(p->err, A0808,
                      "use another checkpoint; this one is damaged or forged",
                      "%s: line %ld: %s", p->where, p->line, what);
}

/* Finds the end of the line at p->at; false at the end of the text, or when the
 * line has no newline. */
static bool next_line(struct parser *p)
{
    if (p->at >= p->end)
        return false;
    p->line_end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    p->line++;
    return p->line_end != NULL;
}

/* Does the line begin with that letter and a blank? */
static bool line_is(const struct parser *p, char kind)
{
    return p->line_end - p->at >= 2 && p->at[0] == kind && p->at[1] == ' ';
}

/* The next word of the line, not ended by a NUL; p->at moves past its blank. */
static bool word(struct parser *p, const char **w_out, size_t *len_out)
{
    const char *stop;

    if (p->at >= p->line_end)
        return false;
    stop = memchr(p->at, ' ', (size_t)(p->line_end - p->at));
    *w_out = p->at;
    *len_out = (size_t)((stop ? stop : p->line_end) - p->at);
    p->at = stop ? stop + 1 : p->line_end;
    /* A blank before the newline would be a second spelling of the same line. */
    return *len_out > 0 && !(stop && p->at == p->line_end);
}

/* Decimal without sign or leading zero, at most INT64_MAX. */
static bool digits(const char *w, size_t len, int64_t *value_out)
{
    int64_t v = 0;

    if (len == 0 || (len > 1 && w[0] == '0'))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (w[i] < '0' || w[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, w[i] - '0', &v))
            return false;
    }
    *value_out = v;
    return true;
}

static bool next_number(struct parser *p, int64_t *value_out)
{
    const char *w;
    size_t len;

    return word(p, &w, &len) && digits(w, len, value_out);
}

/* 32 lower-case hexadecimal digits. */
static bool hash(struct parser *p, struct ckpt_hash *hash_out)
{
    uint64_t v[2] = { 0, 0 };
    const char *w;
    size_t len;

    if (!word(p, &w, &len) || len != 32)
        return false;
    for (size_t i = 0; i < 32; i++) {
        static const char hex[] = "0123456789abcdef";
        const char *d = memchr(hex, w[i], 16);

        if (!d)
            return false;
        v[i / 16] = v[i / 16] << 4 | (uint64_t)(d - hex);
    }
    *hash_out = (struct ckpt_hash){ v[0], v[1] };
    return true;
}

/* "3x4", or "-" for no dimension. */
static bool dims(struct parser *p, int64_t *dims_out, int *ndim_out)
{
    const char *w, *x;
    size_t len;

    if (!word(p, &w, &len))
        return false;
    *ndim_out = 0;
    if (len == 1 && w[0] == '-')
        return true;
    for (;;) {
        size_t part;

        x = memchr(w, 'x', len);
        part = x ? (size_t)(x - w) : len;
        if (*ndim_out == ACCEL_CKPT_MAX_DIMS ||
            !digits(w, part, &dims_out[(*ndim_out)++]))
            return false;
        if (!x)
            return true;
        w += part + 1;
        len -= part + 1;
    }
}

static bool at_line_end(const struct parser *p)
{
    return p->at == p->line_end;
}

static void end_line(struct parser *p)
{
    p->at = p->line_end + 1;
}

/* A header line "key VALUE"; blanks inside VALUE only where `blanks`.
 * buf[cap] gets the value. */
static bool header(struct parser *p, const char *key, char *buf, size_t cap,
                   bool blanks)
{
    size_t klen = strlen(key), len;

    if (!next_line(p) || (size_t)(p->line_end - p->at) < klen + 2 ||
        memcmp(p->at, key, klen) != 0 || p->at[klen] != ' ')
        return false;
    p->at += klen + 1;
    len = (size_t)(p->line_end - p->at);
    if (len >= cap)
        return false;
    for (size_t i = 0; i < len; i++)
        if (p->at[i] < (blanks ? 0x20 : 0x21) || p->at[i] > 0x7e)
            return false;
    memcpy(buf, p->at, len);
    buf[len] = '\0';
    end_line(p);
    return true;
}

static bool header_number(struct parser *p, const char *key, int64_t max,
                          int64_t *value_out)
{
    char text[24];

    return header(p, key, text, sizeof(text), false) &&
           digits(text, strlen(text), value_out) && *value_out <= max;
}

/* Looks at the first line before anything else is believed. Another format may end
 * differently, and this library must not call its files damaged. */
static accel_status_t check_format(const struct parser *whole, const char *text,
                                   size_t len)
{
    struct parser p = *whole;
    int64_t version;

    p.at = text;
    p.end = text + len;
    if (!header_number(&p, "accel-checkpoint", INT64_MAX, &version) ||
        version == CKPT_FORMAT)
        return ACCEL_OK;
    return accel_fail_at(p.err, A0813, p.where, "use the accel version that wrote it",
                         "the checkpoint has format %" PRId64
                         ", but this library (%s) reads format %d",
                         version, PACKAGE_VERSION, CKPT_FORMAT);
}

/* The header lines, in their only order. */
static accel_status_t parse_header(struct parser *p, struct ckpt_manifest *m)
{
    int64_t version, world, piece;

    if (!header_number(p, "accel-checkpoint", CKPT_FORMAT, &version))
        return bad(p, "no accel-checkpoint header");
    if (!header(p, "library", m->version, sizeof(m->version), false) ||
        !header_number(p, "step", CKPT_STEP_MAX, &m->step) ||
        !header_number(p, "world", CKPT_WORLD_MAX, &world) || world < 1 ||
        !header(p, "owner", m->owner, sizeof(m->owner), false) ||
        !header(p, "sharding", m->sharding, sizeof(m->sharding), false) ||
        !header(p, "run-id", m->run_id, sizeof(m->run_id), true) ||
        !header_number(p, "piece", INT32_MAX, &piece) || piece != CKPT_PIECE_BYTES)
        return bad(p, "invalid header");
    m->world = (int)world;
    return ACCEL_OK;
}

/* One F line per rank in rank order; in a fragment a single one of any rank. */
static accel_status_t parse_files(struct parser *p, struct ckpt_manifest *m,
                                  bool fragment)
{
    int found = 0;

    /* An F line has more than 32 bytes: a huge world needs a huge text. */
    if (!fragment && (size_t)m->world > (size_t)(p->end - p->at) / 32)
        return bad(p, "fewer file lines than the world has ranks");
    m->file = calloc((size_t)m->world, sizeof(*m->file));
    if (!m->file)
        return accel_fail_nomem(p->err, "the file list",
                                (size_t)m->world * sizeof(*m->file));
    while (next_line(p) && line_is(p, 'F')) {
        struct ckpt_file f = { 0 };
        const char *w;
        size_t len;
        int rank = found;

        p->at += 2;
        if (!word(p, &w, &len) || len >= sizeof(f.name))
            return bad(p, "invalid file line");
        memcpy(f.name, w, len);
        for (; rank < m->world; rank++) {
            char want[40];

            ckpt_shard_name(want, rank, m->world);
            if (strlen(want) == len && memcmp(want, w, len) == 0)
                break;
            if (!fragment)
                return bad(p, "file name out of order or not rank_R-of-N.h5");
        }
        if (rank == m->world || !next_number(p, &f.bytes) || !hash(p, &f.meta) ||
            !at_line_end(p))
            return bad(p, "invalid file line");
        m->file[rank] = f;
        found++;
        end_line(p);
    }
    p->line--; /* the line looked at is read again by parse_tensors */
    if (found != (fragment ? 1 : m->world))
        return bad(p, "the number of file lines is not the world size");
    return ACCEL_OK;
}

/* The rank that a fragment's single file belongs to. */
static int fragment_rank(const struct ckpt_manifest *m)
{
    for (int f = 0; f < m->world; f++)
        if (m->file[f].name[0])
            return f;
    return 0;
}

static bool dtype_named(const char *w, size_t len, accel_dtype_t *dtype_out)
{
    for (int t = 0; accel_dtype_bytes((accel_dtype_t)t); t++) {
        const char *name = accel_dtype_name((accel_dtype_t)t);

        if (strlen(name) == len && memcmp(name, w, len) == 0) {
            *dtype_out = (accel_dtype_t)t;
            return true;
        }
    }
    return false;
}

/* A T line (tensor) or S line (blob). Names ascend, which rules out doubles. */
static accel_status_t parse_tensor(struct parser *p, struct ckpt_manifest *m)
{
    struct ckpt_tensor t = { .blob = p->at[0] == 'S' };
    char name[CKPT_NAME_MAX + 1];
    const struct ckpt_tensor *last = m->tensors ? &m->tensor[m->tensors - 1] : NULL;
    const char *w;
    size_t len;

    p->at += 2;
    if (!word(p, &w, &len) || len >= sizeof(name))
        return bad(p, "invalid tensor name");
    memcpy(name, w, len);
    name[len] = '\0';
    if (strlen(name) != len || ckpt_name_problem(name))
        return bad(p, "invalid tensor name");
    t.name = name;
    if (t.blob) {
        t.dtype = ACCEL_U8;
        t.ndim = 1;
        if (!next_number(p, &t.shape[0]))
            return bad(p, "invalid blob line");
    } else if (!word(p, &w, &len) || !dtype_named(w, len, &t.dtype) ||
               !dims(p, t.shape, &t.ndim)) {
        return bad(p, "invalid tensor line");
    }
    if (!at_line_end(p))
        return bad(p, "invalid tensor line");
    if (last && (last->blob > t.blob ||
                 (last->blob == t.blob && strcmp(last->name, name) >= 0)))
        return bad(p, "tensor names are not sorted or not unique");
    end_line(p);
    return ckpt_manifest_add_tensor(m, &t, p->err);
}

/* A B line and the C lines of its pieces. */
static accel_status_t parse_box(struct parser *p, struct ckpt_manifest *m, int files,
                                int file_base)
{
    struct ckpt_mbox b = { .tensor = m->tensors - 1 };
    const struct ckpt_tensor *t = &m->tensor[m->tensors - 1];
    int no = 0, ns = 0;
    int64_t file;
    accel_status_t st;

    p->at += 2;
    if (!dims(p, b.offset, &no) || !dims(p, b.shape, &ns) || no != t->ndim ||
        ns != t->ndim || !next_number(p, &file) || file >= files ||
        !next_number(p, &b.at) || !next_number(p, &b.bytes) || b.bytes < 1 ||
        !at_line_end(p))
        return bad(p, "invalid box line");
    end_line(p);
    /* Each piece has a line of 35 bytes, so the rest of the text bounds the pieces that
     * are worth allocating. */
    if (b.bytes / CKPT_PIECE_BYTES > (p->end - p->at) / SELF_BYTES)
        return bad(p, "fewer hashes than the box has pieces");
    b.file = file_base + (int)file;
    st = ckpt_manifest_add_box(m, &b, p->err);
    for (size_t k = 0; !st && k < m->box[m->boxes - 1].pieces; k++) {
        if (!next_line(p) || !line_is(p, 'C'))
            return bad(p, "fewer hashes than the box has pieces");
        p->at += 2;
        if (!hash(p, &m->piece[m->box[m->boxes - 1].piece + k]) || !at_line_end(p))
            return bad(p, "invalid hash line");
        end_line(p);
    }
    return st;
}

/* Everything after the F lines. A B line belongs to the tensor above it. */
static accel_status_t parse_tensors(struct parser *p, struct ckpt_manifest *m,
                                    bool fragment)
{
    int base = fragment ? fragment_rank(m) : 0, files = fragment ? 1 : m->world;
    accel_status_t st = ACCEL_OK;

    while (!st && p->at < p->end) {
        if (!next_line(p))
            return bad(p, "a line has no end");
        if (line_is(p, 'T') || line_is(p, 'S'))
            st = parse_tensor(p, m);
        else if (line_is(p, 'B') && m->tensors > 0)
            st = parse_box(p, m, files, base);
        else
            return bad(p, "unknown line");
    }
    return st;
}

/* Sets each tensor's range of boxes and checks that its offsets ascend. Boxes were read
 * tensor by tensor, so the ranges are contiguous. */
static accel_status_t index_boxes(struct parser *p, struct ckpt_manifest *m)
{
    for (size_t i = 0; i < m->boxes; i++) {
        struct ckpt_tensor *t = &m->tensor[m->box[i].tensor];

        if (t->boxes++ == 0) {
            t->box = i;
            continue;
        }
        for (int d = 0; d <= t->ndim; d++) {
            if (d == t->ndim || m->box[i].offset[d] < m->box[i - 1].offset[d])
                return bad(p, "boxes are not sorted by offset");
            if (m->box[i].offset[d] > m->box[i - 1].offset[d])
                break;
        }
    }
    return ACCEL_OK;
}

/* The last line is the hash of everything above it: no other line is
 * looked at before it holds. */
static accel_status_t check_self(struct parser *p, const char *text, size_t len)
{
    struct ckpt_hash stored;
    XXH128_hash_t h;

    if (len > CKPT_MANIFEST_MAX)
        return bad(p, "longer than 256 MiB");
    if (len < SELF_BYTES + 1 || text[len - 1] != '\n' ||
        text[len - SELF_BYTES - 1] != '\n')
        return bad(p, "truncated: the last line is not a hash");
    p->end = text + len - SELF_BYTES;
    p->at = p->end;
    p->line_end = text + len - 1;
    if (!line_is(p, 'X'))
        return bad(p, "truncated: the last line is not a hash");
    p->at += 2;
    if (!hash(p, &stored) || !at_line_end(p))
        return bad(p, "the last line is not a hash");
    h = XXH3_128bits(text, len - SELF_BYTES);
    if (h.high64 != stored.hi || h.low64 != stored.lo)
        return bad(p, "the manifest does not match its own hash");
    p->at = text;
    return ACCEL_OK;
}

accel_status_t ckpt_manifest_parse(struct ckpt_manifest *m_out, const char *text,
                                   size_t len, bool fragment, const char *where,
                                   accel_error_t *err)
{
    struct ckpt_manifest m = { 0 };
    struct parser p = { .where = where, .err = err };
    accel_status_t st = check_format(&p, text, len);

    ACCEL_TRY(st, check_self(&p, text, len));
    ACCEL_TRY(st, parse_header(&p, &m));
    ACCEL_TRY(st, parse_files(&p, &m, fragment));
    ACCEL_TRY(st, parse_tensors(&p, &m, fragment));
    ACCEL_TRY(st, index_boxes(&p, &m));
    if (!st && !fragment)
        st = ckpt_manifest_check(&m, A0808, err);
    if (st) {
        ckpt_manifest_free(&m);
        return st;
    }
    *m_out = m;
    return ACCEL_OK;
}
