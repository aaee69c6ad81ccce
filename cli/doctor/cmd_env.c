/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel env [--json]`: what a bug report needs: versions, hardware, variables, and
 * whether srun knows the plugin. Libraries are asked at run time: the report shows what
 * a program would load, and this command links nothing heavy for it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "common/env_names.h"

extern char **environ;

/* ---- libraries ------------------------------------------------------------------- */

/* Sets o[key]; a NULL value becomes null, which the table shows as "not found". */
static void add_text(json_t *o, const char *key, const char *value)
{
    json_object_set_new(o, key, value ? json_string(value) : json_null());
}

/* A library and the function that tells its version. Several sonames, since
 * distributions differ: the first one that loads counts. Versions come as a text, as
 * one packed number (hwloc: 0xMMmmpp) or through three pointers (HDF5). */
static const struct library {
    const char *key;
    const char *sonames[6];
    const char *symbol;
    enum { RETURNS_TEXT, RETURNS_NUMBER, FILLS_THREE } shape;
} libraries[] = {
    { "pmix", { "libpmix.so.2", "libpmix.so" }, "PMIx_Get_version", RETURNS_TEXT },
    { "ucx", { "libucp.so.0" }, "ucp_get_version_string", RETURNS_TEXT },
    { "hdf5",
      { "libhdf5_serial.so.103", "libhdf5.so.103", "libhdf5.so.200", "libhdf5.so.310",
        "libhdf5.so" },
      "H5get_libversion",
      FILLS_THREE },
    { "hwloc", { "libhwloc.so.15" }, "hwloc_get_api_version", RETURNS_NUMBER },
    { "libyaml", { "libyaml-0.so.2" }, "yaml_get_version_string", RETURNS_TEXT },
};

/* Runs in a child of its own: writes the version to `fd`, or nothing. */
static void tell_version(const struct library *l, int fd)
{
    void *lib = NULL, *symbol;
    unsigned v[3] = { 0 };
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    /* What a library prints while it loads is no part of the report. */
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(l->sonames) && l->sonames[i] && !lib; i++)
        lib = dlopen(l->sonames[i], RTLD_LAZY | RTLD_LOCAL);
    symbol = lib ? dlsym(lib, l->symbol) : NULL;
    if (!symbol)
        return;
    if (l->shape == RETURNS_TEXT) {
        dprintf(fd, "%s", ((const char *(*)(void))symbol)());
    } else if (l->shape == RETURNS_NUMBER) {
        v[0] = ((unsigned (*)(void))symbol)();
        dprintf(fd, "%u.%u", v[0] >> 16, v[0] >> 8 & 0xff);
    } else if (((int (*)(unsigned *, unsigned *, unsigned *))symbol)(&v[0], &v[1],
                                                                     &v[2]) >= 0) {
        dprintf(fd, "%u.%u.%u", v[0], v[1], v[2]);
    }
}

/* Asks one library in a child of its own: a library that crashes while it loads must
 * not take the report with it. */
static void add_library(json_t *o, const struct library *l)
{
    char text[512] = "";
    /* status: waitpid's. */
    int fds[2], status = 0;
    size_t used = 0;
    ssize_t n;
    pid_t child;

    if (pipe2(fds, O_CLOEXEC)) {
        add_text(o, l->key, NULL);
        return;
    }
    child = fork();
    if (child == 0) {
        tell_version(l, fds[1]);
        /* _exit: the parent's unwritten stdout is not the child's to flush. */
        _exit(0);
    }
    close(fds[1]);
    /* Until the child closes its end: a crash closes it, too. A failed fork (-1) reads
     * nothing and leaves the library "not found". */
    while (child > 0 && used < sizeof(text) - 1 &&
           (n = read(fds[0], text + used, sizeof(text) - 1 - used)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    close(fds[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    /* A library that ends the child is worth more words than "not found". */
    if (child > 0 && (WIFSIGNALED(status) || WEXITSTATUS(status)))
        snprintf(text, sizeof(text), "broken: a program that loads it is terminated");
    add_text(o, l->key, text[0] ? text : NULL);
}

/* Versions in the order in which a report is read: accel, Slurm, its
 * plugin, libraries, system. */
static void add_versions(json_t *o)
{
    char slurm[512], plugin[512];
    char *srun = cli_find_program("srun");
    struct utsname u;

    add_text(o, "accel", accel_version());
    add_text(
        o, "slurm",
        srun && cli_output_line("srun --version 2>/dev/null", "", slurm, sizeof(slurm))
            ? slurm
        : srun ? "installed, but srun --version fails (is slurm.conf missing?)"
               : NULL);
    /* srun lists a plugin's options once it has loaded the plugin. */
    json_object_set_new(o, "plugin_loaded",
                        json_boolean(srun && cli_output_line("srun --help 2>/dev/null",
                                                             "--accel-config", plugin,
                                                             sizeof(plugin))));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(libraries); i++)
        add_library(o, &libraries[i]);
    if (uname(&u) == 0) {
        add_text(o, "kernel", u.release);
        add_text(o, "machine", u.machine);
    }
    add_text(o, "glibc", gnu_get_libc_version());
    free(srun);
}

/* ---- hardware -------------------------------------------------------------------- */

/* The widest vector instructions that this CPU has and accel uses. */
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

/* Cores this task may use, which in a step are fewer than the node has. */
static long usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

/* Sizes are in bytes; the table gives them a unit by their names' ending. */
static void add_hardware(json_t *o)
{
    struct statvfs shm;
    json_int_t page = sysconf(_SC_PAGESIZE);

    add_text(o, "isa", isa_name());
    json_object_set_new(o, "cores_usable", json_integer(usable_cores()));
    json_object_set_new(o, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(o, "memory_bytes",
                        json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * page));
    /* Containers often have a small /dev/shm, or none. */
    if (statvfs("/dev/shm", &shm))
        add_text(o, "dev_shm_bytes", NULL);
    else
        json_object_set_new(
            o, "dev_shm_bytes",
            json_integer((json_int_t)shm.f_blocks * (json_int_t)shm.f_frsize));
}

/* ---- output ---------------------------------------------------------------------- */

/* For qsort: whole "NAME=value" texts, so that names sort first. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The ACCEL_*, SLURM_* and PMIX_* variables, sorted. No others: an environment may hold
 * passwords, and reports are public. */
static void add_variables(json_t *o)
{
    size_t n = 0, kept = 0;
    char **list;

    while (environ[n])
        n++;
    list = calloc(n + 1, sizeof(*list));
    if (!list) {
        cli_lacks_memory();
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!strncmp(environ[i], ENV_PREFIX, 6) || !strncmp(environ[i], "SLURM_", 6) ||
            !strncmp(environ[i], "PMIX_", 5))
            list[kept++] = environ[i];
    qsort(list, kept, sizeof(*list), by_name);
    for (size_t i = 0; i < kept; i++) {
        char *eq = strchr(list[i], '=');
        char name[256];

        /* Names of such a length are nobody's setting. */
        if (!eq || (size_t)(eq - list[i]) >= sizeof(name))
            continue;
        memcpy(name, list[i], (size_t)(eq - list[i]));
        name[eq - list[i]] = '\0';
        /* A value that is not UTF-8 is no JSON string and becomes null. */
        json_object_set_new(o, name, json_string(eq + 1) ?: json_null());
    }
    free(list);
}

static const struct argp argp = {
    .options = cli_json_options,
    .parser = cli_parse_json,
    .doc = "Shows versions, hardware, and the variables of accel, Slurm and PMIx. "
           "Attach the output to a bug report."
};

/* A report without memory for its groups is told by report_print. */
static int run_env(int argc, char **argv)
{
    bool json = false;
    json_t *all;

    cli_parse(&cli_env, argc, argv, &json);
    /* Three groups, which the table shows one after the other. */
    all = json_pack("{s:{},s:{},s:{}}", "versions", "hardware", "variables");
    if (all) {
        add_versions(json_object_get(all, "versions"));
        add_hardware(json_object_get(all, "hardware"));
        add_variables(json_object_get(all, "variables"));
    }
    return report_print(all, json);
}

const struct cli_command cli_env = {
    .name = "env",
    .run = run_env,
    .summary = "versions, hardware and variables, for bug reports",
    .example = "accel env",
    .argp = &argp,
    .everyday = false,
};
