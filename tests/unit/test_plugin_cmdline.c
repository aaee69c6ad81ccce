/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's cmdline.c and script.c: which words are the client's own options, what
 * their values are, where the command begins, and what #SBATCH lines say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srun_plugin/options/cmdline.h"
#include "srun_plugin/plugin.h"
#include "tests/tap.h"
#include "tests/unit/fake_plugin.h"

static void test_command(void)
{
    static const struct {
        const char *line;
        spank_context_t context;
        const char *want; /* NULL: no command */
    } cases[] = {
        { "srun ./a -n 4", S_CTX_LOCAL, "./a" },
        { "srun -n 4 ./a", S_CTX_LOCAL, "./a" },
        { "srun -n4 ./a", S_CTX_LOCAL, "./a" },
        { "srun -ln 4 ./a", S_CTX_LOCAL, "./a" },
        { "srun -l ./a", S_CTX_LOCAL, "./a" },
        { "srun --ntasks 4 ./a", S_CTX_LOCAL, "./a" },
        { "srun --ntasks=4 ./a", S_CTX_LOCAL, "./a" },
        { "srun --label ./a", S_CTX_LOCAL, "./a" },
        { "srun --lab ./a", S_CTX_LOCAL, "./a" },
        { "srun --accel-dry-run ./a", S_CTX_LOCAL, "./a" },
        { "srun --accel-config f.yaml ./a", S_CTX_LOCAL, "./a" },
        { "srun -n 4 -- ./a", S_CTX_LOCAL, "./a" },
        { "srun -- -a", S_CTX_LOCAL, "-a" },
        { "srun - x", S_CTX_LOCAL, "-" },
        { "srun -W 5 ./a", S_CTX_LOCAL, "./a" },
        { "srun --wait 5 ./a", S_CTX_LOCAL, "./a" },
        { "srun --compress ./a", S_CTX_LOCAL, "./a" },
        { "srun --resv-ports ./a", S_CTX_LOCAL, "./a" },
        { "sbatch -W ./a", S_CTX_ALLOCATOR, "./a" },
        { "sbatch --kill-on-invalid-dep yes ./a", S_CTX_ALLOCATOR, "./a" },
        { "sbatch --wait ./a", S_CTX_ALLOCATOR, "./a" },
        { "sbatch --wait -n 2 ./a --ntasks=3", S_CTX_ALLOCATOR, "./a" },
        { "srun -n 4", S_CTX_LOCAL, NULL },
        { "srun", S_CTX_LOCAL, NULL },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        char **argv = fake_split(cases[i].line);
        fake_context = cases[i].context;
        const char *got = argv[cmdline_command(argv)];
        tap_is_str(got ? got : "-none-", cases[i].want ? cases[i].want : "-none-",
                   "command of '%s'", cases[i].line);
    }
    fake_context = S_CTX_LOCAL;
}

static void test_options(void)
{
    static const struct {
        const char *line, *name;
        size_t min;
        char letter;
        const char *want; /* NULL: not given */
    } cases[] = {
        { "srun --ntasks=4 ./a", "ntasks", 6, 0, "4" },
        { "srun --ntasks 4 ./a", "ntasks", 6, 0, "4" },
        { "srun --ntasks=4 --ntasks=5 ./a", "ntasks", 6, 0, "5" },
        { "srun --ntasks-per-node=4 ./a", "ntasks", 6, 0, NULL },
        { "srun --ntask=4 ./a", "ntasks", 6, 0, NULL },
        { "srun --sig=USR1 ./a", "signal", 3, 0, "USR1" },
        { "srun --si=USR1 ./a", "signal", 3, 0, NULL },
        { "srun --signals=USR1 ./a", "signal", 3, 0, NULL },
        { "srun ./a --signal=USR1", "signal", 3, 0, NULL },
        { "srun -J --signal=USR1 ./a", "signal", 3, 0, NULL },
        { "srun --pty ./a", "pty", 3, 0, "" },
        { "srun -n 4 ./a", NULL, 0, 'n', "4" },
        { "srun -n4 ./a", NULL, 0, 'n', "4" },
        { "srun -ln4 ./a", NULL, 0, 'n', "4" },
        { "srun -l ./a", NULL, 0, 'l', "" },
        { "srun -N 2 -n 3 ./a", NULL, 0, 'n', "3" },
        { "srun -Jn4 ./a", NULL, 0, 'n', NULL },
        { "srun -Wn4 ./a", NULL, 0, 'n', NULL },
        { "srun ./a -n 4", NULL, 0, 'n', NULL },
        { "srun --nodes 2 ./a", NULL, 0, 'n', NULL },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        char **argv = fake_split(cases[i].line);
        const char *got = cases[i].letter
                              ? cmdline_letter(argv, cases[i].letter)
                              : cmdline_option(argv, cases[i].name, cases[i].min);
        tap_is_str(got ? got : "-none-", cases[i].want ? cases[i].want : "-none-",
                   "%s%c of '%s'", cases[i].name ? cases[i].name : "-",
                   cases[i].letter ? cases[i].letter : ' ', cases[i].line);
    }
}

/* ---- the options of the installed Slurm ------------------------------------------ */

/* Runs "PROGRAM OPTION --no-such-1 --no-such-2". The first of the two is an unknown
 * option after a flag, and the value of any other option. It ends without a controller
 * either way. */
static bool program_takes_next(const char *program, const char *option)
{
    char command[256], line[512];
    bool first = false;
    FILE *f;

    snprintf(command, sizeof(command), "%s %s --no-such-1 --no-such-2 2>&1 </dev/null",
             program, option);
    f = popen(command, "r");
    if (!f)
        return false;
    while (fgets(line, sizeof(line), f))
        first |= strstr(line, "unrecognized option '--no-such-1'") != NULL;
    pclose(f);
    return !first;
}

/* Does the plugin think that the word after `option` is its value? */
static bool plugin_takes_next(const char *program, const char *option)
{
    char line[256];

    snprintf(line, sizeof(line), "%s %s ./a ./b", program, option);
    return cmdline_command(fake_split(line)) == 3;
}

/* `help` says what the option `name` looks like, behind its name: "=N", "[=N]" or
 * something else. The text is not always right ("--container" takes a path), so that
 * the program itself is asked where it and the tables differ. */
static bool tables_know(const char *program, const char *name, const char *help)
{
    bool takes = plugin_takes_next(program, name);

    return takes == (help[0] == '=') || takes == program_takes_next(program, name);
}

/* Each line of the help that names options: "  -n, --ntasks=ntasks   number of ...". */
static void test_installed(const char *program, spank_context_t context)
{
    char command[64], line[512], name[64];
    int options = 0, wrong = 0;
    FILE *f;

    fake_context = context;
    snprintf(command, sizeof(command), "%s --help 2>/dev/null", program);
    f = popen(command, "r");
    while (f && fgets(line, sizeof(line), f)) {
        const char *lead = line + strspn(line, " "), *dashes = strstr(line, "--");
        int n = 0;

        if (lead - line > 6 || lead[0] != '-' || !dashes ||
            sscanf(dashes, "%63[-a-z0-9]%n", name, &n) != 1)
            continue;
        options++;
        if (!tables_know(program, name, dashes + n)) {
            tap_diag("%s %s", program, name);
            wrong++;
        }
        name[2] = '\0';
        if (lead[1] == '-' || !memcpy(name, lead, 2) ||
            tables_know(program, name, dashes + n))
            continue;
        tap_diag("%s %s", program, name);
        wrong++;
    }
    if (f)
        pclose(f);
    if (options == 0)
        tap_skip(1, "its options cannot be listed: it is not installed");
    else
        tap_ok(options > 50 && !wrong, "all %d options of the installed %s", options,
               program);
    fake_context = S_CTX_LOCAL;
}

static void test_files(const char *path)
{
    size_t len = 0;
    char *text = cmdline_read_file(path, 1 << 20, &len), **argv = cmdline_read();
    size_t whole = len;

    tap_ok(text && len == strlen(text) && len > 4096, "a file beyond one read, whole");
    free(text);
    if (truncate(path, 8192) == 0)
        whole = 8192;
    text = cmdline_read_file(path, whole, &len);
    tap_ok(text && len == whole, "one of exactly the limit");
    free(text);
    tap_ok(!cmdline_read_file(path, whole - 1, &len), "one of a byte more: none of it");
    tap_ok(!cmdline_read_file(path, 4096, &len), "one that is too long: none of it");
    tap_ok(!cmdline_read_file("/nonexistent/x", 10, &len), "one that is not there");
    tap_ok(argv && argv[0] && strstr(argv[0], "test_plugin_cmdline") && !argv[1],
           "this very command line");
    free(argv);
    tap_ok(!cmdline_is_sbatch(), "this is not sbatch");
}

static void write_script(const char *path, const char *text, size_t blanks)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return;
    fputs(text, f);
    for (size_t i = 0; i < blanks; i++)
        fputc('\n', f);
    fclose(f);
}

static void test_script(const char *path)
{
    static const char text[] =
        "#!/bin/sh\n"
        "# words\n"
        "#SBATCH --ntasks=4 -N 2 # and not --nodes=9\n"
        "#SBATCHED --mem=1\n"
        "\n"
        "#SBATCH --job-name=\"a b\" --comment='c\\d' -o e\\ f#g\n"
        "echo\n"
        "#SBATCH --signal=USR1\n";
    static const char *const want[] = {
        "--ntasks=4", "-N", "2", "--job-name=a b", "--comment=c\\d", "-o", "e f",
    };
    char line[256], **words;
    size_t n = 0;

    write_script(path, text, 5000);
    snprintf(line, sizeof(line), "sbatch -n 1 %s --signal=USR2", path);
    words = script_read(fake_split(line));
    tap_ok(words && !strcmp(words[0], path), "the script is found behind the options");
    for (; words && words[n + 1] && n < ACCEL_ARRAY_SIZE(want); n++)
        tap_is_str(words[n + 1], want[n], "word %zu", n);
    tap_ok(words && n == ACCEL_ARRAY_SIZE(want) && !words[n + 1],
           "and nothing behind the first command");
    tap_is_str(words ? cmdline_letter(words, 'N') : "", "2",
               "scanned as a command line");
    free(words);
    test_files(path);
    write_script(path, "not a script\n#SBATCH -n 3\n", 0);
    tap_ok(!script_read(fake_split(line)), "a program is no script");
    unlink(path);
    tap_ok(!script_read(fake_split(line)), "nor is what is not there");
    tap_ok(!script_read(fake_split("sbatch -n 1")),
           "a script through stdin is not read");
}

int main(void)
{
    char path[] = "/tmp/accel-script.XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0)
        tap_skip_all("no temporary file can be made");
    close(fd);
    test_command();
    test_options();
    test_script(path);
    /* Slurm's clients want a slurm.conf, and talk to nobody for their help. */
    write_script(path, "ClusterName=none\nSlurmctldHost=localhost\n", 0);
    setenv("SLURM_CONF", path, 1);
    test_installed("srun", S_CTX_LOCAL);
    test_installed("sbatch", S_CTX_ALLOCATOR);
    test_installed("salloc", S_CTX_ALLOCATOR);
    unlink(path);
    return tap_done();
}
