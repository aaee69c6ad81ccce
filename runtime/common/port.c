/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports for a rendezvous: claims by abstract socket, and a look at who listens. Leaves
 * nothing in any file system, and no claim outlives its holder.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/port.h"

enum { TRIES = 2048, PROBE_MS = 200 }; /* ports to try; wait for a host's answer */

/* Near the golden ratio of PORT_COUNT, so consecutive jobs start far apart: the first d
 * multiples are at least PORT_COUNT / 3d apart. */
static const unsigned stride = 8918;

/* The host on which the port will be opened. */
struct target {

    struct sockaddr_storage addr;
    socklen_t len;
    char text[128]; /* its address in numbers; the name as given if unknown */
    bool known;     /* addr is valid */
    bool local;     /* it is this host */
    bool silent;    /* it does not answer: no further probes */
};

unsigned port_first_choice(uint32_t job, uint32_t step)
{
    return (unsigned)(((uint64_t)job * stride + step) % PORT_COUNT);
}

/* A socket that holds the abstract name, or -1 with errno; EADDRINUSE:
 * somebody else holds it. The leading NUL makes it abstract: no file, and gone
 * with its last descriptor. */
static int claim_name(const char *name, int flags)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    int fd;

    if (n > sizeof(a.sun_path) - 1)
        n = sizeof(a.sun_path) - 1;
    memcpy(a.sun_path + 1, name, n);
    fd = socket(AF_UNIX, SOCK_DGRAM | flags, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n))) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* The claim of a first rank. Per network namespace, as the port itself is. */
static void task_name(unsigned port, char *buf, size_t len)
{
    snprintf(buf, len, "accel-rank0-%u", port);
}

static void set_port(struct sockaddr_storage *a, unsigned port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

/* Resolves the host. An unknown name is no error here: the port can still be claimed,
 * only not probed. */
static void find_target(const char *host, struct target *target_out)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    int fd;

    memset(target_out, 0, sizeof(*target_out));
    snprintf(target_out->text, sizeof(target_out->text), "%s", host);
    if (getaddrinfo(host, NULL, &hints, &list) || !list)
        return;
    memcpy(&target_out->addr, list->ai_addr, list->ai_addrlen);
    target_out->len = list->ai_addrlen;
    target_out->known = true;
    getnameinfo(list->ai_addr, list->ai_addrlen, target_out->text,
                sizeof(target_out->text), NULL, 0, NI_NUMERICHOST);
    /* An address that can be bound belongs to this host. */
    fd = socket(target_out->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        target_out->local =
            bind(fd, (struct sockaddr *)&target_out->addr, target_out->len) == 0;
        close(fd);
    }
    freeaddrinfo(list);
}

/* Could a server on this host bind the port? Tries both families at once if there are
 * both, as a server would; without SO_REUSEADDR, because not every server sets it and
 * the connections of an ended one linger for a minute. */
static bool can_bind(unsigned port)
{
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in a4 = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port) };
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool six = fd >= 0, good;

    if (!six)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    if (six)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    good = bind(fd, six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4,
                six ? sizeof(a6) : sizeof(a4)) == 0;
    close(fd);
    return good;
}

/* Does nobody listen on the port of a remote host, or can that not be seen from here? A
 * host that does not answer in time (a firewall) is not asked again. */
static bool is_quiet(struct target *t, unsigned port)
{
    struct pollfd p = { .events = POLLOUT };
    int error = 0;
    socklen_t len = sizeof(error);

    if (!t->known || t->silent)
        return true;
    p.fd = socket(t->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p.fd < 0)
        return true;
    set_port(&t->addr, port);
    if (connect(p.fd, (struct sockaddr *)&t->addr, t->len) && errno != EINPROGRESS)
        error = errno;
    else if (poll(&p, 1, PROBE_MS) != 1)
        error = ETIMEDOUT;
    else
        getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    close(p.fd);
    t->silent = error == ETIMEDOUT;
    return error != 0;
}

/* Here: it can be bound and, with names, no first rank holds it. Elsewhere: nobody
 * listens. */
static bool is_free(struct target *t, unsigned port, bool named)
{
    char name[64];
    int fd;

    if (!t->local)
        return is_quiet(t, port);
    task_name(port, name, sizeof(name));
    fd = named ? claim_name(name, SOCK_CLOEXEC) : -1;
    if (fd < 0 && named)
        return false;
    if (fd >= 0)
        close(fd);
    return can_bind(port);
}

accel_status_t port_claim(const char *host, uint32_t job, uint32_t step,
                          unsigned *port_out, int *claim_out, accel_error_t *err)
{
    unsigned at = port_first_choice(job, step);
    struct target t;
    char name[108];

    find_target(host, &t);
    /* Names cost nothing, and any user may hold all of them: the second round asks only
     * whether the port itself is in use. */
    for (unsigned i = 0; i < 2 * TRIES; i++) {
        const bool named = i < TRIES;
        unsigned port = PORT_FIRST + (at + i % TRIES * stride) % PORT_COUNT;
        int fd;

        snprintf(name, sizeof(name), "accel-launch-%.80s-%u", t.text, port);
        fd = named ? claim_name(name, SOCK_CLOEXEC) : -1;
        if (named && fd < 0 && errno != EADDRINUSE)
            return accel_fail(err, A0321, "raise the limit of open files (ulimit -n)",
                              "cannot claim a port on %s: %s", host, strerror(errno));
        if ((fd >= 0 || !named) && is_free(&t, port, named)) {
            *port_out = port;
            *claim_out = fd;
            return ACCEL_OK;
        }
        port_release(fd);
    }
    return accel_fail(err, A0321, "set MASTER_PORT to a free port",
                      "all of %d ports tried on %s are in use", TRIES, host);
}

/* Without SOCK_CLOEXEC: the claim must outlive exec. Its descriptor is leaked on
 * purpose. Errors other than a taken name count as held: they must not keep a
 * run from starting. */
bool port_hold(unsigned port)
{
    char name[64];

    task_name(port, name, sizeof(name));
    return claim_name(name, 0) >= 0 || errno != EADDRINUSE;
}

void port_release(int claim)
{
    if (claim >= 0)
        close(claim);
}
