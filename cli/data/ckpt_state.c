/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint holds beside tensors, as rows: the optimizers, loaders, scales and
 * averages that the blob `trainer` names, and the objects of the program in the blob
 * `objects`. In: an open checkpoint. Out: kind, name and a line of text each. The
 * layout of both is on the page of the format; what is not laid out so is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/data/ckpt_cmd.h"

/* Lines of `trainer` that a row is made of. */
static const struct {
    const char *key, *kind;
} kinds[] = {
    { "optimizer", "optimizer" }, { "schedule_at", "schedule" }, { "loader", "loader" },
    { "loss_scale", "scaler" },   { "ema", "average" },          { "fp8", "fp8" },
    { "powersgd", "powersgd" },
};

/* A copy of a blob's text up to its first NUL, with a NUL after it; NULL where there is
 * none. The caller frees it. False: no memory. */
static bool text_of(const accel_ckpt_t *c, const char *blob, char **text_out)
{
    size_t bytes = 0;
    const void *data = accel_ckpt_blob(c, blob, &bytes);

    *text_out = data ? strndup(data, bytes) : NULL;
    return !data || *text_out;
}

/* How many steps the optimizer of that name has done, after buf. */
static void add_progress(const char *text, const char *name, char *buf, size_t len)
{
    char key[96];
    size_t n;
    const char *at;

    snprintf(key, sizeof(key), "\noptim_steps%s%.63s=", *name ? "." : "", name);
    at = strstr(text, key);
    if (!at)
        return;
    at += strlen(key);
    n = strlen(buf);
    snprintf(buf + n, len - n, ", %.*s steps", (int)strcspn(at, "\n"), at);
}

/* A line KEY=VALUE or KEY.NAME=VALUE of a kind that is shown. */
static void trainer_line(const char *text, const char *line, ckpt_state_row *row,
                         void *user)
{
    const size_t len = strcspn(line, "\n"), key_len = strcspn(line, "=");

    for (size_t i = 0; key_len < len && i < ACCEL_ARRAY_SIZE(kinds); i++) {
        const size_t n = strlen(kinds[i].key);
        char name[64] = "", what[300];

        if (strncmp(line, kinds[i].key, n) != 0 || (line[n] != '=' && line[n] != '.'))
            continue;
        if (line[n] == '.')
            snprintf(name, sizeof(name), "%.*s", (int)(key_len - n - 1), line + n + 1);
        snprintf(what, sizeof(what), "%.*s", (int)(len - key_len - 1),
                 line + key_len + 1);
        if (i == 0)
            add_progress(text, name, what, sizeof(what));
        row(user, kinds[i].kind, name, what);
    }
}

/* NAME VERSION KIND RANKS BYTES ... */
static void object_line(const char *line, ckpt_state_row *row, void *user)
{
    static const char *const whose[] = { "common", "per rank", "per rank, same ranks" };
    char name[64], what[120], size[32];
    int version, kind, ranks, used = 0;
    double bytes = 0;

    if (sscanf(line, "%63s %9d %1d %6d%n", name, &version, &kind, &ranks, &used) != 4 ||
        kind < 0 || kind > 2)
        return;
    for (const char *at = line + used; *at == ' ';) {
        char *end;

        bytes += (double)strtoll(at, &end, 10);
        if (end == at)
            return; /* not a number */
        at = end;
    }
    snprintf(what, sizeof(what), "version %d, %s, of %d rank%s, %s", version,
             whose[kind], ranks, ranks == 1 ? "" : "s",
             format_bytes(bytes, size, sizeof(size)));
    row(user, "object", name, what);
}

bool ckpt_state_rows(const accel_ckpt_t *c, ckpt_state_row *row, void *user)
{
    char *trainer = NULL, *objects = NULL, *line;
    const bool all = text_of(c, "trainer", &trainer) && text_of(c, "objects", &objects);

    for (line = trainer; line && *line; line = strchr(line, '\n'), line += line != NULL)
        trainer_line(trainer, line, row, user);
    line = objects && strncmp(objects, "objects 1\n", 10) == 0 ? objects + 10 : NULL;
    for (; line && *line && *line != '\n';
         line = strchr(line, '\n'), line += line != NULL)
        object_line(line, row, user);
    free(trainer);
    free(objects);
    return all;
}
