/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest in memory: build, merge the ranks' fragments, sort, print as text.
 * Parsing is in manifest_parse.c, the geometric checks are in manifest_check.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "manifest/ckpt_manifest.h"
#include "ckpt_internal.h"

accel_status_t ckpt_manifest_start(struct ckpt_manifest *m, int64_t step, int world,
                                   const char *owner, const char *sharding,
                                   const char *run_id, accel_error_t *err)
{
    *m = (struct ckpt_manifest){ .step = step, .world = world };
    snprintf(m->version, sizeof(m->version), "%s", PACKAGE_VERSION);
    snprintf(m->owner, sizeof(m->owner), "%s", owner);
    snprintf(m->sharding, sizeof(m->sharding), "%s", sharding);
    snprintf(m->run_id, sizeof(m->run_id), "%s", run_id);
    m->file = calloc((size_t)world, sizeof(*m->file));
    return m->file ? ACCEL_OK
                   : accel_fail_nomem(err, "the file list",
                                      (size_t)world * sizeof(*m->file));
}

void ckpt_manifest_free(struct ckpt_manifest *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->tensors; i++)
        free(m->tensor[i].name);
    free(m->file);
    free(m->tensor);
    free(m->box);
    free(m->piece);
    *m = (struct ckpt_manifest){ 0 };
}

void ckpt_shard_name(char name_out[40], int rank, int world)
{
    snprintf(name_out, 40, "rank_%05d-of-%05d.h5", rank, world);
}

/* Looks at each part between slashes when it ends; the NUL ends the last one. */
const char *ckpt_name_problem(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    const char *part = name;

    if (len == 0 || len > CKPT_NAME_MAX)
        return "empty or longer than 511 bytes";
    for (size_t i = 0; i <= len; i++) {
        if (name[i] != '/' && name[i] != '\0') {
            if (name[i] < 0x21 || name[i] > 0x7e || name[i] == '@')
                return "contains a blank, '@' or a byte outside printable ASCII";
            continue;
        }
        if (part == name + i || (part + 1 == name + i && part[0] == '.') ||
            (part + 2 == name + i && part[0] == '.' && part[1] == '.'))
            return "a part between slashes is empty, '.' or '..'";
        part = name + i + 1;
    }
    return NULL;
}

bool ckpt_word_ok(const char *s, size_t cap)
{
    size_t len = s ? strlen(s) : 0;

    if (len == 0 || len >= cap || s[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (s[i] < 0x21 || s[i] > 0x7e || s[i] == '/')
            return false;
    return true;
}

/* Makes room for `more` further entries of `entry` bytes in a growing array. Sizes come
 * from files, so every sum and product is checked. */
static accel_status_t reserve(void **array, size_t *cap, size_t used, size_t more,
                              size_t entry, accel_error_t *err)
{
    size_t want, bytes;
    void *grown;

    if (__builtin_add_overflow(used, more, &want))
        return accel_fail_nomem(err, "the manifest", SIZE_MAX);
    if (want <= *cap)
        return ACCEL_OK;
    want = want < 64 ? 64 : want + want / 2;
    if (__builtin_mul_overflow(want, entry, &bytes))
        return accel_fail_nomem(err, "the manifest", SIZE_MAX);
    grown = realloc(*array, bytes);
    if (!grown)
        return accel_fail_nomem(err, "the manifest", bytes);
    *array = grown;
    *cap = want;
    return ACCEL_OK;
}

accel_status_t ckpt_manifest_add_tensor(struct ckpt_manifest *m,
                                        const struct ckpt_tensor *t, accel_error_t *err)
{
    accel_status_t st = reserve((void **)&m->tensor, &m->tensor_cap, m->tensors, 1,
                                sizeof(*m->tensor), err);
    char *name;

    if (st)
        return st;
    name = strdup(t->name);
    if (!name)
        return accel_fail_nomem(err, "a tensor name", strlen(t->name) + 1);
    m->tensor[m->tensors] = *t;
    m->tensor[m->tensors].name = name;
    m->tensor[m->tensors].box = m->tensor[m->tensors].boxes = 0;
    m->tensors++;
    return ACCEL_OK;
}

/* The range of pieces is fixed here: pieces are appended box by box, also when the
 * boxes are sorted later. */
accel_status_t ckpt_manifest_add_box(struct ckpt_manifest *m, const struct ckpt_mbox *b,
                                     accel_error_t *err)
{
    size_t pieces =
        (size_t)(b->bytes / CKPT_PIECE_BYTES + (b->bytes % CKPT_PIECE_BYTES != 0));
    accel_status_t st =
        reserve((void **)&m->box, &m->box_cap, m->boxes, 1, sizeof(*m->box), err);

    ACCEL_TRY(st, reserve((void **)&m->piece, &m->piece_cap, m->pieces, pieces,
                          sizeof(*m->piece), err));
    if (st)
        return st;
    m->box[m->boxes] = *b;
    m->box[m->boxes].piece = m->pieces;
    m->box[m->boxes].pieces = pieces;
    if (pieces)
        memset(m->piece + m->pieces, 0, pieces * sizeof(*m->piece));
    m->boxes++;
    m->pieces += pieces;
    return ACCEL_OK;
}

/* ---- sorting --------------------------------------------------------------------- */

/* Order of the manifest: tensors by name, then blobs by name. */
static int compare_key(bool a_blob, const char *a, bool b_blob, const char *b)
{
    return a_blob != b_blob ? (int)a_blob - (int)b_blob : strcmp(a, b);
}

/* Order of the manifest, then of addition. */
static int compare_tensors(const void *pa, const void *pb)
{
    const struct ckpt_tensor *a = pa, *b = pb;
    int c = compare_key(a->blob, a->name, b->blob, b->name);

    /* The old index (kept in .box while sorting) makes the order total. */
    return c ? c : (a->box > b->box) - (a->box < b->box);
}

/* By tensor, then by offset. The file breaks ties, so that the order does not depend on
 * the order in which ranks were merged. */
static int compare_boxes(const void *pa, const void *pb)
{
    const struct ckpt_mbox *a = pa, *b = pb;

    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    for (int d = 0; d < ACCEL_CKPT_MAX_DIMS; d++)
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
    return (a->file > b->file) - (a->file < b->file);
}

/* Shapes are compared whole: entries past ndim are 0 everywhere. */
static bool same_tensor(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof(a->shape)) == 0;
}

/* Each rank adds its own entry for a tensor. Joins neighbours of one name in the sorted
 * list and frees the names of the rest. map_out[old index] = new index. */
static accel_status_t join_tensors(struct ckpt_manifest *m, size_t *map_out,
                                   accel_error_t *err)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->tensors; i++) {
        struct ckpt_tensor *t = &m->tensor[i], *last = &m->tensor[kept ? kept - 1 : 0];

        if (kept && compare_key(t->blob, t->name, last->blob, last->name) == 0) {
            if (!same_tensor(t, last))
                return accel_fail_at(
                    err, A0816, t->name, "describe the tensor identically on all ranks",
                    "two boxes have different dtypes or global shapes");
            map_out[t->box] = kept - 1;
            free(t->name);
            t->name = NULL;
            continue;
        }
        map_out[t->box] = kept;
        if (i != kept) {
            m->tensor[kept] = *t;
            t->name = NULL;
        }
        kept++;
    }
    m->tensors = kept;
    return ACCEL_OK;
}

/* While it sorts, .box of a tensor is its old index; afterwards its range of boxes. */
accel_status_t ckpt_manifest_sort(struct ckpt_manifest *m, accel_error_t *err)
{
    size_t *map = calloc(m->tensors + 1, sizeof(*map));
    accel_status_t st;

    if (!map)
        return accel_fail_nomem(err, "the manifest", (m->tensors + 1) * sizeof(*map));
    for (size_t i = 0; i < m->tensors; i++)
        m->tensor[i].box = i;
    if (m->tensors)
        qsort(m->tensor, m->tensors, sizeof(*m->tensor), compare_tensors);
    st = join_tensors(m, map, err);
    if (st)
        goto out;
    for (size_t i = 0; i < m->boxes; i++)
        m->box[i].tensor = map[m->box[i].tensor];
    if (m->boxes)
        qsort(m->box, m->boxes, sizeof(*m->box), compare_boxes);
    for (size_t i = 0; i < m->tensors; i++)
        m->tensor[i].box = m->tensor[i].boxes = 0;
    for (size_t i = m->boxes; i-- > 0;) {
        m->tensor[m->box[i].tensor].box = i;
        m->tensor[m->box[i].tensor].boxes++;
    }
out:
    free(map);
    return st;
}

/* Indices of the fragment's tensors and pieces move up past those already in m. */
accel_status_t ckpt_manifest_merge(struct ckpt_manifest *m,
                                   const struct ckpt_manifest *part, int rank,
                                   accel_error_t *err)
{
    size_t first = m->tensors;
    accel_status_t st;

    for (size_t i = 0; i < part->tensors; i++) {
        ACCEL_CHECK(st, ckpt_manifest_add_tensor(m, &part->tensor[i], err));
    }
    for (size_t i = 0; i < part->boxes; i++) {
        struct ckpt_mbox b = part->box[i];

        b.tensor += first;
        b.file = rank;
        ACCEL_CHECK(st, ckpt_manifest_add_box(m, &b, err));
        memcpy(m->piece + m->box[m->boxes - 1].piece, part->piece + b.piece,
               b.pieces * sizeof(*m->piece));
    }
    m->file[rank] = part->file[rank];
    return ACCEL_OK;
}

/* ---- text ------------------------------------------------------------------------ */

/* " 3x4", or " -" for no dimension. */
static void put_dims(struct strbuf *b, int ndim, const int64_t *dims)
{
    if (ndim == 0)
        strbuf_append(b, " -", 2);
    for (int d = 0; d < ndim; d++)
        strbuf_printf(b, "%c%" PRId64, d ? 'x' : ' ', dims[d]);
}

/* The lines of one tensor: T or S, then B per box, each followed by a C per piece. */
static void put_tensor(struct strbuf *b, const struct ckpt_manifest *m,
                       const struct ckpt_tensor *t, int only_file)
{
    if (t->blob)
        strbuf_printf(b, "S %s %" PRId64 "\n", t->name, t->shape[0]);
    else {
        strbuf_printf(b, "T %s %s", t->name, accel_dtype_name(t->dtype));
        put_dims(b, t->ndim, t->shape);
        strbuf_append(b, "\n", 1);
    }
    for (size_t i = t->box; i < t->box + t->boxes; i++) {
        const struct ckpt_mbox *x = &m->box[i];

        strbuf_append(b, "B", 1);
        put_dims(b, t->ndim, x->offset);
        put_dims(b, t->ndim, x->shape);
        strbuf_printf(b, " %d %" PRId64 " %" PRId64 "\n", only_file >= 0 ? 0 : x->file,
                      x->at, x->bytes);
        for (size_t k = x->piece; k < x->piece + x->pieces; k++)
            strbuf_printf(b, "C %016" PRIx64 "%016" PRIx64 "\n", m->piece[k].hi,
                          m->piece[k].lo);
    }
}

/* One spelling only: the parser accepts exactly this text. The hash covers
 * everything up to its own line. */
accel_status_t ckpt_manifest_format(const struct ckpt_manifest *m, int only_file,
                                    struct strbuf *text_out, accel_error_t *err)
{
    XXH128_hash_t self;

    strbuf_printf(text_out,
                  "accel-checkpoint %d\nlibrary %s\nstep %" PRId64 "\nworld %d\n",
                  CKPT_FORMAT, m->version, m->step, m->world);
    strbuf_printf(text_out, "owner %s\nsharding %s\nrun-id %s\npiece %d\n", m->owner,
                  m->sharding, m->run_id, CKPT_PIECE_BYTES);
    for (int f = 0; f < m->world; f++) {
        if (only_file >= 0 && f != only_file)
            continue;
        strbuf_printf(text_out, "F %s %" PRId64 " %016" PRIx64 "%016" PRIx64 "\n",
                      m->file[f].name, m->file[f].bytes, m->file[f].meta.hi,
                      m->file[f].meta.lo);
    }
    for (size_t i = 0; i < m->tensors; i++)
        put_tensor(text_out, m, &m->tensor[i], only_file);
    if (text_out->failed)
        return accel_fail_nomem(err, "the manifest text", text_out->len);
    self = XXH3_128bits(text_out->s, text_out->len);
    strbuf_printf(text_out, "X %016" PRIx64 "%016" PRIx64 "\n", self.high64,
                  self.low64);
    if (text_out->failed || text_out->len > CKPT_MANIFEST_MAX)
        return accel_fail(err, A0817, "use fewer, larger tensors",
                          "the manifest would have %zu bytes; the limit is %d",
                          text_out->len, CKPT_MANIFEST_MAX);
    return ACCEL_OK;
}

const struct ckpt_tensor *ckpt_manifest_find(const struct ckpt_manifest *m, bool blob,
                                             const char *name)
{
    size_t lo = 0, hi = m->tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_key(m->tensor[mid].blob, m->tensor[mid].name, blob, name);

        if (c == 0)
            return &m->tensor[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

bool ckpt_is_scale(const char *name)
{
    const size_t len = strlen(name), suffix = strlen(CKPT_SCALE_SUFFIX);

    return strncmp(name, CKPT_STATE_PREFIX, strlen(CKPT_STATE_PREFIX)) == 0 &&
           len > suffix && strcmp(name + len - suffix, CKPT_SCALE_SUFFIX) == 0;
}

accel_dtype_t ckpt_manifest_codes(const struct ckpt_manifest *m,
                                  const struct ckpt_tensor *t)
{
    char name[CKPT_NAME_MAX + sizeof(CKPT_SCALE_SUFFIX)];
    const struct ckpt_tensor *scale;

    if (t->blob || t->dtype != ACCEL_U8 || ckpt_is_scale(t->name) ||
        strncmp(t->name, CKPT_STATE_PREFIX, strlen(CKPT_STATE_PREFIX)) != 0)
        return t->dtype;
    snprintf(name, sizeof(name), "%s" CKPT_SCALE_SUFFIX, t->name);
    scale = ckpt_manifest_find(m, false, name);
    return scale && scale->dtype == ACCEL_U8 ? ACCEL_F8E4M3 : t->dtype;
}
