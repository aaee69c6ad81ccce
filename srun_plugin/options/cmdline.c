/* SPDX-License-Identifier: Apache-2.0
 *
 * What the user typed: this process's own command line. slurm_spank_init runs before
 * Slurm parses it, and the launch defaults must be set by then. Also runs this program
 * again with another command line. Reads with the caller's rights; never changes
 * anything.
 *
 * Slurm does not tell a plugin which options take a separate value ("-n 4"); the tables
 * below know those of 21.08 to 24.05. A wrong guess costs a default, never a job: the
 * option callback sees the truth.
 */
#include "srun_plugin/options/cmdline.h"

#include <fcntl.h>
#include <limits.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun_plugin/plugin.h"

/* More than the kernel's usual limit for all arguments. */
#define CMDLINE_MAX (4u << 20)

/* Short options of srun, sbatch and salloc that take a value, besides -W. */
static const char short_with_value[] = "AaBbCcDdeFGgiJLMmNnopqrSTtwx";
/* Long options that never take a separate word. */
static const char *const long_flags[] = {
    OPTION_DRY_RUN,
    "async",
    "bcast",
    "compress",
    "contiguous",
    "debugger-test",
    "disable-status",
    "exact",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "immediate",
    "interactive",
    "kill-command",
    "kill-on-bad-exit",
    "label",
    "msg-timeout",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-bell",
    "no-kill",
    "no-requeue",
    "no-shell",
    "overcommit",
    "overlap",
    "oversubscribe",
    "parsable",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "requeue",
    "resv-ports",
    "send-libs",
    "spread-job",
    "test-only",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "whole",
    "x11",
    "bell",
    NULL,
};

/* Files of /proc have no size, so it reads until the end. Non-blocking: a fifo must not
 * hang the client. */
char *cmdline_read_file(const char *path, size_t max, size_t *len_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t cap = 4096, len = 0;
    char *buf = NULL;

    if (fd < 0)
        return NULL;
    for (;;) {
        char *more = realloc(buf, cap + 1);
        if (!more)
            break;
        buf = more;
        ssize_t n = read(fd, buf + len, cap - len);
        if (n <= 0) {
            close(fd);
            buf[len] = '\0';
            *len_out = len;
            return buf;
        }
        len += (size_t)n;
        if (len > max)
            break;
        if (len == cap)
            cap *= 2;
    }
    free(buf);
    close(fd);
    return NULL;
}

/* One block: the pointers first, then a copy of the words. */
char **cmdline_read(void)
{
    size_t len = 0, words = 0;
    char *raw = cmdline_read_file("/proc/self/cmdline", CMDLINE_MAX, &len), *text;
    char **argv = NULL;

    if (!raw)
        return NULL;
    for (size_t i = 0; i < len; i++)
        words += raw[i] == '\0';
    argv = malloc((words + 2) * sizeof(*argv) + len + 1);
    if (!argv)
        goto out;
    text = (char *)(argv + words + 2);
    memcpy(text, raw, len + 1);
    words = 0;
    for (size_t i = 0; i < len; i += strlen(text + i) + 1)
        argv[words++] = text + i;
    argv[words] = NULL;
out:
    free(raw);
    return argv;
}

/* Does "--WORD" or "--WORD=..." name the long option `name`, abbreviated or not? */
static bool names_option(const char *word, const char *name, size_t min_prefix)
{
    if (word[0] != '-' || word[1] != '-')
        return false;
    size_t n = strcspn(word + 2, "=");
    return n >= min_prefix && n <= strlen(name) && strncmp(word + 2, name, n) == 0;
}

/* -W, --wait: seconds for srun, a flag for sbatch; salloc does not have it. */
static bool wait_takes_value(void)
{
    return spank_context() == S_CTX_LOCAL;
}

/* Is it a long option that never takes the next word? */
static bool is_long_flag(const char *word)
{
    if (strcmp(word, "--wait") == 0)
        return !wait_takes_value();
    for (size_t i = 0; long_flags[i]; i++)
        if (names_option(word, long_flags[i], 3))
            return true;
    return false;
}

static bool letter_takes_value(char letter)
{
    return strchr(short_with_value, letter) || (letter == 'W' && wait_takes_value());
}

/* Is the word after `word` its value? */
static bool takes_next(const char *word)
{
    if (word[1] == '-')
        return word[2] && !strchr(word, '=') && !is_long_flag(word);
    /* "-n4" carries its value, "-ln 4" ends in an option that wants one. */
    for (const char *c = word + 1; *c; c++)
        if (letter_takes_value(*c))
            return c[1] == '\0';
    return false;
}

/* Options end at the first word without a dash, at a lone "-", or after "--". */
size_t cmdline_command(char **argv)
{
    size_t i = argv[0] ? 1 : 0;

    while (argv[i] && argv[i][0] == '-' && argv[i][1]) {
        if (strcmp(argv[i], "--") == 0)
            return argv[i + 1] ? i + 1 : i;
        i += takes_next(argv[i]) && argv[i + 1] ? 2 : 1;
    }
    return i;
}

/* The last one wins, as in Slurm. */
const char *cmdline_option(char **argv, const char *name, size_t min_prefix)
{
    size_t end = cmdline_command(argv);
    const char *value = NULL;

    for (size_t i = 1; i < end; i++) {
        if (names_option(argv[i], name, min_prefix)) {
            const char *eq = strchr(argv[i], '=');
            bool next = !eq && takes_next(argv[i]) && argv[i + 1];
            value = eq ? eq + 1 : next ? argv[i + 1] : "";
        }
        if (takes_next(argv[i]))
            i++;
    }
    return value;
}

/* The last one wins here, too. */
const char *cmdline_letter(char **argv, char letter)
{
    size_t end = cmdline_command(argv);
    const char *value = NULL;

    for (size_t i = 1; i < end; i++) {
        const char *c = argv[i] + 1;
        bool next = takes_next(argv[i]) && argv[i + 1];
        /* "-Qn4": letters up to the first one that takes the rest as its value. */
        for (; argv[i][0] == '-' && argv[i][1] != '-' && *c; c++) {
            bool has_value = letter_takes_value(*c);
            if (*c == letter)
                value = !has_value ? "" : c[1] || !next ? c + 1 : argv[i + 1];
            if (has_value)
                break;
        }
        i += next;
    }
    return value;
}

bool cmdline_gives(char **argv, char letter, const char *name, size_t min_prefix)
{
    return argv && (cmdline_option(argv, name, min_prefix) ||
                    (letter && cmdline_letter(argv, letter)));
}

void cmdline_exec(char **argv, char **env)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    /* By its real name; ps would show "exe" otherwise. */
    if (n > 0) {
        path[n] = '\0';
        execve(path, argv, env);
    }
    execve("/proc/self/exe", argv, env);
}

/* By the file of the process, not by argv[0], which a wrapper may have changed. */
bool cmdline_is_sbatch(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n <= 0)
        return false;
    path[n] = '\0';
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, "sbatch") == 0;
}
