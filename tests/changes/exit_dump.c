/* SPDX-License-Identifier: Apache-2.0
 *
 * In programs that gcov watches, _exit writes the counts first, as exit does: ranks that
 * were forked end by _exit. A child that confines itself may write files for that. Linked
 * with --wrap=_exit,--wrap=setrlimit.
 */
#include <sys/resource.h>

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
int __real_setrlimit(int what, const struct rlimit *to);
int __wrap_setrlimit(int what, const struct rlimit *to);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

int __wrap_setrlimit(int what, const struct rlimit *to)
{
    return what == RLIMIT_FSIZE && to->rlim_max == 0 ? 0 : __real_setrlimit(what, to);
}
