/* SPDX-License-Identifier: Apache-2.0
 *
 * One task's share of the environment. A list of variables and the task's place come
 * in, changes to the environment go out. What the user exported stays. Needs libc only,
 * because slurmstepd carries it.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/env_names.h"
#include "config/python/environ.h"

/* bytes of a value shown in a message */
enum { PATH_BYTES = 64 << 10, SHOWN = 64 };
/* ACCEL_OMP_NUM_THREADS tells libaccel that the number of threads is ours, not a choice
 * of the user. */
static const char threads_name[] = "OMP_NUM_THREADS";
static const char threads_mark[] = ENV_OMP_THREADS;
/* The allow-list: these prefixes, and the names below. */
static const char *const prefixes[] = {
    ENV_PREFIX, "ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_",
};
static const char *const names[] = {
    "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "HABANA_VISIBLE_MODULES",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MLU_VISIBLE_DEVICES",
    "MUSA_VISIBLE_DEVICES",
    "NEURON_RT_VISIBLE_CORES",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "RANK",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "SDAA_VISIBLE_DEVICES",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "WORLD_SIZE",
    "ZE_AFFINITY_MASK",
};

/* Is this a name that nobody but accel sets? */
static bool is_own(const char *name)
{
    return !strncmp(name, ENV_PREFIX, strlen(ENV_PREFIX));
}

/* Upper-case letters, digits and underscores only: a prefix alone would let through
 * names that a shell could not have exported. */
static bool is_variable_word(const char *s)
{
    for (; *s; s++)
        if (*s != '_' && !(*s >= 'A' && *s <= 'Z') && !(*s >= '0' && *s <= '9'))
            return false;
    return true;
}

/* The length of the prefix of the list with which the name begins; 0: none. */
static size_t prefix_of(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(prefixes); i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return strlen(prefixes[i]);
    return 0;
}

bool environ_name_allowed(const char *name)
{
    const size_t n = prefix_of(name);

    if (n)
        return name[n] && is_variable_word(name);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Sets one variable to a decimal number. */
static void set_number(const struct environ_ops *ops, const char *name, int64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)n);
    ops->set(ops->where, name, text);
}

/* Does the path begin with these directories? An outer launcher has put them there. */
static bool path_begins(const char *path, const char *dirs)
{
    const size_t n = strlen(dirs);

    return strncmp(path, dirs, n) == 0 && (!path[n] || path[n] == ':');
}

/* Puts `dirs` ("" for none) in front of the path `name`, and with `cwd_last` the
 * current directory after it. A path too long to hold stays as it is: better than one
 * that is cut. */
static void extend_path(const struct environ_ops *ops, const char *name,
                        const char *dirs, bool cwd_last)
{
    char *path = calloc(1, PATH_BYTES), cwd[PATH_MAX] = "";
    struct strbuf b = { 0 };

    if (!path || (cwd_last && !getcwd(cwd, sizeof(cwd))))
        goto out;
    ops->get(ops->where, name, path, PATH_BYTES);
    if (strlen(path) + 1 >= PATH_BYTES)
        goto out;
    if (dirs[0] && !path_begins(path, dirs))
        strbuf_printf(&b, "%s", dirs);
    if (path[0])
        strbuf_printf(&b, "%s%s", b.len ? ":" : "", path);
    if (cwd_last)
        strbuf_printf(&b, "%s%s", b.len ? ":" : "", cwd);
    if (b.len && !b.failed)
        ops->set(ops->where, name, b.s);
out:
    strbuf_free(&b);
    free(path);
}

bool environ_path_word(const char *word, const char **dirs_out, bool *cwd_last_out)
{
    static const char first[] = "dirs_first=", both[] = "dirs_first_cwd_last=";

    *dirs_out = "";
    *cwd_last_out = true;
    if (!strcmp(word, "cwd_last"))
        return true;
    if (!strncmp(word, both, strlen(both))) {
        *dirs_out = word + strlen(both);
        return true;
    }
    *cwd_last_out = false;
    *dirs_out = word + strlen(first);
    return !strncmp(word, first, strlen(first));
}

/* Each rank has an error file of its own. Where the launcher's directory is not there,
 * as with a home directory of each node's own, torch could only fail to write it. */
static void set_error_file(const struct environ_ops *ops, const struct task_place *p,
                           const char *name, const char *dir)
{
    char path[PATH_MAX];

    if (access(dir, W_OK | X_OK) == 0 &&
        snprintf(path, sizeof(path), "%s/error.%lld", dir, (long long)p->rank) <
            (int)sizeof(path))
        ops->set(ops->where, name, path);
}

/* Sets `name` to what `word` stands for. Words of a newer srun are ignored. */
static void apply_word(const struct environ_ops *ops, const struct task_place *p,
                       const char *name, const char *word)
{
    static const char error_file[] = "error_file=";
    const struct {
        const char *word;
        int64_t value;
    } numbers[] = {
        { "rank", p->rank },
        { "local_rank", p->local_rank },
        { "local_world", p->local_world },
        { "node", p->node },
        { "cores", p->cores },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(numbers); i++)
        if (!strcmp(word, numbers[i].word))
            set_number(ops, name, numbers[i].value);
    if (!strncmp(word, error_file, strlen(error_file)))
        set_error_file(ops, p, name, word + strlen(error_file));
}

/* The mark for the threads is set only if the value in the environment is ours. It is
 * removed first, since it may be left from an outer step. */
void environ_apply(const struct environ_ops *ops, const struct task_place *place,
                   const char *name, const char *value, bool task)
{
    bool threads = !strcmp(name, threads_name);
    char there[8], set[24];
    const char *dirs;
    bool cwd_last;

    if (task && environ_path_word(value, &dirs, &cwd_last)) {
        extend_path(ops, name, dirs, cwd_last);
        return;
    }
    if (threads)
        ops->unset(ops->where, threads_mark);
    if (!is_own(name) && ops->get(ops->where, name, there, sizeof(there)))
        return;
    if (task)
        apply_word(ops, place, name, value);
    else
        ops->set(ops->where, name, value);
    if (threads && ops->get(ops->where, name, set, sizeof(set)))
        ops->set(ops->where, threads_mark, set);
}

/* Overwrites what an outer step has left: the place is a fact of this step, never
 * a choice. */
void environ_apply_place(const struct environ_ops *ops, const struct task_place *p)
{
    static const char unbuffered[] = "PYTHONUNBUFFERED";
    char there[8];

    /* What a task printed before it was killed must not be lost in a buffer. */
    if (!ops->get(ops->where, unbuffered, there, sizeof(there)))
        ops->set(ops->where, unbuffered, "1");
    set_number(ops, ENV_RANK, p->index);
    set_number(ops, ENV_WORLD_SIZE, p->world);
    set_number(ops, ENV_LOCAL_RANK, p->local_rank);
    set_number(ops, ENV_LOCAL_WORLD_SIZE, p->local_world);
    set_number(ops, ENV_NODE_RANK, p->node);
    set_number(ops, ENV_NUM_NODES, p->nodes);
}

/* ---- what was kept --------------------------------------------------------------- */

/* Appends at most SHOWN bytes of a value. Control characters could break or colour the
 * line of the message. */
static void append_shown(struct strbuf *b, const char *value)
{
    size_t n = strlen(value);

    for (size_t i = 0; i < n && i < SHOWN; i++) {
        bool control = (unsigned char)value[i] < 0x20 || value[i] == 0x7f;

        strbuf_append(b, control ? "?" : value + i, 1);
    }
    if (n > SHOWN)
        strbuf_append(b, "...", 3);
}

/* Variables that users set on purpose to override what we would set: no message when
 * they do. */
static bool is_theirs(const char *name)
{
    return !strcmp(name, threads_name) || !strcmp(name, "PYTHONPATH") ||
           !strncmp(name, "KMP_", 4);
}

/* No message where both agree; words are compared without case, since Python's readers
 * of them do the same. */
void environ_note_kept(struct strbuf *b, const char *name, const char *value, bool task,
                       const char *users)
{
    if (!users || is_own(name) || is_theirs(name) ||
        (!task && !strcasecmp(users, value)))
        return;
    strbuf_printf(b, " %s=", name);
    append_shown(b, users);
    /* The config decides values with such a prefix; the others come from the step. */
    if (task || !prefix_of(name))
        return;
    strbuf_append(b, " (the config says ", 18);
    append_shown(b, value);
    strbuf_append(b, ")", 1);
}
