/* Sockets and the clock, as all three programs use them: loopback, non-blocking, one thread, epoll. */
#ifndef NET_H
#define NET_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 4096, EVENTS = 512 };

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* As many open files as the system allows; no signal for a peer that is gone. */
static inline void settle_in(int core) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    signal(SIGPIPE, SIG_IGN);
    if (core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        if (sched_setaffinity(0, sizeof set, &set) < 0) die("sched_setaffinity");
    }
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline void without_delay(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static inline int stream_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    without_delay(fd);
    return fd;
}

static inline int listen_at(int port) {
    int fd = stream_socket(), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = loopback(port);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) die("bind");
    if (listen(fd, BACKLOG) < 0) die("listen");
    return fd;
}

/* The next connection that waits, or -1. */
static inline int accept_from(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) without_delay(fd);
    return fd;
}

static inline int connect_to(int port) {
    int fd = stream_socket();
    struct sockaddr_in address = loopback(port);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) die("connect");
    return fd;
}

static inline void watch(int epoll, int fd, uint32_t events, void *owner) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

static inline void rewatch(int epoll, int fd, uint32_t events, void *owner) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) < 0) die("epoll_ctl");
}

#endif
