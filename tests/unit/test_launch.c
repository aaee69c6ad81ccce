/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel launch --dry-run` against the environment that `accelerate launch` was seen to
 * give (tests/data/environ/launch_env.json): every variable of every case, for every
 * process. The differences that doc/python.md names are the ones in this file.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "common/port.h"
#include "tests/tap.h"

enum { MAX_VARS = 200, MAX_TASKS = 8 };

struct vars {
    size_t count;
    char *name[MAX_VARS], *value[MAX_VARS];
};
struct seen {
    struct vars common, task[MAX_TASKS];
    size_t tasks;
    int rc;
};

static const char *find(const struct vars *v, const char *name)
{
    for (size_t i = 0; i < v->count; i++)
        if (!strcmp(v->name[i], name))
            return v->value[i];
    return NULL;
}

static void add(struct vars *v, const char *word, size_t n)
{
    const char *eq = memchr(word, '=', n);

    if (!eq || v->count == MAX_VARS)
        return;
    v->name[v->count] = strndup(word, (size_t)(eq - word));
    v->value[v->count++] = strndup(eq + 1, n - (size_t)(eq + 1 - word));
}

static void vars_free(struct vars *v)
{
    for (size_t i = 0; i < v->count; i++) {
        free(v->name[i]);
        free(v->value[i]);
    }
}

/* "task 1: RANK=1 LOCAL_RANK=1" */
static void add_task(struct seen *s, const char *line)
{
    const char *p = strchr(line, ':');

    if (!p || s->tasks == MAX_TASKS)
        return;
    for (p++; *p; p += strcspn(p, " ")) {
        p += strspn(p, " ");
        add(&s->task[s->tasks], p, strcspn(p, " "));
    }
    s->tasks++;
}

static char file_name[] = "/tmp/accel-launch-XXXXXX";

/* Nothing of this process's environment gets in. */
static void run_launch(const json_t *args, const char *yaml, struct seen *s)
{
    struct strbuf c = { 0 };
    char line[8192];
    const json_t *arg;
    size_t i;
    FILE *f;

    strbuf_printf(&c,
                  "env -i PATH=\"$PATH\" HOME=/nonexistent '%s/accel' launch --dry-run",
                  getenv("ACCEL_BUILD") ? getenv("ACCEL_BUILD") : ".");
    if (yaml) {
        f = fopen(file_name, "w");
        if (f) {
            fputs(yaml, f);
            fclose(f);
        }
        strbuf_printf(&c, " --config_file %s", file_name);
    }
    json_array_foreach(args, i, arg) strbuf_printf(&c, " '%s'", json_string_value(arg));
    strbuf_printf(&c, " --no_python true");
    memset(s, 0, sizeof(*s));
    f = popen(c.s, "r");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "task ", 5))
            add_task(s, line);
        else
            add(&s->common, line, strlen(line));
    }
    s->rc = f ? pclose(f) : -1;
    strbuf_free(&c);
}

/* Of torchrun's agent: there is none. */
static bool is_agents(const char *name)
{
    return !strcmp(name, "TORCHELASTIC_ERROR_FILE") ||
           !strcmp(name, "TORCHELASTIC_RUN_ID") ||
           !strcmp(name, "TORCHELASTIC_SIGNALS_TO_HANDLE");
}

static bool fits(const char *name, const char *got, const char *want, bool port_given)
{
    char cwd[1024];
    long n = got ? strtol(got, NULL, 10) : 0;

    if (!got)
        return false;
    if (!strcmp(name, "TORCHELASTIC_USE_AGENT_STORE"))
        return !strcmp(got, "False");
    /* As many as this machine has cores for, not the one that was looked at. */
    if (!strcmp(name, "OMP_NUM_THREADS"))
        return n >= 1;
    if (!strcmp(name, "MASTER_PORT") && !port_given)
        return n >= PORT_FIRST && n < PORT_FIRST + PORT_COUNT;
    if (!strcmp(name, "PYTHONPATH"))
        return getcwd(cwd, sizeof(cwd)) && !strcmp(got, cwd);
    return !strcmp(got, want);
}

/* Each golden variable against one task. */
static void check_vars(const char *name, const json_t *want, const struct seen *s,
                       size_t task, bool port_given)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)want, key, value)
    {
        const char *got = find(&s->task[task], key);

        if (is_agents(key))
            continue;
        if (!got)
            got = find(&s->common, key);
        if (!fits(key, got, json_string_value(value), port_given))
            tap_ok(false, "%s, task %zu: %s is %s, want %s", name, task, key,
                   got ? got : "not there", json_string_value(value));
    }
}

static bool is_ranks(const char *name)
{
    static const char *const names[] = {
        "RANK",       "LOCAL_RANK",       "WORLD_SIZE", "LOCAL_WORLD_SIZE",
        "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",  "ROLE_WORLD_SIZE",
        "ROLE_NAME",  "MASTER_ADDR",      "MASTER_PORT"
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return !strncmp(name, "TORCH", 5);
}

/* Nothing that Accelerate does not set, but our own, and the ranks where it has
 * none. */
static void check_extra(const char *name, const json_t *common, const json_t *child,
                        const struct vars *v, bool ranks_may)
{
    for (size_t i = 0; i < v->count; i++) {
        const char *n = v->name[i];

        if (!strncmp(n, "ACCEL_", 6) || json_object_get(common, n) ||
            json_object_get(child, n) || (ranks_may && is_ranks(n)))
            continue;
        tap_ok(false, "%s: %s=%s is not Accelerate's", name, n, v->value[i]);
    }
}

static void seen_free(struct seen *s)
{
    vars_free(&s->common);
    for (size_t i = 0; i < s->tasks; i++)
        vars_free(&s->task[i]);
}

static void check_case(const json_t *c, const char *args_key, const char *vars_key)
{
    const char *name = json_string_value(json_object_get(c, "case"));
    const char *yaml = json_string_value(json_object_get(c, "yaml"));
    const json_t *common = json_object_get(c, vars_key);
    const json_t *per_child = json_object_get(c, "per_child");
    size_t children = (size_t)json_integer_value(json_object_get(c, "children"));
    /* MULTI_CPU: Accelerate starts one process whatever it was told; ours meet. */
    bool cpus = !strcmp(name, "multi_cpu_without_mpirun");
    bool port = yaml && strstr(yaml, "main_process_port");
    const json_t *arg;
    struct seen s;
    size_t i;

    json_array_foreach(json_object_get(c, args_key), i, arg) port |=
        !strcmp(json_string_value(arg), "--main_process_port");
    run_launch(json_object_get(c, args_key), yaml, &s);
    tap_is_int(s.rc, 0, "%s: accel launch takes it", name);
    tap_is_int((long long)s.tasks, cpus || !children ? 2 : (long long)children,
               "%s: number of processes", name);
    for (i = 0; i < s.tasks; i++) {
        const json_t *child = json_array_get(per_child, cpus ? 0 : i);

        check_vars(name, common, &s, i, port);
        check_vars(name, child, &s, i, port);
        check_extra(name, common, child, &s.task[i], cpus || !children);
    }
    check_extra(name, common, NULL, &s.common, cpus || !children);
    seen_free(&s);
}

int main(void)
{
    char path[1024];
    const char *src = getenv("ACCEL_SRC");
    json_t *all, *c;
    size_t i;

    snprintf(path, sizeof(path), "%s/tests/data/environ/launch_env.json",
             src ? src : ".");
    all = json_load_file(path, 0, NULL);
    if (!tap_ok(all != NULL, "the cases can be read"))
        return tap_done();
    close(mkstemp(file_name));
    json_array_foreach(json_object_get(all, "launched"), i, c)
        check_case(c, "args", "common");
    json_array_foreach(json_object_get(all, "computed_without_launching"), i, c)
        check_case(c, "argv", "set");
    unlink(file_name);
    json_decref(all);
    return tap_done();
}
