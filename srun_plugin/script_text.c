/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch script or a command line starts, as far as its text shows. Text comes
 * in; the line that starts Python without a launcher goes out. These are guesses: the
 * callers give hints and refuse nothing.
 */
#include "srun_plugin/script_text.h"

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

/* Only the last part of a path counts: "/opt/python/bin/tool" is not Python. */
bool names_python(const char *word, size_t n)
{
    size_t base = n;

    while (base > 0 && word[base - 1] != '/')
        base--;
    if (n - base >= 6 && !strncmp(word + base, "python", 6))
        return strspn(word + base + 6, "0123456789.") >= n - base - 6;
    return n - base > 3 && !strncmp(word + n - 3, ".py", 3);
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

/* Does one of the commands of the line run Python? Quotes are not looked at. */
static bool line_runs_python(const char *line, size_t n)
{
    for (size_t from = 0; from < n;) {
        size_t len = 0;

        while (from + len < n && !strchr(";&|", line[from + len]))
            len++;
        if (runs_python(line + from, len))
            return true;
        from += len + 1;
    }
    return false;
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
