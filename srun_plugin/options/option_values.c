/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of our options before Slurm has parsed them, and which of several counts. The
 * command line, the script and the environment of an outer client come in. Reads with
 * the caller's rights.
 */
#include "srun_plugin/options/option_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun_plugin/options/cmdline.h"

/* "--accel-c": shorter prefixes are ambiguous to getopt. */
#define MIN_PREFIX 7

/* salloc has no script. */
void typed_read(struct typed *t, bool allocates)
{
    t->words = cmdline_read();
    if (t->words && allocates && cmdline_is_sbatch())
        t->script = script_read(t->words);
}

void typed_free(struct typed *t)
{
    free(t->words);
    free(t->script);
    *t = (struct typed){ 0 };
}

const char *typed_value(const struct typed *t, const char *option)
{
    const char *own = t->words ? cmdline_option(t->words, option, MIN_PREFIX) : NULL;

    return own || !t->script ? own : cmdline_option(t->script, option, MIN_PREFIX);
}

/* Slurm uses one of two names for it. */
const char *typed_inherited(const char *option)
{
    char name[80] = "SLURM_SPANK_";
    int prefix = (int)strlen(name);

    snprintf(name + prefix, sizeof(name) - (size_t)prefix,
             "_SLURM_SPANK_OPTION_accel_%s", option);
    for (char *c = name + prefix; *c; c++)
        if (*c == '-')
            *c = '_';
    const char *v = getenv(name + prefix);
    return v ? v : getenv(name);
}

/* Slurm calls back for both values without saying which is which. Ours wins, so a value
 * equal to the outer one and different from ours is not it. */
bool typed_is_ours(const struct typed *t, const char *option, const char *arg,
                   bool *inherited_out)
{
    const char *own = typed_value(t, option), *outer = typed_inherited(option);

    *inherited_out = !own && outer;
    return !(own && outer && strcmp(arg, own) != 0 && strcmp(arg, outer) == 0);
}

const char *typed_base(bool inherited)
{
    return inherited ? getenv("SLURM_SUBMIT_DIR") : NULL;
}
