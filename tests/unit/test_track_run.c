/* SPDX-License-Identifier: Apache-2.0
 *
 * Trackers of a whole run: which files config and program ask for, the trainer's own
 * numbers, what a checkpoint finds flushed, other ranks, and calls that are refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop/loop.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"

enum { BATCH = 2, WIDTH = 4 };

static accel_tensor_t *gain;

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)m, (void)n;
    return accel_mean(accel_rmsnorm(in[0], gain, 1e-5f), -1);
}

static int net_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user, (void)index;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = 3;
    return 0;
}

/* In place of libc's, as far as this program goes. */
static int log_syncs;

int fsync(int fd)
{
    char link[32], path[256] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/log.jsonl"))
        log_syncs++;
    return (int)syscall(SYS_fsync, fd);
}

/* ---- a sink of the program ------------------------------------------------------- */

/* The trainer's numbers by name, the last of each; and what was flushed at the time of
 * each checkpoint. */
struct seen {
    char name[16][32];
    double value[16];
    int names, opened, closed, flushed, log_syncs;
    int64_t first, last_step, flushed_step;
    bool fails;
};

static accel_status_t seen_open(void *user, const char *directory, int64_t first_step,
                                accel_error_t *err)
{
    struct seen *s = user;

    (void)directory, (void)err;
    s->opened++;
    s->first = first_step;
    return ACCEL_OK;
}

static accel_status_t seen_write(void *user, int64_t step, double time,
                                 const accel_item_t *items, int n, accel_error_t *err)
{
    struct seen *s = user;

    (void)time;
    if (s->fails)
        return accel_error_set(err, ACCEL_EIO, "no line", NULL);
    s->last_step = step;
    for (int i = 0; i < n; i++) {
        int k = 0;

        while (k < s->names && strcmp(s->name[k], items[i].name) != 0)
            k++;
        if (k == 16)
            break;
        if (k == s->names)
            snprintf(s->name[s->names++], sizeof(s->name[k]), "%s", items[i].name);
        s->value[k] = items[i].value;
    }
    return ACCEL_OK;
}

static accel_status_t seen_flush(void *user, accel_error_t *err)
{
    struct seen *s = user;

    (void)err;
    s->flushed++;
    s->log_syncs = log_syncs;
    s->flushed_step = s->last_step;
    return ACCEL_OK;
}

static void seen_close(void *user)
{
    ((struct seen *)user)->closed++;
}

static accel_sink_t seen_sink(struct seen *s)
{
    return (accel_sink_t){ sizeof(accel_sink_t), "seen",     seen_open, seen_write,
                           seen_flush,           seen_close, s };
}

static double value_of(const struct seen *s, const char *name)
{
    for (int k = 0; k < s->names; k++)
        if (!strcmp(s->name[k], name))
            return s->value[k];
    return NAN;
}

/* ---- a run ----------------------------------------------------------------------- */

struct rig {
    char dir[64], config[96], out[96];
    accel_job_t job;
    accel_t *run;
};

static void rig_open(struct rig *k, const char *config, const char *out)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward, 0 };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    static const int64_t width = WIDTH;
    accel_options_t o = { sizeof(o), .config_file = k->config, .threads = 1 };
    accel_error_t err = { 0 };
    char text[512];

    snprintf(text, sizeof(text), "distributed_type: 'NO'\nuse_cpu: true\naccel:\n%s",
             config);
    run_folder_write(k->config, text);
    snprintf(k->out, sizeof(k->out), "%s/%s", k->dir, out);
    k->job = (accel_job_t){ sizeof(accel_job_t), .steps = 2, .batch = BATCH,
                            .out_dir = k->out };
    k->job.eval_every = 2;
    if (accel_dataset_new(&k->job.data, 64, &field, 1, net_fetch, NULL, 0.25, &err) ||
        accel_open(&k->run, &o, &err)) {
        tap_ok(false, "open: %s", err.text);
        exit(tap_done());
    }
    k->job.model = accel_module_new(k->run, &cls, NULL, "");
    gain = accel_param(k->job.model, "gain", 1, &width,
                       (accel_init_t){ ACCEL_INIT_ONES, 0 });
}

static accel_status_t rig_train(struct rig *k, accel_error_t *err)
{
    accel_tensor_t *batch[1];

    while (accel_more(k->run))
        if (accel_next(k->run, batch, 1, err) ||
            accel_backward(k->run, accel_call(k->job.model, batch, 1), err) ||
            accel_step(k->run, err))
            return err->code;
    return ACCEL_OK;
}

static void rig_close(struct rig *k)
{
    accel_close(k->run, NULL);
    accel_dataset_close(k->job.data);
}

static bool exists(const struct rig *k, const char *file)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/track/%s", k->out, file);
    return access(path, F_OK) == 0;
}

/* The loss of the last step in the log. */
static double logged_loss(const struct rig *k)
{
    char path[160], line[512];
    double loss = NAN;
    FILE *f;

    snprintf(path, sizeof(path), "%s/log.jsonl", k->out);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        loss = strtod(strstr(line, "\"loss\":") + 7, NULL);
    if (f)
        fclose(f);
    return loss;
}

static void test_numbers(struct rig *k)
{
    struct seen s = { 0 }, more = { .fails = true };
    accel_sink_t sink = seen_sink(&s);
    const struct lines_writer *log_by;
    accel_step_info_t last = { .bytes = sizeof(last) };
    accel_error_t err = { 0 };

    rig_open(k, "  track: csv\n", "numbers");
    tap_ok(!accel_track_files(k->run, "jsonl", &err) &&
               !accel_track_sink(k->run, &sink, &err) && s.opened == 0,
           "chosen before accel_prepare %s", err.text);
    tap_ok(accel_track(k->run, 1, NULL, 0, &err) == ACCEL_EINVAL &&
               strstr(err.text, "accel_track before accel_prepare"),
           "%s", err.text);
    tap_ok(!accel_prepare(k->run, &k->job, &err) && s.opened == 1 && s.first == 0,
           "opened by it %s", err.text);
    sink.user = &more;
    tap_ok(!accel_track_sink(k->run, &sink, &err) && more.opened == 1,
           "one that comes later is opened at once");
    log_by = &k->run->observe.file.writer;
    tap_ok(log_by->ours && log_by->ours(log_by->ours_user) &&
               k->run->track.writer.ours == log_by->ours &&
               k->run->track.writer.ours_user == log_by->ours_user,
           "files that another attempt may take ask whether the job is this run's");
    tap_ok(!rig_train(k, &err), "a sink that fails stops nothing %s", err.text);
    tap_ok(exists(k, "track.csv") && !exists(k, "track.jsonl"),
           "the config chooses the files");
    tap_ok(value_of(&s, "train/loss") == logged_loss(k) && s.last_step == 2,
           "the loss of the log");
    tap_ok(value_of(&s, "train/lr") > 0 && value_of(&s, "train/grad_norm") >= 0 &&
               value_of(&s, "train/step_ms") > 0 &&
               value_of(&s, "train/samples_per_s") > 0 &&
               value_of(&s, "train/mem_peak_bytes") > 1e6 &&
               isfinite(value_of(&s, "eval/loss")) && s.names == 7,
           "and the trainer's other numbers");
    tap_ok(fabs(value_of(&s, "train/samples_per_s") * value_of(&s, "train/step_ms") /
                    (1e3 * BATCH) -
                1) < 1e-12,
           "samples of a step in its time");
    tap_ok(!accel_last_step(k->run, &last, &err) && last.step == 2 &&
               last.loss == value_of(&s, "train/loss") &&
               last.lr[0] == value_of(&s, "train/lr") &&
               last.norm[0] == value_of(&s, "train/grad_norm") &&
               last.total_ms == value_of(&s, "train/step_ms") &&
               (double)last.memory == value_of(&s, "train/mem_peak_bytes") &&
               last.rate == value_of(&s, "train/samples_per_s"),
           "accel_last_step has the same numbers");
    tap_ok(s.flushed == 1 && s.flushed_step == 2 && s.log_syncs == 1,
           "a checkpoint finds them flushed, the log first");
    rig_close(k);
    tap_ok(s.closed == 1 && more.closed == 1, "closed with the run");
}

static void test_resumed(struct rig *k)
{
    struct seen s = { 0 };
    accel_sink_t sink = seen_sink(&s);
    accel_error_t err = { 0 };

    rig_open(k, "  track: none\n", "numbers");
    accel_track_files(k->run, "jsonl", &err);
    accel_track_sink(k->run, &sink, &err);
    k->job.steps = 3;
    k->job.eval_every = 0;
    tap_ok(!accel_prepare(k->run, &k->job, &err) && s.first == 3,
           "a resumed run goes on behind its checkpoint %s", err.text);
    tap_ok(!exists(k, "track.jsonl"), "none means no files");
    tap_ok(!accel_track(k->run, 9, &(accel_item_t){ .name = "a b", .value = 5 }, 1,
                        &err) &&
               value_of(&s, "a_b") == 5 && s.last_step == 9,
           "an item of the program");
    rig_close(k);
}

static void test_refused(struct rig *k)
{
    struct seen s = { 0 };
    accel_sink_t sink = { sizeof(sink), "seen", NULL, seen_write, NULL, NULL, &s },
                 no = sink;
    accel_error_t err = { 0 };
    int added = 0;

    rig_open(k, "  device: cpu\n", "refused");
    tap_ok(accel_track_files(k->run, "jsonl,xml", &err) == ACCEL_EINVAL &&
               strstr(err.text, "'xml'"),
           "%s", err.text);
    tap_ok(accel_track_files(k->run, NULL, &err) == ACCEL_EINVAL, "%s", err.text);
    no.name = "";
    tap_ok(accel_track_sink(k->run, &no, &err) == ACCEL_EINVAL &&
               strstr(err.text, "no name"),
           "%s", err.text);
    no = (accel_sink_t){ sizeof(accel_sink_t), .name = "x" };
    tap_ok(accel_track_sink(k->run, &no, &err) == ACCEL_EINVAL &&
               strstr(err.text, "no write"),
           "%s", err.text);
    while (added < 9 && !accel_track_sink(k->run, &sink, &err))
        added++;
    tap_ok(added == 8, "8 sinks, then: %s", err.text);
    accel_track_files(k->run, "tensorboard,jsonl", &err);
    tap_ok(!accel_prepare(k->run, &k->job, &err) && exists(k, "track.jsonl"),
           "the program chooses where the config does not %s", err.text);
    tap_ok(accel_track_files(k->run, "csv", &err) == ACCEL_EINVAL, "%s", err.text);
    tap_ok(accel_track(k->run, -1, NULL, 0, &err) == ACCEL_EINVAL, "%s", err.text);
    tap_ok(accel_track(k->run, 0, NULL, 1, &err) == ACCEL_EINVAL, "%s", err.text);
    tap_ok(accel_track(k->run, 0, &(accel_item_t){ 0 }, 1, &err) == ACCEL_EINVAL &&
               s.names == 0,
           "%s", err.text);
    rig_close(k);
}

/* Rank 1 of a run that is otherwise this one. */
static void test_other_rank(struct rig *k)
{
    struct seen s = { 0 };
    accel_sink_t sink = seen_sink(&s);
    accel_error_t err = { 0 };

    rig_open(k, "  track: csv\n  checkpoint: {save: false}\n", "other");
    k->run->boot.rank = 1;
    snprintf(k->run->out_dir, sizeof(k->run->out_dir), "%s", k->out);
    accel_track_sink(k->run, &sink, &err);
    tap_ok(!tracking_open(k->run, &err) && !exists(k, "track.csv"),
           "another rank opens nothing");
    k->run->prepared = true;
    tap_ok(!accel_track(k->run, 1, &(accel_item_t){ .name = "x" }, 1, &err) &&
               accel_track(k->run, 1, &(accel_item_t){ 0 }, 1, &err) == ACCEL_EINVAL &&
               s.opened + s.names == 0,
           "it checks what it is given, and writes nothing");
    k->run->prepared = false;
    k->run->boot.rank = 0;
    rig_close(k);
}

int main(void)
{
    struct rig k = { .dir = "/tmp/accel-tracked.XXXXXX" };

    run_folder_make(k.dir, "", k.config, sizeof(k.config));
    test_numbers(&k);
    test_resumed(&k);
    test_refused(&k);
    test_other_rank(&k);
    run_folder_remove(k.dir);
    return tap_done();
}
