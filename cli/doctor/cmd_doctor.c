/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel doctor`: looks at what a run on this machine needs and says for each part
 * whether it is there, with a cure where it is not. Changes nothing: it makes one
 * nameless file in the directory of checkpoints, which is gone when closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/doctor/doctor.h"
#include "backend/cuda_load.h"
#include "topology/topo.h"

/* Formats the finding into a buffer of its own, so that the calls read as one
 * line of the table each. */
void doctor_say(struct doctor *d, const char *what, enum verdict v, const char *cure,
                const char *fmt, ...)
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

/* ---- files ----------------------------------------------------------------------- */

/* The environment module: loaded, or in one of the folders of MODULEPATH. Without one
 * accel works from PATH, so its absence is only a warning. */
static void check_module(struct doctor *d)
{
    const char *loaded = getenv("LOADEDMODULES"), *path = getenv("MODULEPATH");
    /* strsep cuts its text, and the environment's must stay whole. */
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
        doctor_say(d, "module", GOOD, NULL, "accel is loaded");
    else if (seen)
        doctor_say(d, "module", GOOD, NULL, "accel can be loaded");
    else
        doctor_say(d, "module", WARN,
                   "module use " DATADIR "/modulefiles, or keep accel in PATH",
                   "no module accel in MODULEPATH");
}

/* /dev/shm: shared memory of the ranks of one node. Less than 256 MiB free gets a
 * warning, since what other jobs left there may be all that is wrong. */
static void check_shm(struct doctor *d)
{
    struct statvfs v;
    char size[32];

    /* errno is that of whichever call failed. */
    if (statvfs("/dev/shm", &v) || access("/dev/shm", W_OK)) {
        doctor_say(d, "/dev/shm", FAIL, "mount a tmpfs there that users can write to",
                   "%s", strerror(errno));
        return;
    }
    format_bytes((double)v.f_bavail * (double)v.f_frsize, size, sizeof(size));
    if ((double)v.f_bavail * (double)v.f_frsize < 256.0 * (1 << 20))
        doctor_say(d, "/dev/shm", WARN, "remove leftover files, or mount a larger one",
                   "%s free; ranks of one node communicate through it", size);
    else
        doctor_say(d, "/dev/shm", GOOD, NULL, "%s free", size);
}

/* Checkpoints are written past the page cache where the file system can. O_TMPFILE
 * makes a file without a name, so nothing is left behind even if this is killed. EISDIR
 * comes from kernels and file systems without O_TMPFILE. */
static void check_direct_io(struct doctor *d, const char *dir)
{
    static const char what[] = "checkpoints";
    struct statvfs v;
    char size[32] = "?";
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (statvfs(dir, &v) == 0)
        format_bytes((double)v.f_bavail * (double)v.f_frsize, size, sizeof(size));
    /* Any other error means that nobody could write a checkpoint here. */
    if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR) {
        doctor_say(d, what, WARN, "name the checkpoint directory: --dir DIR",
                   "cannot write to %s: %s", dir, strerror(errno));
        return;
    }
    if (fd < 0) {
        doctor_say(d, what, WARN, "use a local or parallel file system",
                   "%s: no O_TMPFILE here, so O_DIRECT was not tested; %s free", dir,
                   size);
        return;
    }
    /* Set after the open: the file system says now whether it takes O_DIRECT, and an
     * open that fails for this reason alone could not be told from other failures. */
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0)
        doctor_say(d, what, GOOD, NULL, "%s: writable, with O_DIRECT; %s free", dir,
                   size);
    else
        doctor_say(d, what, WARN,
                   "checkpoints work; a file system with O_DIRECT is faster",
                   "%s: writable, without O_DIRECT; %s free", dir, size);
    close(fd);
}

/* All ranks wait for a GPU that does not answer or is slowed down, so each such GPU
 * gets a row of its own. */
static void check_each_gpu(struct doctor *d, const struct topo_gpus *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        const struct topo_gpu *g = &gpus->gpu[i];
        char what[16], why[256], now[128];

        snprintf(what, sizeof(what), "gpu %d", i);
        /* NVML counts this GPU, but it does not answer, not even with its bus id. */
        if (!g->bus_id[0]) {
            doctor_say(d, what, WARN,
                       "check nvidia-smi and dmesg (Xid); have the node checked",
                       "does not answer its driver");
        } else if (g->clocks.reasons & REASONS_SLOW) {
            topo_clocks_text(&g->clocks, now, sizeof(now));
            doctor_say(d, what, WARN,
                       "check nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; have "
                       "cooling and power supply checked",
                       "%s: %s%s%s%s", g->bus_id,
                       topo_reasons_text(g->clocks.reasons, why, sizeof(why)),
                       now[0] ? " (" : "", now, now[0] ? ")" : "");
        }
    }
}

/* The node's GPUs as NVML counts them. `module`: there is a CUDA module
 * to compute on them. */
static void check_gpus(struct doctor *d, const struct topo_gpus *gpus, bool module)
{
    /* NVML may know the GPUs and not the driver's version. */
    const char *driver = gpus->driver[0] ? gpus->driver : "?";

    if (gpus->broken)
        doctor_say(d, "gpu", WARN, "run nvidia-smi; have the driver checked", "%s",
                   gpus->why);
    else if (!gpus->known)
        doctor_say(d, "gpu", GOOD, NULL, "none");
    else if (gpus->count == 0)
        doctor_say(d, "gpu", GOOD, NULL, "none, driver %s", driver);
    else if (!module)
        doctor_say(d, "gpu", WARN,
                   "see the cuda line, or set use_cpu: true in the config",
                   "%d, driver %s, but no CUDA module", gpus->count, driver);
    else
        doctor_say(d, "gpu", GOOD, NULL, "%d, driver %s", gpus->count, driver);
    check_each_gpu(d, gpus);
}

/* GPUs and the module that computes on them. A node without GPUs needs no module:
 * message A0440 (module not found) is no complaint there. */
static void check_gpu(struct doctor *d)
{
    struct topo_gpus *gpus = calloc(1, sizeof(*gpus));
    accel_error_t err = { 0 };
    char module[512];
    accel_status_t st = backend_cuda_module(module, sizeof(module), &err);

    if (!gpus) {
        doctor_say(d, "gpu", FAIL, "free some memory",
                   "not enough memory to check them");
        return;
    }
    /* NVML's answer, whether or not accel can use the GPUs. */
    topo_gpus_find(gpus);
    check_gpus(d, gpus, st == ACCEL_OK);
    if (st == ACCEL_OK)
        doctor_say(d, "cuda", GOOD, NULL, "%s", module);
    else if (err.message == 440 && gpus->count == 0)
        doctor_say(d, "cuda", GOOD, NULL, "no module; this node does not need one");
    else
        doctor_say(d, "cuda", WARN, err.hint, "%s", err.text);
    free(gpus);
}

/* ---- the command ----------------------------------------------------------------- */

struct doctor_args {
    /* Where checkpoints will be written. */
    const char *dir;
    bool json;
};

static error_t parse_doctor_args(int key, char *arg, struct argp_state *state)
{
    struct doctor_args *a = state->input;

    if (key != 'd')
        return cli_parse_json_into(key, state, &a->json);
    a->dir = arg;
    return 0;
}

/* --dir matters: file systems differ, and the one of the
 * checkpoints is the one to try. */
static const struct argp_option options[] = {
    { "dir", 'd', "DIR", 0, "Directory for checkpoints (default: the current one)", 0 },
    CLI_JSON_OPTION,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_doctor_args,
    .doc =
        "Checks what a run on this host needs: the versions of Slurm and of the "
        "plugin, the plugin's line in plugstack.conf, the permissions of its files, "
        "the site file, munge, PMIx, the module, /dev/shm, the checkpoint directory "
        "and O_DIRECT there, "
        "GPUs. Each line is ok, warn or fail, with a cure. accel env shows all other "
        "versions.\vExit code: 0 if nothing failed, even with warnings (for example, a "
        "Slurm client that is not configured), else 69."
};

/* Warnings leave the exit code 0, so that a script may call it on nodes where some
 * parts are not set up. */
static int run_doctor(int argc, char **argv)
{
    static const char *const columns[] = { "STATE", "WHAT", "FOUND", "CURE", NULL };
    struct doctor d = { 0 };
    struct doctor_args a = { .dir = "." };
    int code;

    cli_parse(&cli_doctor, argc, argv, &a);
    d.table = cli_table_new("checks", columns);
    if (!d.table)
        return cli_no_memory("the table");
    /* In the order in which a run meets them. */
    doctor_slurm(&d);
    check_module(&d);
    check_shm(&d);
    check_direct_io(&d, a.dir);
    check_gpu(&d);
    code = cli_table_print(d.table, a.json);
    /* A table that could not be printed is the worse news. */
    if (!code && d.fails)
        code = accel_exit_code(ACCEL_EUNAVAIL);
    return code;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .run = run_doctor,
    .summary = "check that this host has what a run needs",
    .example = "accel doctor",
    .argp = &argp,
    .everyday = true,
};
