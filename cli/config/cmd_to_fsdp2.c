/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel to-fsdp2`: turns a config of FSDP version 1 into one of version 2, or back
 * with --reverse. In: the file alone, without other sources. Out: a file; what the
 * other version cannot say is told on stderr.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/config/config_values.h"
#include "cli/config/settings.h"

enum { O_OVERWRITE = 256 };

struct convert_args {
    /* --config-file and --output-file; output NULL: over the input. */
    const char *input, *output;
    bool overwrite, reverse;
};

/* Keys of version 1 that version 2 has no place for, and what it does instead. */
static const struct {
    const char *key, *instead;
} removed[] = {
    { "fsdp_backward_prefetch", "version 2 always prefetches one unit" },
    { "fsdp_forward_prefetch", "version 2 has no such key" },
    { "fsdp_sync_module_states", "version 2 always starts with the values of rank 0" },
    { "fsdp_use_orig_params", "version 2 always keeps the original parameters" },
};

/* Strategies that shard inside a node and replicate between nodes. */
static bool is_hybrid(const char *strategy)
{
    return !strcmp(strategy, "HYBRID_SHARD") || !strcmp(strategy, "HYBRID_SHARD_ZERO2");
}

/* FULL_SHARD and HYBRID_SHARD gather again before backward; the other strategies
 * keep what they gathered. Version 2 says this with one key, and says the
 * replicas elsewhere. */
static bool to_version2(struct config_values *v)
{
    static const char copies[] =
        "parallelism_config.parallelism_config_dp_replicate_size";
    const char *strategy = config_values_get(v, "fsdp_sharding_strategy");
    bool good = true, reshard;

    /* Version 1's default. */
    if (!strategy)
        strategy = "FULL_SHARD";
    reshard = !strcmp(strategy, "FULL_SHARD") || !strcmp(strategy, "HYBRID_SHARD");
    /* Without a count of nodes the replicas cannot be kept: said, not guessed. */
    if (is_hybrid(strategy) && !config_values_get(v, copies))
        fprintf(stderr,
                "note: %s keeps a replica on each node. In version 2 that takes "
                "parallelism_config,\n  which is not added: without "
                "parallelism_config_dp_replicate_size: NODES, the parameters\n  are "
                "sharded over all ranks\n",
                strategy);
    if (!strcmp(strategy, "NO_SHARD"))
        fprintf(stderr, "note: NO_SHARD replicates the model; version 2 always shards "
                        "it, and here gathers it once\n");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(removed); i++) {
        if (!config_values_get(v, removed[i].key))
            continue;
        fprintf(stderr, "note: %s is dropped: %s\n", removed[i].key,
                removed[i].instead);
        good &= config_values_set(v, removed[i].key, NULL);
    }
    /* The strategy's one meaning that is left. */
    good &=
        config_values_set(v, "fsdp_reshard_after_forward", reshard ? "true" : "false");
    good &= config_values_set(v, "fsdp_sharding_strategy", NULL);
    return good && config_values_set(v, "fsdp_version", "2");
}

/* Version 2's replica groups are version 1's HYBRID strategies,
 * if a group is a node. */
static bool to_version1(struct config_values *v)
{
    static const char copies_key[] =
        "parallelism_config.parallelism_config_dp_replicate_size";
    const char *reshard = config_values_get(v, "fsdp_reshard_after_forward");
    const char *copies = config_values_get(v, copies_key);
    /* Version 2's default is true. */
    bool gathers_twice = !reshard || strcmp(reshard, "false") != 0;
    bool hybrid = copies && strcmp(copies, "1") != 0;
    bool good;

    good = config_values_set(v, "fsdp_sharding_strategy",
                             hybrid && gathers_twice ? "HYBRID_SHARD"
                             : hybrid                ? "HYBRID_SHARD_ZERO2"
                             : gathers_twice         ? "FULL_SHARD"
                                                     : "SHARD_GRAD_OP");
    if (hybrid)
        fprintf(stderr,
                "note: dp_replicate_size: %s becomes HYBRID_SHARD: one replica per "
                "node, whatever the\n  number of nodes\n",
                copies);
    good &= config_values_set(v, copies_key, NULL);
    good &= config_values_set(v, "fsdp_reshard_after_forward", NULL);
    /* Nothing in a version 2 file says what these were. */
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(removed); i++)
        fprintf(stderr, "note: %s gets the default of version 1\n", removed[i].key);
    return good && config_values_set(v, "fsdp_version", "1");
}

/* Accepts FSDP of the other version only: converting twice would
 * drop keys for nothing. */
static accel_status_t check_convert_input(const struct convert_args *a,
                                          const struct config_values *v,
                                          accel_error_t *err)
{
    const char *type = config_values_get(v, "distributed_type");
    const char *version = config_values_get(v, "fsdp_version");
    bool is2 = version && !strcmp(version, "2");

    if (!type || strcmp(type, "FSDP") != 0)
        return accel_fail_at(err, A0265, a->input,
                             "give a file with distributed_type: FSDP",
                             "distributed_type is %s: there is nothing to convert",
                             type ? type : "not given");
    if (is2 != a->reverse)
        return accel_fail_at(err, A0265, a->input,
                             a->reverse ? "omit --reverse to get version 2"
                                        : "--reverse converts it to version 1",
                             "the file already has fsdp_version %d", is2 ? 2 : 1);
    return ACCEL_OK;
}

static error_t parse_convert_args(int key, char *arg, struct argp_state *state)
{
    struct convert_args *a = state->input;

    switch (key) {
    case 'f':
        a->input = arg;
        return 0;
    case 'o':
        a->output = arg;
        return 0;
    case 'r':
        a->reverse = true;
        return 0;
    case O_OVERWRITE:
        a->overwrite = true;
        return 0;
    case ARGP_KEY_ARG:
        /* accelerate to-fsdp2 takes no operand either. */
        argp_error(state, "give the file as --config-file %s", arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->input)
            argp_error(state, "--config-file FILE is missing");
        if (!a->output && !a->overwrite)
            argp_error(state, "name the output: --output-file FILE, or --overwrite");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    { "config-file", 'f', "FILE", 0, "The file to convert (required)", 0 },
    { "config_file", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { "output-file", 'o', "FILE", 0, "The file to write", 0 },
    { "output_file", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { "overwrite", O_OVERWRITE, NULL, 0,
      "Overwrite the output file, or the input without --output-file; the old file is "
      "kept as FILE.bak",
      0 },
    { "reverse", 'r', NULL, 0, "Convert version 2 to version 1", 0 },
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_convert_args,
    .doc =
        "Converts a config from FSDP version 1 to version 2, as accelerate to-fsdp2 "
        "does: FULL_SHARD and HYBRID_SHARD reshard after forward, the other strategies "
        "do not. Keys that version 2 does not have are dropped, each with a note. All "
        "other keys are kept; comments are lost.\vExit code: 64 usage, 65 nothing to "
        "convert, 66 file missing, 73 the output exists or cannot be written."
};

/* Without --overwrite an existing file is left alone; with it, it stays as PATH.bak. */
static int write_converted(const struct convert_args *a, const struct config_values *v)
{
    const char *path = a->output ? a->output : a->input;
    bool kept = false;
    int code = config_write_values(v, path, a->overwrite ? &kept : NULL);

    if (!code)
        printf("%s: written, fsdp_version %d%s%s%s\n", path, a->reverse ? 1 : 2,
               kept ? "; the old file is " : "", kept ? path : "", kept ? ".bak" : "");
    return cli_finish(code);
}

/* `alone`: the result must hold what the file says, not what this
 * user's environment adds. */
static int run_convert(int argc, char **argv)
{
    struct convert_args a = { 0 };
    struct config_values v = { 0 };
    struct cli_config c;
    accel_error_t err = { 0 };
    int code;

    cli_parse(&cli_to_fsdp2, argc, argv, &a);
    code = cli_config_load(a.input, &(struct cli_settings){ .alone = true }, &c);
    if (code)
        return code;
    /* The texts of the file's own keys, which are what is converted. */
    if (!config_values_take(&v, &c.config, ORIGIN_FILE))
        accel_fail_nomem(&err, "the config", 0);
    else if (!check_convert_input(&a, &v, &err) &&
             !(a.reverse ? to_version1(&v) : to_version2(&v)))
        accel_fail_nomem(&err, "the config", 0);
    code = err.code ? cli_fail(&err) : write_converted(&a, &v);
    config_values_free(&v);
    return code;
}

const struct cli_command cli_to_fsdp2 = {
    .name = "to-fsdp2",
    .run = run_convert,
    .summary = "convert a config from FSDP version 1 to 2, or back",
    .example = "accel to-fsdp2 --config-file fsdp.yaml --output-file fsdp2.yaml",
    .argp = &argp,
};
