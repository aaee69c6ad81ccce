/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `accelerate launch`, where it differs from ours: flags with - or
 * _, one for every key of a config, and the words that choose a type. In: argv. Out:
 * argv for our own parser.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launch/launch.h"

/* Longer words are no flag of anybody's. */
enum { NAME_BYTES = 96 };

/* What becomes of a flag of Accelerate's. */
enum flag_use {
    /* An option of ours, `text`, with a value. */
    AS_OPTION,
    /* --set=`text`; the flag has no value. */
    AS_SETTING,
    IS_CPU,
    IS_MODULE,
    NO_PYTHON,
    THREADS,
    /* We say nothing that it would silence. */
    QUIET,
    /* For torchrun's agent, which does not exist here; takes a value. */
    NO_AGENT
};

/* Flags that are not named as a key of a config, or that have no value where the key
 * has one. Every key is a flag as well, by the schema table. */
static const struct flag {
    const char *name;
    enum flag_use use;
    const char *text;
} flags_table[] = {
    { "config_file", AS_OPTION, "--config" },
    { "num_processes", AS_OPTION, "--num-processes" },
    { "cpu", IS_CPU, NULL },
    { "multi_gpu", AS_SETTING, "distributed_type=MULTI_GPU" },
    { "tpu", AS_SETTING, "distributed_type=XLA" },
    { "use_fsdp", AS_SETTING, "distributed_type=FSDP" },
    { "use_deepspeed", AS_SETTING, "distributed_type=DEEPSPEED" },
    { "use_megatron_lm", AS_SETTING, "distributed_type=MEGATRON_LM" },
    { "use_parallelism_config", AS_SETTING, "parallelism_config_cp_backend=torch" },
    { "debug", AS_SETTING, "debug=true" },
    { "enable_cpu_affinity", AS_SETTING, "enable_cpu_affinity=true" },
    { "same_network", AS_SETTING, "same_network=true" },
    { "dynamo_use_fullgraph", AS_SETTING, "dynamo_use_fullgraph=true" },
    { "dynamo_use_dynamic", AS_SETTING, "dynamo_use_dynamic=true" },
    { "dynamo_use_regional_compilation", AS_SETTING,
      "dynamo_use_regional_compilation=true" },
    { "fp8_use_autocast_during_eval", AS_SETTING, "fp8_use_autocast_during_eval=true" },
    { "dynamo_backend", AS_OPTION, "--set=dynamo_config.dynamo_backend" },
    { "module", IS_MODULE, NULL },
    { "no_python", NO_PYTHON, NULL },
    { "num_cpu_threads_per_process", THREADS, NULL },
    { "quiet", QUIET, NULL },
    { "tee", NO_AGENT, NULL },
    { "log_dir", NO_AGENT, NULL },
    { "role", NO_AGENT, NULL },
    { "rdzv_conf", NO_AGENT, NULL },
    { "max_restarts", NO_AGENT, NULL },
    { "monitor_interval", NO_AGENT, NULL },
};
/* Our own options, which our parser knows; `value`: does it take one? */
static const struct {
    const char *name;
    bool value;
} own[] = {
    { "config", true }, { "num_processes", true }, { "resume", true },
    { "set", true },    { "site", true },          { "dry_run", false },
    { "help", false },  { "usage", false },
};

struct translation {
    /* Where flags go that are no option of ours. */
    struct launch_flags *flags;
    /* The new argv, of malloc'ed words; room for as many as there were. */
    char **out;
    int count;
    /* The flag that chose the type; NULL: none yet. */
    const char *type;
    accel_error_t *err;
};

/* "--use-fsdp=x" -> "use_fsdp"; false: no long flag. */
static bool flag_name(const char *word, char *name)
{
    size_t n = strcspn(word, "=");

    if (strncmp(word, "--", 2) != 0 || n <= 2 || n - 2 >= NAME_BYTES)
        return false;
    snprintf(name, NAME_BYTES, "%.*s", (int)(n - 2), word + 2);
    for (char *c = name; *c; c++)
        if (*c == '-')
            *c = '_';
    return true;
}

/* The row of a flag by its name with underscores; NULL: none. */
static const struct flag *find_flag(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(flags_table); i++)
        if (!strcmp(flags_table[i].name, name))
            return &flags_table[i];
    return NULL;
}

/* Takes over `text`; NULL is a failed allocation. */
static bool push(struct translation *t, char *text)
{
    if (!text) {
        accel_fail_nomem(t->err, "the command line", 0);
        return false;
    }
    t->out[t->count++] = text;
    return true;
}

/* "--set=NAME=value" or "--option=value". */
static bool push_value(struct translation *t, const char *head, const char *value)
{
    char *text;

    return push(t, asprintf(&text, "%s=%s", head, value) < 0 ? NULL : text);
}

/* At most one flag may choose the type, as with Accelerate. */
static bool take_type(struct translation *t, const char *flag)
{
    if (t->type && strcmp(t->type, flag) != 0) {
        accel_fail_at(t->err, A0010, flag, "omit one of them",
                      "--%s and --%s choose different types", t->type, flag);
        return false;
    }
    t->type = flag;
    return true;
}

/* Not a key of the config, so it is checked here. */
static bool take_threads(struct translation *t, const char *value)
{
    char *end;

    errno = 0;
    t->flags->threads = strtol(value, &end, 10);
    if (!errno && end != value && !*end && t->flags->threads >= 1 &&
        t->flags->threads <= 65536)
        return true;
    accel_fail_at(t->err, A0010, "--num_cpu_threads_per_process",
                  "give a number of at least 1", "'%s' is not a number of threads",
                  value);
    return false;
}

/* A key of the config (no row here) always takes a value. */
static bool needs_value(const struct flag *f)
{
    return !f || f->use == AS_OPTION || f->use == THREADS || f->use == NO_AGENT;
}

const char *launch_flag_name(size_t i, bool *value_out)
{
    if (i >= ACCEL_ARRAY_SIZE(flags_table))
        return NULL;
    *value_out = needs_value(&flags_table[i]);
    return flags_table[i].name;
}

/* Handles a flag of the table above with its value. False: `err` says why. */
static bool take_flag(struct translation *t, const struct flag *f, const char *value)
{
    switch (f->use) {
    case AS_OPTION:
        return push_value(t, f->text, value);
    case AS_SETTING:
        if (!strncmp(f->text, "distributed_type=", 17) && !take_type(t, f->name))
            return false;
        return push_value(t, "--set", f->text);
    case IS_CPU:
        t->flags->cpu = true;
        return take_type(t, f->name) && push_value(t, "--set", "use_cpu=true");
    case IS_MODULE:
        t->flags->module = true;
        return true;
    case NO_PYTHON:
        t->flags->no_python = true;
        return true;
    case THREADS:
        return take_threads(t, value);
    case QUIET:
        return true;
    case NO_AGENT:
        fprintf(stderr,
                "accel: --%s has no effect: it is meant for torchrun's agent, which "
                "accel does not use\n",
                f->name);
        return true;
    }
    return false;
}

/* Translates the option or flag at argv[i]. Returns how many words it took;
 * 0: failure. Words that nothing here knows stay, so that the parser names
 * them in its own words. */
static int take_word(struct translation *t, int argc, char **argv, int i)
{
    char name[NAME_BYTES], head[NAME_BYTES + 8];
    const char *value = strchr(argv[i], '=');
    const struct flag *f;
    bool next = value == NULL && i + 1 < argc;

    if (!strcmp(argv[i], "-m") || !strcmp(argv[i], "-q"))
        return take_flag(t, find_flag(argv[i][1] == 'm' ? "module" : "quiet"), "");
    if (!strcmp(argv[i], "-t") && next) /* --tee */
        return take_flag(t, find_flag("tee"), "") ? 2 : 0;
    if (argv[i][1] != '-') { /* -c FILE, -n N, -r WHAT, or with the value joined */
        bool joined = argv[i][2] || !strchr("cnr", argv[i][1]);

        if (!push(t, strdup(argv[i])))
            return 0;
        return joined || i + 1 == argc ? 1 : push(t, strdup(argv[i + 1])) ? 2 : 0;
    }
    if (!flag_name(argv[i], name))
        return push(t, strdup(argv[i]));
    value = value ? value + 1 : next ? argv[i + 1] : NULL;
    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(own); k++)
        if (!strcmp(own[k].name, name) && strcmp(name, "num_processes") != 0) {
            if (!push(t, strdup(argv[i])))
                return 0;
            return !own[k].value || !next ? 1 : push(t, strdup(value)) ? 2 : 0;
        }
    /* What neither table knows, or lacks its value, is the
     * parser's to complain about. */
    f = find_flag(name);
    if ((!f && config_row(name) < 0) || (needs_value(f) && !value))
        return push(t, strdup(argv[i])); /* the parser says what is wrong */
    if (f)
        return take_flag(t, f, value ? value : "") ? 1 + (needs_value(f) && next) : 0;
    snprintf(head, sizeof(head), "--set=%s", name);
    return push_value(t, head, value) ? 1 + next : 0;
}

/* Stops at the first word that is no option: the program and its arguments are not ours
 * to read. Each word becomes at most one, so the array cannot overflow. */
char **launch_flags_translate(int argc, char **argv, struct launch_flags *flags,
                              int *argc_out, accel_error_t *err)
{
    struct translation t = { .flags = flags, .err = err };
    int i = 1;

    memset(flags, 0, sizeof(*flags));
    t.out = calloc((size_t)argc + 1, sizeof(*t.out));
    if (!t.out) {
        accel_fail_nomem(err, "the command line", 0);
        return NULL;
    }
    if (!push(&t, strdup(argv[0])))
        goto failed;
    while (i < argc && argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "--") != 0) {
        int took = take_word(&t, argc, argv, i);

        if (took == 0)
            goto failed;
        i += took;
    }
    /* As Accelerate: -m means Python. */
    if (flags->module && flags->no_python) {
        accel_fail_at(err, A0010, "--module", "omit one of them",
                      "--module and --no_python cannot be used together");
        goto failed;
    }
    for (; i < argc; i++)
        if (!push(&t, strdup(argv[i])))
            goto failed;
    *argc_out = t.count;
    return t.out;
failed:
    launch_flags_free(t.out);
    return NULL;
}

void launch_flags_free(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}
