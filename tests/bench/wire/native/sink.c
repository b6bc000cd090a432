/* sink PORT ADVERTISED_PORT CORE PARTITIONS RECORDS VALUE_BYTES: a broker that keeps nothing.
 *
 * It is the only node of its cluster, at ADVERTISED_PORT for clients, and leads PARTITIONS partitions of every topic that it is asked for. Produce is
 * read to its end and checked: whole batches, and the right CRC in a connection's first request and in every
 * THOROUGH_EVERY-th. Fetch is answered from a log that is the same for all partitions, has batches of RECORDS records
 * of VALUE_BYTES, and ends at LOG_END: below, an answer has as many whole batches as the partition may bring, at least
 * one in all; who asks from there on waits for as long as he said, and gets nothing. Answers leave in the order of requests.
 *
 * It speaks: ApiVersions 0-4, Metadata 1-12, Produce 3-9, Fetch 4-12. */
#define _GNU_SOURCE
#include "kafka.h"
#include "net.h"

enum {
    THOROUGH_EVERY = 256,
    LOG_BYTES = 2 << 20,
    LOG_END = 1 << 30,
    FIRST_ROOM = 4096,
    MAX_FRAME = 128 << 20,
    MOST_PARTITIONS_OF_FETCH = 10000,
    BROKER_ID = 1,
};

struct client {
    int fd;
    uint8_t *received;
    size_t room, filled;
    struct out answers;
    size_t sent;
    uint64_t requests;
    struct out asked; /* the last Fetch, whose answer of `answered` bytes is still in `answers`, for the next like it */
    size_t answered;
    bool congested, waits, gone;
    int64_t wakes_at; /* end of the long poll, whose answer is in `answers` already */
    struct client *earlier, *later;
};

static int epoll, advertised_port, partitions;
static struct out fetch_log; /* LOG_BYTES and a little more, of whole batches */
static size_t *batch_ends;
static size_t batch_count;
static struct client *first_wake, *last_wake;
static struct client *gone[EVENTS];
static int gone_count;

/* --- long polls: a list in the order in which they end; nearly all wait equally long ------------------------------ */

static void wait_until(struct client *client, int64_t when) {
    struct client *before = last_wake;
    while (before && before->wakes_at > when) before = before->earlier;
    client->waits = true;
    client->wakes_at = when;
    client->earlier = before;
    client->later = before ? before->later : first_wake;
    *(client->later ? &client->later->earlier : &last_wake) = client;
    *(before ? &before->later : &first_wake) = client;
}

static void wait_no_more(struct client *client) {
    *(client->later ? &client->later->earlier : &last_wake) = client->earlier;
    *(client->earlier ? &client->earlier->later : &first_wake) = client->later;
    client->waits = false;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static size_t begin_answer(struct out *out, int32_t correlation_id, bool tagged_header) {
    size_t begin = begin_frame(out);
    put32(out, correlation_id);
    if (tagged_header) put8(out, 0);
    return begin;
}

static void put_text(struct out *out, struct text text) {
    if (out->flexible)
        put_uvarint(out, (uint64_t)text.size + 1);
    else
        put16(out, (int16_t)text.size);
    put_bytes(out, text.at, (size_t)text.size);
}

static void answer_api_versions(struct out *out, int version) {
    static const int16_t spoken[][3] = {{PRODUCE, 3, 9}, {FETCH, 4, 12}, {METADATA, 1, 12}, {API_VERSIONS, 0, 4}};
    const int count = sizeof spoken / sizeof *spoken;
    put16(out, 0);
    put_length(out, count);
    for (int i = 0; i < count; i++) {
        for (int field = 0; field < 3; field++) put16(out, spoken[i][field]);
        put_no_tags(out);
    }
    if (version >= 1) put32(out, 0);
    put_no_tags(out);
}

static void answer_metadata(struct in *in, struct out *out, int version) {
    int32_t topics = get_length(in);
    put32(out, 0);
    if (version < 3) out->size -= 4; /* no throttle time */
    put_length(out, 1);
    put32(out, BROKER_ID);
    put_string(out, "127.0.0.1");
    put32(out, advertised_port);
    put_string(out, NULL); /* rack */
    put_no_tags(out);
    if (version >= 2) put_string(out, "sink");
    put32(out, BROKER_ID);
    put_length(out, topics < 0 ? 0 : topics);
    for (int32_t left = topics; left > 0 && !in->bad; left--) {
        if (version >= 10) take(in, 16);
        struct text name = get_string(in);
        skip_tags(in);
        put16(out, 0);
        put_text(out, name);
        if (version >= 10) {
            uint8_t id[16] = {1};
            for (int32_t i = 0; i < name.size; i++) id[1 + i % 15] ^= (uint8_t)(name.at[i] + i);
            put_bytes(out, id, sizeof id);
        }
        put8(out, 0);
        put_length(out, partitions);
        for (int32_t partition = 0; partition < partitions; partition++) {
            put16(out, 0);
            put32(out, partition);
            put32(out, BROKER_ID);
            if (version >= 7) put32(out, 0);
            for (int list = 0; list < 2; list++) { /* replicas; those in sync */
                put_length(out, 1);
                put32(out, BROKER_ID);
            }
            if (version >= 5) put_length(out, 0);
            put_no_tags(out);
        }
        if (version >= 8) put32(out, INT32_MIN);
        put_no_tags(out);
    }
    if (version >= 8 && version <= 10) put32(out, INT32_MIN);
    put_no_tags(out);
}

static void answer_produce(struct in *in, struct out *out, int version, bool thorough) {
    get_string(in); /* transactional id */
    get16(in);      /* acks */
    get32(in);      /* time-out */
    int32_t topics = get_length(in);
    put_length(out, topics);
    for (; topics > 0 && !in->bad; topics--) {
        put_text(out, get_string(in));
        int32_t count = get_length(in);
        put_length(out, count);
        for (; count > 0 && !in->bad; count--) {
            int32_t partition = get32(in), size = get_length(in);
            const uint8_t *records = take(in, size);
            skip_tags(in);
            bool whole = !in->bad && size > 0 && are_batches(records, (size_t)size, thorough);
            put32(out, partition);
            put16(out, partition >= partitions ? UNKNOWN_TOPIC : whole ? NO_FAULT : CORRUPT_MESSAGE);
            put64(out, 0);
            put64(out, -1);
            if (version >= 5) put64(out, 0);
            if (version >= 8) {
                put_length(out, 0);
                put_string(out, NULL);
            }
            put_no_tags(out);
        }
        skip_tags(in);
        put_no_tags(out);
    }
    put32(out, 0);
    put_no_tags(out);
}

/* How much of the log a partition brings; the first one brings a batch at least, as on any broker. */
static size_t portion(int64_t offset, int64_t max_bytes, bool first) {
    if (offset >= LOG_END || (!first && max_bytes < (int64_t)batch_ends[0])) return 0;
    size_t low = 0, high = batch_count - 1;
    while (low < high) { /* the last batch that ends within the bound */
        size_t middle = (low + high + 1) / 2;
        if ((int64_t)batch_ends[middle] <= max_bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return batch_ends[low];
}

/* Gives how long the client wants to wait, if there is nothing for it. */
static int32_t answer_fetch(struct in *in, struct out *out, int version) {
    size_t brought = 0;
    get32(in); /* replica */
    int32_t max_wait_ms = get32(in);
    get32(in); /* minimum */
    int64_t room = get32(in);
    get8(in); /* isolation */
    if (version >= 7) take(in, 8);
    put32(out, 0);
    if (version >= 7) {
        put16(out, 0);
        put32(out, 0); /* no session */
    }
    int32_t topics = get_length(in);
    put_length(out, topics);
    for (; topics > 0 && !in->bad; topics--) {
        put_text(out, get_string(in));
        int32_t count = get_length(in);
        put_length(out, count);
        for (; count > 0 && !in->bad; count--) {
            int32_t partition = get32(in);
            if (version >= 9) get32(in); /* leader epoch */
            int64_t offset = get64(in);
            if (version >= 12) get32(in); /* last fetched epoch */
            if (version >= 5) get64(in);  /* log start */
            int64_t max_bytes = get32(in);
            skip_tags(in);
            size_t size = portion(offset, max_bytes < room ? max_bytes : room, brought == 0);
            put32(out, partition);
            put16(out, partition >= partitions ? UNKNOWN_TOPIC : NO_FAULT);
            put64(out, LOG_END);
            put64(out, LOG_END);
            if (version >= 5) put64(out, 0);
            put_length(out, -1);                  /* aborted transactions */
            if (version >= 11) put32(out, -1);    /* nearer replica */
            put_length(out, (int32_t)size);
            put_bytes(out, fetch_log.data, size);
            put_no_tags(out);
            brought += size;
            room -= (int64_t)size;
        }
        skip_tags(in);
        put_no_tags(out);
    }
    put_no_tags(out);
    return brought > 0 ? 0 : max_wait_ms;
}

enum { ID_AT = 4, AFTER_ID = 8 };

/* The same Fetch again, as readers of the same place send it: no byte of the answer is written anew but its number. */
static bool answer_again(struct client *client, const uint8_t *frame, size_t size) {
    struct out *asked = &client->asked;
    if (client->answered == 0 || client->answers.size > 0 || size != asked->size) return false;
    if (memcmp(frame, asked->data, ID_AT)) return false;
    if (memcmp(frame + AFTER_ID, asked->data + AFTER_ID, size - AFTER_ID)) return false;
    client->answers.size = client->answered;
    memcpy(client->answers.data + 4, frame + ID_AT, 4);
    return true;
}

/* False: this is no request that we know. */
static bool answer(struct client *client, const uint8_t *frame, size_t size) {
    if (answer_again(client, frame, size)) return true;
    struct in in = {.at = frame, .end = frame + size};
    struct out *out = &client->answers;
    int16_t key = get16(&in), version = get16(&in);
    int32_t correlation_id = get32(&in), wait_ms = 0;
    get_string(&in); /* client id, never in the flexible form */
    bool flexible = version >= (key == API_VERSIONS ? 3 : key == FETCH ? 12 : 9);
    in.flexible = out->flexible = flexible;
    skip_tags(&in);
    size_t begin = begin_answer(out, correlation_id, flexible && key != API_VERSIONS);
    switch (key) {
    case PRODUCE: answer_produce(&in, out, version, client->requests++ % THOROUGH_EVERY == 0); break;
    case FETCH: wait_ms = answer_fetch(&in, out, version); break;
    case METADATA: answer_metadata(&in, out, version); break;
    case API_VERSIONS: answer_api_versions(out, version); break;
    default: in.bad = true;
    }
    if (in.bad) fprintf(stderr, "sink: request of key %d, version %d can't be read\n", key, version);
    end_frame(out, begin);
    client->answered = key == FETCH && wait_ms == 0 && begin == 4 ? out->size : 0;
    if (client->answered > 0) {
        client->asked.size = 0;
        put_bytes(&client->asked, frame, size);
    }
    if (wait_ms > 0) wait_until(client, now_ns() + (int64_t)wait_ms * 1000000);
    return !in.bad;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static void leave(struct client *client) {
    if (client->gone) return;
    if (client->waits) wait_no_more(client);
    close(client->fd);
    client->gone = true;
    gone[gone_count++] = client;
}

static void flush(struct client *client) {
    while (client->sent < client->answers.size) {
        size_t left = client->answers.size - client->sent;
        ssize_t sent = send(client->fd, client->answers.data + client->sent, left, 0);
        if (sent < 0 && errno != EAGAIN) return leave(client);
        if (sent < 0) {
            if (!client->congested) rewatch(epoll, client->fd, EPOLLOUT, client);
            client->congested = true;
            return;
        }
        client->sent += (size_t)sent;
    }
    client->answers.size = client->sent = 0;
    if (client->congested) rewatch(epoll, client->fd, EPOLLIN, client);
    client->congested = false;
}

/* Answer what has come in whole; what waits for a long poll stays where it is. */
static void serve(struct client *client) {
    size_t at = 0;
    while (!client->waits && client->filled - at >= 4) {
        size_t size = load_number(client->received + at, 4);
        if (size > MAX_FRAME) return leave(client);
        if (client->filled - at < size + 4) {
            if (client->room < size + 4) {
                client->room = size + 4 + FIRST_ROOM;
                client->received = must(realloc(client->received, client->room));
            }
            break;
        }
        if (!answer(client, client->received + at + 4, size)) return leave(client);
        at += size + 4;
    }
    client->filled -= at;
    memmove(client->received, client->received + at, client->filled);
    if (!client->waits) flush(client);
}

static void receive(struct client *client) {
    if (client->filled == client->room) {
        client->room *= 2;
        client->received = must(realloc(client->received, client->room));
    }
    ssize_t got = recv(client->fd, client->received + client->filled, client->room - client->filled, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return leave(client);
    if (got > 0) client->filled += (size_t)got;
    serve(client);
}

static void arrive(int listener) {
    for (int fd = accept_from(listener); fd >= 0; fd = accept_from(listener)) {
        struct client *client = must(calloc(1, sizeof *client));
        client->fd = fd;
        client->room = FIRST_ROOM;
        client->received = must(malloc(client->room));
        watch(epoll, fd, EPOLLIN, client);
    }
}

static int wake_sleepers(void) {
    int64_t now = now_ns();
    while (first_wake && first_wake->wakes_at <= now) {
        struct client *client = first_wake;
        wait_no_more(client);
        serve(client);
        if (gone_count == EVENTS) return 0;
    }
    return first_wake ? (int)((first_wake->wakes_at - now) / 1000000) + 1 : -1;
}

static void make_log(int records, int value_bytes) {
    int64_t offset = 0;
    while (fetch_log.size < LOG_BYTES) {
        put_batch(&fetch_log, offset, records, value_bytes);
        offset += records;
        batch_ends = must(realloc(batch_ends, (batch_count + 1) * sizeof *batch_ends));
        batch_ends[batch_count++] = fetch_log.size;
    }
}

static void free_gone(void) {
    while (gone_count > 0) {
        struct client *client = gone[--gone_count];
        free(client->received);
        free(client->answers.data);
        free(client->asked.data);
        free(client);
    }
}

int main(int count, char **words) {
    if (count != 7) return fputs("usage: sink PORT ADVERTISED_PORT CORE PARTITIONS RECORDS VALUE_BYTES\n", stderr), 2;
    advertised_port = atoi(words[2]);
    partitions = atoi(words[4]);
    settle_in(atoi(words[3]));
    make_log(atoi(words[5]), atoi(words[6]));
    int listener = listen_at(atoi(words[1]));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, listener, EPOLLIN, NULL);
    for (struct epoll_event events[EVENTS];;) {
        int timeout_ms = wake_sleepers();
        free_gone();
        int ready = epoll_wait(epoll, events, EVENTS, timeout_ms);
        for (int i = 0; i < ready; i++) {
            struct client *client = events[i].data.ptr;
            if (client == NULL)
                arrive(listener);
            else if (!client->gone && events[i].events & EPOLLOUT)
                flush(client);
            else if (!client->gone)
                receive(client);
        }
        free_gone();
    }
}
