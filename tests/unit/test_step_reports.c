/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks leave for their launcher: which JSON tells a failure and how it is shown,
 * hostile files and directories, the order of failures, where the directory is, and
 * which directories of earlier starts go.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/common.h"
#include "common/step_reports.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

static char dir[64] = "/tmp/accel-reports.XXXXXX";

/* ---- the JSON of one file -------------------------------------------------------- */

#define TORCH(text, more)                                                              \
    "{\"message\": {\"message\": \"" text "\", \"extraInfo\": {\"py_callstack\": "     \
    "\"Traceback\\n  File \\\"a.py\\\"\", \"timestamp\": \"17\"" more "}}}"
#define FAILED "rank 3 failed first: "
#define X10    "0123456789"
#define X100   X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
#define DEEP   "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["

/* The text for rank 3; NULL: no failure is known. */
static const struct {
    const char *json, *want;
    double seconds;
} files[] = {
    { TORCH("ValueError: bad", ""), FAILED "ValueError: bad", 17 },
    { TORCH("ValueError: bad",
            ", \"file\": \"/data/a/train.py\", \"line\": \"12\", "
            "\"rank\": \"9\", \"host\": \"n2\", \"exception\": \"V\""),
      "rank 3 (n2) failed first: ValueError: bad (train.py:12)", 17 },
    { TORCH("E", ", \"file\": \"train.py\", \"line\": 12"), FAILED "E (train.py:12)",
      17 },
    { TORCH("E", ", \"file\": \"train.py\""), FAILED "E (train.py)", 17 },
    { TORCH("E", ", \"file\": \"train.py\", \"line\": \"-4\""), FAILED "E (train.py)",
      17 },
    { TORCH("E", ", \"file\": \"a/\", \"line\": \"4\""), FAILED "E", 17 },
    { TORCH("E", ", \"file\": 7, \"line\": {\"line\": 4}, \"host\": [\"n\"]"),
      FAILED "E", 17 },
    { "{\"message\": \"RuntimeError: of an older torch\"}",
      FAILED "RuntimeError: of an older torch", 0 },
    { "{\"message\": {\"message\": \"E\", \"py_callstack\": \"T\", \"timestamp\": "
      "1796067805}}",
      FAILED "E", 1796067805 },
    { "{\"message\": {\"message\": \"E\", \"extraInfo\": {\"timestamp\": 5.25}}}",
      FAILED "E", 5.25 },
    { "{\"message\": {\"message\": \"E\", \"extraInfo\": {\"timestamp\": \"5.25\"}}}",
      FAILED "E", 5.25 },
    { "{\"message\": \"E\", \"timestamp\": \"5\", \"time_ns\": 6}", FAILED "E", 5 },
    { "{\"message\": \"E\", \"blames_another\": 1}",
      "rank 3 failed first, but blames another rank: E", 0 },
    { "{\"message\": \"E\", \"blames_another\": 0}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"blames_another\": {\"a\": 1}}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": \"-5\"}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": \"nan\"}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": \"inf\"}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": 1e300}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": \"5 \"}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": \"\"}", FAILED "E", 0 },
    { "{\"message\": \"E\", \"timestamp\": null}", FAILED "E", 0 },
    { " {\n\"message\"\t:\r\"E\" } ", FAILED "E", 0 },
    /* what is shown of a text */
    { "{\"message\": \"E: \\u001b[31mred\\u007f\\u0085\"}", FAILED "E: ?[31mred??", 0 },
    { "{\"message\": \"E: \\u202eabc\\u2066\\u200f\"}", FAILED "E: ?abc??", 0 },
    { "{\"message\": \"E: gr\xc3\xb6\xc3\x9f\x65\"}",
      FAILED "E: gr\xc3\xb6\xc3\x9f\x65", 0 },
    { "{\"message\": \"E: one\\nsecond line\"}", FAILED "E: one", 0 },
    { "{\"message\": \"" X100 X100 X10 X10 X10 X10 X10 "01234\"}",
      FAILED X100 X100 X10 X10 X10 X10 X10 "01234", 0 },
    { "{\"message\": \"" X100 X100 X10 X10 X10 X10 X10 "012345\"}",
      FAILED X100 X100 X10 X10 X10 X10 X10 "01...", 0 },
    { "{\"message\": \"" X100 X100 X10 X10 X10 X10 X10 "0\xe2\x82\xac\xe2\x82\xac\"}",
      FAILED X100 X100 X10 X10 X10 X10 X10 "0...", 0 },
    /* no failure */
    { "", NULL, 0 },
    { "{}", NULL, 0 },
    { "[]", NULL, 0 },
    { "\"E\"", NULL, 0 },
    { "{\"message\": \"\"}", NULL, 0 },
    { "{\"message\": \"\\nE\"}", NULL, 0 },
    { "{\"message\": 5}", NULL, 0 },
    { "{\"message\": [\"E\"]}", NULL, 0 },
    { "{\"message\": \"E\"} x", NULL, 0 },
    { "{\"message\": \"E\", }", NULL, 0 },
    { "{\"message\": \"E\xff\"}", NULL, 0 },
    { "{\"message\": \"E\\ud800\"}", NULL, 0 },
    { "{\"message\": \"E\\u0000\"}", NULL, 0 },
    { "{\"message\": \"E\", \"a\": " DEEP DEEP, NULL, 0 },
    { "{\"message\": {\"message\": {\"message\": {\"message\": \"E\"}}}}", NULL, 0 },
};

/* A copy of exactly this size, so that a sanitizer sees a byte too many. */
static bool parse(const char *json, size_t len, struct step_failure *f_out)
{
    char *copy = calloc(len + 1, 1);
    bool known = false;

    *f_out = (struct step_failure){ .rank = 3 };
    if (copy) {
        memcpy(copy, json, len);
        known = error_file_parse(copy, len, f_out);
    }
    free(copy);
    return known;
}

static void test_json(void)
{
    struct step_failure f;
    char text[768];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(files); i++) {
        const bool known = parse(files[i].json, strlen(files[i].json), &f);

        tap_is_str(known ? step_report_text(&(struct step_report){ .first = f }, text,
                                            sizeof(text))
                         : "unknown",
                   files[i].want ? files[i].want : "unknown", "file %zu", i + 1);
        if (known)
            tap_ok(f.seconds == files[i].seconds, "file %zu: its time", i + 1);
    }
}

/* Each cut text, and each with one other byte: none is read beyond its end, and what is
 * shown stays one printable line. */
static void test_damaged(void)
{
    char json[512];
    const size_t len = (size_t)snprintf(
        json, sizeof(json), "%s",
        TORCH("ValueError: \\u00e4", ", \"file\": \"a.py\", \"line\": \"1\""));
    struct step_failure f;
    size_t known = 0, odd = 0;

    for (size_t n = 0; n < len; n++)
        known += parse(json, n, &f);
    tap_is_int((long long)known, 0, "no cut text tells a failure");
    for (size_t at = 0; at < len; at++)
        for (int byte = 0; byte < 256; byte++) {
            const char was = json[at];

            json[at] = (char)byte;
            if (parse(json, len, &f))
                for (const char *s = f.text; *s; s++)
                    odd += (unsigned char)*s < 0x20 || *s == 0x7f;
            json[at] = was;
        }
    tap_is_int((long long)odd, 0, "and no other byte reaches the terminal");
}

/* ---- a directory ----------------------------------------------------------------- */

static const char *in_dir(const char *name)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text)
{
    run_folder_write(in_dir(name), text);
}

/* A failure of that rank with its own time, written at `ns` of second 100. */
static void put_error(int rank, const char *seconds, long ns)
{
    char name[64], text[160];
    const struct timespec when[2] = { { 100, ns }, { 100, ns } };

    snprintf(name, sizeof(name), "step/error.%d", rank);
    snprintf(text, sizeof(text), "{\"message\": \"E%d\", \"timestamp\": \"%s\"}", rank,
             seconds);
    put(name, text);
    utimensat(AT_FDCWD, in_dir(name), when, 0);
}

static struct step_report take(void)
{
    struct step_report r;
    char path[300];

    snprintf(path, sizeof(path), "%s", in_dir("step"));
    step_reports_take(path, "2(x2)", &r);
    return r;
}

static void begin(void)
{
    step_reports_make(in_dir("step"));
}

static void test_make(void)
{
    struct stat sb = { 0 };

    tap_ok(step_reports_make(in_dir("a/b/step")), "all directories are made");
    tap_ok(stat(in_dir("a/b/step"), &sb) == 0 && (sb.st_mode & 0777) == 0700,
           "for this user alone");
    tap_ok(step_reports_make(in_dir("a/b/step")), "one that is there is good");
    put("a/file", "");
    tap_ok(!step_reports_make(in_dir("a/file/step")), "nothing below a file");
}

static void test_job(void)
{
    static const struct {
        const char *text;
        bool opened, saved;
        int64_t step;
    } rows[] = {
        { "opened /a\n", true, false, 0 },
        { "opened /a\nsaved 5\nsaved 70\n", true, true, 70 },
        { "opened /a\nsaved 5\nsaved 7", true, true, 7 },
        { "saved 0\n", true, true, 0 },
        { "opened", false, false, 0 },
        { "saved\nsaved \nsaved x\nsaved 5 \nsaved -5\n", false, false, 0 },
        { "saved 1234567890123456789\n", false, false, 0 },
        { "", false, false, 0 },
    };
    char *lines = calloc(1, 100 << 10);
    struct step_report r;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        begin();
        put("step/job", rows[i].text);
        r = take();
        tap_ok(r.opened == rows[i].opened && r.saved == rows[i].saved &&
                   r.saved_step == rows[i].step,
               "a job, row %zu", i + 1);
    }
    for (size_t n = 0; n + 20 < (100u << 10);)
        n += (size_t)sprintf(lines + n, "saved %zu\n", n);
    begin();
    put("step/job", lines);
    r = take();
    tap_ok(r.opened && r.saved, "of a long file the end is read");
    free(lines);
}

static void test_order(void)
{
    struct step_report r;

    begin();
    put_error(4, "50", 3);
    put_error(0, "51", 1);
    put_error(7, "50", 5);
    r = take();
    tap_is_int(r.first.rank, 4, "the first by the ranks' own time, then by the file's");
    begin();
    put_error(10, "50", 3);
    put_error(9, "50", 3);
    put_error(11, "", 3);
    r = take();
    tap_is_int(r.first.rank, 9, "of two at one time the lowest");
    begin();
    put_error(1, "200", 3);
    put_error(2, "", 3);
    r = take();
    tap_is_int(r.first.rank, 2, "one without a time has that of its file");
    begin();
    put_error(1, "100", 7);
    put_error(2, "", 3);
    put_error(3, "99", 3);
    r = take();
    tap_is_int(r.first.rank, 2, "a file of the second that the rank tells is finer");
    begin();
    put_error(1, "98", 3);
    put_error(2, "", 1);
    r = take();
    tap_is_int(r.first.rank, 1, "one that was written later is not");
}

/* ---- ends ------------------------------------------------------------------------ */

#define KILLED " failed first: killed by SIGKILL (out of memory, or cancelled)"
#define OWN    "{\"message\": \"E\", \"time_ns\": 50000000300}"
#define PEER   "{\"message\": \"Connection reset by peer\", \"time_ns\": 10}"
#define LATE   "{\"message\": \"E\", \"blames_another\": 1, \"time_ns\": 10}"

/* Files of a step of two nodes with two ranks each, "NAME=TEXT|...", and what is said
 * with which code. NULL: nothing. */
static const struct {
    const char *files, *want;
    int code;
} ended[] = {
    { "end.0.1=9 50 n1", "rank 1 (n1)" KILLED, 137 },
    { "end.1.0=11 50 n2\n", "rank 2 (n2) failed first: killed by SIGSEGV", 139 },
    { "end.1.1=134 50 n2", "rank 3 (n2) failed first: killed by SIGABRT", 134 },
    { "end.1.1=768 50", "rank 3 failed first: exited with code 3", 3 },
    { "end.0.0=35072 50 n1",
      "rank 0 (n1) failed first: exited with code 137 (SIGKILL: out of memory, or "
      "cancelled)",
      137 },
    { "end.0.0=35584 50 n1", "rank 0 (n1) failed first: exited with code 139 (SIGSEGV)",
      139 },
    { "end.0.0=64 50 n1", "rank 0 (n1) failed first: killed by SIGRT", 192 },
    /* the first counts, and a kill only if it is the first of all */
    { "end.0.0=768 51 n1|end.1.0=1024 50 n2",
      "rank 2 (n2) failed first: exited with "
      "code 4",
      4 },
    { "end.0.0=768 51 n1|end.1.0=9 50 n2", "rank 2 (n2)" KILLED, 137 },
    { "end.0.0=768 51 n1|end.1.0=9 52 n2",
      "rank 0 (n1) failed first: exited with code 3", 3 },
    { "end.0.0=15 51 n1|end.1.0=9 52 n2", NULL, 0 },
    { "end.0.0=21760 51 n1|end.1.0=9 52 n2", NULL, 0 },
    { "end.0.0=15 51 n1|end.1.0=6 52 n2", "rank 2 (n2) failed first: killed by SIGABRT",
      134 },
    /* somebody wanted these */
    { "end.0.0=15 50 n1|end.0.1=2 50 n1|end.1.0=1 50 n2|end.1.1=10 50 n2", NULL, 0 },
    { "end.0.0=12 50 n1|end.0.1=36608 50 n1|end.1.0=33280 50 n2", NULL, 0 },
    { "end.0.0=21760 50 n1|end.0.1=19200 50 n1|end.1.0=0 50 n2", NULL, 0 },
    /* with exceptions: one event with the end of the same rank */
    { "error.3=" OWN "|end.1.1=256 50000000900 n2", "rank 3 (n2) failed first: E", 1 },
    { "error.3=" OWN "|end.1.1=1024 50000000900 n2", "rank 3 (n2) failed first: E", 4 },
    { "error.3=" OWN "|end.1.1=9 50000000900 n2", "rank 3 (n2) failed first: E", 1 },
    { "error.3=" OWN "|end.1.1=15 50000000900 n2", "rank 3 (n2) failed first: E", 1 },
    { "error.3=" OWN "|end.0.1=768 50000000400 n1|end.1.1=256 50000000900 n2",
      "rank 3 (n2) failed first: E", 1 },
    { "error.3=" OWN "|end.0.1=768 50000000200 n1",
      "rank 1 (n1) failed first: exited "
      "with code 3",
      3 },
    { "error.3=" OWN "|end.0.1=9 50000000200 n1", "rank 1 (n1)" KILLED, 137 },
    { "error.3=" OWN "|end.0.1=9 50000000400 n1", "rank 3 failed first: E", 1 },
    /* who blames another rank comes last */
    { "error.0=" PEER "|error.3=" OWN, "rank 3 failed first: E", 1 },
    { "error.0=" LATE "|error.3=" OWN, "rank 3 failed first: E", 1 },
    { "error.0=" PEER "|end.0.1=9 50 n1|end.0.0=256 60 n1", "rank 1 (n1)" KILLED, 137 },
    { "error.0=" PEER "|end.0.1=768 90 n1|end.0.0=256 60 n1",
      "rank 1 (n1) failed first: exited with code 3", 3 },
    { "end.0.0=19456 50 n1|end.0.1=768 60 n1",
      "rank 1 (n1) failed first: exited with "
      "code 3",
      3 },
    { "error.0=" PEER "|end.0.0=256 60 n1|end.0.1=9 70 n1",
      "rank 0 (n1) failed first, but blames another rank: Connection reset by peer; "
      "ranks 1, 2, 3 reported nothing",
      1 },
    { "error.0=" PEER "|error.1=" LATE "|error.3=" LATE,
      "rank 0 failed first, but blames another rank: Connection reset by peer; rank 2 "
      "reported nothing",
      1 },
    { "error.0=" LATE "|error.1=" PEER "|error.2=" LATE "|error.3=" LATE
      "|error.9=" LATE,
      "rank 0 failed first, but blames another rank: E", 1 },
    /* hostile */
    { "end.0.1=9 50 n\x1b[2J", "rank 1 (n)" KILLED, 137 },
    { "end.0.1=9 50 \x1b[2J", "rank 1" KILLED, 137 },
    { "end.0.1=9", NULL, 0 },
    { "end.0.1=", NULL, 0 },
    { "end.0.1=x 50 n1", NULL, 0 },
    { "end.0.1=9 0 n1", NULL, 0 },
    { "end.0.1=9 -1 n1", NULL, 0 },
    { "end.0.1=9 9999999999999999999 n1", NULL, 0 },
    { "end.0.1=65536 50 n1", NULL, 0 },
    { "end.0.1=-9 50 n1", NULL, 0 },
    { "end.0.1=4991 50 n1", NULL, 0 },
    { "end.0.2=9 50 n1|end.2.0=9 50 n1|end.=9 50 n1|end.0=9 50 n1|end.0.=9 50 n1", NULL,
      0 },
    { "end.0.1x=9 50 n1|end.0.1.0=9 50 n1|end.-1.0=9 50 n1|end.0.-1=9 50 n1", NULL, 0 },
    { "end.9999999999.0=9 50 n1|end.0.4294967297=9 50 n1|xend.0.1=9 50 n1", NULL, 0 },
};

static void test_ends(void)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(ended); i++) {
        char *files = strdup(ended[i].files), *rest = files, *file, name[64], text[768];
        struct step_report r;

        begin();
        while ((file = strsep(&rest, "|"))) {
            char *content = strchr(file, '=');

            *content++ = '\0';
            snprintf(name, sizeof(name), "step/%s", file);
            put(name, content);
        }
        r = take();
        tap_is_str(r.first.known ? step_report_text(&r, text, sizeof(text)) : "nothing",
                   ended[i].want ? ended[i].want : "nothing", "ends, row %zu", i + 1);
        tap_is_int(r.first.code, ended[i].code, "ends, row %zu: its code", i + 1);
        free(files);
    }
}

/* What counts where something else ended the step. */
static void test_raised(void)
{
    struct step_report r;

    begin();
    put("step/end.0.0", "768 40 n1");
    put("step/error.1", PEER);
    put("step/error.2", OWN);
    r = take();
    tap_ok(r.first.rank == 0 && r.raised.known && r.raised.rank == 2,
           "an exception of its own is kept apart");
    begin();
    put("step/end.0.0", "768 40 n1");
    put("step/error.1", PEER);
    r = take();
    tap_ok(r.first.rank == 0 && !r.raised.known, "one that blames another is not");
}

/* Many silent ranks are only counted; of many ends each is read once. */
static void test_many(void)
{
    struct step_report r;
    char path[300], name[64], text[768];

    begin();
    put("step/error.0", PEER);
    snprintf(path, sizeof(path), "%s", in_dir("step"));
    step_reports_take(path, "10", &r);
    tap_is_str(
        step_report_text(&r, text, sizeof(text)),
        "rank 0 failed first, but blames another rank: Connection reset by peer; "
        "9 ranks reported nothing",
        "nine silent ranks");
    begin();
    put("step/error.0", PEER);
    put("step/end.0.1", "768 40 n1");
    step_reports_take(path, NULL, &r);
    tap_is_str(step_report_text(&r, text, sizeof(text)),
               "rank 0 failed first, but blames another rank: Connection reset by peer",
               "without the ranks of the nodes no end is read, and nobody is silent");
    begin();
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "step/end.0.%d", i);
        put(name, i == 77 ? "1024 30 n1" : "768 40 n1");
    }
    step_reports_take(path, "5000", &r);
    tap_ok(r.first.known && access(path, F_OK) != 0, "of too many ends some are read");
}

/* Whatever else lies there is not read, does not block, and goes. */
static void test_hostile(void)
{
    struct step_report r;
    char *big = malloc(300 << 10);

    begin();
    put("job", "opened /elsewhere\n");
    put("stolen", "{\"message\": \"stolen\"}");
    tap_ok(symlink("../job", in_dir("step/job")) == 0, "a link in place of the job");
    tap_ok(symlink("../stolen", in_dir("step/error.0")) == 0, "and of an error");
    tap_ok(mkfifo(in_dir("step/error.1"), 0600) == 0, "a fifo");
    memset(big, ' ', 300 << 10);
    memcpy(big, "{\"message\": \"big\"", 17);
    big[(300 << 10) - 2] = '}';
    big[(300 << 10) - 1] = '\0';
    put("step/error.2", big);
    free(big);
    put("step/error.", "{\"message\": \"no rank\"}");
    put("step/error.1x", "{\"message\": \"no rank\"}");
    put("step/error.-1", "{\"message\": \"no rank\"}");
    put("step/error.1234567890", "{\"message\": \"no rank\"}");
    put("step/.job.tmp", "saved 5\n");
    r = take();
    tap_ok(!r.opened && !r.first.known, "nothing of them is read");
    tap_ok(access(in_dir("step"), F_OK) != 0, "and nothing is left");
    tap_ok(access(in_dir("job"), F_OK) == 0 && access(in_dir("stolen"), F_OK) == 0,
           "but what the links name");
    r = take();
    tap_ok(!r.opened && !r.first.known, "no directory: nothing is known");
    begin();
    mkdir(in_dir("step/error.3"), 0700);
    r = take();
    tap_ok(!r.first.known && access(in_dir("step/error.3"), F_OK) == 0,
           "a directory in it stays");
    rmdir(in_dir("step/error.3"));
    rmdir(in_dir("step"));
    mkdir(in_dir("other"), 0700);
    put("other/job", "opened /a\n");
    tap_ok(symlink("other", in_dir("step")) == 0, "a link to a directory");
    r = take();
    tap_ok(!r.opened && access(in_dir("other/job"), F_OK) == 0, "is left alone");
    unlink(in_dir("step"));
    if (geteuid() != 0) {
        tap_skip(1, "another user's directory: only root can make one");
        return;
    }
    begin();
    put("step/job", "opened /a\n");
    tap_ok(chown(in_dir("step"), 65534, 65534) == 0 && !take().opened &&
               access(in_dir("step/job"), F_OK) == 0,
           "so is another user's directory");
    unlink(in_dir("step/job"));
    rmdir(in_dir("step"));
}

/* ---- names ----------------------------------------------------------------------- */

static void choose(const char *state, const char *home, const char *want,
                   const char *what)
{
    char path[4096] = "";

    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    if (state)
        setenv("XDG_STATE_HOME", state, 1);
    if (home)
        setenv("HOME", home, 1);
    tap_is_str(step_reports_choose("b.1.0.0", path, sizeof(path)) ? path : "none", want,
               "%s", what);
}

static void test_choice(void)
{
    char want[4200], below[4200], cwd[4096];

    snprintf(below, sizeof(below), "%s/.local/state/accel/steps/b.1.0.0", dir);
    tap_ok(getcwd(cwd, sizeof(cwd)) != NULL, "there is a current directory");
    snprintf(want, sizeof(want), "%s/.accel-step.b.1.0.0", cwd);
    choose("/state", dir, "/state/accel/steps/b.1.0.0", "XDG_STATE_HOME");
    choose("state", dir, below, "it must be absolute");
    choose("/sta\nte", dir, below, "and without control characters");
    choose(NULL, dir, below, "HOME");
    choose(NULL, "/nonexistent", want, "a home that is not there");
    choose(NULL, "home", want, "a home that is not absolute");
    choose(NULL, NULL, want, "no home");
    tap_ok(!step_reports_choose("b.1.0.0", want, 10), "no room for a path: none");
}

/* The directories that are there, and those that are left. */
static void test_sweep(void)
{
    static const struct {
        const char *name;
        bool stays;
    } rows[] = {
        { "b.12.0.0", false },  { "b.12.7.1", false }, { "b.12.3.2", true },
        { "b.12.0.3", true },   { "b.12.0.4", true },  { "b.13.0.0", true },
        { "b.1.0.0", true },    { "c.12.0.0", true },  { "b.12.0", true },
        { "b.12.0.0x", true },  { "b.12..0", true },   { "b.12.x.0", true },
        { "b.12.0.0.0", true }, { "b.12.0.", true },   { "b.120.0.0", true },
    };
    char path[300];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        mkdir(in_dir(rows[i].name), 0700);
    put("b.12.0.0/job", "opened /a\n");
    snprintf(path, sizeof(path), "%s", in_dir("b.12.3.0"));
    step_reports_sweep(path);
    tap_ok(access(in_dir("b.12.7.1"), F_OK) == 0, "the first start removes nothing");
    snprintf(path, sizeof(path), "%s", in_dir("b.12.3.2"));
    step_reports_sweep(path);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_int(access(in_dir(rows[i].name), F_OK) == 0, rows[i].stays, "%s %s",
                   rows[i].name, rows[i].stays ? "stays" : "goes");
    step_reports_sweep("/nowhere-at-all/b.12.3.2");
    step_reports_sweep("b.12.3.2");
    step_reports_sweep(dir);
}

int main(void)
{
    run_folder_new(dir);
    test_json();
    test_damaged();
    test_make();
    test_job();
    test_order();
    test_ends();
    test_raised();
    test_many();
    test_hostile();
    test_choice();
    test_sweep();
    run_folder_remove(dir);
    return tap_done();
}
