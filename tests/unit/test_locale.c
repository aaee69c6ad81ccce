/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose numbers have a comma: configs, checkpoints, logs and messages keep
 * their points, and a run resumes to the bit. The locale is one of the system, or made
 * by localedef.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/state.h"
#include "common/env_names.h"
#include "optim/schedule.h"
#include "tests/tap.h"
#include "tests/world/number_run.h"
#include "tests/world/run_folder.h"
#include "handle/run.h"

static char root[64] = "/tmp/accel-locale-XXXXXX";

static bool comma(void)
{
    return strcmp(localeconv()->decimal_point, ",") == 0;
}

/* As a program does it, with all that its numbers then have. */
static bool enter_comma_locale(void)
{
    char command[256];

    if (setlocale(LC_ALL, "de_DE.UTF-8") && comma())
        return true;
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", root, root);
    setenv("LOCPATH", root, 1);
    return system(command) == 0 && setlocale(LC_ALL, "de_DE.UTF-8") && comma();
}

/* ---- texts ----------------------------------------------------------------------- */

static void test_texts(void)
{
    accel_error_t err;
    struct strbuf b = { 0 };
    char buf[64];
    double v = 0;
    char *end;
    int n;

    snprintf(buf, sizeof(buf), "%.2f", 0.25);
    tap_is_str(buf, "0,25", "this program writes a comma");
    text_format(buf, sizeof(buf), "%.2f", 0.25);
    tap_is_str(buf, "0.25", "accel writes a point");
    strbuf_printf(&b, "%g and %s", 1.5, format_bytes(1536, buf, sizeof(buf)));
    tap_is_str(b.s, "1.5 and 1.5 KiB", "also into strings");
    strbuf_free(&b);
    accel_fail(&err, A0801, NULL, "%g", 2.5);
    tap_is_str(err.text, "2.5", "and messages");
    tap_ok(text_number("0.125x", &end) == 0.125 && *end == 'x', "and reads one");
    n = text_scan("lr 0.5 left", "lr %lf", &v);
    tap_ok(n == 1 && v == 0.5, "also among words");
    snprintf(buf, sizeof(buf), "%.2f", 0.25);
    tap_is_str(buf, "0,25", "the program's locale is as before");
}

/* ---- runs ------------------------------------------------------------------------ */

/* What a life leaves. */
struct left {
    char text[4096]; /* of the trainer in the checkpoint */
    float a, b, lr;
    double minutes;
};

static void keep_left(struct left *l, struct number_run *k)
{
    char *text = NULL;
    size_t bytes;

    state_encode(k->run, &text, &bytes, &k->err);
    snprintf(l->text, sizeof(l->text), "%s", text ? text : "");
    free(text);
    l->minutes = k->run->config.ckpt_every_minutes;
    number_begin(k);
    l->a = number_of(k, k->a);
    l->b = number_of(k, k->b);
    l->lr = accel_optim_lr(k->oa);
}

/* Steps up to `until`, from where the folder's checkpoint is; *left_out as then. */
static void live(const char *name, int until, struct left *left_out)
{
    const accel_schedule_t plateau = { sizeof(plateau), .kind = ACCEL_SCHEDULE_PLATEAU,
                                       .plateau = { .factor = 0.3, .patience = 1 } };
    char config[96], dir[96];
    const accel_loop_t loop = { sizeof(loop), .steps = 1000, .batch = 1,
                                .out_dir = dir };
    struct number_run k;
    FILE *f;

    snprintf(config, sizeof(config), "%s/%s.yaml", root, name);
    snprintf(dir, sizeof(dir), "%s/%s", root, name);
    number_config(config, 1, 1, "FULL_SHARD", true);
    f = fopen(config, "a");
    if (f) {
        fputs("    every_minutes: 1234.5\n", f);
        fclose(f);
    }
    number_open(&k, config);
    accel_schedule_add(k.oa, &plateau, &k.err);
    accel_prepare_all(k.run, &loop, &k.err);
    if (accel_steps_done(k.run) == 0)
        accel_optim_set_lr(k.ob, 0.0123f, &k.err);
    while (!k.err.code && accel_steps_done(k.run) < until) {
        number_begin(&k);
        number_push(&k, k.a, 0.37f);
        number_push(&k, k.b, 1.7f);
        accel_schedule_metric(k.oa, 1.0 / 3, &k.err);
        accel_step(k.run, &k.err);
    }
    accel_save(k.run, &k.err);
    tap_is_int(k.err.code, ACCEL_OK, "%s: %d steps%s%s", name, until,
               k.err.code ? ": " : "", k.err.text);
    keep_left(left_out, &k);
    accel_close(k.run, NULL);
}

/* The rates of a run's log, one per line. */
static void read_rates(const char *name, char *rates, size_t len)
{
    char path[128], line[1024];
    size_t used = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s/log.jsonl", root, name);
    f = fopen(path, "r");
    rates[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, "\"lr\":"), *end = at ? strchr(at, '_') : NULL;

        if (end && used < len)
            used += (size_t)snprintf(rates + used, len - used, "%.*s\n",
                                     (int)(end - at), at);
    }
    if (f)
        fclose(f);
}

static void test_runs(const struct left *whole)
{
    static struct left half, resumed;
    char with_point[2048], with_comma[2048];

    live("comma", 3, &half);
    tap_ok(half.minutes == 1234.5, "a number of the config");
    live("comma", 6, &resumed);
    tap_is_str(resumed.text, whole->text, "the same text in the checkpoint");
    tap_ok(resumed.a == whole->a && resumed.b == whole->b && resumed.lr == whole->lr,
           "resumed with the same weights and rates: %a %a %a", (double)resumed.a,
           (double)resumed.b, (double)resumed.lr);
    tap_ok(resumed.lr < 0.5f && strstr(resumed.text, "=0.0122999"),
           "which are no wholes");
    read_rates("point", with_point, sizeof(with_point));
    read_rates("comma", with_comma, sizeof(with_comma));
    tap_is_str(with_comma, with_point, "the same numbers in the log");
    tap_ok(strstr(with_comma, "0.") != NULL, "with points");
}

int main(void)
{
    static struct left whole, before;

    unsetenv(ENV_CONFIG);
    run_folder_new(root);
    if (enter_comma_locale()) {
        test_texts();
        setlocale(LC_ALL, "C");
        live("point", 3, &before);
        live("point", 6, &whole);
        enter_comma_locale();
        test_runs(&whole);
    } else {
        tap_skip(1, "no locale with a decimal comma, and localedef makes none");
    }
    run_folder_remove(root);
    return tap_done();
}
