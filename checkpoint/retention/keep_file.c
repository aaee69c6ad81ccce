/* SPDX-License-Identifier: Apache-2.0
 *
 * ROOT/retention: what the runs of a root keep, and the values of metrics by which they
 * choose. Lines of text are appended, and the last one counts. It lies beside the
 * checkpoints and not in them, since a value may come when its checkpoint is durable,
 * and must outlive every other one. A line that cannot be read counts as not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "retention/ckpt_retention.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "common/plain_file.h"

/* of a longer file the end is read: there are the newest values */
#define FILE_MAX       ((size_t)16 << 20)
#define LINE_MAX_BYTES 256
/* words of a line, and bytes of a word with its NUL */
#define WORDS      16
#define WORD_BYTES 64

/* A word of a line, which is also shown on terminals. */
static bool metric_ok(const char *name)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_.-/";
    const size_t len = strnlen(name, WORD_BYTES);

    return len > 0 && len < WORD_BYTES && strspn(name, fine) == len;
}

const char *ckpt_rule_problem(const accel_ckpt_rule_t *rule)
{
    return rule->every < 0 || rule->every > CKPT_STEP_MAX || rule->best < 0
               ? "every or best out of range"
           : metric_ok(rule->metric)
               ? NULL
               : "a metric needs a name of letters, digits, '_', '.', '-' and '/'";
}

/* ---- writing --------------------------------------------------------------------- */

/* A kill may have left half a line: then the newline that it lacks comes first, so that
 * this line is one of its own. O_APPEND keeps the one write together. 0, or errno. */
static int append_line(int rootfd, const char *line)
{
    const int fd = plain_open(rootfd, CKPT_KEEP_FILE, O_RDWR | O_APPEND | O_CREAT);
    char text[LINE_MAX_BYTES + 2], last = '\n';
    const off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    int len, error = errno;

    if (size >= 0 && (size == 0 || pread_all(fd, &last, 1, size - 1) == 1)) {
        len = snprintf(text, sizeof(text), "%s%s", last == '\n' ? "" : "\n", line);
        errno = ENOSPC; /* of a write that is too short */
        error = TEMP_FAILURE_RETRY(write(fd, text, (size_t)len)) == len ? 0 : errno;
    }
    if (fd >= 0)
        close(fd);
    return error;
}

/* What was noted until now survives a loss of power. */
static void sync_file(int rootfd)
{
    const int fd = ckpt_open_plain(rootfd, CKPT_KEEP_FILE);

    if (fd >= 0) {
        (void)TEMP_FAILURE_RETRY(fsync(fd));
        close(fd);
    }
}

static void rule_line(char buf[LINE_MAX_BYTES], const char *run_id,
                      const struct ckpt_rule *r)
{
    snprintf(buf, LINE_MAX_BYTES,
             "rule %016" PRIx64 " keep %d every %" PRId64 " best %d metric %.63s %s\n",
             ckpt_run_hash(run_id), r->keep, r->also.every, r->also.best,
             r->also.metric, r->also.larger ? "max" : "min");
}

void ckpt_keep_note(int rootfd, const char *run_id, const struct ckpt_rule *r)
{
    char line[LINE_MAX_BYTES], noted[LINE_MAX_BYTES];
    struct ckpt_rule last = { 0 };
    char *text;

    rule_line(line, run_id, r);
    if (ckpt_keep_read(rootfd, &text, NULL))
        return;
    if (ckpt_keep_rule(text, run_id, &last))
        rule_line(noted, run_id, &last);
    if (last.keep == 0 || strcmp(line, noted) != 0)
        (void)append_line(rootfd, line);
    free(text);
    sync_file(rootfd);
}

accel_status_t accel_ckpt_note_value(const char *root, const char *run_id,
                                     const char *metric, int64_t step, double value,
                                     accel_error_t *err)
{
    char line[LINE_MAX_BYTES];
    accel_status_t st;
    int rootfd, error;

    if (!root || !run_id || !metric || !metric_ok(metric) || step < 0 ||
        step > CKPT_STEP_MAX || !isfinite(value))
        return accel_fail(err, A0815, "see accel_ckpt.h",
                          "accel_ckpt_note_value: metric, step or value out of range");
    ACCEL_CHECK(st, ckpt_make_root(root, err));
    text_format(line, sizeof(line), "value %016" PRIx64 " %" PRId64 " %.17g %s\n",
                ckpt_run_hash(run_id), step, value, metric);
    rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    error = rootfd < 0 ? errno : append_line(rootfd, line);
    if (error)
        st = ckpt_fail_root(err, root, "cannot write " CKPT_KEEP_FILE, error);
    if (rootfd >= 0)
        close(rootfd);
    return st;
}

/* ---- reading --------------------------------------------------------------------- */

/* What is not a file has no line. */
accel_status_t ckpt_keep_read(int rootfd, char **text_out, accel_error_t *err)
{
    size_t len;
    int error = plain_tail(rootfd, CKPT_KEEP_FILE, FILE_MAX, text_out, &len);

    if (error == EMEDIUMTYPE) {
        *text_out = calloc(1, 1);
        error = *text_out ? 0 : ENOMEM;
    }
    if (error == ENOMEM)
        return accel_fail_nomem(err, CKPT_KEEP_FILE, FILE_MAX);
    return error ? ckpt_fail_root(err, CKPT_KEEP_FILE, "cannot read", error) : ACCEL_OK;
}

/* The words of the line at `line`, which ends with a newline; returns how many, 0 for a
 * line that is too long or has none. */
static int split_words(const char *line, char words_out[WORDS][WORD_BYTES])
{
    int n = 0;

    while (*line && *line != '\n') {
        const size_t len = strcspn(line, " \n");

        if (n == WORDS || len == 0 || len >= WORD_BYTES)
            return 0;
        memcpy(words_out[n], line, len);
        words_out[n++][len] = '\0';
        line += len + (line[len] == ' ');
    }
    return *line ? n : 0;
}

/* A word that is a whole number from 0 to `most`. */
static bool whole(const char *word, int64_t most, int64_t *value_out)
{
    char *end;
    long long v;

    if (word[0] < '0' || word[0] > '9')
        return false;
    errno = 0;
    v = strtoll(word, &end, 10);
    if (errno || *end || v > most)
        return false;
    *value_out = v;
    return true;
}

/* rule HASH keep N every N best N metric NAME min|max */
static bool is_rule(char w[WORDS][WORD_BYTES], int n, struct ckpt_rule *r_out)
{
    struct ckpt_rule r = { 0 };
    int64_t keep, best;

    if (n != 11 || strcmp(w[2], "keep") != 0 || !whole(w[3], INT32_MAX, &keep) ||
        keep < 1 || strcmp(w[4], "every") != 0 ||
        !whole(w[5], CKPT_STEP_MAX, &r.also.every) || strcmp(w[6], "best") != 0 ||
        !whole(w[7], INT32_MAX, &best) || strcmp(w[8], "metric") != 0 ||
        !metric_ok(w[9]) || (strcmp(w[10], "min") != 0 && strcmp(w[10], "max") != 0))
        return false;
    r.keep = (int)keep;
    r.also.best = (int)best;
    r.also.larger = strcmp(w[10], "max") == 0;
    memcpy(r.also.metric, w[9], sizeof(r.also.metric));
    *r_out = r;
    return true;
}

/* How lines name a run. */
struct run_word {
    char hash[20];
};

static struct run_word run_word(const char *run_id)
{
    struct run_word r;

    snprintf(r.hash, sizeof(r.hash), "%016" PRIx64, ckpt_run_hash(run_id));
    return r;
}

/* The line after the one at `line`; NULL: there is none. */
static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end && end[1] ? end + 1 : NULL;
}

bool ckpt_keep_rule(const char *text, const char *run_id, struct ckpt_rule *r_out)
{
    const struct run_word run = run_word(run_id);
    char w[WORDS][WORD_BYTES];
    bool found = false;

    for (; text; text = next_line(text)) {
        const int n = split_words(text, w);

        found |= n > 2 && strcmp(w[0], "rule") == 0 && strcmp(w[1], run.hash) == 0 &&
                 is_rule(w, n, r_out);
    }
    return found;
}

/* value HASH STEP VALUE NAME */
void ckpt_keep_values(const char *text, const char *run_id, const char *metric,
                      void (*found)(void *user, int64_t step, double value), void *user)
{
    const struct run_word run = run_word(run_id);
    char w[WORDS][WORD_BYTES], *end;
    int64_t step;
    double value;

    for (; text; text = next_line(text)) {
        const int n = split_words(text, w);

        if (n != 5 || strcmp(w[0], "value") != 0 || strcmp(w[1], run.hash) != 0 ||
            strcmp(w[4], metric) != 0 || !whole(w[2], CKPT_STEP_MAX, &step))
            continue;
        value = text_number(w[3], &end);
        if (end != w[3] && *end == '\0' && isfinite(value))
            found(user, step, value);
    }
}
