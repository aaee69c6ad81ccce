/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as all sources of a config together, in five parts with "%%" lines
 * between them: site file (with its locks), user file, job file, environment, flags.
 * What is accepted survives its round trip and holds the site's value in every locked
 * key. The flags are then what a program sets in a task, where they change nothing that
 * was given.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/fuzz/fuzz_check.h"

enum { FILES = 3, MAX_LINES = 8 };

/* Site, user and job file in a directory of our own, because the site file must be
 * trusted; in memory where that can be had, because every run writes them. */
static char dir[64], path[FILES][80];
static int file[FILES];

static void remove_files(void)
{
    for (int i = 0; i < FILES; i++)
        unlink(path[i]);
    rmdir(dir);
}

static void make_files(void)
{
    if (dir[0])
        return;
    snprintf(dir, sizeof(dir), "/dev/shm/accel-fuzz.XXXXXX");
    if (!mkdtemp(dir)) {
        snprintf(dir, sizeof(dir), "/tmp/accel-fuzz.XXXXXX");
        if (!mkdtemp(dir))
            abort();
    }
    for (int i = 0; i < FILES; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%d.yaml", dir, i);
        file[i] = open(path[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file[i] < 0)
            abort();
    }
    atexit(remove_files);
}

/* The part up to the next "%%" line, which is cut off; *at moves behind it. */
static char *part(char **at, size_t *len)
{
    char *start = *at, *end = strstr(start, "\n%%\n");

    if (strncmp(start, "%%\n", 3) == 0) { /* an empty one */
        *at += 3;
        *len = 0;
        return start;
    }
    *len = end ? (size_t)(end - start) + 1 : strlen(start);
    *at = end ? end + 4 : start + strlen(start);
    return start;
}

static void fill(int i, const char *text, size_t len)
{
    if (ftruncate(file[i], 0) != 0 || pwrite(file[i], text, len, 0) != (ssize_t)len)
        abort();
}

/* Lines of text[len] as an array that ends with NULL. */
static size_t lines(char *text, size_t len, char *out[MAX_LINES + 1])
{
    size_t n = 0;
    char *rest = text;

    text[len] = '\0';
    for (char *line; n < MAX_LINES && (line = strsep(&rest, "\n"));)
        if (*line)
            out[n++] = line;
    out[n] = NULL;
    return n;
}

/* A locked key has the value that the site alone would give it. */
static void check_locks(const struct config *c)
{
    static struct config site;
    struct config_sources only = { .site_path = path[0] };
    struct config_diags d;
    char a[2048], b[2048];
    size_t n;
    const struct config_key *k = config_schema(&n);
    accel_error_t err;
    bool alone = config_resolve(&only, &site, &d, &err) == ACCEL_OK;

    config_diags_free(&d);
    for (size_t i = 0; alone && i < n; i++) {
        if (!c->locked[i])
            continue;
        config_value_text(c, &k[i], a, sizeof(a));
        config_value_text(&site, &k[i], b, sizeof(b));
        if (strcmp(a, b))
            abort();
    }
}

/* Keys that follow from others may change with those. */
static bool follows(const char *name)
{
    return !strcmp(name, "device") || !strcmp(name, "enabled");
}

static void check_program(const struct config *start, char *const *settings)
{
    static struct config task;
    struct config_sources src = { .resolved = start,
                                  .program = (const char *const *)settings };
    struct config_diags d;
    char a[2048], b[2048];
    size_t n;
    const struct config_key *k = config_schema(&n);
    accel_error_t err;

    if (config_resolve(&src, &task, &d, &err) == ACCEL_OK) {
        fuzz_check_config(&task);
        for (size_t i = 0; i < n; i++) {
            if (start->origin[i] <= ORIGIN_PROGRAM || follows(k[i].name))
                continue;
            config_value_text(start, &k[i], a, sizeof(a));
            config_value_text(&task, &k[i], b, sizeof(b));
            if (strcmp(a, b))
                abort();
        }
    } else {
        fuzz_check_messages(&d, &err);
    }
    config_diags_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config c;
    char *text = malloc(size + 1), *at = text, *env[MAX_LINES + 1],
         *flag[MAX_LINES + 1];
    struct config_setting setting[MAX_LINES];
    struct config_sources src = { .flags = setting };
    struct config_diags d;
    accel_error_t err;
    size_t len, n;

    make_files();
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 0; i < FILES; i++) {
        char *from = part(&at, &len);

        fill(i, from, len);
    }
    src.site_path = path[0];
    src.user_path = path[1];
    src.job_path = path[2];
    char *env_text = part(&at, &len);
    /* The flags first: cutting lines ends the text in front of them. */
    n = lines(at, strlen(at), flag);
    lines(env_text, len, env);
    src.env = env;
    for (size_t i = 0; i < n; i++) {
        char *value = strchr(flag[i], '=');

        if (!value)
            continue;
        *value = '\0';
        setting[src.flag_count++] = (struct config_setting){ flag[i], value + 1 };
    }
    if (config_resolve(&src, &c, &d, &err) == ACCEL_OK) {
        fuzz_check_config(&c);
        check_locks(&c);
        for (size_t i = 0; i < src.flag_count; i++)
            ((char *)setting[i].value)[-1] = '=';
        check_program(&c, flag);
    } else {
        fuzz_check_messages(&d, &err);
    }
    config_diags_free(&d);
    free(text);
    return 0;
}
