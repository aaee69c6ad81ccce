/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run of two ranks says before its first step: a row is a config, and wanted are
 * all warnings, once and by rank 0 alone; none where there is nothing to warn of. And
 * the words of the plan, of numbers that all differ.
 */
#include <stdio.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { RANKS = 2, STEPS = 9, BATCH = 3, ACCUMULATE = 5 };

#define NO_BLOCK                                                                       \
    "fsdp_auto_wrap_policy: the model has no class ending in Block or Layer, so it "   \
    "is one unit (name other classes with fsdp_transformer_layer_cls_to_wrap)\n"
#define NO_UNITS                                                                       \
    "fsdp_activation_checkpointing has no effect: the model is one unit; set "         \
    "fsdp_auto_wrap_policy to divide it\n"
#define WRAP      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
#define LINEAR    "  fsdp_transformer_layer_cls_to_wrap: Linear\n"
#define RECOMPUTE "  fsdp_activation_checkpointing: true\n"

static const struct row {
    const char *what, *fsdp, *warns;
} rows[] = {
    { "one unit", "", "" },
    { "units by class", WRAP LINEAR, "" },
    { "no such class", WRAP, NO_BLOCK },
    { "units that are recomputed", WRAP LINEAR RECOMPUTE, "" },
    { "one unit that is to be recomputed", RECOMPUTE, NO_UNITS },
    { "no class for either", WRAP RECOMPUTE, NO_BLOCK NO_UNITS },
    { "a policy that is off", "  fsdp_auto_wrap_policy: NO_WRAP\n", "" },
};

static char root[] = "/tmp/accel-lines.XXXXXX", config[100];

static struct seen {
    char warns[RANKS][2000], plan[RANKS][8000];
} * seen;

static int my_rank;

static void note(void *user, accel_log_level_t level, const char *line)
{
    char *to = level == ACCEL_LOG_INFO ? seen->plan[my_rank] : seen->warns[my_rank];
    const size_t room = level == ACCEL_LOG_INFO ? 8000 : 2000, n = strlen(to);

    (void)user;
    snprintf(to + n, room - n, "%s\n", line);
}

static int prepare(struct boot *b, void *arg)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1,
                                .log = note };
    const accel_loop_t loop = { sizeof(loop), .steps = STEPS, .batch = BATCH,
                                .accumulate = ACCUMULATE, .out_dir = root };
    struct net_run k = { 0 };
    accel_error_t err = { 0 };
    int bad = 1;

    (void)arg;
    my_rank = b->rank;
    if (!accel_open(&k.run, &o, &err)) {
        k.net = run_net_new(k.run);
        bad = accel_model_add(k.run, "net", k.net, &err) ||
              !accel_optim_add(k.run, "adam", &k.net, 1, &sgd, &err) ||
              accel_prepare_all(k.run, &loop, &err);
    }
    if (bad)
        fprintf(stderr, "# %s\n", err.text);
    accel_close(k.run, NULL);
    return bad;
}

static void check_row(const struct row *r)
{
    char text[1000];

    snprintf(
        text, sizeof(text),
        "distributed_type: FSDP\nmixed_precision: 'no'\nnum_machines: 1\n"
        "num_processes: %d\nuse_cpu: true\naccel:\n  checkpoint:\n    save: false\n"
        "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n%s",
        RANKS, r->fsdp);
    run_folder_write(config, text);
    memset(seen, 0, sizeof(*seen));
    tap_is_int(open_world(RANKS, 1, prepare, NULL, HANG_S), 0, "%s: a run", r->what);
    tap_is_str(seen->warns[0], r->warns, "%s: what rank 0 warns of", r->what);
    tap_is_str(seen->warns[1], "", "%s: rank 1 warns of nothing", r->what);
}

/* The plan of the last row: a word, and what stands behind it. */
static void check_plan(void)
{
    const struct {
        const char *word;
        char value[200];
    } lines[] = {
        { "batch", "3 per rank x 2 ranks x 5 micro-batches = 30" },
        { "steps", "9 (warm-up 0)" },
        { "collectives", "shm" },
        { "bootstrap", "fork" },
        { "models", "net (adam)" },
        { "checkpoints", "none (accel.checkpoint.save is false)" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lines); i++) {
        char got[300] = "";
        int times = 0;

        for (const char *at = seen->plan[0]; *at; at += strcspn(at, "\n") + 1) {
            char word[40] = "", value[300] = "";

            if (sscanf(at, " %39s %299[^\n]", word, value) == 2 &&
                strcmp(word, lines[i].word) == 0) {
                times++;
                snprintf(got, sizeof(got), "%s", value);
            }
        }
        tap_is_str(got, lines[i].value, "the plan's %s", lines[i].word);
        tap_is_int(times, 1, "the plan's %s: once", lines[i].word);
    }
    tap_is_str(seen->plan[1], "", "rank 1 shows no plan");
}

int main(void)
{
    run_folder_make(root, "", config, sizeof(config));
    seen = fork_shared(sizeof(*seen));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        check_row(&rows[i]);
    check_plan();
    run_folder_remove(root);
    return tap_done();
}
