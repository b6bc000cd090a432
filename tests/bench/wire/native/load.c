/* load: asks as fast as answers come, or at a fixed rate, checks every answer, and tells what it took.
 *
 * Theory of operation
 * 1. Each connection has a ring of `in-flight` copies of its one request, in one piece of memory. A copy that is
 *    answered gets a new correlation id and goes out again; neighbours leave in one send.
 * 2. Connections open a few at a time, ask for ApiVersions as clients do, and have one request answered: by then all
 *    that stands behind them is open too. Then they begin together.
 * 3. With --rate each request has a time at which it is meant to leave: the k-th of all at begin + k / rate, the
 *    connections in turn. Latency counts from there, however late it left: who is not asked because he has not yet
 *    answered is as late as he would have been (no coordinated omission). Without a rate, a request is meant to leave
 *    when its place in the ring becomes free.
 * 4. Rates and CPU are those of the window after the warm-up; latencies those of the requests that were meant to leave
 *    within it, whose answers are waited for. CPU is what the kernel has counted for each --count'ed process, and for
 *    the machine as a whole.
 * 5. Every answer is read field by field. The first that is wrong ends the run: it would be the rate of something else.
 * 6. The result is one line of JSON. */
#define _GNU_SOURCE
#include <sys/timerfd.h>

#include "counters.h"
#include "kafka.h"
#include "latencies.h"
#include "net.h"
#include "plan.h"

enum { OPENING_AT_ONCE = 128, FIRST_ROOM = 2048, THOROUGH_EVERY = 256, CUT = 200 };
static const double ANSWERED_WITHIN_S = 60;

struct connection {
    int fd, number;
    bool up, greeted, congested;
    uint8_t *ring; /* in_flight copies of the request */
    size_t ring_at, to_send;
    int64_t *meant_at; /* of each copy */
    int32_t next_id, answered_id;
    int64_t answered_in_window;
    int64_t turns; /* requests since all began that have left, or lie ready to */
    uint8_t *received;
    size_t room, filled;
};

static struct connection *all;
static int epoll, timer;
static int ready_count, opened;
static size_t request_size, wait_at;
static int64_t began, window_from, window_to;
static int64_t next_due; /* number of the request that is meant to leave next */
static int64_t awaited;  /* requests of the window that are not answered */

static void wrong(struct connection *from, const char *what, int64_t number) {
    char why[CUT];
    snprintf(why, sizeof why, "connection %d, request %d: %s %ld", from->number, from->answered_id, what, (long)number);
    fail(why);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static struct {
    int64_t requests, out_bytes, in_bytes;
    struct latencies latencies;
} told;

struct counters {
    int64_t at_ns, used_ns[MOST_COUNTED], own_ns, busy_ns, kib[MOST_COUNTED];
};

static struct counters count_all(void) {
    struct timespec own;
    struct counters counters = {.at_ns = now_ns(), .busy_ns = machine_ns()};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    counters.own_ns = own.tv_sec * NS_PER_S + own.tv_nsec;
    for (int i = 0; i < plan.counts; i++) {
        counters.used_ns[i] = used_ns(plan.counted[i].pid);
        counters.kib[i] = resident_kib(plan.counted[i].pid);
    }
    return counters;
}

static struct counters before_all, at_window, at_end;

static void print_result(void) {
    const struct latencies *all_of_it = &told.latencies;
    double seconds = (double)(at_end.at_ns - at_window.at_ns) / 1e9;
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"out_bytes\": %ld, \"in_bytes\": %ld", seconds, (long)told.requests,
           (long)told.out_bytes, (long)told.in_bytes);
    printf(", \"latency_us\": {\"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, "
           "\"max\": %.1f}",
           mean_us(all_of_it), percentile_us(all_of_it, 0.5), percentile_us(all_of_it, 0.9),
           percentile_us(all_of_it, 0.99), percentile_us(all_of_it, 0.999), (double)all_of_it->greatest_ns / 1000);
    int64_t fewest = INT64_MAX;
    for (int i = 0; i < plan.connections; i++)
        if (all[i].answered_in_window < fewest) fewest = all[i].answered_in_window;
    printf(", \"fewest_of_a_connection\": %ld", (long)fewest);
    printf(", \"busy_s\": %.3f, \"own_s\": %.6f, \"counted\": {", (double)(at_end.busy_ns - at_window.busy_ns) / 1e9,
           (double)(at_end.own_ns - at_window.own_ns) / 1e9);
    for (int i = 0; i < plan.counts; i++) {
        printf("%s", i ? ", " : "");
        print_text(plan.counted[i].name);
        printf(": {\"cpu_s\": %.6f, \"kib_before\": %ld, \"kib\": %ld}",
               (double)(at_end.used_ns[i] - at_window.used_ns[i]) / 1e9, (long)before_all.kib[i], (long)at_end.kib[i]);
    }
    printf("}}\n");
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static void make_ring(struct connection *connection) {
    struct out request = {0};
    size_t begin = begin_frame(&request);
    if (plan.kind == PRODUCES)
        put_produce(&request, first_partition(connection->number));
    else
        put_fetch(&request, first_partition(connection->number), &wait_at);
    end_frame(&request, begin);
    request_size = request.size;
    connection->ring = must(malloc(request.size * (size_t)plan.in_flight));
    for (int i = 0; i < plan.in_flight; i++)
        memcpy(connection->ring + (size_t)i * request.size, request.data, request.size);
    connection->meant_at = must(calloc((size_t)plan.in_flight, sizeof(int64_t)));
    free(request.data);
}

static void push(struct connection *connection) {
    size_t ring_size = request_size * (size_t)plan.in_flight;
    while (connection->to_send > 0) {
        size_t piece = ring_size - connection->ring_at;
        if (piece > connection->to_send) piece = connection->to_send;
        ssize_t sent = send(connection->fd, connection->ring + connection->ring_at, piece, 0);
        if (sent < 0 && errno != EAGAIN) wrong(connection, "send failed:", errno);
        if (sent < 0) {
            if (!connection->congested) rewatch(epoll, connection->fd, EPOLLIN | EPOLLOUT, connection);
            connection->congested = true;
            return;
        }
        connection->ring_at = (connection->ring_at + (size_t)sent) % ring_size;
        connection->to_send -= (size_t)sent;
    }
    if (connection->congested) rewatch(epoll, connection->fd, EPOLLIN, connection);
    connection->congested = false;
}

static int64_t meant_at(int64_t number) { return began + (int64_t)((double)number * 1e9 / plan.rate); }

/* Put the next copy in the ring on its way. */
static void ask(struct connection *connection, int64_t meant, int64_t wait_ms) {
    size_t place = (size_t)(connection->next_id % plan.in_flight);
    uint8_t *request = connection->ring + place * request_size;
    connection->next_id++;
    store(request + 8, (uint32_t)connection->next_id, 4);
    if (plan.kind == IDLES) store(request + wait_at, (uint64_t)wait_ms, 4);
    connection->meant_at[place] = meant;
    connection->to_send += request_size;
}

/* Let everything go that has a place in the ring and is due. */
static void pump(struct connection *connection, int64_t now) {
    while (connection->next_id - connection->answered_id < plan.in_flight) {
        int64_t meant = now;
        if (plan.rate > 0) meant = meant_at(connection->turns * plan.connections + connection->number);
        if (meant > now || meant >= window_to) break;
        /* the first waits are shorter, so that the ends of all waits are spread evenly from the first one on */
        int64_t wait_ms = plan.max_wait_ms;
        if (connection->turns++ == 0) wait_ms = wait_ms * (connection->number + 1) / plan.connections;
        ask(connection, meant, wait_ms);
        if (plan.rate == 0 && meant >= window_from && plan.kind != IDLES) awaited++;
    }
    if (!connection->congested) push(connection);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void check_api_versions(struct connection *connection, struct in *in) {
    int16_t key = plan.kind == PRODUCES ? PRODUCE : FETCH, error = get16(in);
    bool spoken = false;
    in->flexible = true;
    for (int32_t left = get_length(in); left > 0 && !in->bad; left--) {
        int16_t found = get16(in), lowest = get16(in), highest = get16(in);
        spoken = spoken || (found == key && lowest <= plan.version && plan.version <= highest);
        skip_tags(in);
    }
    if (error || in->bad || !spoken) wrong(connection, "ApiVersions lacks our version, or its error is", error);
}

static void check_topic(struct connection *connection, struct in *in, int topic) {
    struct text name = get_string(in);
    if (in->bad || !is_text(name, plan.topic[topic])) wrong(connection, "not the topic asked for, number", topic);
    int32_t count = get_length(in);
    if (count != plan.partitions) wrong(connection, "not all partitions, but", count);
}

static void check_partition(struct connection *connection, struct in *in, int place) {
    int expected = first_partition(connection->number) + place;
    int32_t partition = get32(in);
    int16_t error = get16(in);
    if (in->bad || partition != expected) wrong(connection, "not the partition that was asked for, but", partition);
    if (error) wrong(connection, "a partition has error", error);
}

static void check_produced(struct connection *connection, struct in *in) {
    int32_t topics = get_length(in);
    if (topics != plan.topics) wrong(connection, "not all topics, but", topics);
    for (int topic = 0; topic < topics; topic++) {
        check_topic(connection, in, topic);
        for (int i = 0; i < plan.partitions; i++) {
            check_partition(connection, in, i);
            if (get64(in) != 0 && !plan.stored) wrong(connection, "not the sink's offset, partition", i);
            take(in, 16);
            if (plan.version >= 8) {
                int32_t errors = get_length(in);
                if (errors > 0) wrong(connection, "refused records:", errors);
                get_string(in);
            }
            skip_tags(in);
        }
        skip_tags(in);
    }
    get32(in);
    skip_tags(in);
}

static void check_fetched(struct connection *connection, struct in *in) {
    bool thorough = connection->answered_id % THOROUGH_EVERY == 1;
    int64_t brought = 0;
    get32(in);
    int16_t error = get16(in);
    if (error) wrong(connection, "the answer has error", error);
    get32(in);
    int32_t topics = get_length(in);
    if (topics != plan.topics) wrong(connection, "not all topics, but", topics);
    for (int topic = 0; topic < topics; topic++) {
        check_topic(connection, in, topic);
        for (int i = 0; i < plan.partitions; i++) {
            check_partition(connection, in, i);
            take(in, 24); /* marks */
            for (int32_t aborted = get_length(in); aborted > 0 && !in->bad; aborted--) {
                take(in, 16);
                skip_tags(in);
            }
            get32(in); /* nearer replica */
            int32_t size = get_length(in);
            if (size > 0) {
                const uint8_t *records = take(in, size);
                if (in->bad || !are_batches(records, (size_t)size, thorough))
                    wrong(connection, "broken batches, bytes:", size);
                brought += size;
            }
            skip_tags(in);
        }
        skip_tags(in);
    }
    skip_tags(in);
    if (plan.kind == IDLES ? brought > 0 : brought < plan.min_bytes || brought > plan.max_bytes)
        wrong(connection, "bytes of records:", brought);
}

static void greeted(struct connection *connection, struct in *in) {
    check_api_versions(connection, in);
    connection->greeted = true;
    ask(connection, now_ns(), 0);
    push(connection);
}

static void answered(struct connection *connection, struct in *in, size_t frame_size) {
    if (connection->answered_id == connection->next_id)
        wrong(connection, "an answer to nothing, of bytes", (int64_t)frame_size);
    int64_t meant = connection->meant_at[connection->answered_id % plan.in_flight], now = now_ns();
    connection->answered_id++;
    int32_t id = get32(in);
    if (id != connection->answered_id) wrong(connection, "it came with correlation id", id);
    in->flexible = plan.version >= (plan.kind == PRODUCES ? 9 : 12);
    skip_tags(in);
    if (plan.kind == PRODUCES)
        check_produced(connection, in);
    else
        check_fetched(connection, in);
    if (in->bad || in->at != in->end) wrong(connection, "an answer of another form, bytes left:", in->end - in->at);
    if (began == 0) {
        ready_count++;
        return;
    }
    if (now >= window_from && now < window_to) {
        told.requests++;
        connection->answered_in_window++;
        told.out_bytes += (int64_t)request_size;
        told.in_bytes += (int64_t)frame_size;
    }
    if (meant >= window_from && plan.kind != IDLES) {
        note_latency(&told.latencies, now - meant);
        awaited--;
    }
}

static void make_room(struct connection *connection, size_t room) {
    connection->room = room;
    connection->received = must(realloc(connection->received, room));
}

static void receive(struct connection *connection) {
    if (connection->filled == connection->room) make_room(connection, 2 * connection->room);
    uint8_t *free_place = connection->received + connection->filled;
    ssize_t got = recv(connection->fd, free_place, connection->room - connection->filled, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) wrong(connection, "the connection ended:", got < 0 ? errno : 0);
    connection->filled += (size_t)got;
    size_t at = 0;
    while (connection->filled - at >= 4) {
        size_t size = load_number(connection->received + at, 4);
        if (size < 4 || size > (size_t)plan.max_bytes + (1 << 20)) wrong(connection, "an answer of bytes", (long)size);
        if (connection->filled - at < size + 4) {
            if (connection->room < size + 4) make_room(connection, size + 4);
            break;
        }
        struct in in = {.at = connection->received + at + 4, .end = connection->received + at + 4 + size};
        if (connection->greeted) {
            answered(connection, &in, size + 4);
        } else {
            get32(&in);
            greeted(connection, &in);
        }
        at += size + 4;
    }
    connection->filled -= at;
    memmove(connection->received, connection->received + at, connection->filled);
    if (began) pump(connection, now_ns());
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

static void open_next(void) {
    if (opened == plan.connections) return;
    struct connection *connection = &all[opened];
    connection->number = opened++;
    connection->room = FIRST_ROOM;
    connection->received = must(malloc(FIRST_ROOM));
    make_ring(connection);
    connection->fd = connect_to(plan.port);
    connection->congested = true; /* until it is up */
    watch(epoll, connection->fd, EPOLLOUT, connection);
}

static void greet(struct connection *connection) {
    struct out hello = {0};
    size_t begin = begin_frame(&hello);
    put_header(&hello, API_VERSIONS, 3, true);
    put_string(&hello, "wire-bench");
    put_string(&hello, "1");
    put_no_tags(&hello);
    end_frame(&hello, begin);
    ssize_t sent = send(connection->fd, hello.data, hello.size, 0);
    if (sent != (ssize_t)hello.size) wrong(connection, "no connection:", errno);
    free(hello.data);
    connection->up = true;
    connection->congested = false;
    rewatch(epoll, connection->fd, EPOLLIN, connection);
}

static void set_timer(int64_t at_ns) {
    struct itimerspec spec = {.it_value = {at_ns / NS_PER_S, at_ns % NS_PER_S}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void begin_all(void) {
    began = now_ns();
    window_from = began + (int64_t)(plan.warm_up_s * 1e9);
    window_to = window_from + (int64_t)(plan.seconds * 1e9);
    if (plan.rate > 0) /* also those that could not leave yet when the window ends */
        for (int64_t number = 0; meant_at(number) < window_to; number++) awaited += meant_at(number) >= window_from;
    for (int i = 0; i < plan.connections; i++) pump(&all[i], now_ns());
    set_timer(plan.rate > 0 ? meant_at(next_due) : window_from);
}

/* Requests that are due by now leave, as far as their connections have a place; the others when an answer makes one. */
static void tick(void) {
    int64_t now = now_ns();
    if (at_window.at_ns == 0 && now >= window_from) at_window = count_all();
    if (plan.rate > 0)
        for (; meant_at(next_due) <= now && meant_at(next_due) < window_to; next_due++)
            pump(&all[next_due % plan.connections], now);
    if (now >= window_to) {
        at_end = count_all();
        return;
    }
    int64_t next = at_window.at_ns == 0 ? window_from : window_to;
    if (plan.rate > 0 && meant_at(next_due) < next) next = meant_at(next_due);
    set_timer(next);
}

static void run(void) {
    struct epoll_event events[EVENTS];
    int64_t deadline = now_ns() + (int64_t)((ANSWERED_WITHIN_S + plan.connections / 100.0) * 1e9);
    before_all = count_all();
    for (int i = 0; i < OPENING_AT_ONCE; i++) open_next();
    while (!(at_end.at_ns && awaited == 0)) {
        int ready = epoll_wait(epoll, events, EVENTS, 1000);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL) {
                uint64_t expired;
                if (read(timer, &expired, sizeof expired) > 0) tick();
                continue;
            }
            int ready_before = ready_count;
            if (!connection->up)
                greet(connection);
            else if (events[i].events & EPOLLOUT)
                push(connection);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(connection);
            if (ready_count > ready_before) open_next();
            if (began == 0 && ready_count == plan.connections) begin_all();
        }
        int64_t limit = window_to ? window_to + (int64_t)(ANSWERED_WITHIN_S * 1e9) : deadline;
        if (now_ns() > limit) fail(window_to ? "requests of the window are not answered" : "connections are not made");
    }
}

int main(int count, char **words) {
    read_plan(count, words);
    settle_in(plan.core);
    all = must(calloc((size_t)plan.connections, sizeof *all));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    watch(epoll, timer, EPOLLIN, NULL);
    run();
    print_result();
    return 0;
}
