/* SPDX-License-Identifier: Apache-2.0
 *
 * The questionnaire of `accel config`: which key is asked when, one line per question.
 * Words, explanations and most defaults come from the schema table, and answers are
 * judged by the code that reads a file. Nothing is written before the last answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/config/config_values.h"
#include "cli/config/settings.h"

/* A key and the answers that make it worth asking: "A|B", or "!A" for all but
 * A. A question is skipped when the question it depends on was skipped.
 * `enter` is what Enter takes where the default is not the best choice for
 * most runs; NULL: the default. */
static const struct question {
    const char *key, *if_key, *if_words, *enter, *text;
} questions[] = {
    { "distributed_type", NULL, NULL, "FSDP",
      "How should the processes share the work?" },
    { "use_cpu", "distributed_type", "NO|FSDP|DEEPSPEED", NULL,
      "Should the run use CPUs only, even on nodes with GPUs?" },
    { "num_machines", "distributed_type", "!NO", NULL,
      "How many nodes should the run use?" },
    { "num_processes", "distributed_type", "!NO", NULL,
      "How many processes should run in total, on all nodes?" },
    { "mixed_precision", NULL, NULL, NULL,
      "Which precision should the run compute in?" },

    { "fsdp_version", "distributed_type", "FSDP", "2",
      "Which version of FSDP should be used?" },
    { "fsdp_sharding_strategy", "fsdp_version", "1", NULL,
      "What should be sharded across the processes?" },
    { "fsdp_reshard_after_forward", "fsdp_version", "2", NULL,
      "Should gathered parameters be freed after forward, to save memory?" },
    { "fsdp_auto_wrap_policy", "distributed_type", "FSDP", "TRANSFORMER_BASED_WRAP",
      "How should the model be divided into units that are gathered together?" },
    { "fsdp_transformer_layer_cls_to_wrap", "fsdp_auto_wrap_policy",
      "TRANSFORMER_BASED_WRAP", NULL, "Which layer classes should each form a unit?" },
    { "fsdp_min_num_params", "fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", NULL,
      "What is the minimum number of parameters in a unit?" },
    { "fsdp_backward_prefetch", "fsdp_version", "1", "BACKWARD_PRE",
      "When should backward gather the next unit?" },
    { "fsdp_state_dict_type", "distributed_type", "FSDP", "SHARDED_STATE_DICT",
      "Which format should checkpoints have?" },
    { "fsdp_offload_params", "distributed_type", "FSDP", NULL,
      "Should parameters, gradients and optimizer states be kept in CPU memory?" },
    { "fsdp_cpu_ram_efficient_loading", "distributed_type", "FSDP", NULL,
      "Should rank 0 read the weights for all ranks?" },
    { "fsdp_sync_module_states", "fsdp_version", "1", NULL,
      "Should all ranks start with the weights of rank 0?" },
    { "fsdp_use_orig_params", "fsdp_version", "1", NULL,
      "Should the optimizer see the original parameters?" },
    { "fsdp_activation_checkpointing", "distributed_type", "FSDP", NULL,
      "Should activations be recomputed instead of kept, to save memory?" },

    { "zero_stage", "distributed_type", "DEEPSPEED", NULL,
      "Which ZeRO stage should be used?" },
    { "offload_optimizer_device", "distributed_type", "DEEPSPEED", "none",
      "Where should the optimizer states be kept?" },
    { "offload_param_device", "zero_stage", "3", "none",
      "Where should the parameters be kept?" },
    { "zero3_init_flag", "zero_stage", "3", NULL,
      "Should the model be built already sharded?" },
    { "zero3_save_16bit_model", "zero_stage", "3", NULL,
      "Should 16-bit weights be gathered when the model is saved?" },
    { "gradient_accumulation_steps", "distributed_type", "DEEPSPEED", NULL,
      "How many backward passes should make up a step?" },
    { "gradient_clipping", "distributed_type", "DEEPSPEED", NULL,
      "What is the maximum gradient norm?" },

    { "megatron_lm_tp_degree", "distributed_type", "MEGATRON_LM", NULL,
      "How many ranks should split each matrix?" },
    { "megatron_lm_pp_degree", "distributed_type", "MEGATRON_LM", NULL,
      "How many pipeline stages should there be?" },
    { "megatron_lm_num_micro_batches", "distributed_type", "MEGATRON_LM", NULL,
      "How many micro-batches should make up a step?" },
    { "megatron_lm_sequence_parallelism", "distributed_type", "MEGATRON_LM", NULL,
      "Should layer norm and dropout also be split along the sequence?" },
    { "megatron_lm_recompute_activations", "distributed_type", "MEGATRON_LM", NULL,
      "Should activations be recomputed instead of kept?" },
    { "megatron_lm_use_distributed_optimizer", "distributed_type", "MEGATRON_LM", NULL,
      "Should the optimizer states be sharded?" },
    { "megatron_lm_gradient_clipping", "distributed_type", "MEGATRON_LM", NULL,
      "What is the maximum gradient norm?" },

    { "fp8_backend", "mixed_precision", "fp8", NULL,
      "Which library should compute in fp8?" },
    { "fp8_format", "fp8_backend", "TE", NULL, "Which fp8 format should be used?" },
    { "fp8_margin", "fp8_backend", "TE", NULL,
      "How large should the margin of the scale be, in powers of two?" },
    { "fp8_interval", "fp8_backend", "TE", NULL,
      "After how many steps should the scale be updated?" },
    { "fp8_amax_history_len", "fp8_backend", "TE", NULL,
      "How many steps of history should the scale use?" },
    { "fp8_amax_compute_algo", "fp8_backend", "TE", NULL,
      "Which value of that history should set the scale?" },
    { "fp8_use_autocast_during_eval", "fp8_backend", "TE", NULL,
      "Should evaluation use fp8 too?" },
    { "fp8_opt_level", "fp8_backend", "MSAMP", NULL,
      "Which optimization level of MS-AMP should be used?" },
    { "fp8_enable_fsdp_float8_all_gather", "fp8_backend", "AO", NULL,
      "Should FSDP gather in fp8?" },
    { "fp8_pad_inner_dim", "fp8_backend", "AO", NULL,
      "Should matrices be padded to a multiple of 16?" },

    { "accel.checkpoint.dir", NULL, NULL, NULL, "Where should checkpoints go?" },
    { "accel.checkpoint.every_minutes", NULL, NULL, NULL,
      "How many minutes should pass between checkpoints?" },
    { "accel.checkpoint.every_steps", NULL, NULL, NULL,
      "How many steps should pass between checkpoints?" },
    { "accel.checkpoint.keep", NULL, NULL, NULL,
      "How many checkpoints should be kept?" },
    { "accel.preemption.enabled", NULL, NULL, NULL,
      "Should a preempted run save and resume automatically?" },
    { "accel.preemption.lead_seconds", "accel.preemption.enabled", "true", NULL,
      "How many seconds before the time limit should the run start to save?" },
};

struct asking {
    /* The older file's values, replaced by the answers one by one. */
    struct config_values values;
    /* By question: asked so far? Conditions look here, not at old values. */
    bool asked[ACCEL_ARRAY_SIZE(questions)];
    /* The answers so far as flags, for the validator; texts belong to `values`. */
    struct cli_settings answers;
};

/* ---- which question -------------------------------------------------------------- */

/* Is `word` one of "A|B", or not the one of "!A"? */
static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    /* A negated condition has one word. */
    if (words[0] == '!')
        return strcmp(words + 1, word) != 0;
    for (;;) {
        size_t len = strcspn(words, "|");

        if (len == n && !strncmp(words, word, n))
            return true;
        if (!words[len])
            return false;
        words += len + 1;
    }
}

/* Should this question be asked, after the answers so far? */
static bool is_due(const struct asking *a, const struct question *q)
{
    const char *text;

    if (!q->if_key)
        return true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(questions); i++)
        if (!strcmp(questions[i].key, q->if_key) && !a->asked[i])
            return false;
    text = config_values_get(&a->values, q->if_key);
    return text && has_word(q->if_words, text);
}

/* What Enter takes: the older file's value, else the best choice, else the default.
 * "": the key stays out. */
static const char *proposal(const struct asking *a, const struct config_key *k,
                            const struct question *q)
{
    const char *old = config_values_get(&a->values, q->key);

    if (old)
        return old;
    if (q->enter)
        return q->enter;
    return k->default_text ? k->default_text : "";
}

/* ---- one question ---------------------------------------------------------------- */

/* The question, the key's line of help and the values it takes. */
static void show_question(const struct config_key *k, const struct question *q)
{
    static const char *const types[] = { [TYPE_BOOL] = "yes or no",
                                         [TYPE_INT] = "a whole number",
                                         [TYPE_NUMBER] = "a number",
                                         [TYPE_STRING] = "text" };

    printf("\n%s (%s)\n  %s\n  ", q->text, q->key, k->help);
    if (k->type == TYPE_ENUM)
        for (int i = 0; k->values[i]; i++)
            printf("%s%s", i ? ", " : "one of ", k->values[i]);
    else
        printf("%s", types[k->type]);
    printf("\n");
}

/* The proposal in brackets, with yes and no for booleans. stdout is flushed because the
 * prompt has no line end. */
static void show_prompt(const struct config_key *k, const char *proposed)
{
    bool yes = !strcmp(proposed, "true"), no = !strcmp(proposed, "false");

    printf("  [%s] ", !proposed[0]                          ? "leave unset"
                      : k->type == TYPE_BOOL && (yes || no) ? (yes ? "yes" : "no")
                                                            : proposed);
    fflush(stdout);
}

/* What is wrong with the answer, and the word that was meant. The rest of the message
 * (place, the values it takes) stands above already. */
static void show_problem(const char *text)
{
    static const char cure[] = "\n  cure: ", meant[] = "did you mean";
    const char *shown = strstr(text, ": "), *hint = strstr(text, cure);

    /* Messages read "PLACE: TEXT\n  cure: HINT". */
    shown = shown ? shown + 2 : text;
    printf("  %.*s\n", (int)strcspn(shown, "\n"), shown);
    if (hint && !strncmp(hint + strlen(cure), meant, strlen(meant)))
        printf("  %s\n", hint + strlen(cure));
}

/* Replaces what was typed ("yes") by its canonical text. An answer such as -1 means
 * that the key stays out. The last flag is that of `key`. */
static bool keep_answer(struct asking *a, const char *key, const struct config *cfg)
{
    char text[CONFIG_GIVEN_BYTES];
    struct config_setting *last = &a->answers.item[a->answers.count - 1];

    /* The flag points at the typed text, which the set frees: it is mended below. */
    config_get(cfg, key, text, sizeof(text));
    if (!config_values_set(&a->values, key, text[0] ? text : NULL))
        return false;
    if (text[0])
        last->value = config_values_get(&a->values, key);
    else
        a->answers.count--;
    return true;
}

/* Judges the answer together with all answers before it, by resolving them as flags:
 * one validator, no second set of rules. Says why not. */
static bool accept_answer(struct asking *a, const char *key, const char *answer)
{
    struct config_sources sources = { 0 };
    struct config_diags diags;
    struct config cfg;
    accel_error_t err = { 0 };
    bool good = false;

    if (!cli_settings_add(&a->answers, key, answer)) {
        cli_no_memory("the answers");
        return false;
    }
    sources.flags = a->answers.item;
    sources.flag_count = a->answers.count;
    good = config_resolve(&sources, &cfg, &diags, &err) == ACCEL_OK;
    for (size_t i = 0; i < diags.count; i++)
        show_problem(diags.item[i].text);
    /* A failure without a problem in the config, such as a lack of memory. */
    if (!good && !diags.count)
        cli_fail(&err);
    config_diags_free(&diags);
    /* A bad answer leaves the list, or it would spoil the next try. */
    if (!good)
        a->answers.count--;
    return good && keep_answer(a, key, &cfg);
}

/* A line of input without surrounding blanks; the caller frees it.
 * NULL: the input ended. */
static char *read_answer(void)
{
    char *line = NULL, *s;
    size_t room = 0;
    ssize_t n = getline(&line, &room, stdin);

    if (n < 0) {
        free(line);
        return NULL;
    }
    while (n > 0 && strchr(" \t\r\n", line[n - 1]))
        line[--n] = '\0';
    s = line + strspn(line, " \t");
    /* Moved to the front, so that the caller frees what it got. */
    memmove(line, s, strlen(s) + 1);
    return line;
}

/* Asks until the answer is good. False: the input ended, or out of memory. */
static bool ask_question(struct asking *a, const struct question *q)
{
    size_t n;
    const struct config_key *k = &config_schema(&n)[config_row(q->key)];

    show_question(k, q);
    for (;;) {
        const char *proposed = proposal(a, k, q), *kept;
        char *line, *answer;
        bool good;

        /* Asked again, the proposal is the default: a refused
         * answer is removed below. */
        show_prompt(k, proposed);
        line = read_answer();
        if (!line)
            return false;
        answer = line[0] ? line : (char *)proposed;
        /* `answer` may be the old value itself: config_values_set copies it
         * before it frees that. */
        good = config_values_set(&a->values, q->key, answer[0] ? answer : NULL);
        free(line);
        if (!good)
            return false;
        kept = config_values_get(&a->values, q->key);
        /* An empty answer leaves the key out, which needs no judging. */
        if (!kept || accept_answer(a, q->key, kept))
            return true;
        config_values_set(&a->values, q->key, NULL);
    }
}

/* ---- all of them ----------------------------------------------------------------- */

/* Takes the values of the file that is there. A file that cannot be read ends the
 * questionnaire: it would be replaced by answers that ignored it. */
static int take_old_values(struct asking *a, const char *path)
{
    struct cli_config c;
    int code;

    if (access(path, F_OK))
        return 0;
    /* Read as a user file: it may lack what a job file must have. */
    code = cli_config_load(NULL, &(struct cli_settings){ .alone = true, .user = path },
                           &c);
    if (!code && !config_values_take(&a->values, &c.config, ORIGIN_USER))
        code = accel_exit_code(ACCEL_ENOMEM);
    return code;
}

/* Writes the file after the last answer and says how to go on. */
static int write_answers(struct asking *a, const char *path)
{
    bool kept;
    int code = config_write_values(&a->values, path, &kept);

    if (!code)
        printf("\n%s: written%s%s%s\n"
               "Try: accel check %s\n     srun --accel-config=%s PROGRAM\n",
               path, kept ? "; the old file is " : "", kept ? path : "",
               kept ? ".bak" : "", path, path);
    return code;
}

/* The checks that could waste a user's answers come first: terminal, name of the old
 * file, the old file itself. */
int config_ask(const char *path)
{
    struct asking a = { 0 };
    accel_error_t err;
    int code;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return cli_error(
            A0263, NULL,
            "accel config default writes a file without asking; accel config "
            "show FILE shows one",
            "the questions of accel config need a terminal");
    /* Before anybody has answered for nothing. */
    if (config_file_replaceable(path, &err))
        return cli_fail(&err);
    /* Old values count as proposals only; conditions wait for this round's answers. */
    code = take_old_values(&a, path);
    if (!code)
        printf("The answers are written to %s after the last question.\nEnter accepts "
               "the value in [ ]; Ctrl-C quits and changes nothing.\n",
               path);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(questions) && !code; i++) {
        /* In order: conditions only look back. */
        a.asked[i] = is_due(&a, &questions[i]);
        if (a.asked[i] && !ask_question(&a, &questions[i])) {
            printf("\n");
            code = cli_error(A0264, path, "run accel config again",
                             "the input ended before the last question; nothing was "
                             "written");
        }
    }
    if (!code)
        code = write_answers(&a, path);
    /* The array only: its texts belong to the values, freed next. */
    cli_settings_free(&a.answers);
    config_values_free(&a.values);
    return cli_finish(code);
}
