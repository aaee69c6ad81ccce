/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of `accel doctor` about Slurm: its release against the plugin's, the line in
 * plugstack.conf, who may change the plugin's files, PMIx. It reads files and asks srun
 * and scontrol; it changes nothing.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_SLURM
#include <slurm/slurm_version.h>
#endif
#ifdef HAVE_PMIX
#include <pmix_version.h>
#endif

#include "common/path_trust.h"
#include "cli/doctor/doctor.h"
#include "srun_plugin/config_api.h"
#include "srun_plugin/plugstack.h"

/* ---- the plugin ------------------------------------------------------------------ */

/* A controller that is down must not hang the doctor. */
#define ASK_CONTROLLER "timeout 10 scontrol show config 2>&1"

/* Every call of Slurm's is signed by munged, on this host: without it nothing can be
 * started, and nothing can be asked. */
static void check_munge(struct doctor *d)
{
    char line[512];

    if (cli_output_line(ASK_CONTROLLER, "Munge", line, sizeof(line)))
        doctor_say(d, "munge", FAIL,
                   "start munged on this host (systemctl start munge)",
                   "Slurm cannot be asked: %s", line);
}

/* The path of plugstack.conf as the controller says; beside slurm.conf where it does
 * not answer within 10 s. */
static void find_plugstack(struct doctor *d, char *path, size_t len)
{
    const char *conf = getenv("SLURM_CONF"), *slash = conf ? strrchr(conf, '/') : NULL;
    char line[512], *value;

    if (cli_output_line(ASK_CONTROLLER, "PlugStackConfig", line, sizeof(line)) &&
        (value = strchr(line, '/'))) {
        snprintf(path, len, "%s", value);
        return;
    }
    check_munge(d);
    if (slash)
        snprintf(path, len, "%.*s/plugstack.conf", (int)(slash - conf), conf);
    else
        snprintf(path, len, "/etc/slurm/plugstack.conf");
}

/* Does slurmd run as an ordinary user, as on a private cluster? */
static bool slurmd_is_users(void)
{
    char line[512];

    return cli_output_line(ASK_CONTROLLER, "SlurmdUser", line, sizeof(line)) &&
           !strstr(line, "(0)");
}

/* root's slurmstepd loads the plugin: nobody else may be able to change it. Adds a
 * finding and returns false where somebody is. */
static bool is_trusted(struct doctor *d, const char *what, const char *path)
{
    accel_error_t err;
    struct stat st;
    int fd = -1;

    /* Walks from / by descriptors: a writable directory on the
     * way is a hole as well. */
    if (path_trust_open(path, &fd, &err)) {
        doctor_say(d, what, FAIL, err.hint, "%s", err.text);
        return false;
    }
    /* The walk trusts the caller's own files, which are not root's. */
    if (fstat(fd, &st) == 0 && st.st_uid != 0) {
        doctor_say(d, what, slurmd_is_users() ? WARN : FAIL,
                   "install it as root: root's slurmstepd loads what it says",
                   "%s is owned by user %u", path, (unsigned)st.st_uid);
        close(fd);
        return false;
    }
    close(fd);
    return true;
}

/* The plugin's second file has the version of its build. */
static void check_plugin_files(struct doctor *d, const char *plugin)
{
    const char *slash = strrchr(plugin, '/');
    char reader[PATH_MAX + sizeof(CONFIG_API_FILE)];
    const struct config_api *api = NULL;
    void *lib;

    /* The parser is a second module beside the plugin; srun loads
     * it only when needed. */
    snprintf(reader, sizeof(reader), "%.*s/" CONFIG_API_FILE,
             slash ? (int)(slash - plugin) : 0, plugin);
    /* Never load what somebody else may have written: its
     * constructors would run here. */
    if (!is_trusted(d, "plugin file", plugin) || !is_trusted(d, "plugin file", reader))
        return;
    lib = dlopen(reader, RTLD_LAZY | RTLD_LOCAL);
    if (lib)
        api = dlsym(lib, CONFIG_API_SYMBOL);
    if (!api)
        doctor_say(d, "plugin file", FAIL, "reinstall accel", "%s", dlerror());
    else if (strcmp(api->version, accel_version()) != 0)
        doctor_say(d, "plugin file", FAIL,
                   "load the module of that version, or install this one",
                   "%s has version %s, this command %s", reader, api->version,
                   accel_version());
    else
        doctor_say(d, "plugin file", GOOD, NULL,
                   "%s, version %s, writable by root only", plugin, api->version);
    if (lib)
        dlclose(lib);
}

/* The words after the plugin, taken as srun takes them. */
static void read_arguments(const struct plugstack *p, struct arguments *a)
{
    char words[sizeof(p->words)], *rest = words, *word, *av[64];
    int ac = 0;

    snprintf(words, sizeof(words), "%s", p->words);
    while ((word = strsep(&rest, " \t")) && ac < (int)ACCEL_ARRAY_SIZE(av))
        if (*word)
            av[ac++] = word;
    arguments_take(a, ac, av);
}

/* The site file, read as srun reads it: what is wrong with it stops every job with a
 * config. `named`: by plugstack.conf; empty: the default one, which may be missing. */
static void check_site(struct doctor *d, const char *named)
{
    struct config cfg = { 0 };
    struct config_sources src = { 0 };
    struct config_paths paths;
    struct config_diags diags = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st;
    int locked = 0;

    config_sources_default(&src, &paths);
    src = (struct config_sources){ .site_path = named[0] ? named : src.site_path,
                                   .site_is_named = named[0] != '\0' };
    st = config_resolve(&src, &cfg, &diags, &err);
    for (size_t i = 0; i < CONFIG_MAX_KEYS; i++)
        locked += cfg.locked[i];
    if (st != ACCEL_OK)
        doctor_say(d, "site file", FAIL, err.hint, "%s", err.text);
    else if (!src.site_path || access(src.site_path, F_OK))
        doctor_say(d, "site file", GOOD, NULL, "none");
    else
        doctor_say(d, "site file", GOOD, NULL, "%s, %d keys locked", src.site_path,
                   locked);
    config_diags_free(&diags);
}

/* One finding about the line: the first thing that is wrong with it. The files are
 * looked at in any case. */
static void check_plugstack(struct doctor *d, struct arguments *a)
{
    struct plugstack p = { 0 };
    char path[PATH_MAX], cure[2 * PATH_MAX];

    find_plugstack(d, path, sizeof(path));
    plugstack_read(&p, path);
    if (!p.found) {
        snprintf(cure, sizeof(cure),
                 "ask the administrator to add 'required " PKGLIBDIR
                 "/accel_spank.so' to plugstack.conf");
        doctor_say(d, "plugstack", FAIL, cure, "%s has no line with accel_spank.so",
                   path);
        return;
    }
    read_arguments(&p, a);
    /* In the order of what is worse. */
    if (a->wrong[0])
        doctor_say(
            d, "plugstack", FAIL,
            "write site=/ABSOLUTE/PATH, once and without blanks, or no argument; "
            "until then srun refuses every job with a config",
            "%s:%d: wrong argument '%s'", p.file, p.line, a->wrong);
    else if (p.found > 1)
        doctor_say(d, "plugstack", FAIL,
                   "keep one line; until then srun refuses every job with a config",
                   "accel_spank.so is listed %d times, first in %s:%d", p.found, p.file,
                   p.line);
    else if (!p.required)
        doctor_say(d, "plugstack", WARN,
                   "write 'required': with 'optional', a refused step runs anyway",
                   "%s:%d: optional %s", p.file, p.line, p.plugin);
    else if (strcmp(p.plugin, PKGLIBDIR "/accel_spank.so") != 0)
        doctor_say(d, "plugstack", WARN, "load the module of that installation",
                   "%s:%d loads %s, but this command belongs to " PKGLIBDIR, p.file,
                   p.line, p.plugin);
    else if (is_trusted(d, "plugstack", p.file))
        doctor_say(d, "plugstack", GOOD, NULL, "%s:%d: required", p.file, p.line);
    check_plugin_files(d, p.plugin);
}

/* ---- Slurm ----------------------------------------------------------------------- */

/* Slurm loads only plugins that were built with its own headers, so versions must be
 * equal to the micro release. */
static void check_version(struct doctor *d, const char *installed)
{
#ifdef HAVE_SLURM
    char built[32];

    snprintf(built, sizeof(built), "slurm %d.%02d.%d",
             SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MICRO(SLURM_VERSION_NUMBER));
    /* Debian says "slurm-wlm 22.05.8", others "slurm 22.05.8": only the
     * number is compared. */
    if (strstr(installed, built + strlen("slurm ")))
        doctor_say(d, "slurm", GOOD, NULL,
                   "%s, the version that the plugin was built for", installed);
    else
        doctor_say(d, "slurm", FAIL, "rebuild accel with the headers of this Slurm",
                   "%s, but the plugin was built for %s", installed, built);
#else
    doctor_say(d, "slurm", WARN, "rebuild accel where slurm/spank.h is installed",
               "%s, but accel was built without its plugin", installed);
#endif
}

/* From the outside in: is srun there, is it set up, does it know the option, and only
 * then the plugin's line and files. A client without a cluster is a warning, because
 * accel launch needs no Slurm. */
static void check_slurm(struct doctor *d, struct arguments *a)
{
    char *srun = cli_find_program("srun"), line[512];

    if (!srun) {
        doctor_say(d, "slurm", WARN,
                   "load the site's Slurm module; accel launch needs no Slurm",
                   "no srun in PATH");
        return;
    }
    free(srun);
    /* srun without slurm.conf: Slurm's programs are installed, but no cluster
     * is. Nothing is broken. */
    if (!cli_output_line("srun --version 2>/dev/null", "slurm", line, sizeof(line))) {
        doctor_say(
            d, "slurm", WARN,
            "set SLURM_CONF or write /etc/slurm/slurm.conf; accel-cluster shell starts "
            "a private cluster; accel launch needs no Slurm",
            "srun is installed but not configured: srun --version fails");
        return;
    }
    check_version(d, line);
    /* srun lists the options of the plugins that it has loaded. */
    if (cli_output_line("srun --help 2>/dev/null", "--accel-config", line,
                        sizeof(line)))
        doctor_say(d, "plugin", GOOD, NULL, "srun knows --accel-config");
    else
        doctor_say(d, "plugin", FAIL, "see the plugstack line",
                   "srun does not know --accel-config");
    check_plugstack(d, a);
    /* Both streams: some releases write the list to stderr. */
    if (cli_output_line("srun --mpi=list 2>&1", "pmix", line, sizeof(line)))
        doctor_say(d, "srun --mpi", GOOD, NULL, "%s", line + strspn(line, " \t"));
    else
        doctor_say(d, "srun --mpi", FAIL, "install Slurm's PMIx plugin (mpi/pmix)",
                   "srun --mpi=list has no pmix");
}

#ifdef HAVE_PMIX
/* `loaded` reads "OpenPMIx 4.2.2 (...". Another major release than that of the headers
 * may have other tables. */
static void check_pmix_version(struct doctor *d, const char *loaded)
{
    const char *digits = loaded + strcspn(loaded, "0123456789");

    if (strtol(digits, NULL, 10) == PMIX_VERSION_MAJOR)
        doctor_say(d, "pmix", GOOD, NULL, "%.*s, built with %d.%d.%d",
                   (int)strcspn(loaded, "(,"), loaded, (int)PMIX_VERSION_MAJOR,
                   (int)PMIX_VERSION_MINOR, (int)PMIX_VERSION_RELEASE);
    else
        doctor_say(d, "pmix", WARN, "rebuild accel with the headers of this PMIx",
                   "%.*s, but accel was built with %d.%d.%d",
                   (int)strcspn(loaded, "(,"), loaded, (int)PMIX_VERSION_MAJOR,
                   (int)PMIX_VERSION_MINOR, (int)PMIX_VERSION_RELEASE);
}
#endif

/* The PMIx library that a run would load, which need not be the one of the build.
 * Without PMIx in the build every run has one rank. */
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
        check_pmix_version(d, version());
    else
        doctor_say(d, "pmix", FAIL, "install PMIx (Debian: libpmix2, RHEL: pmix)",
                   "libpmix does not load");
#else
    doctor_say(d, "pmix", FAIL, "install libpmix-dev or pmix-devel and rebuild accel",
               "accel was built without PMIx: runs have one rank");
#endif
}

void doctor_slurm(struct doctor *d)
{
    struct arguments a = { 0 };

    check_slurm(d, &a);
    check_site(d, a.site);
    check_pmix(d);
}
