/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of the program in checkpoints. In: names and functions. Out: one blob with
 * what the save functions of all ranks write, and calls of the load functions. Never
 * interprets the bytes of an object.
 *
 * The blob: "objects 1\n", one line "NAME VERSION KIND RANKS SIZE ..." per object, an
 * empty line, then the bytes of every object, rank by rank. Without objects there is no
 * blob.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/state.h"
#include "handle/run.h"

#define BLOB_TITLE "objects 1\n"
/* A quarter of what all blobs of a checkpoint may have is left for the others. */
#define OBJECTS_BYTES ((size_t)512 << 20)

/* Grows; what a save function writes. */
struct accel_bytes {
    char *data;
    size_t bytes, room;
    bool failed;
};

accel_status_t accel_bytes_put(accel_bytes_t *to, const void *data, size_t bytes,
                               accel_error_t *err)
{
    if (!to || (bytes && !data))
        return accel_fail(err, A0971, "pass what the save function got, and an array",
                          "accel_bytes_put: an argument is NULL");
    if (to->failed)
        return accel_fail(err, A0974, "return the first error of accel_bytes_put",
                          "accel_bytes_put after a call of it that failed");
    if (bytes > OBJECTS_BYTES - to->bytes) {
        to->failed = true;
        return accel_fail(err, A0974, "keep large arrays as parameters or buffers",
                          "an object would have more than %zu bytes", OBJECTS_BYTES);
    }
    if (bytes > to->room - to->bytes) {
        size_t room = (to->bytes + bytes) * 2;
        char *more = realloc(to->data, room);

        if (!more) {
            to->failed = true;
            return accel_fail_nomem(err, "the bytes of an object", room);
        }
        to->data = more;
        to->room = room;
    }
    if (bytes)
        memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
    return ACCEL_OK;
}

int accel_saved_version(const accel_saved_t *from)
{
    return from ? from->version : 0;
}

int accel_saved_ranks(const accel_saved_t *from)
{
    return from ? from->ranks : 0;
}

const void *accel_saved_bytes(const accel_saved_t *from, int rank, size_t *bytes_out)
{
    const char *at = from ? from->data : NULL;

    if (!from || rank < 0 || rank >= from->ranks)
        return NULL;
    for (int r = 0; r < rank; r++)
        at += from->bytes[r];
    if (bytes_out)
        *bytes_out = from->bytes[rank];
    return at;
}

/* ---- registering ----------------------------------------------------------------- */

static bool name_fits(const char *name)
{
    size_t n = name ? strlen(name) : 0;

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i]))
            return false;
    return n > 0 && n < STATE_NAME_BYTES;
}

static struct state_object *find_object(const accel_t *run, const char *name)
{
    for (int i = 0; i < run->program.objects; i++)
        if (strcmp(run->program.object[i].name, name) == 0)
            return &run->program.object[i];
    return NULL;
}

static accel_status_t cannot_register(accel_error_t *err, const char *name,
                                      const char *why, const char *cure)
{
    return accel_fail(err, A0971, cure, "accel_register, object '%.80s': %s",
                      name ? name : "", why);
}

accel_status_t accel_register(accel_t *run, const char *name, int version,
                              accel_state_kind_t kind, accel_state_save_f save,
                              accel_state_load_f load, void *user, accel_error_t *err)
{
    struct program_state *p = run ? &run->program : NULL;
    accel_status_t st;

    ACCEL_CHECK(st, run_given(run, "accel_register", err));
    if (!name_fits(name))
        return cannot_register(err, name, "the name does not fit",
                               "use 1 to 63 letters, digits, '_', '.' and '-'");
    if (!save || !load || version < 0 || (unsigned)kind > ACCEL_STATE_SAME_RANKS)
        return cannot_register(err, name,
                               "a function is NULL, the version negative, or the kind "
                               "not one of accel_state_kind_t",
                               "pass both functions, and a version of 0 or more");
    if (run->shard)
        return cannot_register(err, name, "the run is prepared already",
                               "register before accel_prepare, which may resume");
    if (find_object(run, name))
        return cannot_register(err, name, "there is one of this name",
                               "register each object once, under its own name");
    if (p->objects == STATE_MAX_OBJECTS)
        return cannot_register(err, name, "a run has at most 64 objects",
                               "save several of them as one");
    if (!p->object)
        p->object = calloc(STATE_MAX_OBJECTS, sizeof(*p->object));
    if (!p->object)
        return accel_fail_nomem(err, "the objects of the program",
                                STATE_MAX_OBJECTS * sizeof(*p->object));
    p->object[p->objects] = (struct state_object){
        .version = version, .kind = kind, .save = save, .load = load, .user = user
    };
    strcpy(p->object[p->objects++].name, name);
    return ACCEL_OK;
}

/* Forgets what a checkpoint had. */
static void forget_found(accel_t *run)
{
    for (int i = 0; i < run->program.objects; i++) {
        free(run->program.object[i].found.bytes);
        run->program.object[i].found = (struct accel_saved){ 0 };
    }
    free(run->program.blob);
    run->program.blob = NULL;
}

void registered_free(accel_t *run)
{
    forget_found(run);
    free(run->program.object);
    run->program.object = NULL;
    run->program.objects = 0;
}

/* The error of a function of the program: its own text, with the object's name. */
static accel_status_t function_failed(const struct state_object *o, const char *what,
                                      accel_status_t st, const accel_error_t *own,
                                      accel_error_t *err)
{
    if (!own->text[0]) {
        accel_fail_at(err, A0973, o->name, "let the function fill its error",
                      "the %s function of the object returned %s", what,
                      accel_status_name(st));
        err->code = st;
        return st;
    }
    *err = *own;
    if (!err->where[0])
        snprintf(err->where, sizeof(err->where), "object %s", o->name);
    return st;
}

/* ---- saving ---------------------------------------------------------------------- */

/* Not collective. What this rank adds to object o. */
static accel_status_t call_save(accel_t *run, const struct state_object *o,
                                struct accel_bytes *b, accel_error_t *err)
{
    const char *outer = graph_enter(&run->graph, "the save function of an object");
    accel_error_t own = { 0 };
    accel_status_t st = o->save(o->user, b, &own);

    run->graph.inside = outer;
    run->program.function_failed = st || b->failed;
    if (!st && b->failed)
        st = accel_fail_at(err, A0974, o->name, "return the error of accel_bytes_put",
                           "the save function went on after a failed accel_bytes_put");
    else if (st)
        st = function_failed(o, "save", st, &own, err);
    return st;
}

/* Collective. Object o of all ranks: on rank 0 its line into `lines`, its bytes into
 * `all`. */
static accel_status_t gather_object(accel_t *run, const struct state_object *o,
                                    struct strbuf *lines, struct accel_bytes *all,
                                    accel_error_t *err)
{
    const bool common = o->kind == ACCEL_STATE_COMMON, root = run->boot.rank == 0;
    size_t sizes[run->boot.size], bytes = 0;
    struct accel_bytes mine = { 0 };
    void *got = NULL;
    accel_status_t st = run_agree(run, call_save(run, o, &mine, err), err);

    if (st) {
        free(mine.data);
        return st;
    }
    st = comm_gather(run->comm, mine.data, common && !root ? 0 : mine.bytes, 0, &got,
                     sizes, err);
    if (!st && root) {
        int ranks = common ? 1 : run->boot.size;

        strbuf_printf(lines, "%s %d %d %d", o->name, o->version, (int)o->kind, ranks);
        for (int r = 0; r < ranks; r++) {
            strbuf_printf(lines, " %zu", sizes[r]);
            bytes += sizes[r];
        }
        strbuf_printf(lines, "\n");
        st = accel_bytes_put(all, got ? got : "", bytes, err);
    }
    free(mine.data);
    free(got);
    return run_agree(run, st, err);
}

/* Rank 0: the lines, and the bytes behind them. */
static accel_status_t join_blob(const struct strbuf *lines,
                                const struct accel_bytes *all, char **data_out,
                                size_t *bytes_out, accel_error_t *err)
{
    char *data = lines->failed ? NULL : malloc(lines->len + all->bytes);

    if (!data)
        return accel_fail_nomem(err, "the objects of the program", all->bytes);
    memcpy(data, lines->s, lines->len);
    if (all->bytes)
        memcpy(data + lines->len, all->data, all->bytes);
    *data_out = data;
    *bytes_out = lines->len + all->bytes;
    return ACCEL_OK;
}

/* The ranks agree after every function, once: the rank that fails keeps its text. */
accel_status_t registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                               accel_error_t *err)
{
    struct strbuf lines = { 0 };
    struct accel_bytes all = { 0 };
    accel_status_t st = ACCEL_OK;

    if (run->program.objects == 0)
        return ACCEL_OK;
    strbuf_printf(&lines, BLOB_TITLE);
    for (int i = 0; i < run->program.objects && !st; i++)
        st = gather_object(run, &run->program.object[i], &lines, &all, err);
    strbuf_printf(&lines, "\n");
    if (!st) {
        if (run->boot.rank == 0)
            st = join_blob(&lines, &all, data_out, bytes_out, err);
        st = run_agree(run, st, err);
    }
    strbuf_free(&lines);
    free(all.data);
    return st;
}

/* ---- finding --------------------------------------------------------------------- */

/* What is left of a blob while it is read. */
struct reading {
    const char *line, *data, *end;
};

static accel_status_t bad_blob(const char *dir, accel_error_t *err)
{
    return accel_fail_at(err, A0972, dir, "use the accel version that wrote it",
                         "the objects of the program in the checkpoint are in a format "
                         "that this accel does not read");
}

/* A whole number of 0 to `most`, and one character after it. */
static bool read_number(const char **at, size_t most, size_t *value_out)
{
    char *end;
    unsigned long long v;

    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    v = strtoull(*at, &end, 10);
    if (errno || v > most || (*end != ' ' && *end != '\n'))
        return false;
    *at = end + 1;
    *value_out = (size_t)v;
    return true;
}

/* One line: *found_out gets it, with a malloc of its own; r moves on. */
static bool read_object(struct reading *r, char name[STATE_NAME_BYTES],
                        struct accel_saved *found_out)
{
    size_t len = strcspn(r->line, " \n"), version, kind, ranks, total = 0;
    const char *at = r->line + len + 1;

    if (len == 0 || len >= STATE_NAME_BYTES || r->line[len] != ' ' ||
        !read_number(&at, INT32_MAX, &version) ||
        !read_number(&at, ACCEL_STATE_SAME_RANKS, &kind) ||
        !read_number(&at, (size_t)1 << 20, &ranks) || ranks < 1 || at[-1] == '\n')
        return false;
    snprintf(name, STATE_NAME_BYTES, "%.*s", (int)len, r->line);
    *found_out = (struct accel_saved){ .version = (int)version,
                                       .ranks = (int)ranks,
                                       .kind = (enum accel_state_kind)kind,
                                       .bytes = calloc(ranks, sizeof(size_t)),
                                       .data = r->data };
    for (size_t i = 0; found_out->bytes && i < ranks; i++) {
        /* the line ends with the last size, and not before */
        if (!read_number(&at, (size_t)(r->end - r->data) - total,
                         &found_out->bytes[i]) ||
            (at[-1] == '\n') != (i + 1 == ranks)) {
            free(found_out->bytes);
            found_out->bytes = NULL;
        } else {
            total += found_out->bytes[i];
        }
    }
    r->line = at;
    r->data += total;
    return found_out->bytes != NULL;
}

/* Does what was found fit object o in this run? */
static accel_status_t check_found(const accel_t *run, const char *dir,
                                  const struct state_object *o, accel_error_t *err)
{
    const struct accel_saved *f = &o->found;

    if (!f->bytes)
        return accel_fail_at(err, A0972, dir,
                             "use a checkpoint of this program, or do not register it",
                             "the checkpoint has no object '%s'", o->name);
    if (f->version > o->version)
        return accel_fail_at(err, A0972, dir, "use the program that wrote it",
                             "object '%s' was saved with version %d, but this program "
                             "reads version %d",
                             o->name, f->version, o->version);
    if ((f->kind == ACCEL_STATE_COMMON) != (o->kind == ACCEL_STATE_COMMON))
        return accel_fail_at(
            err, A0972, dir, "register it as it was saved",
            "object '%s' was saved %s, but is registered %s", o->name,
            f->kind == ACCEL_STATE_COMMON ? "for all ranks in common" : "per rank",
            o->kind == ACCEL_STATE_COMMON ? "for all ranks in common" : "per rank");
    if (o->kind == ACCEL_STATE_SAME_RANKS && f->ranks != run->boot.size)
        return accel_fail_at(err, A0972, dir, "use the number of ranks that wrote it",
                             "object '%s' was saved by %d ranks and cannot be loaded "
                             "by %d",
                             o->name, f->ranks, run->boot.size);
    return ACCEL_OK;
}

/* Reads all lines of the blob that is in run->program.blob. */
static accel_status_t read_blob(accel_t *run, const char *dir, size_t bytes,
                                accel_error_t *err)
{
    const char *blob = run->program.blob;
    const char *empty = strstr(blob, "\n\n");
    struct reading r = { blob + strlen(BLOB_TITLE), empty ? empty + 2 : NULL,
                         blob + bytes };

    if (strncmp(blob, BLOB_TITLE, strlen(BLOB_TITLE)) != 0 || !empty)
        return bad_blob(dir, err);
    while (*r.line != '\n') {
        struct accel_saved found;
        struct state_object *o;
        char name[STATE_NAME_BYTES];

        if (!read_object(&r, name, &found))
            return bad_blob(dir, err);
        o = find_object(run, name);
        if (o && !o->found.bytes) {
            o->found = found;
            continue;
        }
        free(found.bytes);
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "%s has object '%s', which this program does not register: it "
                       "is not loaded, and later saves are without it",
                       dir, name);
    }
    return r.data == r.end ? ACCEL_OK : bad_blob(dir, err);
}

accel_status_t registered_find(accel_t *run, const char *dir, const accel_ckpt_t *c,
                               accel_error_t *err)
{
    size_t bytes = 0;
    const void *blob = accel_ckpt_blob(c, STATE_OBJECTS_BLOB, &bytes);
    accel_status_t st = ACCEL_OK;

    forget_found(run);
    if (blob) {
        /* with a NUL, so that strings end in it */
        run->program.blob = calloc(1, bytes + 1);
        if (!run->program.blob)
            return accel_fail_nomem(err, "the objects of the program", bytes);
        memcpy(run->program.blob, blob, bytes);
        st = read_blob(run, dir, bytes, err);
    }
    for (int i = 0; i < run->program.objects && !st; i++)
        st = check_found(run, dir, &run->program.object[i], err);
    return st;
}

accel_status_t registered_load(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->program.objects && !st; i++) {
        const struct state_object *o = &run->program.object[i];
        const char *outer = graph_enter(&run->graph, "the load function of an object");
        accel_error_t own = { 0 };

        st = o->load(o->user, &o->found, &own);
        run->graph.inside = outer;
        run->program.function_failed = st != ACCEL_OK;
        if (st)
            st = function_failed(o, "load", st, &own, err);
    }
    if (run->program.objects)
        st = run_agree(run, st, err);
    forget_found(run);
    return st;
}
