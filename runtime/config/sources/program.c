/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of the program, "KEY=VALUE", come in; their values go into the config, above
 * the site's and below the user's. What is decided before the program starts is
 * refused, with who decides it.
 */
#include <stdio.h>
#include <string.h>

#include "config/sources/single_value.h"

/* Who decides a key before the program starts; NULL: the program may set it. */
static const char *decided_by(const struct config_key *k)
{
    if (k->use == USE_REPLACED)
        return k->help;
    if (!strcmp(k->name, "num_processes") || !strcmp(k->name, "num_machines"))
        return "srun, mpirun or accel launch starts the processes, by its options or "
               "the config file";
    if (!strcmp(k->section, "accel.preemption"))
        return "srun and sbatch ask Slurm for it, by the config file";
    if (!strcmp(k->section, "accel.python"))
        return "srun and accel launch prepare Python for it, by the config file";
    return NULL;
}

/* The name is cut off the value here, because messages show it alone. */
static void take_setting(struct validator *v, struct lones *l, const char *setting)
{
    size_t len = strcspn(setting, "=");
    char name[128], hint[300];
    const char *who;
    int row;

    if (!setting[len] || len >= sizeof(name)) {
        lone_enter(v, lone_next(l), ORIGIN_PROGRAM, setting, len);
        report_add(v->report, A0975, (struct place){ 0 },
                   "write \"KEY=VALUE\", for example \"mixed_precision=bf16\"",
                   setting[len] ? "no key is that long" : "the setting has no '='");
        return;
    }
    memcpy(name, setting, len);
    name[len] = '\0';
    row = config_row(name);
    who = row >= 0 ? decided_by(&v->schema[row]) : NULL;
    if (!who) {
        lone_setting(v, l, ORIGIN_PROGRAM, name, setting + len + 1);
        return;
    }
    lone_enter(v, lone_next(l), ORIGIN_PROGRAM, name, len);
    snprintf(hint, sizeof(hint), "remove it: %s", who);
    report_add(v->report, A0976, (struct place){ 0 }, hint,
               "'%s' is decided before the program starts", v->schema[row].name);
}

size_t program_count(const char *const *settings)
{
    size_t n = 0;

    while (settings && settings[n])
        n++;
    return n;
}

void program_take(struct validator *v, struct lones *l, const char *const *settings)
{
    for (; *settings && !report_full(v->report); settings++)
        take_setting(v, l, *settings);
}
