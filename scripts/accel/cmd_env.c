/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel env [--json]`: what a bug report needs: versions, hardware, variables, and
 * whether srun knows the plugin. Libraries are asked at run time, so that what is shown
 * is what a program would get, and nothing heavy is linked for it.
 */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "scripts/accel/cli.h"

extern char **environ;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key == 'j')
        *(bool *)state->input = true;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "takes no arguments");
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

/* ---- libraries ---------------------------------------------------------------------------- */

/* Opens the first of the sonames that is there; the handle stays open. */
static void *open_first(const char *const *names)
{
    void *lib = NULL;

    for (int i = 0; names[i] && !lib; i++)
        lib = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    return lib;
}

/* "const char *f(void)" of a library, or NULL. */
static const char *ask_text(const char *const *names, const char *symbol)
{
    void *lib = open_first(names);
    const char *(*f)(void) = NULL;

    if (lib)
        *(void **)&f = dlsym(lib, symbol);
    return f ? f() : NULL;
}

static void add(json_t *o, const char *key, const char *value)
{
    json_object_set_new(o, key, value ? json_string(value) : json_null());
}

static void add_hdf5(json_t *o)
{
    void *lib = open_first((const char *[]){ "libhdf5_serial.so.103", "libhdf5.so.103",
                                             "libhdf5.so.200", "libhdf5.so.310",
                                             "libhdf5.so", NULL });
    int (*f)(unsigned *, unsigned *, unsigned *) = NULL;
    unsigned v[3];
    char text[40];

    if (lib)
        *(void **)&f = dlsym(lib, "H5get_libversion");
    if (f && f(&v[0], &v[1], &v[2]) >= 0) {
        snprintf(text, sizeof(text), "%u.%u.%u", v[0], v[1], v[2]);
        add(o, "hdf5", text);
    } else {
        add(o, "hdf5", NULL);
    }
}

static void add_hwloc(json_t *o)
{
    void *lib = open_first((const char *[]){ "libhwloc.so.15", "libhwloc.so", NULL });
    unsigned (*f)(void) = NULL;
    char text[40];

    if (lib)
        *(void **)&f = dlsym(lib, "hwloc_get_api_version");
    if (f) {
        snprintf(text, sizeof(text), "%u.%u", f() >> 16, f() >> 8 & 0xff);
        add(o, "hwloc", text);
    } else {
        add(o, "hwloc", NULL);
    }
}

/* First line of a command's output that holds `needle`, without its newline. */
static bool command_line(const char *command, const char *needle, char *buf, size_t len)
{
    FILE *f = popen(command, "re");
    char line[512];
    bool found = false;

    if (!f)
        return false;
    while (fgets(line, sizeof(line), f)) {
        if (found || !strstr(line, needle))
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, len, "%s", line);
        found = true;
    }
    pclose(f);
    return found;
}

static void add_versions(json_t *o)
{
    char slurm[512], plugin[512];
    char *srun = cli_find_program("srun");
    struct utsname u;

    add(o, "accel", accel_version());
    add(o, "slurm",
        srun && command_line("srun --version 2>/dev/null", "", slurm, sizeof(slurm))
            ? slurm
        : srun ? "installed, but srun --version fails (is slurm.conf there?)"
               : NULL);
    /* srun lists a plugin's options once it has loaded the plugin. */
    json_object_set_new(
        o, "plugin_loaded",
        json_boolean(srun && command_line("srun --help 2>/dev/null", "--accel-config",
                                          plugin, sizeof(plugin))));
    add(o, "pmix",
        ask_text((const char *[]){ "libpmix.so.2", "libpmix.so", NULL },
                 "PMIx_Get_version"));
    add(o, "ucx",
        ask_text((const char *[]){ "libucp.so.0", NULL }, "ucp_get_version_string"));
    add_hdf5(o);
    add(o, "openblas",
        ask_text((const char *[]){ "libopenblas.so.0", NULL }, "openblas_get_config"));
    add_hwloc(o);
    add(o, "libyaml",
        ask_text((const char *[]){ "libyaml-0.so.2", NULL },
                 "yaml_get_version_string"));
    if (uname(&u) == 0) {
        add(o, "kernel", u.release);
        add(o, "machine", u.machine);
    }
    add(o, "glibc", gnu_get_libc_version());
    free(srun);
}

/* ---- hardware ------------------------------------------------------------------------------- */

/* The widest vectors that the CPU has and accel uses. */
static const char *isa_name(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return "avx512";
    if (__builtin_cpu_supports("avx2"))
        return "avx2";
#endif
    return "generic";
}

static long usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

static void add_hardware(json_t *o)
{
    struct statvfs shm;
    json_int_t page = sysconf(_SC_PAGESIZE);

    add(o, "isa", isa_name());
    json_object_set_new(o, "cores_usable", json_integer(usable_cores()));
    json_object_set_new(o, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(o, "memory_bytes",
                        json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * page));
    if (statvfs("/dev/shm", &shm))
        add(o, "dev_shm_bytes", NULL);
    else
        json_object_set_new(
            o, "dev_shm_bytes",
            json_integer((json_int_t)shm.f_blocks * (json_int_t)shm.f_frsize));
}

/* ---- output --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ACCEL_*, SLURM_* and PMIX_* variables, sorted. */
static void add_variables(json_t *o)
{
    size_t n = 0, kept = 0;
    char **list;

    while (environ[n])
        n++;
    list = calloc(n + 1, sizeof(*list));
    if (!list)
        return;
    for (size_t i = 0; i < n; i++)
        if (!strncmp(environ[i], "ACCEL_", 6) || !strncmp(environ[i], "SLURM_", 6) ||
            !strncmp(environ[i], "PMIX_", 5))
            list[kept++] = environ[i];
    qsort(list, kept, sizeof(*list), by_name);
    for (size_t i = 0; i < kept; i++) {
        char *eq = strchr(list[i], '=');
        char name[256];

        if (!eq || (size_t)(eq - list[i]) >= sizeof(name))
            continue;
        memcpy(name, list[i], (size_t)(eq - list[i]));
        name[eq - list[i]] = '\0';
        /* A value that is not UTF-8 is no JSON string: null. */
        json_object_set_new(o, name, json_string(eq + 1) ?: json_null());
    }
    free(list);
}

static void value_text(const char *key, json_t *v, char *buf, size_t len)
{
    size_t n = strlen(key);

    if (json_is_string(v))
        snprintf(buf, len, "%s", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(buf, len, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_integer(v) && n > 6 && !strcmp(key + n - 6, "_bytes"))
        format_bytes((double)json_integer_value(v), buf, len);
    else if (json_is_integer(v))
        snprintf(buf, len, "%lld", (long long)json_integer_value(v));
    else
        snprintf(buf, len, "not found");
}

static int print_table(json_t *all)
{
    static const char *const columns[] = { "NAME", "VALUE", NULL };
    struct cli_table *t = cli_table_new("env", columns);
    const char *group, *key;
    json_t *values, *v;

    if (!t)
        return 71;
    json_object_foreach(all, group, values)
    {
        json_object_foreach(values, key, v)
        {
            char text[2048];

            value_text(key, v, text, sizeof(text));
            cli_table_row(t, (const char *[]){ key, text });
        }
    }
    return cli_table_print(t, false);
}

int cmd_env(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 }, { 0 }
    };
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Shows versions, hardware, and the variables of accel, Slurm and PMIx. "
               "Attach it to a bug report."
    };
    bool json = false;
    accel_error_t err;
    json_t *all;
    int code = 0;

    cli_parse(&argp, "accel env", argc, argv, &json);
    all = json_pack("{s:{},s:{},s:{}}", "versions", "hardware", "variables");
    if (!all) {
        accel_fail_nomem(&err, "the report", 0);
        return cli_fail(&err);
    }
    add_versions(json_object_get(all, "versions"));
    add_hardware(json_object_get(all, "hardware"));
    add_variables(json_object_get(all, "variables"));
    if (!json) {
        code = print_table(all);
    } else if (json_dumpf(all, stdout, JSON_INDENT(2)) || puts("") == EOF) {
        accel_fail(&err, ACCEL_EIO, "check where the output goes",
                   "cannot write to standard output");
        code = cli_fail(&err);
    }
    json_decref(all);
    return code;
}
