/* SPDX-License-Identifier: Apache-2.0
 *
 * The batch script on sbatch's command line. The words of the command line come in. The
 * words of the #SBATCH lines go out in the shape of a command line, so that one scanner
 * serves both. Reads with the caller's rights; never touches a script that comes
 * through stdin.
 */

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "srun_plugin/options/cmdline.h"

/* A regular file of bounded size: anything else is left to sbatch. */
static bool is_script(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_size <= (off_t)SCRIPT_MAX;
}

/* Finds the script as sbatch does: the current directory first, then PATH for a
 * bare name. */
static bool find_script(const char *name, char *out, size_t len)
{
    const char *path = getenv("PATH");

    if (is_script(name))
        return snprintf(out, len, "%s", name) < (int)len;
    if (strchr(name, '/'))
        return false;
    for (const char *p = path; p && *p; p += strspn(p, ":")) {
        int n = (int)strcspn(p, ":");
        if (snprintf(out, len, "%.*s/%s", n, p, name) < (int)len && is_script(out))
            return true;
        p += n;
    }
    return false;
}

/* Copies the next word from *p (up to `end`) to *out, with quotes and backslashes
 * removed as sbatch does, and moves both pointers past it. False at the end of the
 * line or at a comment. */
static bool next_word(const char **p, const char *end, char **out)
{
    const char *c = *p;
    char quote = '\0', *to = *out;

    while (c < end && isspace((unsigned char)*c))
        c++;
    if (c == end || *c == '#')
        return false;
    for (; c < end && (quote || !isspace((unsigned char)*c)); c++) {
        if (quote ? *c == quote : *c == '"' || *c == '\'') {
            quote = quote ? '\0' : *c;
        } else if (*c == '#' && !quote) {
            /* A comment, also right after a word. */
            c = end;
            break;
        } else {
            if (*c == '\\' && c + 1 < end && quote != '\'')
                c++;
            *to++ = *c;
        }
    }
    *to++ = '\0';
    *out = to;
    *p = c;
    return true;
}

/* Collects the words into argv and text. sbatch reads #SBATCH lines up to the first
 * line that is neither comment nor blank. With argv NULL it only counts. `text` has
 * room for every word of the script. */
static size_t collect(const char *script, char **argv, char *text)
{
    size_t count = 0;
    const char *next;

    for (const char *line = script; *line; line = next) {
        const char *end = line + strcspn(line, "\n"), *p = line + 7;
        const char *first = line + strspn(line, " \t\r");
        next = *end ? end + 1 : end;
        if (first < end && *first != '#')
            break;
        if (strncmp(line, "#SBATCH", 7) != 0 || !isspace((unsigned char)*p))
            continue;
        for (char *word = text; next_word(&p, end, &text); word = text) {
            if (argv)
                argv[count] = word;
            count++;
        }
    }
    return count;
}

bool script_find(char **argv, char *out, size_t len)
{
    size_t command = cmdline_command(argv);

    return argv[command] && find_script(argv[command], out, len);
}

/* Two passes: one to count the words, one to store them after their pointers. */
char **script_read(char **argv)
{
    size_t len = 0, command = cmdline_command(argv), count;
    char path[PATH_MAX], *script, *scratch = NULL, **words = NULL;

    if (!script_find(argv, path, sizeof(path)))
        return NULL;
    script = cmdline_read_file(path, SCRIPT_MAX, &len);
    /* sbatch refuses a script without "#!". */
    if (script && strncmp(script, "#!", 2) == 0)
        scratch = malloc(len + 1);
    if (!scratch)
        goto out;
    count = collect(script, NULL, scratch);
    /* A word and its NUL need no more room than the word and the blank before it. */
    words = malloc((count + 2) * sizeof(*words) + len + 1);
    if (!words)
        goto out;
    words[0] = argv[command];
    collect(script, words + 1, (char *)(words + count + 2));
    words[count + 1] = NULL;
out:
    free(scratch);
    free(script);
    return words;
}
