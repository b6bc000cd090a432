/* relay LISTEN_PORT TARGET_PORT: copies bytes both ways and looks at none of them. The floor of what a hop costs.
 *
 * One thread, epoll, one buffer of 1 MiB for all connections, as in the gateway: read as much as there is, send it at
 * once. What the peer does not take is kept, and its source not read, until it does. */
#define _GNU_SOURCE
#include "kafka.h"
#include "net.h"

enum { BUFFER = 1 << 20 };

struct side {
    int fd;
    bool up;
    uint32_t events;
    struct side *peer;
    uint8_t *kept; /* for this side to take */
    size_t kept_size, kept_sent;
    bool ended; /* part of a pair that is to be freed after this turn of the loop */
    struct side *next_ended;
};

static uint8_t buffer[BUFFER];
static int epoll;
static struct side *ended;

static struct side *new_side(int fd, bool up) {
    struct side *side = must(calloc(1, sizeof *side));
    *side = (struct side){.fd = fd, .up = up};
    return side;
}

static void refresh(struct side *side) {
    bool peer_is_full = side->peer->kept_size > 0 || !side->peer->up;
    bool has_to_write = side->kept_size > 0 || !side->up;
    uint32_t events = (peer_is_full ? 0 : EPOLLIN) | (has_to_write ? EPOLLOUT : 0);
    if (events != side->events) rewatch(epoll, side->fd, events, side);
    side->events = events;
}

static void end_side(struct side *side) {
    close(side->fd);
    side->ended = true;
    side->next_ended = ended;
    ended = side;
}

static void end_pair(struct side *side) {
    if (side->ended) return;
    end_side(side->peer);
    end_side(side);
}

static void free_ended(void) {
    while (ended) {
        struct side *side = ended;
        ended = side->next_ended;
        free(side->kept);
        free(side);
    }
}

static void arrive(int listener, int target_port) {
    for (int fd = accept_from(listener); fd >= 0; fd = accept_from(listener)) {
        struct side *client = new_side(fd, true), *broker = new_side(connect_to(target_port), false);
        client->peer = broker;
        broker->peer = client;
        broker->events = EPOLLOUT;
        watch(epoll, broker->fd, broker->events, broker);
        watch(epoll, client->fd, 0, client);
    }
}

static void copy_from(struct side *side) {
    struct side *peer = side->peer;
    ssize_t got = recv(side->fd, buffer, sizeof buffer, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return end_pair(side);
    if (got < 0) return;
    ssize_t sent = send(peer->fd, buffer, (size_t)got, 0);
    if (sent < 0 && errno != EAGAIN) return end_pair(side);
    if (sent < 0) sent = 0;
    if (sent == got) return;
    peer->kept_size = (size_t)(got - sent);
    peer->kept_sent = 0;
    peer->kept = must(realloc(peer->kept, peer->kept_size));
    memcpy(peer->kept, buffer + sent, peer->kept_size);
    refresh(peer);
    refresh(side);
}

static void send_kept(struct side *side) {
    if (!side->up) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(side->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) return end_pair(side);
        side->up = true;
    }
    while (side->kept_size > 0) {
        ssize_t sent = send(side->fd, side->kept + side->kept_sent, side->kept_size, 0);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) return end_pair(side);
        side->kept_sent += (size_t)sent;
        side->kept_size -= (size_t)sent;
    }
    free(side->kept);
    side->kept = NULL;
    refresh(side);
    refresh(side->peer);
}

int main(int count, char **words) {
    if (count != 3) return fputs("usage: relay LISTEN_PORT TARGET_PORT\n", stderr), 2;
    settle_in(-1);
    int listener = listen_at(atoi(words[1])), target_port = atoi(words[2]);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, listener, EPOLLIN, NULL);
    for (struct epoll_event events[EVENTS];;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct side *side = events[i].data.ptr;
            if (side == NULL) {
                arrive(listener, target_port);
                continue;
            }
            if (!side->ended && events[i].events & EPOLLOUT) send_kept(side);
            if (!side->ended && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) copy_from(side);
        }
        free_ended();
    }
}
