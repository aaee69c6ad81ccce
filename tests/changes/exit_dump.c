/* SPDX-License-Identifier: Apache-2.0
 *
 * In programs that gcov watches, _exit writes the counts first, as exit does: ranks that
 * were forked end by _exit. Linked with --wrap=_exit.
 */
void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
