/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user should know before the job starts, although it is no error: values that
 * were not applied, a script that starts Python without srun, a launcher under srun, a
 * strategy that a Python program does not have on CPUs. The config with its notes, the
 * command line and the batch script come in. Lines of information go out, none with -Q.
 * Never refuses anything.
 */
#include "srun_plugin/options/plugin_options.h"

#include <limits.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/plugin.h"

/* One call per line, so that each gets Slurm's prefix. */
static void say_notes(const char *notes)
{
    for (const char *line = notes; line && *line;) {
        int n = (int)strcspn(line, "\n");

        if (n)
            slurm_info("%.*s", n, line);
        line += n + (line[n] == '\n');
    }
}

/* sbatch: the script runs once, on the first node. Python in it, without srun, would be
 * a single process with no rank, which is rarely meant. */
static void say_bare_python(char **words)
{
    const char *wrap = cmdline_option(words, "wrap", 3);
    char path[PATH_MAX], *text = NULL;
    size_t len;
    int line;

    if (!wrap && script_find(words, path, sizeof(path)))
        text = cmdline_read_file(path, SCRIPT_MAX, &len);
    line = wrap ? script_bare_python(wrap) : text ? script_bare_python(text) : 0;
    if (line && wrap)
        slurm_info("accel: --wrap: Python runs once here, without a rank: only "
                   "programs that srun starts use --" OPTION_CONFIG
                   " (srun python ...)");
    else if (line)
        slurm_info("accel: %s:%d: Python runs once here, without a rank: only programs "
                   "that srun starts use --" OPTION_CONFIG " (srun python ...)",
                   words[cmdline_command(words)], line);
    free(text);
}

/* Does the command of this srun run Python, directly or in a shell ("bash -c")? */
static bool starts_python(char **words)
{
    for (size_t i = cmdline_command(words); words[i]; i++)
        for (const char *p = words[i]; *p;
             p += strcspn(p, " \t"), p += strspn(p, " \t"))
            if (names_python(p, strcspn(p, " \t;&|")))
                return true;
    return false;
}

/* The job runs either way, so the user would hardly notice that nothing is sharded. */
static void say_no_shards(const struct client *c)
{
    const struct config *cfg = &c->file.config;
    char place[4200];

    if (cfg->distributed_type != DIST_FSDP || cfg->device != DEVICE_CPU ||
        !starts_python(c->typed.words))
        return;
    slurm_info("accel: %s: on CPUs an Accelerate script does not shard: each rank "
               "trains a whole copy, as with MULTI_CPU (libaccel programs do shard)",
               job_file_place(&c->file, "distributed_type", place, sizeof(place)));
}

/* Python would start without a word and do as it always does. */
static void say_no_python_modules(const struct client *c)
{
    char dir[PATH_MAX], text[PATH_MAX + 256];

    if (c->file.config.python_trainer &&
        !python_modules_found(python_modules_dir(dir, sizeof(dir)), text, sizeof(text)))
        slurm_info("accel: %s", text);
}

/* Slurm has not applied -Q to its log yet at this point. */
static bool is_quiet(char **words)
{
    return cmdline_letter(words, 'Q') || cmdline_option(words, "quiet", 4);
}

/* Each task would be the only node of a world of its own, and all of them would write
 * the same files. */
void hints_say_worlds(const struct client *c, uint32_t tasks)
{
    char **words = c->typed.words;
    struct strbuf line = { 0 };
    const char *launcher;

    if (!words || tasks < 2 || is_quiet(words))
        return;
    for (size_t i = cmdline_command(words); words[i]; i++)
        strbuf_printf(&line, "%s ", words[i]);
    launcher = line.s && !line.failed ? script_own_world(line.s) : NULL;
    if (launcher)
        slurm_info("accel: %s makes a world of its own in each of the %u tasks; the "
                   "tasks have their ranks already: start the script itself (srun "
                   "python train.py)",
                   launcher, tasks);
    strbuf_free(&line);
}

void hints_say(const struct client *c)
{
    char **words = c->typed.words;

    if (!words || is_quiet(words))
        return;
    say_notes(c->file.notes.s);
    if (!c->allocates) {
        say_no_shards(c);
        say_no_python_modules(c);
    } else if (cmdline_is_sbatch())
        say_bare_python(words);
}
