/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel doctor`: looks at what a run on this machine needs and says for each whether it
 * is there, with a cure where it is not. Changes nothing but a nameless file in the
 * current directory.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#ifdef HAVE_SLURM
#include <slurm/slurm_version.h>
#endif

#include "scripts/accel/cli.h"

enum verdict { GOOD, WARN, FAIL };

struct doctor {
    struct cli_table *table;
    int fails;
};

__attribute__((format(printf, 5, 6))) static void say(struct doctor *d,
                                                      const char *what, enum verdict v,
                                                      const char *cure, const char *fmt,
                                                      ...)
{
    static const char *const words[] = { "ok", "warn", "fail" };
    char found[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(found, sizeof(found), fmt, ap);
    va_end(ap);
    d->fails += v == FAIL;
    cli_table_row(d->table,
                  (const char *[]){ words[v], what, found, v == GOOD ? NULL : cure });
}

/* ---- Slurm ------------------------------------------------------------------------------- */

static void check_version(struct doctor *d, const char *installed)
{
#ifdef HAVE_SLURM
    char built[32];

    snprintf(built, sizeof(built), "slurm %d.%02d.%d",
             SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MICRO(SLURM_VERSION_NUMBER));
    /* "slurm-wlm 22.05.8": Slurm loads plugins of its own release only. */
    if (strstr(installed, built + strlen("slurm ")))
        say(d, "slurm", GOOD, NULL, "%s, as the plugin was built for", installed);
    else
        say(d, "slurm", FAIL, "build accel again with the headers of this Slurm",
            "%s, but the plugin was built for %s", installed, built);
#else
    say(d, "slurm", WARN, "configure accel where slurm/spank.h is, for the plugin",
        "%s, but accel was built without its plugin", installed);
#endif
}

static void check_slurm(struct doctor *d)
{
    char *srun = cli_find_program("srun"), line[512];

    if (!srun) {
        say(d, "slurm", WARN, "load the site's Slurm module; accel launch needs none",
            "no srun in PATH");
        return;
    }
    free(srun);
    if (!cli_output_line("srun --version 2>/dev/null", "slurm", line, sizeof(line))) {
        say(d, "slurm", FAIL, "check SLURM_CONF and /etc/slurm/slurm.conf",
            "srun is there, but srun --version fails");
        return;
    }
    check_version(d, line);
    if (cli_output_line("srun --help 2>/dev/null", "--accel-config", line,
                        sizeof(line)))
        say(d, "plugin", GOOD, NULL, "srun knows --accel-config");
    else
        say(d, "plugin", FAIL,
            "ask the administrator to add 'required " PKGLIBDIR
            "/accel_spank.so' to plugstack.conf",
            "srun does not know --accel-config");
    if (cli_output_line("srun --mpi=list 2>&1", "pmix", line, sizeof(line)))
        say(d, "srun --mpi", GOOD, NULL, "pmix is there");
    else
        say(d, "srun --mpi", FAIL, "install Slurm's PMIx plugin (mpi/pmix)",
            "srun --mpi=list has no pmix");
}

static void check_pmix(struct doctor *d)
{
#ifdef HAVE_PMIX
    static const char *const names[] = { "libpmix.so.2", "libpmix.so" };
    const char *(*version)(void) = NULL;
    void *lib = NULL;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names) && !lib; i++)
        lib = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    if (lib)
        version = (const char *(*)(void))dlsym(lib, "PMIx_Get_version");
    if (version)
        say(d, "pmix", GOOD, NULL, "%.*s", (int)strcspn(version(), "(,"), version());
    else
        say(d, "pmix", FAIL, "install PMIx (Debian: libpmix2, RHEL: pmix)",
            "libpmix does not load");
#else
    say(d, "pmix", FAIL, "install libpmix-dev or pmix-devel and build accel again",
        "accel was built without PMIx: runs have one rank");
#endif
}

/* ---- files ------------------------------------------------------------------------------- */

/* The plugin runs with root's rights on every node: nobody else may be able to change it
 * or a folder above it. */
static void check_plugin_file(struct doctor *d)
{
    char path[PATH_MAX] = PKGLIBDIR "/accel_spank.so";
    struct stat st;

    if (stat(path, &st)) {
        say(d, "plugin file", WARN, "make install, as the administrator", "%s: %s",
            path, strerror(errno));
        return;
    }
    for (char *end = path; end;) {
        const char *shown = path[0] ? path : "/";

        /* Others may write to a sticky folder, but not replace what is root's in it. */
        if (stat(shown, &st) == 0 && (st.st_mode & 022) && !(st.st_mode & S_ISVTX)) {
            say(d, "plugin file", FAIL, "chmod go-w it", "%s can be changed by others",
                shown);
            return;
        }
        if (st.st_uid != 0) {
            say(d, "plugin file", WARN, "install it as root before slurmd loads it",
                "%s belongs to user %u", shown, (unsigned)st.st_uid);
            return;
        }
        end = strrchr(path, '/');
        if (end)
            *end = '\0';
    }
    say(d, "plugin file", GOOD, NULL, PKGLIBDIR "/accel_spank.so, root's alone");
}

static void check_module(struct doctor *d)
{
    const char *loaded = getenv("LOADEDMODULES"), *path = getenv("MODULEPATH");
    char *dirs = strdup(path ? path : ""), *rest = dirs;
    bool seen = false;

    for (char *dir = strsep(&rest, ":"); dir && !seen; dir = strsep(&rest, ":")) {
        char *folder = NULL;

        if (*dir && asprintf(&folder, "%s/accel", dir) >= 0) {
            seen = access(folder, R_OK) == 0;
            free(folder);
        }
    }
    free(dirs);
    if (loaded && strstr(loaded, "accel/"))
        say(d, "module", GOOD, NULL, "accel is loaded");
    else if (seen)
        say(d, "module", GOOD, NULL, "accel can be loaded");
    else
        say(d, "module", WARN,
            "module use " DATADIR "/modulefiles, or keep accel in PATH",
            "no module accel in MODULEPATH");
}

static void check_shm(struct doctor *d)
{
    struct statvfs v;
    char size[32];

    if (statvfs("/dev/shm", &v) || access("/dev/shm", W_OK)) {
        say(d, "/dev/shm", FAIL, "mount a tmpfs there that users may write to", "%s",
            strerror(errno));
        return;
    }
    format_bytes((double)v.f_bavail * (double)v.f_frsize, size, sizeof(size));
    if ((double)v.f_bavail * (double)v.f_frsize < 256.0 * (1 << 20))
        say(d, "/dev/shm", WARN, "remove what is left there, or mount it larger",
            "%s free; ranks of one node talk through it", size);
    else
        say(d, "/dev/shm", GOOD, NULL, "%s free", size);
}

/* Checkpoints are written past the page cache where the file system can. */
static void check_direct_io(struct doctor *d)
{
    int fd = open(".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int flags;

    if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR) {
        say(d, "this directory", WARN, "run from where checkpoints may be written",
            "cannot write: %s", strerror(errno));
        return;
    }
    if (fd < 0) {
        say(d, "this directory", WARN, "use a local or parallel file system",
            "no O_TMPFILE here, so O_DIRECT was not tried");
        return;
    }
    flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0)
        say(d, "this directory", GOOD, NULL, "writable, with O_DIRECT");
    else
        say(d, "this directory", WARN,
            "checkpoints work; another file system is faster",
            "writable, without O_DIRECT");
    close(fd);
}

static void check_gpu(struct doctor *d)
{
    if (access("/dev/nvidiactl", F_OK) == 0)
        say(d, "gpu", WARN, "say use_cpu: true in the config",
            "there are GPUs, but this version computes on the CPU only");
    else
        say(d, "gpu", GOOD, NULL, "none; this version computes on the CPU");
}

/* ---- the command -------------------------------------------------------------------------- */

static const struct argp argp = {
    .options = cli_json_options,
    .parser = cli_parse_json,
    .doc = "Checks what a run here needs: Slurm and the plugin's versions, PMIx, the "
           "module, the rights of the installed plugin, /dev/shm, O_DIRECT in this "
           "directory. Each line is ok, warn or fail, with a cure.\vExit code: 0 when "
           "nothing failed, else 69."
};

static int run_doctor(int argc, char **argv)
{
    static const char *const columns[] = { "STATE", "WHAT", "FOUND", "CURE", NULL };
    struct doctor d = { 0 };
    accel_error_t err;
    bool json = false;
    int code;

    cli_parse(&cli_doctor, argc, argv, &json);
    d.table = cli_table_new("checks", columns);
    if (!d.table) {
        accel_fail_nomem(&err, "the table", 0);
        return cli_fail(&err);
    }
    check_slurm(&d);
    check_pmix(&d);
    check_plugin_file(&d);
    check_module(&d);
    check_shm(&d);
    check_direct_io(&d);
    check_gpu(&d);
    code = cli_table_print(d.table, json);
    if (!code && d.fails)
        code = accel_exit_code(ACCEL_EUNAVAIL);
    return code;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .run = run_doctor,
    .summary = "is all there that a run needs? with cures",
    .example = "accel doctor",
    .argp = &argp,
    .everyday = true,
};
