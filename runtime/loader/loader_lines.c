/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaders of a run in its checkpoints. A program may open a loader before the run
 * resumes or at any time afterwards. The line of a loader that is not open waits for a
 * loader of that name. It goes into the next checkpoints unchanged, so that nothing is
 * lost if an attempt ends before the loader is opened.
 */
#include <stdlib.h>
#include <string.h>

#include "common/key_lines.h"
#include "loader/loader.h"
#include "loader/loader_impl.h"
#include "handle/run.h"

/* The line at `at`, without its end; *next_out is where the next one begins. */
static size_t line_length(const char *at, const char *end, const char **next_out)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    *next_out = newline ? newline + 1 : end;
    return (size_t)((newline ? newline : end) - at);
}

/* Oldest first. */
static void encode_from(const struct accel_loader *l, struct strbuf *text)
{
    if (!l)
        return;
    encode_from(l->next, text);
    loader_state_encode(l, text);
}

/* The key of the count; no loader has an empty name. */
#define TAKEN LOADER_LINE_FRONT "=taken"

void loaders_encode(const accel_t *run, struct strbuf *text)
{
    strbuf_printf(text, TAKEN "=%lld\n", (long long)run->progress.cursor);
    encode_from(run->loaders, text);
    if (run->loader_lines.waiting)
        strbuf_printf(text, "%s", run->loader_lines.waiting);
}

/* `cursor` is what accel wrote before the count had a place among the loaders. */
bool loaders_taken(const char *text, int64_t *taken_out)
{
    return key_line_i64(text, TAKEN, taken_out) ||
           key_line_i64(text, "cursor", taken_out);
}

/* The lines of loaders in `text`, one malloc. */
static char *copy_lines(const char *text)
{
    const size_t bytes = strlen(text), front = strlen(LOADER_LINE_FRONT);
    char *copy = malloc(bytes + 2), *to = copy;
    const char *end = text + bytes, *next;

    for (const char *at = text; copy && at < end; at = next) {
        size_t n = line_length(at, end, &next);

        if (strncmp(at, LOADER_LINE_FRONT, front) != 0 || at[front] == '=')
            continue;
        memcpy(to, at, n);
        to += n;
        *to++ = '\n';
    }
    if (copy)
        *to = '\0';
    return copy;
}

accel_status_t loaders_find(accel_t *run, const char *text, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    char *lines;

    for (const struct accel_loader *l = run->loaders; l && st == ACCEL_OK; l = l->next)
        st = loader_state_check(l, text, err);
    if (st != ACCEL_OK)
        return st;
    lines = copy_lines(text);
    if (!lines)
        return accel_fail_nomem(err, "the places of the loaders", strlen(text));
    if (!*lines) {
        free(lines);
        lines = NULL;
    }
    free(run->loader_lines.found);
    run->loader_lines.found = lines;
    return ACCEL_OK;
}

/* Takes the line of this loader out of the text. */
static void remove_line(const struct accel_loader *l, char *text)
{
    const char *end = text + strlen(text), *next;
    size_t front = strlen(LOADER_LINE_FRONT), name = strlen(l->name);

    for (char *at = text; at < end; at += next - at) {
        line_length(at, end, &next);
        if (strncmp(at + front, l->name, name) == 0 && at[front + name] == '=') {
            memmove(at, next, (size_t)(end - next) + 1);
            return;
        }
    }
}

static accel_status_t take_line(struct accel_loader *l, char *text, bool *found_out,
                                accel_error_t *err)
{
    accel_status_t st = loader_state_decode(l, text, found_out, err);

    if (st == ACCEL_OK && *found_out)
        remove_line(l, text);
    return st;
}

/* The lines were checked when they were found. */
void loaders_load(accel_t *run)
{
    struct loader_lines *lines = &run->loader_lines;
    char none[] = "";
    bool found;

    free(lines->waiting);
    *lines = (struct loader_lines){ .waiting = lines->found };
    for (struct accel_loader *l = run->loaders; l; l = l->next) {
        char *text = lines->waiting ? lines->waiting : none;

        if (take_line(l, text, &found, NULL) == ACCEL_OK && !found && run->prepared)
            loader_seek(l, 0, 0, false);
    }
}

accel_status_t loaders_claim(struct accel_loader *l, accel_error_t *err)
{
    char *waiting = l->run->loader_lines.waiting;
    bool found;

    return waiting ? take_line(l, waiting, &found, err) : ACCEL_OK;
}

/* The lines are those of these very loaders, so none is of another order. */
void loaders_back(accel_t *run, const char *text)
{
    bool found;

    for (struct accel_loader *l = run->loaders; l; l = l->next)
        (void)loader_state_decode(l, text, &found, NULL);
}

void loaders_keep(accel_t *run)
{
    for (struct accel_loader *l = run->loaders; l; l = l->next)
        l->kept = (struct loader_spot){ l->epoch, l->taken, l->over };
}

void loaders_recall(accel_t *run)
{
    for (struct accel_loader *l = run->loaders; l; l = l->next) {
        l->epoch = l->kept.epoch;
        l->taken = l->kept.taken;
        l->over = l->kept.over;
    }
}

void loaders_tell(accel_t *run)
{
    struct loader_lines *lines = &run->loader_lines;
    const char *end, *next;

    if (lines->told || !lines->waiting)
        return;
    lines->told = true;
    end = lines->waiting + strlen(lines->waiting);
    for (const char *at = lines->waiting; run->boot.rank == 0 && at < end; at = next) {
        line_length(at, end, &next);
        at += strlen(LOADER_LINE_FRONT);
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "the checkpoint has the place of loader '%.*s', which this program "
                   "has not opened: later checkpoints keep it",
                   (int)strcspn(at, "=\n"), at);
    }
}

void loaders_forget(accel_t *run)
{
    free(run->loader_lines.waiting);
    free(run->loader_lines.found);
    run->loader_lines = (struct loader_lines){ 0 };
}
