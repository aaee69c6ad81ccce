/* SPDX-License-Identifier: Apache-2.0
 *
 * malformed FIRST COUNT CMD... {}: makes the files FIRST .. FIRST + COUNT - 1 of an
 * endless list of damaged configs (N.yaml, the same at every run), runs CMD with each
 * in place of {}, and judges: it must end by itself, and a refusal must have a place
 * and a cure. Prints a line per fault, then one of figures:
 *     refused R accepted A faults F user_ms WORST rss_kb WORST good_rss_kb
 *     OF-A-GOOD-FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 1 << 20 };

static const char good[] = "compute_environment: LOCAL_MACHINE\n"
                           "distributed_type: FSDP\n"
                           "mixed_precision: bf16\n"
                           "num_machines: 1\n"
                           "num_processes: 2\n"
                           "fsdp_config:\n"
                           "  fsdp_sharding_strategy: FULL_SHARD\n"
                           "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                           "  fsdp_backward_prefetch: BACKWARD_PRE\n"
                           "accel:\n"
                           "  checkpoint:\n"
                           "    every_steps: 100\n"
                           "  preemption:\n"
                           "    lead_seconds: 60\n";

static char text[TEXT];
static size_t len;
static uint64_t state;

static size_t pick(size_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % below;
}

static void insert(size_t at, const char *s, size_t n)
{
    if (len + n >= TEXT)
        return;
    memmove(text + at + n, text + at, len - at);
    memcpy(text + at, s, n);
    len += n;
}

static void append(const char *s, size_t times)
{
    for (size_t i = 0; i < times; i++)
        insert(len, s, strlen(s));
}

/* Start of a random line. */
static size_t any_line(void)
{
    size_t at = pick(len);

    while (at > 0 && text[at - 1] != '\n')
        at--;
    return at;
}

/* In the middle of a random key or word. */
static size_t any_letter(void)
{
    size_t at = pick(len);

    while (text[at] == '\n' || text[at] == ' ' || text[at] == ':')
        at = (at + 1) % len;
    return at;
}

static void drop(size_t at, size_t n)
{
    n = n < len - at ? n : len - at;
    memmove(text + at, text + at + n, len - at - n);
    len -= n;
}

static void flip_bytes(size_t times)
{
    for (size_t i = 0; i < times; i++)
        text[pick(len)] = (char)pick(256);
}

static void bomb(void)
{
    append("a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n", 1);
    append("num_machines: *c\n", 1);
}

/* The damage of the n-th file. */
static void damage(size_t n)
{
    static const char *const lines[] = {
        "mixed_precision: [bf16, fp16]\n",
        "num_processes: {a: 1}\n",
        "num_processes: 99999999999999999999\n",
        "num_processes: 1e400\n",
        "num_processes: -1\n",
        "num_processes: 0x10\n",
        "use_cpu: maybe\n",
        "mixed_precision: *nowhere\n",
        "debug: !!binary aGVsbG8=\n",
        "--- \nnum_machines: 1\n",
        "\tuse_cpu: true\n",
        "use_cpu true\n",
        "use_cpu:true\n",
        "? [complex, key]\n: value\n",
        "%YAML 9.9\n",
        "debug: 'open\n",
        "debug: \"\\q\"\n",
        "tpu_name: pod\n",
        "<<: {use_cpu: true}\n",
        "use_cpu: !accel true\n",
        "] }\n",
        "@reserved: 1\n",
        "distributed_type: SAGEMAKER\n",
        "enable_cpu_affinity: 17\n",
    };
    static const char *const inside[] = { "\0",           "\xff\xfe",
                                          "\xc3(",        "\xed\xa0\x80",
                                          "\xef\xbb\xbf", "\x1b[2J",
                                          "\x7f",         "\r" };
    size_t which;

    switch (n % 10) {
    case 0: /* a letter that is missing, doubled or another one */
        drop(any_letter(), 1);
        break;
    case 1:
        insert(any_letter(), "q", 1);
        break;
    case 2:
        text[any_letter()] = (char)('a' + pick(26));
        break;
    case 3:
        which = pick(sizeof(lines) / sizeof(lines[0]));
        insert(any_line(), lines[which], strlen(lines[which]));
        break;
    case 4:
        which = pick(sizeof(inside) / sizeof(inside[0]));
        insert(pick(len), inside[which], which ? strlen(inside[which]) : 1);
        break;
    case 5: /* cut off, and open */
        len = 1 + pick(len - 1);
        append(n % 20 == 5 ? "\nfsdp_config: {a: [" : "\ndebug: \"", 1);
        break;
    case 6: /* a line twice */
        which = any_line();
        insert(len, text + which, strcspn(text + which, "\n") + 1);
        append("num_processes: 2\n", 1);
        break;
    case 7:
        append("deep: ", 1);
        append(n % 20 == 7 ? "[" : "{a: ", 20 + pick(20000));
        break;
    case 8:
        append("mixed_precision: ", 1);
        append("xxxxxxxxxxxxxxxx", 1 + pick(40000));
        append("\n", 1);
        break;
    default:
        n % 20 == 9 ? bomb() : flip_bytes(1 + pick(30));
    }
}

static void write_file(const char *name)
{
    FILE *f = fopen(name, "w");

    if (!f || fwrite(text, 1, len, f) != len || fclose(f) != 0) {
        perror(name);
        exit(2);
    }
}

static void make(const char *name, size_t n)
{
    len = sizeof(good) - 1;
    memcpy(text, good, sizeof(good));
    state = 0x9e3779b97f4a7c15u * (n + 1);
    damage(n);
    write_file(name);
}

/* Runs the command; its output, both streams, into out. Returns wait's status. */
static int run(char *const *cmd, const char *name, char *out, size_t size,
               struct rusage *used)
{
    char *argv[64];
    size_t n = 0, got = 0;
    int fd[2], status = 0;
    ssize_t r;

    for (; cmd[n] && n < 63; n++)
        argv[n] = strcmp(cmd[n], "{}") == 0 ? (char *)name : cmd[n];
    argv[n] = NULL;
    if (pipe(fd) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 1);
        dup2(fd[1], 2);
        close(fd[0]);
        execvp(argv[0], argv);
        _exit(126);
    }
    close(fd[1]);
    while (got < size - 1 && (r = read(fd[0], out + got, size - 1 - got)) > 0)
        got += (size_t)r;
    out[got] = '\0';
    close(fd[0]);
    wait4(pid, &status, 0, used);
    return status;
}

/* As many cures as errors, and each error at a place in `name`. */
static const char *judge(char *out, const char *name)
{
    size_t errors = 0, cures = 0, places = 0;
    char *save = NULL;

    for (char *l = strtok_r(out, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        const char *caret = strstr(l, "^ ");

        errors += strstr(l, "error[A0") != NULL;
        places += strstr(l, "error[A0") && strstr(l, name) &&
                  strstr(l, name) < strstr(l, "error[A0");
        cures += strstr(l, "cure: ") || (caret && caret[2]);
    }
    return errors == 0        ? "no message with a code"
           : places != errors ? "a message without a place"
           : cures < errors   ? "a message without a cure"
                              : NULL;
}

int main(int argc, char **argv)
{
    static char out[1 << 16];
    long refused = 0, accepted = 0, faults = 0, worst_rss = 0, worst_us = 0;
    struct rusage used = { 0 }, base = { 0 };

    if (argc < 4)
        return 64;
    len = sizeof(good) - 1;
    memcpy(text, good, sizeof(good));
    write_file("good.yaml");
    run(argv + 3, "good.yaml", out, sizeof(out), &base);
    for (long i = atol(argv[1]), n = atol(argv[2]); n > 0; i++, n--) {
        char name[32];
        const char *fault = NULL;

        snprintf(name, sizeof(name), "%ld.yaml", i);
        make(name, (size_t)i);
        int status = run(argv + 3, name, out, sizeof(out), &used);
        if (WIFSIGNALED(status) || WEXITSTATUS(status) == 70 ||
            WEXITSTATUS(status) > 125)
            fault = WIFEXITED(status) && WEXITSTATUS(status) == 255 ? judge(out, name)
                                                                    : "a crash";
        else if (WEXITSTATUS(status) != 0)
            fault = judge(out, name);
        WIFEXITED(status) && WEXITSTATUS(status) == 0 ? accepted++ : refused++;
        if (fault) {
            faults++;
            printf("%s: %s (status %d)\n", name, fault, status);
        }
        long us = used.ru_utime.tv_sec * 1000000 + used.ru_utime.tv_usec;
        worst_us = us > worst_us ? us : worst_us;
        worst_rss = used.ru_maxrss > worst_rss ? used.ru_maxrss : worst_rss;
        if (!fault)
            unlink(name);
    }
    printf(
        "refused %ld accepted %ld faults %ld user_ms %ld rss_kb %ld good_rss_kb %ld\n",
        refused, accepted, faults, worst_us / 1000, worst_rss, base.ru_maxrss);
    return 0;
}
