/* SPDX-License-Identifier: Apache-2.0
 *
 * track/: names, texts and histograms as they are written; JSONL, CSV and event files
 * read by readers of their own, over lives, full disks and directories that are not
 * there; a later attempt; sinks of the program that fail.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/tap.h"
#include "tests/unit/event_reader.h"
#include "tests/world/run_folder.h"
#include "track/crc32c.h"
#include "track/event_bytes.h"
#include "track/track.h"

static char base[] = "/tmp/accel-track.XXXXXX", said[8192];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    if (level == ACCEL_LOG_WARN)
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static const struct accel_log log_to_test = { keep_line, NULL, ACCEL_LOG_INFO };

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* ---- pure parts ------------------------------------------------------------------ */

static void test_crc(void)
{
    uint8_t data[300];
    bool same = true;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 37 + (i >> 3));
    for (size_t n = 0; n <= sizeof(data); n++)
        same &= crc32c(data, n) == event_crc(data, n);
    tap_ok(same, "CRC-32C is the remainder, bit by bit");
    tap_is_int(crc32c("123456789", 9), 0xe3069283, "and that of the check string");
}

/* Is the count of each bucket that of the definition? */
static bool buckets_right(const struct histogram *h, const float *v, int n)
{
    int64_t all = 0;

    for (int b = 0; b < h->buckets; b++) {
        int64_t in = 0;

        for (int i = 0; i < n; i++)
            in += isfinite(v[i]) && v[i] >= h->edge[b] &&
                  (v[i] < h->edge[b + 1] ||
                   (b == h->buckets - 1 && v[i] == h->edge[b + 1]));
        if (in != h->in[b])
            return false;
        all += in;
    }
    return all == h->count;
}

static void test_histogram(void)
{
    float v[1000];
    struct histogram h;
    bool right = true;

    for (int n = 2; n <= 1000; n += 7) {
        for (int i = 0; i < n; i++)
            v[i] = i % 5 == 4 ? (float)(i % 31) / 3 : (float)sin(i * n) * (float)n;
        histogram_of(v, n, &h);
        right &= h.buckets == 30 && buckets_right(&h, v, n);
    }
    tap_ok(right, "each value is in the bucket between its edges");
    v[0] = NAN, v[1] = 3, v[2] = INFINITY, v[3] = -1, v[4] = -INFINITY;
    histogram_of(v, 5, &h);
    tap_ok(h.count == 2 && h.not_finite == 3 && h.min == -1 && h.max == 3 &&
               h.sum == 2 && h.sum_squares == 10 && h.in[0] == 1 && h.in[29] == 1,
           "what is not finite is counted apart");
    v[0] = v[1] = v[2] = 7;
    histogram_of(v, 3, &h);
    tap_ok(h.buckets == 1 && h.in[0] == 3 && h.edge[0] == 6.5 && h.edge[1] == 7.5,
           "equal values make one bucket");
    histogram_of(v, 0, &h);
    tap_ok(h.buckets == 0 && h.count == 0 && h.min == 0 && h.max == 0,
           "no values make none");
}

static void test_items(void)
{
    static char longest[257];
    static const float one = 1;
    const accel_item_t good[] = {
        { .name = "//loss/train a+b\xc3\xa9.x-1" },
        { .name = "t", .kind = ACCEL_ITEM_TEXT, .text = "\xc3\xa9\xff \xe2\x82 ok" },
        { .name = "h", .kind = ACCEL_ITEM_HISTOGRAM, .values = &one, .count = 1 },
    };
    memset(longest, 'n', 256);
    const accel_item_t bad[] = {
        { .name = NULL },
        { .name = "" },
        { .name = "//" },
        { .name = longest },
        { .name = "x", .kind = ACCEL_ITEM_TEXT },
        { .name = "x", .kind = ACCEL_ITEM_HISTOGRAM, .count = 1 },
        { .name = "x", .kind = ACCEL_ITEM_HISTOGRAM, .values = &one, .count = -1 },
        { .name = "x", .kind = (accel_item_kind_t)7 },
    };
    struct track_items c;
    accel_error_t err = { 0 };

    if (tap_ok(!track_clean_items(good, 3, &c, &err), "good items")) {
        tap_is_str(c.item[0].name, "loss/train_a_b__.x-1", "name as it is written");
        tap_is_str(c.item[1].text, "\xc3\xa9\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd ok",
                   "text of well-formed UTF-8");
        tap_ok(c.item[2].values == &one && !c.item[2].text, "values are not copied");
    }
    track_items_free(&c);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        err = (accel_error_t){ 0 };
        tap_ok(track_clean_items(&bad[i], 1, &c, &err) == ACCEL_EINVAL &&
                   err.message == 950,
               "bad item %zu: %s", i, err.text);
        track_items_free(&c);
    }
    longest[255] = '\0';
    tap_ok(!track_clean_items(&(accel_item_t){ .name = longest }, 1, &c, &err),
           "255 bytes are a name");
    track_items_free(&c);
}

static void test_formats(void)
{
    char word[16] = "";
    unsigned set = 99;

    tap_ok(config_track_formats(" csv ,tensorboard", &set, word, sizeof(word)) &&
               set == (TRACK_CSV | TRACK_TENSORBOARD),
           "a list of formats");
    tap_ok(config_track_formats("none", &set, word, sizeof(word)) && set == 0, "none");
    tap_ok(!config_track_formats("jsonl,cvs", &set, word, sizeof(word)) && set == 0 &&
               !strcmp(word, "cvs"),
           "another word");
    tap_ok(!config_track_formats("jsonl,", &set, word, sizeof(word)) && !word[0],
           "an empty word");
    tap_ok(!config_track_formats("", &set, word, sizeof(word)), "no word");
}

/* ---- files ----------------------------------------------------------------------- */

/* The content of a file, with a NUL behind it; valid until the next call. */
static char *content_of(const char *dir, const char *name, size_t *bytes_out)
{
    static char text[1 << 20];
    char path[2700];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "r");
    *bytes_out = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[*bytes_out] = '\0';
    if (f)
        fclose(f);
    return text;
}

static char *text_of(const char *dir, const char *name)
{
    size_t bytes;

    return content_of(dir, name, &bytes);
}

static void append_to(const char *dir, const char *name, const char *text)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "a");
    if (f)
        fputs(text, f), fclose(f);
}

/* The names of event files, in the order in which readers take them. */
static int event_files(const char *dir, char names[8][300])
{
    struct dirent **found;
    int n = scandir(dir, &found, NULL, alphasort), events = 0;

    for (int i = 0; i < n; i++) {
        if (!strncmp(found[i]->d_name, "events.out.tfevents.", 20) && events < 8)
            snprintf(names[events++], 300, "%s", found[i]->d_name);
        free(found[i]);
    }
    if (n >= 0)
        free(found);
    return events;
}

struct seen {
    int64_t step[64];
    float value[64];
    int n, heads, starts;
    const char *wrong;
    struct event last;
};

/* Reads the directory as TensorBoard does: the start of a session takes back what
 * earlier files have of its step and later ones. Scalars go to s. */
static void read_events(const char *dir, struct seen *s)
{
    char names[8][300];
    int files = event_files(dir, names);

    *s = (struct seen){ .wrong = "" };
    for (int i = 0; i < files && !*s->wrong; i++) {
        static struct event e;
        size_t bytes, at = 0;
        char *data;

        data = content_of(dir, names[i], &bytes);
        while (event_next((uint8_t *)data, bytes, &at, &e, &s->wrong)) {
            s->heads += !strcmp(e.version, "brain.Event:2");
            s->starts += e.session == 1;
            for (int k = s->n; e.session == 1 && k-- > 0;)
                if (s->step[k] >= e.step)
                    s->n = k;
            for (int k = 0; k < e.values; k++)
                if (e.value[k].what == 2 && s->n < 64) {
                    s->step[s->n] = e.step;
                    s->value[s->n++] = e.value[k].simple;
                }
            s->last = e;
        }
    }
}

static void start_track(struct track *t, unsigned formats, const char *dir,
                        int64_t first)
{
    accel_error_t err = { 0 };

    *t = (struct track){ .writer.log = &log_to_test };
    said[0] = '\0';
    if (track_add_formats(t, formats, &err))
        tap_diag("%s", err.text);
    track_open(t, dir, first);
}

static void put_scalar(struct track *t, int64_t step, double v)
{
    track_write(t, step, &(accel_item_t){ .name = "x", .value = v }, 1);
}

enum { ALL = TRACK_JSONL | TRACK_CSV | TRACK_TENSORBOARD };

/* Drops the times, which no test knows. `from` begins behind it. */
static void without_times(char *text, const char *begin, char end)
{
    char *at = text;

    while ((at = strstr(at, begin)) != NULL) {
        char *to = at + strlen(begin), *rest = strchr(to, end);

        if (!rest)
            break;
        memmove(to, rest, strlen(rest) + 1);
        at = to;
    }
}

static void test_lines_of_items(const char *dir)
{
    static const float v[] = { 1, 2, 2, 4 };
    const accel_item_t items[] = {
        { .name = "a/b", .value = 0.1 },
        { .name = "nan", .value = NAN },
        { .name = "t",
          .kind = ACCEL_ITEM_TEXT,
          .text = "say \"hi\\\"\n\ttwo, \xc3\xa9" },
        { .name = "h", .kind = ACCEL_ITEM_HISTOGRAM, .values = v, .count = 4 },
    };
    static const char want[] =
        "{\"step\":5,\"time\":,\"name\":\"a/b\",\"value\":0.10000000000000001}\n"
        "{\"step\":5,\"time\":,\"name\":\"nan\",\"value\":null}\n"
        "{\"step\":5,\"time\":,\"name\":\"t\",\"value\":"
        "\"say \\\"hi\\\\\\\"\\n\\u0009two, \xc3\xa9\"}\n"
        "{\"step\":5,\"time\":,\"name\":\"h\",\"value\":{\"count\":4,"
        "\"not_finite\":0,\"min\":1,\"max\":4,\"sum\":9,\"sum_squares\":25,"
        "\"edges\":[1,1.1000000000000001,";
    struct track t;
    char *text;

    start_track(&t, TRACK_JSONL | TRACK_CSV, dir, 0);
    track_write(&t, 5, items, 4);
    track_close(&t);
    text = text_of(dir, "track.jsonl");
    without_times(text, "\"time\":", ',');
    tap_ok(!strncmp(text, want, strlen(want)), "JSONL, a line per item");
    tap_ok(strstr(text, "\"counts\":[1,0,0,0,0,0,0,0,0,0,2,0,0,0,0,0,0,0,0,0,0,0,0,0,"
                        "0,0,0,0,0,1]}}\n"),
           "and a histogram in one");
    text = text_of(dir, "track.csv");
    tap_ok(!strncmp(text, "step,time,name,kind,value\n5,", 28), "CSV has a title");
    tap_ok(strstr(text, ",a/b,scalar,0.10000000000000001\n") &&
               strstr(text, ",nan,scalar,nan\n"),
           "numbers");
    tap_ok(strstr(text, ",t,text,\"say \"\"hi\\\\\"\"\\n\ttwo, \xc3\xa9\"\n"),
           "a text takes one line");
    tap_ok(strstr(text, ",h,histogram,\"{\"\"count\"\":4,\"\"not_finite\"\":0,"),
           "an object between quotes");
    tap_is_int(count(text, "\n"), 5, "5 lines");
    tap_is_str(said, "", "no warning");
}

static void test_events_of_items(const char *dir)
{
    static const float v[] = { 1, 2, 2, 4 };
    const accel_item_t items[] = {
        { .name = "a/b", .value = 0.1 },
        { .name = "t", .kind = ACCEL_ITEM_TEXT, .text = "**bold** \xc3\xa9" },
        { .name = "h", .kind = ACCEL_ITEM_HISTOGRAM, .values = v, .count = 4 },
    };
    static struct seen s;
    struct event_value *x = s.last.value;
    struct track t;

    start_track(&t, TRACK_TENSORBOARD, dir, 0);
    track_write(&t, 1234567, items, 3);
    track_close(&t);
    read_events(dir, &s);
    tap_is_str(s.wrong, "", "records are whole, with their checksums");
    tap_ok(s.heads == 1 && s.starts == 1 && s.last.values == 3 &&
               s.last.step == 1234567 && s.last.time > 1.7e9,
           "version, start of a session, and one event for all items");
    tap_ok(!strcmp(x[0].tag, "a/b") && x[0].what == 2 && x[0].simple == 0.1f,
           "a scalar");
    tap_ok(!strcmp(x[1].tag, "t") && x[1].dtype == 7 && !strcmp(x[1].plugin, "text") &&
               !strcmp(x[1].text, "**bold** \xc3\xa9"),
           "a text, for the plugin that shows it");
    tap_ok(x[2].what == 5 && x[2].min == 1 && x[2].max == 4 && x[2].count == 4 &&
               x[2].sum == 9 && x[2].squares == 25,
           "a histogram's sums");
    tap_ok(x[2].limits == 30 && x[2].buckets == 30 && x[2].limit[29] == 4 &&
               x[2].limit[0] > 1.09 && x[2].limit[0] < 1.11 && x[2].bucket[0] == 1 &&
               x[2].bucket[10] == 2 && x[2].bucket[29] == 1,
           "and its buckets");
}

/* A length is a varint: one byte up to 127, two up to 16383. The number of the step is
 * one, too. Names have at most 255 bytes, which test_items looks at. */
static void test_lengths_of_events(void)
{
    static const struct {
        int tag, text;
        int64_t step;
    } rows[] = { { 1, 0, 0 },       { 126, 1, 1 },          { 127, 126, 126 },
                 { 128, 127, 127 }, { 129, 128, 128 },      { 254, 129, 129 },
                 { 255, 255, 255 }, { 100, 16300, 16383 },  { 100, 16383, 16384 },
                 { 1, 16384, 1 },   { 1, 16385, INT64_MAX } };
    static char tag[256], text[16386];
    static struct event e;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        const accel_item_t item = { .name = tag,
                                    .kind = ACCEL_ITEM_TEXT,
                                    .text = text };
        const size_t shown = sizeof(e.value[0].text) - 1;
        const size_t want = (size_t)rows[i].text < shown ? (size_t)rows[i].text : shown;
        const char *wrong = "";
        struct strbuf b = { 0 };
        size_t at = 0;

        memset(tag, 't', sizeof(tag));
        memset(text, 'x', sizeof(text));
        tag[rows[i].tag] = text[rows[i].text] = '\0';
        event_items(&b, rows[i].step, 1, &item, 1);
        tap_ok(event_next((const uint8_t *)b.s, b.len, &at, &e, &wrong) &&
                   at == b.len && e.values == 1 && e.step == rows[i].step &&
                   !strcmp(e.value[0].tag, tag) && strlen(e.value[0].text) == want &&
                   !strncmp(e.value[0].text, text, want),
               "a tag of %d bytes, a text of %d, step %lld: %s", rows[i].tag,
               rows[i].text, (long long)rows[i].step, wrong);
        strbuf_free(&b);
    }
}

/* Three lives: 0 .. 4; resumed behind step 2: 3 .. 5; and one that starts from scratch.
 * */
static void test_lives(const char *dir)
{
    char names[8][300], *text;
    static struct seen s;
    struct track t;

    start_track(&t, ALL, dir, 0);
    for (int i = 0; i <= 4; i++)
        put_scalar(&t, i, i);
    track_close(&t);
    append_to(dir, "track.csv", "2,17");
    append_to(dir, "track.jsonl", "{\"step\":2,");
    start_track(&t, ALL, dir, 3);
    for (int i = 3; i <= 5; i++)
        put_scalar(&t, i, 10 + i);
    track_flush(&t);
    track_close(&t);
    tap_is_str(said, "", "no warning");
    text = text_of(dir, "track.jsonl");
    without_times(text, "\"time\":", ',');
    without_times(text, "\"name\":", ',');
    tap_is_str(text,
               "{\"step\":0,\"time\":,\"name\":,\"value\":0}\n"
               "{\"step\":1,\"time\":,\"name\":,\"value\":1}\n"
               "{\"step\":2,\"time\":,\"name\":,\"value\":2}\n"
               "{\"step\":3,\"time\":,\"name\":,\"value\":13}\n"
               "{\"step\":4,\"time\":,\"name\":,\"value\":14}\n"
               "{\"step\":5,\"time\":,\"name\":,\"value\":15}\n",
               "each step once, and no torn line");
    text = text_of(dir, "track.csv");
    tap_ok(!strncmp(text, "step,", 5) && count(text, "step,") == 1 &&
               count(text, "\n") == 7 && strstr(text, ",x,scalar,2\n3,") &&
               strstr(text, ",x,scalar,15\n"),
           "in CSV as well, under one title");
    read_events(dir, &s);
    tap_ok(event_files(dir, names) == 2 && s.starts == 2 && s.n == 6 &&
               s.value[2] == 2 && s.value[3] == 13 && s.value[5] == 15,
           "a new event file takes back what is done again (%d values)%s", s.n,
           s.wrong);
    start_track(&t, ALL, dir, 0);
    put_scalar(&t, 1, 21);
    track_close(&t);
    read_events(dir, &s);
    tap_ok(s.n == 1 && s.value[0] == 21, "a fresh start takes back everything");
    text = text_of(dir, "track.csv");
    tap_ok(count(text, "\n") == 2 && strstr(text, ",21\n"), "in CSV as well");
}

/* ---- trouble --------------------------------------------------------------------- */

/* Files may be so long. Nothing is printed meanwhile. */
static void set_room(rlim_t bytes)
{
    struct rlimit r;

    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    setrlimit(RLIMIT_FSIZE, &r);
}

/* The disk is full at every length of the event file once. */
static void test_full_disk(const char *dir)
{
    static struct seen s;
    int whole = 0, complete = 0, cases = 0, warned = 0;
    char command[160];

    for (rlim_t room = 0; room < 200; room += 3, cases++) {
        struct track t;

        start_track(&t, TRACK_TENSORBOARD, dir, 0);
        set_room(room);
        for (int i = 0; i < 4; i++)
            put_scalar(&t, i, i);
        set_room(RLIM_INFINITY);
        read_events(dir, &s);
        whole += !*s.wrong;
        put_scalar(&t, 4, 4);
        track_close(&t);
        read_events(dir, &s);
        complete += !*s.wrong && s.heads == 1 && s.n == 5 && s.value[4] == 4;
        warned += count(said, "cannot write") == 1 && count(said, "written again") == 1;
        snprintf(command, sizeof(command), "rm -f %s/events*", dir);
        if (system(command) != 0)
            break;
    }
    tap_is_int(whole, cases, "whole records while the disk is full");
    tap_is_int(complete, cases, "all of them when it no longer is");
    tap_is_int(warned, cases, "one warning each when it begins and when it is over");
}

/* A file of the name of the directory, which is removed later. */
static void test_no_directory(const char *dir)
{
    static struct seen s;
    struct track t;
    FILE *f = fopen(dir, "w");

    if (f)
        fclose(f);
    start_track(&t, ALL, dir, 0);
    put_scalar(&t, 1, 1);
    put_scalar(&t, 2, 2);
    track_flush(&t);
    tap_ok(count(said, "cannot begin") == 3 && count(said, "\n") == 3,
           "one warning per sink where there is no directory");
    unlink(dir);
    track_flush(&t);
    put_scalar(&t, 3, 3);
    track_close(&t);
    read_events(dir, &s);
    tap_ok(s.n == 1 && s.value[0] == 3 &&
               count(said, "works again; 2 items are lost") == 3 &&
               count(said, "\n") == 6,
           "and one when it is there");
}

static bool answer(void *ours)
{
    return *(bool *)ours;
}

/* A later attempt replaces the files of lines; event files have names of their own, so
 * that one which is gone is made again. */
static void test_taken_over(const char *dir)
{
    struct track first, second;
    char names[8][300];
    bool ours = false;

    start_track(&first, 0, dir, 0);
    first.writer.ours = answer;
    first.writer.ours_user = &ours;
    if (track_add_formats(&first, ALL, &(accel_error_t){ 0 }))
        tap_diag("not added");
    put_scalar(&first, 1, 1);
    start_track(&second, TRACK_JSONL | TRACK_CSV, dir, 1);
    put_scalar(&first, 1, 2);
    tap_is_str(text_of(dir, "track.jsonl"), "",
               "what another attempt has taken is not written");
    tap_is_str(text_of(dir, "track.csv"), "step,time,name,kind,value\n", "nor in CSV");
    if (event_files(dir, names) == 1) {
        char gone[512];

        snprintf(gone, sizeof(gone), "%s/%s", dir, names[0]);
        unlink(gone);
    }
    put_scalar(&first, 1, 3);
    tap_is_int(event_files(dir, names), 1, "an event file is its attempt's alone");
    ours = true;
    put_scalar(&first, 1, 4);
    tap_ok(count(text_of(dir, "track.csv"), ",x,scalar,4\n") == 1,
           "files that are the run's own again are written");
    track_close(&first);
    track_close(&second);
}

struct own {
    int opened, wrote, flushed, closed;
    bool no_open, no_write, no_flush;
    int64_t first, step;
    char name[64], dir[128];
};

static accel_status_t own_open(void *user, const char *directory, int64_t first_step,
                               accel_error_t *err)
{
    struct own *o = user;

    o->opened++;
    o->first = first_step;
    snprintf(o->dir, sizeof(o->dir), "%s", directory);
    return o->no_open ? accel_error_set(err, ACCEL_EUNAVAIL, "nobody listens", NULL)
                      : ACCEL_OK;
}

static accel_status_t own_write(void *user, int64_t step, double time,
                                const accel_item_t *items, int n, accel_error_t *err)
{
    struct own *o = user;

    (void)err;
    if (o->no_write || time < 1.7e9)
        return ACCEL_EIO;
    o->wrote += n;
    o->step = step;
    snprintf(o->name, sizeof(o->name), "%s", items[0].name);
    return ACCEL_OK;
}

static accel_status_t own_flush(void *user, accel_error_t *err)
{
    struct own *o = user;

    o->flushed++;
    return o->no_flush ? accel_error_set(err, ACCEL_EIO, "it is full", NULL) : ACCEL_OK;
}

static void own_close(void *user)
{
    ((struct own *)user)->closed++;
}

static accel_sink_t own_sink(struct own *o)
{
    return (accel_sink_t){
        sizeof(accel_sink_t), "own", own_open, own_write, own_flush, own_close, o
    };
}

static void test_own(void)
{
    struct own a = { 0 }, b = { .no_open = true };
    accel_sink_t sink = own_sink(&a), other = own_sink(&b);
    struct track t = { .writer.log = &log_to_test };

    said[0] = '\0';
    other.name = "other";
    track_add(&t, &sink);
    track_open(&t, "there", 7);
    track_add(&t, &other);
    tap_ok(a.opened == 1 && a.first == 7 && !strcmp(a.dir, "there") && b.opened == 1,
           "sinks are opened, also one that comes later");
    put_scalar(&t, 8, 1);
    tap_ok(a.wrote == 1 && a.step == 8 && !strcmp(a.name, "x") && b.wrote == 0,
           "one that fails does not keep another from its items");
    track_write(&t, 9, &(accel_item_t){ .name = "none" }, 0);
    tap_is_int(a.step, 8, "a call without items does not reach a sink");
    a.no_write = true;
    put_scalar(&t, 9, 1);
    put_scalar(&t, 10, 1);
    a.no_write = false;
    put_scalar(&t, 11, 1);
    put_scalar(&t, 12, 1);
    b.no_open = false;
    a.no_flush = true;
    track_flush(&t);
    track_flush(&t);
    a.no_flush = false;
    put_scalar(&t, 13, 1);
    tap_is_str(said,
               "tracker other: cannot begin (nobody listens); training continues "
               "without it\n"
               "tracker own: cannot write (it does not say why); training continues "
               "without it\n"
               "tracker own works again; 2 items are lost\n"
               "tracker own: cannot flush (it is full); training continues without it\n"
               "tracker other works again; 5 items are lost\n"
               "tracker own works again; 0 items are lost\n",
               "one warning when it begins, one when it is over");
    tap_ok(b.opened == 2 && b.wrote == 1 && b.flushed == 2 && a.flushed == 2,
           "a flush opens what could not be opened");
    b.no_write = true;
    put_scalar(&t, 14, 1);
    said[0] = '\0';
    track_close(&t);
    tap_is_str(said, "tracker other: 1 items are lost\n", "the end says what is lost");
    tap_ok(a.closed == 1 && b.closed == 1, "and closes each once");
}

int main(void)
{
    static const char *const dirs[] = { "lines", "events", "lives",
                                        "full",  "none",   "taken" };
    char dir[6][64];

    run_folder_new(base);
    for (int i = 0; i < 6; i++)
        snprintf(dir[i], sizeof(dir[i]), "%s/%s", base, dirs[i]);
    test_crc();
    test_histogram();
    test_items();
    test_formats();
    test_lines_of_items(dir[0]);
    test_events_of_items(dir[1]);
    test_lengths_of_events();
    test_lives(dir[2]);
    test_full_disk(dir[3]);
    test_no_directory(dir[4]);
    test_taken_over(dir[5]);
    test_own();
    run_folder_remove(base);
    return tap_done();
}
