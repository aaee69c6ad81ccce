/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: a program that is short of memory once, at each place where it asks for
 * some. A place is the way from a function of the program, and the one that called it, to
 * the allocation, also through the C library and those for JSON, YAML and tables.
 *   NOMEM_PROGRAM=NAME  counts in that program alone
 *   NOMEM_DIR=DIR     from each place a copy of the process goes on without memory; its
 *                     output and stderr go to DIR/N.out and DIR/N.err, its exit status, or
 *                     128 and the signal, to DIR/N.rc. For programs that write no file.
 *                     Stdout and stderr of the program must be files.
 *   NOMEM_AT=n        instead, only the n-th place (1 ...) fails
 *   NOMEM_COUNT=FILE  instead, gets a byte for each place
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);

enum { FRAMES = 24, PLACES = 4096, RANGES = 64 };

/* Where code lies: of the program, of libraries that a place may lead through. */
static struct range {
    uintptr_t from, to;
    bool own;
} ranges[RANGES];
static uintptr_t print_table; /* libsmartcols leaves out what it has no memory for */
static int range_count;
static uint64_t seen[PLACES];
static int places;
static pid_t began; /* what the program forks by itself is left alone */
static const char *at_place, *count_file, *dir; /* asked for early: setenv has a lock */
static bool busy = true; /* until the ranges are known, and in a copy */

static int note_range(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const through[] = { "/libc.so", "libjansson", "libsmartcols",
                                           "libyaml" };
    bool *first = arg, leads = *first;

    (void)size;
    for (size_t i = 0; i < sizeof(through) / sizeof(*through); i++)
        leads = leads || strstr(info->dlpi_name, through[i]);
    for (int i = 0; leads && i < info->dlpi_phnum; i++)
        if ((info->dlpi_phdr[i].p_flags & PF_X) && range_count < RANGES) {
            struct range *r = &ranges[range_count++];

            r->from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            r->to = r->from + info->dlpi_phdr[i].p_memsz;
            r->own = *first;
        }
    *first = false;
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *program = getenv("NOMEM_PROGRAM");
    bool first = true;
    void *frame[1];

    at_place = getenv("NOMEM_AT");
    count_file = getenv("NOMEM_COUNT");
    dir = getenv("NOMEM_DIR");
    print_table = (uintptr_t)dlsym(RTLD_DEFAULT, "scols_print_table");
    began = getpid();
    if (!program || strcmp(program, program_invocation_short_name) != 0)
        return;
    dl_iterate_phdr(note_range, &first);
    backtrace(frame, 1); /* loads what it needs */
    busy = false;
}

/* The number of a new place; 0: an old one, or one of another library. */
static int new_place(void)
{
    void *frame[FRAMES];
    const int n = backtrace(frame, FRAMES);
    uint64_t place = 14695981039346656037u;
    int own = 0;

    for (int i = 2; i < n && own < 2; i++) { /* behind this and the allocator */
        const uintptr_t at = (uintptr_t)frame[i];
        const struct range *in = NULL;

        for (int k = 0; k < range_count && !in; k++)
            if (at >= ranges[k].from && at < ranges[k].to)
                in = &ranges[k];
        if (!in || (print_table && at - print_table < 4096))
            return 0;
        own += in->own;
        place = (place ^ at) * 1099511628211u;
    }
    for (int i = 0; i < places; i++)
        if (seen[i] == place)
            return 0;
    if (own == 0 || places == PLACES)
        return 0;
    seen[places++] = place;
    return places;
}

/* A file of this place, open for writing. */
static int file_of(int place, const char *ending)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%d.%s", dir, place, ending);
    return open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

/* From now on what goes to fd goes to a file of this place, behind what fd has already. */
static void turn(int fd, int place, const char *ending)
{
    const int file = file_of(place, ending);
    char buf[4096], link[32];
    ssize_t n;
    int from;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    from = open(link, O_RDONLY);
    while (from >= 0 && (n = read(from, buf, sizeof(buf))) > 0)
        if (write(file, buf, (size_t)n) != n)
            abort();
    close(from);
    dup2(file, fd);
    close(file);
}

/* In the copy: true, without memory. In the program: false, once the copy has ended. */
static bool copy_fails(int place)
{
    const pid_t child = fork();
    int status, file;
    char text[16];

    if (child == 0) {
        turn(STDOUT_FILENO, place, "out");
        turn(STDERR_FILENO, place, "err");
        return true;
    }
    if (waitpid(child, &status, 0) != child)
        abort();
    status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    file = file_of(place, "rc");
    if (write(file, text, (size_t)snprintf(text, sizeof(text), "%d\n", status)) < 0)
        abort();
    close(file);
    return false;
}

static bool fails(void)
{
    bool answer = false;
    int place;

    if (busy || getpid() != began)
        return false;
    busy = true;
    place = new_place();
    if (place && at_place)
        answer = place == atoi(at_place);
    else if (place && count_file) {
        const int file = open(count_file, O_WRONLY | O_CREAT | O_APPEND, 0600);

        if (write(file, ".", 1) != 1)
            abort();
        close(file);
    } else if (place && dir) {
        answer = copy_fails(place);
    }
    busy = answer; /* once is enough */
    errno = answer ? ENOMEM : errno;
    return answer;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    return fails() ? NULL : __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
