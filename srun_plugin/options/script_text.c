/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch script or a command line starts, as far as its text shows. Text comes
 * in; the line that starts Python without a launcher, and a launcher that makes a world
 * of its own, go out. These are guesses: the callers give hints and refuse nothing.
 */
#include "srun_plugin/options/cmdline.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A character of a shell's name. */
static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Is the word `want` in text[n]? In any case, so that "$SRUN" counts. */
static bool has_word(const char *text, size_t n, const char *want)
{
    size_t len = strlen(want);

    for (size_t i = 0; i + len <= n; i++)
        if (!strncasecmp(text + i, want, len) &&
            (i == 0 || !is_word_char(text[i - 1])) &&
            (i + len == n || !is_word_char(text[i + len])))
            return true;
    return false;
}

/* Does the line name a program that gives ranks to the processes it starts? */
static bool has_launcher(const char *line, size_t n)
{
    static const char *const names[] = { "srun",      "mpirun",   "mpiexec",
                                         "accel",     "torchrun", "accelerate",
                                         "deepspeed", "prun",     "distributed",
                                         "horovodrun" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (has_word(line, n, names[i]))
            return true;
    return false;
}

/* The last part of the path word[*n], whose length *n becomes. */
static const char *base_of(const char *word, size_t *n)
{
    size_t base = *n;

    while (base > 0 && word[base - 1] != '/')
        base--;
    *n -= base;
    return word + base;
}

/* Only the last part of a path counts: "/opt/python/bin/tool" is not Python. */
bool names_python(const char *word, size_t n)
{
    const char *base = base_of(word, &n);

    if (n >= 6 && !strncmp(base, "python", 6))
        return strspn(base + 6, "0123456789.") >= n - 6;
    return n > 3 && !strncmp(base + n - 3, ".py", 3);
}

/* Finds the next word of s[n] from *at on, and moves *at to it. Returns its length, 0
 * at the end. */
static size_t next_word(const char *s, size_t n, size_t *at)
{
    size_t i = *at;

    while (i < n && isspace((unsigned char)s[i]))
        i++;
    *at = i;
    while (i < n && !isspace((unsigned char)s[i]))
        i++;
    return i - *at;
}

/* Is word[n] in the NULL-terminated list? */
static bool is_one_of(const char *word, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == n && !strncmp(word, *list, n))
            return true;
    return false;
}

/* Is it a word that may stand before a command? An assignment, "A=b", may as well. */
static bool is_prefix(const char *word, size_t n)
{
    static const char *const words[] = { "then", "do", "else",  "exec", "time",
                                         "env",  "if", "while", "!",    "nohup",
                                         "{",    "(",  NULL };
    size_t i = 0;

    while (i < n && is_word_char(word[i]))
        i++;
    return is_one_of(word, n, words) || (i > 0 && i < n && word[i] == '=');
}

/* Does the command s[n] run a script or a module with Python? Tools such as pip and
 * one-liners (-c) do not count: they need no rank. */
static bool runs_python(const char *s, size_t n)
{
    static const char *const tools[] = { "pip", "venv", "ensurepip", "compileall",
                                         NULL };
    size_t at = 0, len = next_word(s, n, &at);

    while (len && is_prefix(s + at, len)) {
        at += len;
        len = next_word(s, n, &at);
    }
    if (!len || !names_python(s + at, len))
        return false;
    /* "./train.py" runs Python by its first line. names_python matched, so there are
     * 3 bytes. */
    if (!strncmp(s + at + len - 3, ".py", 3))
        return true;
    for (at += len; (len = next_word(s, n, &at)) > 0; at += len) {
        if (len == 2 && !strncmp(s + at, "-m", 2)) {
            at += len;
            len = next_word(s, n, &at);
            return len && !is_one_of(s + at, len, tools);
        }
        if (s[at] != '-')
            return names_python(s + at, len);
        if (len >= 2 && (s[at + 1] == 'c' || s[at + 1] == 'V'))
            return false;
    }
    return false;
}

/* The length of the command at the beginning of line[n]. Quotes are not looked at. */
static size_t command_length(const char *line, size_t n)
{
    size_t len = 0;

    while (len < n && !strchr(";&|", line[len]))
        len++;
    return len;
}

/* Does one of the commands of the line run Python? */
static bool line_runs_python(const char *line, size_t n)
{
    for (size_t from = 0; from < n;) {
        size_t len = command_length(line + from, n - from);

        if (runs_python(line + from, len))
            return true;
        from += len + 1;
    }
    return false;
}

/* Is it a shell that runs the next word, or an option of it? */
static bool is_shell(const char *word, size_t n)
{
    static const char *const words[] = {
        "sh", "bash", "dash", "zsh", "-c", "-lc", NULL
    };
    const char *base = base_of(word, &n);

    return is_one_of(base, n, words);
}

/* The launcher that the command s[n] runs; NULL: none. */
static const char *own_launcher(const char *s, size_t n)
{
    static const char *const modules[] = { "torch.distributed.run",
                                           "torch.distributed.launch",
                                           "accelerate.commands.launch", NULL };
    size_t at = 0, len = next_word(s, n, &at), size;
    const char *base;

    while (len && (is_prefix(s + at, len) || is_shell(s + at, len))) {
        at += len;
        len = next_word(s, n, &at);
    }
    size = len;
    base = base_of(s + at, &size);
    if (size == 8 && !strncmp(base, "torchrun", 8))
        return "torchrun";
    if (size == 9 && !strncmp(base, "deepspeed", 9))
        return "deepspeed";
    if (size == 10 && !strncmp(base, "accelerate", 10)) {
        at += len;
        len = next_word(s, n, &at);
        return len == 6 && !strncmp(s + at, "launch", 6) ? "accelerate launch" : NULL;
    }
    if (!names_python(base, size))
        return NULL;
    while (at += len, (len = next_word(s, n, &at)) > 0 && s[at] == '-')
        if (len == 2 && !strncmp(s + at, "-m", 2)) {
            at += len;
            len = next_word(s, n, &at);
            for (size_t i = 0; modules[i]; i++)
                if (len == strlen(modules[i]) && !strncmp(s + at, modules[i], len))
                    return modules[i];
            return NULL;
        }
    return NULL;
}

/* Is a launcher in the line told of more nodes than this one? */
static bool tells_of_nodes(const char *line)
{
    static const char *const names[] = { "--nnodes", "--num_machines", "--num-machines",
                                         "--num_nodes", "--hostfile" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *at = strstr(line, names[i]);

        at = at ? at + strlen(names[i]) : "";
        at += strspn(at, "= \t");
        if (*at && (*at != '1' || strcspn(at, " \t") != 1))
            return true;
    }
    return false;
}

/* With other nodes it meets the launchers there, and the world is one. */
const char *script_own_world(const char *line)
{
    size_t n = strlen(line);
    const char *found = NULL;

    for (size_t from = 0; from < n && !found && !tells_of_nodes(line);) {
        size_t len = command_length(line + from, n - from);

        found = own_launcher(line + from, len);
        from += len + 1;
    }
    return found;
}

/* One launcher anywhere makes it 0: the Python line may then be its helper, and a wrong
 * hint is worse than none. */
int script_bare_python(const char *text)
{
    int number = 0, found = 0;

    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n"), blank = strspn(line, " \t");

        number++;
        if (blank < n && line[blank] != '#') {
            if (has_launcher(line, n))
                return 0;
            if (!found && line_runs_python(line, n))
                found = number;
        }
        line += n + (line[n] == '\n');
    }
    return found;
}
