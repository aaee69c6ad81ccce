/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel merge-weights`: accelerate's command, with its options, as `accel ckpt export`
 * does it: the weights of a checkpoint as one safetensors file.
 */
#include <limits.h>
#include <stdio.h>

#include "cli/data/ckpt_cmd.h"

static error_t parse_merge_args(int key, char *arg, struct argp_state *state)
{
    struct ckpt_args *a = state->input;

    switch (key) {
    case 'r':
        a->remove = true;
        return 0;
    case 'u':
        argp_error(state, "--unsafe-serialization is not supported: pickled files run "
                          "code when they are loaded; leave it out for safetensors");
        return 0;
    case ARGP_KEY_ARG:
        if (a->paths == (int)ACCEL_ARRAY_SIZE(a->path))
            argp_error(state, "too many paths");
        else
            a->path[a->paths++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->paths != (int)ACCEL_ARRAY_SIZE(a->path))
            argp_error(state, "give a checkpoint directory and an output directory");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    { "remove-checkpoint-dir", 'r', NULL, 0,
      "Delete the checkpoint when its weights are written", 0 },
    { "remove_checkpoint_dir", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { "unsafe-serialization", 'u', NULL, 0, "Refused: weights are not pickled", 0 },
    { "unsafe_serialization", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0 },
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse_merge_args,
    .args_doc = "DIR DIR",
    .doc =
        "Writes the weights of a checkpoint, whatever its number of files, as "
        "model.safetensors, as accelerate merge-weights does, with the config.json of "
        "a gpt2, llama or bert and its tokenizer. `accel ckpt export` has more "
        "choices.\vThe first directory is accel.checkpoint.dir, or the output "
        "directory with checkpoints in it, of which the newest complete checkpoint "
        "counts, or one step_... directory. The "
        "second one must hold no weights."
};

static int run_merge_weights(int argc, char **argv)
{
    struct ckpt_args a = { .verb = "export", .tol = -1 };
    char found[PATH_MAX];
    accel_error_t err = { 0 };

    cli_parse(&cli_merge_weights, argc, argv, &a);
    if (ckpt_find(&a.path[0], found, sizeof(found), &err))
        return cli_fail(&err);
    return ckpt_export(&a);
}

const struct cli_command cli_merge_weights = {
    .name = "merge-weights",
    .run = run_merge_weights,
    .summary = "write the weights of a checkpoint as one safetensors file",
    .example = "accel merge-weights out/checkpoints weights",
    .argp = &argp,
};
