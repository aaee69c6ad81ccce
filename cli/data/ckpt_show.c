/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt show DIR`: what one checkpoint holds, from its manifest: the run, the
 * files, every tensor with its size and where it lies. Data is not read, but for blobs,
 * whose hashes opening checks.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "cli/output.h"

/* "2026-01-31 12:00:00 UTC", or "" where the time is not known */
static void show_time(int64_t saved, char *buf, size_t len)
{
    time_t t = (time_t)saved;
    struct tm tm;

    if (saved < 0 || !gmtime_r(&t, &tm) ||
        strftime(buf, len, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        buf[0] = '\0';
}

/* Which directory is asked about, and the answer. */
struct why {
    const char *name;
    char text[160];
};

static void take_why(void *user, const char *name, const char *text)
{
    struct why *w = user;

    if (strcmp(name, w->name) == 0)
        snprintf(w->text, sizeof(w->text), "%s",
                 text[0] ? text : "goes with the next save");
}

/* Why the checkpoint stays where it lies; "" where nothing is known of that. */
static void show_kept(const accel_ckpt_t *c, char *buf, size_t len)
{
    char *path = realpath(ckpt_path(c), NULL),
         *slash = path ? strrchr(path, '/') : NULL;
    struct why w = { .name = slash ? slash + 1 : "" };

    if (slash) {
        *slash = '\0';
        (void)ckpt_why_kept(path[0] ? path : "/", take_why, &w, NULL);
    }
    snprintf(buf, len, "%s", w.text);
    free(path);
}

/* All files together, and all elements of all tensors. */
static void sum_sizes(const accel_ckpt_t *c, int64_t *files_out, int64_t *tensors_out)
{
    struct ckpt_view v;
    int64_t bytes;

    *files_out = *tensors_out = 0;
    for (int f = 0; f < accel_ckpt_world_size(c); f++) {
        ckpt_file_at(c, f, &bytes);
        *files_out += bytes;
    }
    for (size_t i = 0; i < accel_ckpt_tensor_count(c); i++) {
        ckpt_view(c, i, &v);
        *tensors_out += v.elems * (int64_t)accel_dtype_bytes(v.dtype);
    }
}

/* ---- as JSON --------------------------------------------------------------------- */

static json_t *files_json(const accel_ckpt_t *c)
{
    json_t *list = json_array();
    int64_t bytes;

    for (int f = 0; f < accel_ckpt_world_size(c); f++) {
        const char *name = ckpt_file_at(c, f, &bytes);

        json_array_append_new(
            list, json_pack("{s:s, s:I}", "name", name, "bytes", (json_int_t)bytes));
    }
    return list;
}

static json_t *tensors_json(const accel_ckpt_t *c)
{
    json_t *list = json_array();
    struct ckpt_view v;
    int first, last;

    for (size_t i = 0; i < accel_ckpt_tensor_count(c); i++) {
        size_t boxes = ckpt_boxes_of(c, i, &first, &last);
        json_t *shape = json_array();

        ckpt_view(c, i, &v);
        for (int d = 0; d < v.ndim; d++)
            json_array_append_new(shape, json_integer(v.shape[d]));
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:I, s:I, s:i, s:i}", "name", v.name,
                            "dtype", accel_dtype_name(v.dtype), "shape", shape, "bytes",
                            (json_int_t)(v.elems * (int64_t)accel_dtype_bytes(v.dtype)),
                            "boxes", (json_int_t)boxes, "first_file", first,
                            "last_file", last));
    }
    return list;
}

static json_t *blobs_json(const accel_ckpt_t *c)
{
    json_t *list = json_array();
    const void *data;
    const char *name;
    size_t bytes;

    for (size_t i = 0; (name = ckpt_blob_at(c, i, &data, &bytes)) != NULL; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:I}", "name", name, "bytes", (json_int_t)bytes));
    return list;
}

static void state_json_row(void *user, const char *kind, const char *name,
                           const char *what)
{
    json_array_append_new(
        user, json_pack("{s:s, s:s, s:s}", "kind", kind, "name", name, "what", what));
}

static void show_state_rows(const accel_ckpt_t *c, ckpt_state_row *row, void *user)
{
    if (!ckpt_state_rows(c, row, user))
        cli_lacks_memory();
}

static json_t *state_json(const accel_ckpt_t *c)
{
    json_t *list = json_array();

    if (list)
        show_state_rows(c, state_json_row, list);
    return list;
}

/* One object; a NULL inside, for lack of memory, makes json_pack fail. */
static int show_json(const accel_ckpt_t *c, const struct ckpt_header *h)
{
    char saved[32], kept[160];
    json_t *all;

    show_time(h->saved, saved, sizeof(saved));
    show_kept(c, kept, sizeof(kept));
    all = json_pack("{s:I, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}",
                    "step", (json_int_t)accel_ckpt_step(c), "ranks",
                    accel_ckpt_world_size(c), "run_id", accel_ckpt_run_id(c), "owner",
                    h->owner, "sharding", h->sharding, "library", h->library, "saved",
                    saved, "kept", kept, "files", files_json(c), "blobs", blobs_json(c),
                    "state", state_json(c), "tensors", tensors_json(c));
    return cli_print_json(all, JSON_INDENT(3), "the list of tensors");
}

/* ---- as a table ------------------------------------------------------------------ */

static void show_head(const accel_ckpt_t *c, const struct ckpt_header *h)
{
    char saved[32], kept[160], files[32], tensors[32];
    int64_t file_bytes, tensor_bytes;

    show_time(h->saved, saved, sizeof(saved));
    sum_sizes(c, &file_bytes, &tensor_bytes);
    printf("step      %" PRId64 "\n", accel_ckpt_step(c));
    printf("saved     %s by accel %s\n", saved, h->library);
    printf("run       %s\n", accel_ckpt_run_id(c));
    printf("owner     %s\n", h->owner);
    show_kept(c, kept, sizeof(kept));
    if (kept[0])
        printf("kept      %s\n", kept);
    printf("ranks     %d, %s\n", accel_ckpt_world_size(c), h->sharding);
    printf("size      %s in files, %s of it in %zu tensors\n\n",
           format_bytes((double)file_bytes, files, sizeof(files)),
           format_bytes((double)tensor_bytes, tensors, sizeof(tensors)),
           accel_ckpt_tensor_count(c));
}

static int show_tensors(const accel_ckpt_t *c)
{
    static const char *const columns[] = { "NAME",   "DTYPE", "SHAPE", "#SIZE",
                                           "#BOXES", "FILES", NULL };
    struct cli_table *t = cli_table_new("tensors", columns);
    char shape[200], size[32], boxes[24], files[32];
    int first, last;

    if (!t)
        return cli_no_memory("the table");
    for (size_t i = 0; i < accel_ckpt_tensor_count(c); i++) {
        struct ckpt_view v;

        ckpt_view(c, i, &v);
        snprintf(boxes, sizeof(boxes), "%zu", ckpt_boxes_of(c, i, &first, &last));
        if (first == last)
            snprintf(files, sizeof(files), "%d", first);
        else
            snprintf(files, sizeof(files), "%d to %d", first, last);
        format_bytes((double)v.elems * (double)accel_dtype_bytes(v.dtype), size,
                     sizeof(size));
        cli_table_row(
            t, (const char *[]){ v.name, accel_dtype_name(v.dtype),
                                 ckpt_dims(v.ndim, v.shape, shape, sizeof(shape)), size,
                                 boxes, first < 0 ? "" : files });
    }
    return cli_table_print(t, false);
}

static void state_table_row(void *user, const char *kind, const char *name,
                            const char *what)
{
    cli_table_row(user, (const char *[]){ kind, name, what });
}

static int show_state(const accel_ckpt_t *c)
{
    static const char *const columns[] = { "STATE", "NAME", "WHAT", NULL };
    struct cli_table *t;
    size_t bytes;

    /* weights that were imported have none */
    if (!accel_ckpt_blob(c, "trainer", &bytes))
        return 0;
    t = cli_table_new("state", columns);
    if (!t)
        return cli_no_memory("the table");
    show_state_rows(c, state_table_row, t);
    putchar('\n');
    return cli_table_print(t, false);
}

static int show_files(const accel_ckpt_t *c)
{
    static const char *const columns[] = { "FILE", "#SIZE", NULL };
    struct cli_table *t = cli_table_new("files", columns);
    char size[32];
    int64_t bytes;

    if (!t)
        return cli_no_memory("the table");
    for (int f = 0; f < accel_ckpt_world_size(c); f++) {
        const char *name = ckpt_file_at(c, f, &bytes);

        cli_table_row(t, (const char *[]){
                             name, format_bytes((double)bytes, size, sizeof(size)) });
    }
    putchar('\n');
    return cli_table_print(t, false);
}

int ckpt_show(const struct ckpt_args *a)
{
    struct ckpt_header header;
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    int code;

    if (ckpt_open_path(&c, a->path[0], &err))
        return cli_fail(&err);
    ckpt_header(c, &header);
    if (a->json) {
        code = show_json(c, &header);
    } else {
        show_head(c, &header);
        code = show_tensors(c);
        code = code ? code : show_state(c);
        code = code ? code : show_files(c);
    }
    accel_ckpt_close(c);
    return code;
}
