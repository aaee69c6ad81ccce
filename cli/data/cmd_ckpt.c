/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel ckpt VERB ...`: the verbs, their command line, and the two that answer which
 * checkpoints there are (ls) and whether every byte of them is as it was written
 * (verify; accel-verify, a program of its own, does it). The others are in files named
 * after them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel_ckpt.h"
#include "checkpoint/ckpt_tools.h"
#include "cli/data/ckpt_cmd.h"
#include "cli/own_program.h"
#include "models/huggingface/hf_config.h"
#include "models/huggingface/hf_names.h"

/* Is there a file or directory of this name in `dir`? */
static bool exists_in(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;

    return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
           stat(path, &st) == 0;
}

/* What the table has beside a list. */
struct listing {
    const accel_ckpt_info_t *info;
    size_t count;
    /* [count] why each stays; "" for one that was not judged */
    char (*why)[160];
    /* where the last answer belonged: they come in the order of the list */
    size_t at;
};

/* A ckpt_why_kept callback. */
static void note_why(void *user, const char *name, const char *why)
{
    struct listing *l = user;

    for (size_t i = l->at; i < l->count; i++)
        if (strcmp(l->info[i].name, name) == 0) {
            snprintf(l->why[i], sizeof(l->why[i]), "%s",
                     why[0] ? why : "goes with the next save");
            l->at = i + 1;
            break;
        }
}

/* Ranks and bytes are known only where the manifest could be read; why a damaged one
 * stays is said by its problem. */
static void list_row(struct cli_table *t, const accel_ckpt_info_t *info,
                     const char *why, bool json)
{
    static const char *const states[] = {
        [ACCEL_CKPT_COMPLETE] = "complete",
        [ACCEL_CKPT_DAMAGED] = "damaged",
        [ACCEL_CKPT_UNREADABLE] = "unreadable",
        [ACCEL_CKPT_OTHER_FORMAT] = "other format",
    };
    char step[24], ranks[16] = "", size[32] = "";

    snprintf(step, sizeof(step), "%lld", (long long)info->step);
    /* 0 ranks: the manifest could not be read. */
    if (info->world_size) {
        snprintf(ranks, sizeof(ranks), "%d", info->world_size);
        if (json)
            snprintf(size, sizeof(size), "%lld", (long long)info->bytes);
        else
            format_bytes((double)info->bytes, size, sizeof(size));
    }
    cli_table_row(t,
                  (const char *[]){ info->name, step, ranks, size, states[info->state],
                                    info->complete ? why : "", info->problem });
}

/* Lists the checkpoints of `root`; `only`: the one to show, NULL: all of them. An
 * incomplete one that is gone by now is left out: a run is writing or removing it. */
static int list_checkpoints(const char *root, const char *only, bool json)
{
    static const char *const columns[] = { "NAME",  "#STEP", "#RANKS",  "#SIZE",
                                           "STATE", "KEPT",  "PROBLEM", NULL };
    accel_ckpt_info_t *info = NULL;
    struct listing l;
    struct cli_table *t;
    accel_error_t err = { 0 };
    size_t n = 0, shown = 0;

    if (accel_ckpt_list(root, &info, &n, &err))
        return cli_fail(&err);
    t = cli_table_new("checkpoints", columns);
    l = (struct listing){ .info = info,
                          .count = n,
                          .why = calloc(n + 1, sizeof(*l.why)) };
    if (!t || !l.why) {
        free(info);
        free(l.why);
        return cli_no_memory("the table");
    }
    /* an answer that is missing is no failure of a list */
    (void)ckpt_why_kept(root, note_why, &l, NULL);
    for (size_t i = 0; i < n; i++)
        if ((!only || strcmp(only, info[i].name) == 0) &&
            (info[i].complete || exists_in(root, info[i].name))) {
            list_row(t, &info[i], l.why[i], json);
            shown++;
        }
    free(info);
    free(l.why);
    /* An empty table looks like a success. On stderr: the table on stdout stays one a
     * script can read. JSON says it, too. */
    if (!shown && !json)
        fprintf(stderr, "no checkpoints in %s\n", root);
    return cli_table_print(t, json);
}

/* The name of the checkpoint if `dir` is one, with what is above it in *root_out; NULL
 * if it is the directory of all. Cuts the slashes off the end of dir. */
static const char *one_checkpoint(char *dir, const char **root_out)
{
    char *slash;
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = '\0';
    slash = strrchr(dir, '/');
    if (!exists_in(dir, "MANIFEST") &&
        strncmp(slash ? slash + 1 : dir, "step_", 5) != 0)
        return NULL;
    /* A bare name lies in the current directory. */
    *root_out = slash ? dir : ".";
    return slash ? slash + 1 : dir;
}

/* Becomes a program of this installation, whose path becomes argv[0]. Returns only on
 * failure. */
static int become(const struct ckpt_args *a, const char *program, char **argv)
{
    char path[PATH_MAX], command[32];
    accel_error_t err;

    snprintf(command, sizeof(command), "accel ckpt %s", a->verb);
    if (cli_own_program(program, command, path, &err))
        return cli_fail(&err);
    argv[0] = path;
    return cli_become(path, argv);
}

/* ls: the checkpoints of a directory, or one of them. */
static int ckpt_ls(const struct ckpt_args *a)
{
    char *dir = a->path[0];
    const char *root = dir, *only = one_checkpoint(dir, &root);

    /* List what is above, and show the one. */
    if (only && only > dir)
        dir[only - dir - 1] = '\0';
    return list_checkpoints(root[0] ? root : "/", only, a->json);
}

static int ckpt_verify(const struct ckpt_args *a)
{
    const char *root = a->path[0], *only = one_checkpoint(a->path[0], &root);
    char flags[4], *argv[] = { NULL, flags, a->path[0], (char *)only, NULL };

    snprintf(flags, sizeof(flags), "-%s%s", a->deep ? "d" : "", a->json ? "j" : "");
    return become(a, "accel-verify", argv);
}

/* Becomes accel-rewrite: --json|--text, then split DIR OUT FILES, import FILE OUT
 * FILES PREFIX ENDING ..., or index DIR. */
static int become_rewrite(const struct ckpt_args *a, const char *what, int files,
                          const struct hf_names *names)
{
    char count[16];
    /* with one path the list ends there */
    char *argv[8 + HF_NAMES_MOST] = {
        NULL,         a->json ? (char *)"--json" : (char *)"--text",
        (char *)what, a->path[0],
        a->path[1],   count
    };

    if (names)
        argv[6] = (char *)(names->params_have_it ? "" : names->prefix);
    for (int i = 0; names && i < HF_NAMES_MOST; i++)
        argv[7 + i] = (char *)names->transposed[i];
    snprintf(count, sizeof(count), "%d", files);
    return become(a, "accel-rewrite", argv);
}

static int ckpt_make_index(const struct ckpt_args *a)
{
    return become_rewrite(a, "index", 0, NULL);
}

static int ckpt_merge(const struct ckpt_args *a)
{
    return become_rewrite(a, "split", 1, NULL);
}

static int ckpt_split(const struct ckpt_args *a)
{
    if (a->shards == 0)
        return cli_error(A0010, NULL, "accel ckpt split DIR OUT --shards N",
                         "split needs --shards");
    return become_rewrite(a, "split", a->shards, NULL);
}

/* What the names and layouts of weights are: --hf, or what the config.json beside them
 * says. Without either, names and layouts are taken as they are. */
static accel_status_t type_of_weights(const struct ckpt_args *a, char *buf, size_t len,
                                      accel_error_t *err)
{
    char config[PATH_MAX];
    struct stat sb;
    size_t dir = strlen(a->path[0]);

    snprintf(buf, len, "%s", a->hf ? a->hf : "");
    if (stat(a->path[0], &sb) != 0 || !S_ISDIR(sb.st_mode))
        while (dir > 0 && a->path[0][dir - 1] != '/')
            dir--;
    if (a->hf ||
        snprintf(config, sizeof(config), "%.*s%sconfig.json", (int)dir, a->path[0],
                 dir ? "/" : "") >= (int)sizeof(config) ||
        access(config, F_OK) != 0)
        return ACCEL_OK;
    return hf_config_type(config, buf, len, err);
}

static int ckpt_import(const struct ckpt_args *a)
{
    accel_error_t err = { 0 };
    char type[64];

    if (type_of_weights(a, type, sizeof(type), &err))
        return cli_fail(&err);
    return become_rewrite(a, "import", a->shards ? a->shards : 1,
                          hf_names_for(*type ? type : NULL));
}

/* prune and repair: accel-rewrite VERB DIR KEEP EVERY BEST METRIC LARGER FLAGS. */
static int ckpt_tidy(const struct ckpt_args *a)
{
    char keep[16], every[16], best[16], larger[16], flags[4];
    char *argv[] = { NULL,
                     (char *)a->verb,
                     a->path[0],
                     keep,
                     every,
                     best,
                     a->metric ? (char *)a->metric : (char *)"",
                     larger,
                     flags,
                     NULL };

    snprintf(keep, sizeof(keep), "%d", a->keep);
    snprintf(every, sizeof(every), "%d", a->every);
    snprintf(best, sizeof(best), "%d", a->best);
    snprintf(larger, sizeof(larger), "%d", a->larger);
    snprintf(flags, sizeof(flags), "-%s%s", a->dry_run ? "n" : "", a->json ? "j" : "");
    return become(a, "accel-rewrite", argv);
}

/* ---- the command line ------------------------------------------------------------ */

/* The verbs. Options beside --json are named by their keys. */
static const struct verb {
    const char *name;
    int paths;
    /* how many of them are directories that must be there */
    int read;
    const char *options;
    int (*run)(const struct ckpt_args *a);
} verbs[] = {
    { "ls", 1, 1, "", ckpt_ls },
    { "verify", 1, 1, "p", ckpt_verify },
    { "show", 1, 1, "", ckpt_show },
    { "diff", 2, 2, "t", ckpt_diff },
    { "export", 2, 1, "ahds", ckpt_export },
    { "import", 2, 0, "n", ckpt_import },
    { "index", 1, 1, "", ckpt_make_index },
    { "merge", 2, 1, "", ckpt_merge },
    { "split", 2, 1, "n", ckpt_split },
    { "prune", 1, 1, "kebmxi", ckpt_tidy },
    { "repair", 1, 1, "i", ckpt_tidy },
};

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* Verb and paths are all there, and every option belongs to the verb. */
static void check_usage(const struct ckpt_args *a, struct argp_state *state)
{
    const struct verb *v = a->verb ? find_verb(a->verb) : NULL;

    if (!a->verb || a->paths == 0)
        argp_error(state, "give a verb, such as ls or verify, and a directory");
    else if (!v)
        argp_error(state, "unknown verb '%s'", a->verb);
    else if (a->paths != v->paths)
        argp_error(state, "%s takes %s", v->name,
                   v->paths == 1 ? "one directory" : "two paths");
    else
        for (const char *o = a->given; *o; o++)
            if (!strchr(v->options, *o))
                argp_error(state, "%s takes no -%c", v->name, *o);
}

/* A number that is 0 or more and nothing else. */
static double tolerance(const char *text, struct argp_state *state)
{
    char *end = NULL;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= 0))
        argp_error(state, "--tol takes a number from 0 on, not '%s'", text);
    return value;
}

/* A whole number from `least` on. */
static int whole(const char *option, const char *text, int least, int most,
                 struct argp_state *state)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < least || value > most)
        argp_error(state, "%s takes a number from %d to %d, not '%s'", option, least,
                   most, text);
    return (int)value;
}

/* "5GB", "200MiB": bytes, of 1000 or of 1024. */
static int64_t size_of(const char *text, struct argp_state *state)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = { { "", 1 },          { "B", 1 },           { "KB", 1e3 },
                  { "MB", 1e6 },      { "GB", 1e9 },        { "KiB", 1024.0 },
                  { "MiB", 1048576 }, { "GiB", 1073741824 } };
    char *end = NULL;
    double value = strtod(text, &end);

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(units); i++)
        if (end != text && strcmp(end, units[i].unit) == 0 &&
            value * units[i].bytes >= 1 && value * units[i].bytes < 9e18)
            return (int64_t)(value * units[i].bytes);
    argp_error(state, "--shard-size takes a size such as 5GB, not '%s'", text);
    return 0;
}

static error_t parse_ckpt_args(int key, char *arg, struct argp_state *state)
{
    struct ckpt_args *a = state->input;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case 't':
        a->tol = tolerance(arg, state);
        break;
    case 'a':
        a->all = true;
        break;
    case 'h':
        a->hf = arg;
        break;
    case 'd':
        a->dtype = arg;
        break;
    case 's':
        a->shard_bytes = size_of(arg, state);
        break;
    case 'n':
        a->shards = whole("--shards", arg, 1, 99999, state);
        break;
    case 'k':
        a->keep = whole("--keep", arg, 1, 1000000, state);
        break;
    case 'e':
        a->every = whole("--every", arg, 0, 1000000000, state);
        break;
    case 'b':
        a->best = whole("--best", arg, 0, 1000000, state);
        break;
    case 'm':
        a->metric = arg;
        break;
    case 'x':
        if (strcmp(arg, "min") != 0 && strcmp(arg, "max") != 0)
            argp_error(state, "--mode takes min or max, not '%s'", arg);
        a->larger = strcmp(arg, "max") == 0;
        break;
    case 'i':
        a->dry_run = true;
        break;
    case 'p':
        a->deep = true;
        break;
    case ARGP_KEY_ARG:
        if (!a->verb)
            a->verb = arg;
        else if (a->paths < (int)ACCEL_ARRAY_SIZE(a->path))
            a->path[a->paths++] = arg;
        else
            argp_error(state, "too many paths");
        return 0;
    case ARGP_KEY_END:
        check_usage(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    /* an option of some verbs: ARGP_KEY_END checks that it is one of this */
    if (!strchr(a->given, key))
        a->given[strlen(a->given)] = (char)key;
    return 0;
}

/* The verbs are operands, as the args_doc of argp has them. */
static const struct argp_option options[] = {
    { "json", 'j', NULL, 0, "Print JSON instead of a table", 0 },
    { "deep", 'p', NULL, 0,
      "verify: compare the HDF5 structures of the files and of index.h5 as well", 0 },
    { "tol", 't', "X", 0, "diff: floats differ if they are more than X apart", 0 },
    { "all", 'a', NULL, 0, "export: all tensors, under their names in the checkpoint",
      0 },
    { "hf", 'h', "gpt2|llama|bert", 0,
      "export, import: names and layouts that Hugging Face has for this model, where "
      "the checkpoint or config.json does not say which it is",
      0 },
    { "dtype", 'd', "float32|bfloat16|float16", 0, "export: dtype of the weights", 0 },
    { "shard-size", 's', "SIZE", 0, "export: cut into files of at most SIZE (5GB)", 0 },
    { "keep", 'k', "N", 0,
      "prune: how many of the newest stay; this and the next four as the runs here had "
      "them, where they are not given",
      0 },
    { "every", 'e', "M", 0, "prune: checkpoints of steps M, 2 M, 3 M ... stay as well",
      0 },
    { "best", 'b', "K", 0, "prune: the K best by a metric stay as well", 0 },
    { "metric", 'm', "NAME", 0, "prune: the metric of --best", 0 },
    { "mode", 'x', "min|max", 0, "prune: whether small or large values are better", 0 },
    { "dry-run", 'i', NULL, 0, "prune, repair: say what would be done, and do nothing",
      0 },
    { "shards", 'n', "N", 0, "split, import: cut every tensor over N files", 0 },
    { 0 },
};
static const struct argp argp = {
    options,
    parse_ckpt_args,
    "ls DIR\nverify DIR\nshow DIR\nindex DIR\ndiff DIR DIR\nexport DIR DIR\nimport "
    "PATH DIR\n"
    "merge DIR DIR\nsplit DIR DIR\nprune DIR\nrepair DIR",
    "ls lists checkpoints and why each is kept; verify reads every byte of them and "
    "checks every hash; show "
    "lists the tensors and files of one; index adds index.h5, in which HDF5 tools see "
    "whole tensors; diff compares two; export writes the weights "
    "of one as safetensors files, import makes a checkpoint of step 0 of such weights; "
    "merge and split write one again, cut over one or several files; prune deletes old "
    "ones; repair removes what killed saves left and moves damaged ones aside.\vDIR is "
    "accel.checkpoint.dir, the output directory with checkpoints in it, or one "
    "step_... directory; verbs that take one "
    "checkpoint take the newest complete one of accel.checkpoint.dir. verify exits "
    "with "
    "74 if anything is damaged, and names each damaged file and tensor; files that are "
    "not part of a checkpoint are named, and are no damage. That is all a run reads. "
    "With --deep it also compares the HDF5 structures of the files and of index.h5 "
    "with the manifest, in a process of its own with limits, to ensure that HDF5 "
    "tools read the same data. A checkpoint that an active run removes during "
    "verification does not count as damaged. diff compares bit by bit, and exits with "
    "0 "
    "if nothing differs, with 1 if something does. The second directory of export gets "
    "model.safetensors; that of import, merge and split is a directory of checkpoints, "
    "as accel.checkpoint.dir is. prune goes by what the runs there keep, or by its "
    "options; it reads two of "
    "those that stay, or keeps more until two are whole. Nothing that is there is "
    "replaced, and nothing is "
    "visible before it is whole.",
    NULL,
    NULL,
    NULL
};

/* The directories are checked first: a wrong path would look like a directory
 * without checkpoints. */
static int run_ckpt(int argc, char **argv)
{
    struct ckpt_args a = { .tol = -1, .every = -1, .best = -1, .larger = -1 };
    char found[ACCEL_ARRAY_SIZE(a.path)][PATH_MAX];

    cli_parse(&cli_ckpt, argc, argv, &a);
    for (int i = 0; i < find_verb(a.verb)->read; i++) {
        accel_error_t err = { 0 };

        if (ckpt_find(&a.path[i], found[i], sizeof(found[i]), &err))
            return cli_fail(&err);
    }
    return find_verb(a.verb)->run(&a);
}

const struct cli_command cli_ckpt = {
    .name = "ckpt",
    .run = run_ckpt,
    .summary = "list, verify and compare checkpoints",
    .example = "accel ckpt ls out/checkpoints\n"
               "accel ckpt verify out/checkpoints",
    .argp = &argp,
    .everyday = true,
};
