/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap/: a single process, refusals, numbering of nodes, and the forked world that
 * other unit tests stand on. PMIx itself is tested under srun and mpirun (tests/t).
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/boot_impl.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

static void clear_env(void)
{
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMIX_RANK");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
}

static void test_single(void)
{
    struct boot b;
    struct boot_blobs all;
    accel_error_t err;
    char big[8] = "seven";

    clear_env();
    tap_is_int(boot_open(&b, 1000, &err), ACCEL_OK, "single process opens");
    tap_ok(b.rank == 0 && b.size == 1 && b.nodes == 1 && b.local_size == 1 &&
               b.node_of[0] == 0 && b.job[0] && b.host[0],
           "rank 0 of 1 on one node, job and host named");
    tap_is_str(b.method, "single", "method");
    tap_is_int(boot_exchange(&b, big, 6, &all, &err), ACCEL_OK, "exchange with itself");
    tap_ok(all.count == 1 && all.bytes[0] == 6 && !strcmp(all.data[0], "seven"),
           "gets its own blob");
    boot_blobs_free(&all);
    tap_is_int(boot_exchange(&b, NULL, BOOT_BLOB_MAX + 1, &all, &err), ACCEL_EINVAL,
               "a blob over the cap is refused");
    tap_is_int(boot_leave(&b, &err), ACCEL_OK, "leave");
    tap_is_int(b.size, 1, "fields stay valid after leave");
    boot_free(&b);
}

static void test_lost_tasks(void)
{
    static const char *const names[] = { "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                                         "PMI_SIZE" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(names); i++) {
        struct boot b;
        accel_error_t err;

        clear_env();
        setenv(names[i], "4", 1);
        tap_is_int(boot_open(&b, 1000, &err), ACCEL_EUNAVAIL, "%s=4 without PMIx",
                   names[i]);
        tap_ok(strstr(err.text, names[i]) && strcasestr(err.hint, "pmix"),
               "names the variable and the cure: %s", err.text);
        setenv(names[i], "2", 1);
        tap_is_int(boot_open(&b, 1000, &err), ACCEL_EUNAVAIL, "%s=2, too", names[i]);
        setenv(names[i], "1", 1);
        tap_is_int(boot_open(&b, 1000, &err), ACCEL_OK, "%s=1 is a single process",
                   names[i]);
        boot_free(&b);
    }
    clear_env();
}

#ifdef HAVE_PMIX
/* A server that takes the connection and never says a word: PMIx_Init hangs for ever,
 * the deadline does not. In a process of its own, because the helper thread stays
 * behind. */
static int silent_server(struct boot *unused, void *arg)
{
    static const char *const uris[] = { "PMIX_SERVER_URI2", "PMIX_SERVER_URI21",
                                        "PMIX_SERVER_URI3", "PMIX_SERVER_URI4",
                                        "PMIX_SERVER_URI41" };
    struct sockaddr_in at = { .sin_family = AF_INET };
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof(at);
    accel_error_t err = { 0 };
    struct boot b;
    char uri[64];

    (void)unused;
    (void)arg;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, len) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0)
        return 2;
    snprintf(uri, sizeof(uri), "silent.0;tcp4://127.0.0.1:%d", ntohs(at.sin_port));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(uris); i++)
        setenv(uris[i], uri, 1);
    setenv("PMIX_NAMESPACE", "silent", 1);
    setenv("PMIX_RANK", "0", 1);
    if (boot_open(&b, 1500, &err) != ACCEL_EPEER)
        return 3;
    if (!strstr(err.text, "PMIx_Init did not return before the bootstrap deadline"))
        return 4;
    _exit(0);
}
#endif

/* A namespace that no server answers for must end in an error, in time. */
static void test_no_server(void)
{
    struct boot b;
    accel_error_t err = { 0 };
    int64_t start = clock_ns();

    setenv("PMIX_NAMESPACE", "nobody", 1);
    setenv("PMIX_RANK", "0", 1);
    tap_ok(boot_open(&b, 3000, &err) != ACCEL_OK, "no server behind the namespace");
    tap_ok(strstr(err.text, "PMIx") != NULL, "says so: %s", err.text);
    tap_ok(clock_ns() - start < 60000000000, "and comes back");
    clear_env();
#ifdef HAVE_PMIX
    tap_is_int(fork_world(1, silent_server, NULL, 240), 0,
               "a silent server ends in time");
#endif
}

static void test_numbering(void)
{
    struct boot b = { .rank = 3, .size = 6 };
    static const int raw[6] = { 7, 2, 7, 2, 9, 2 }, node[6] = { 0, 1, 0, 1, 2, 1 },
                     local[6] = { 0, 0, 1, 1, 0, 2 };

    tap_is_int(boot_alloc_ranks(&b, NULL), ACCEL_OK, "rank tables");
    memcpy(b.node_of, raw, sizeof(raw));
    tap_is_int(boot_number_nodes(&b, NULL), ACCEL_OK, "numbering");
    tap_ok(!memcmp(b.node_of, node, sizeof(node)), "nodes by first appearance");
    tap_ok(!memcmp(b.local_rank_of, local, sizeof(local)), "local ranks in rank order");
    tap_ok(b.nodes == 3 && b.node == 1 && b.local_rank == 1 && b.local_size == 3,
           "this rank's place");
    boot_free(&b);
}

static int exchange_twice(struct boot *b, void *arg)
{
    struct boot_blobs all;

    (void)arg;
    for (int round = 0; round < 3; round++) {
        char mine[64] = { 0 };
        size_t bytes = (size_t)(b->rank + round) % 5 * 10;

        memset(mine, 'a' + b->rank, sizeof(mine));
        if (boot_exchange(b, mine, bytes, &all, NULL) != ACCEL_OK)
            return 1;
        for (int r = 0; r < b->size; r++) {
            if (all.bytes[r] != (size_t)(r + round) % 5 * 10)
                return 2;
            for (size_t i = 0; i < all.bytes[r]; i++)
                if (((char *)all.data[r])[i] != 'a' + r)
                    return 3;
        }
        boot_blobs_free(&all);
    }
    return b->nodes == 2 && b->local_size == 2 ? 0 : 4;
}

static int rank_one_hangs(struct boot *b, void *arg)
{
    (void)arg;
    while (b->rank == 1)
        pause();
    return 0;
}

static void test_fork_world(void)
{
    int status[4];

    tap_is_int(fork_world_nodes(4, 2, exchange_twice, NULL, HANG_S, status), 0,
               "forked world of 4 ranks on 2 nodes exchanges");
    tap_is_int(fork_world(2, rank_one_hangs, NULL, 1), 137, "a hanging rank is killed");
}

/* Rank 1 is slow to print; the others may end only after it. */
static int speak_late(struct boot *b, void *arg)
{
    int *said = arg;

    boot_end_after_speaker(b, b->rank == 1);
    if (b->rank == 1) {
        poll(NULL, 0, 100);
        *said = 1;
        return 0;
    }
    return *said ? 0 : 1;
}

static void test_speaker(void)
{
    tap_is_int(fork_world(3, speak_late, fork_shared(sizeof(int)), HANG_S), 0,
               "ranks without a message end after the one that prints it");
}

int main(void)
{
    test_single();
    test_lost_tasks();
    test_no_server();
    test_numbering();
    test_fork_world();
    test_speaker();
    return tap_done();
}
