/* What a run of the load generator is to do, as its words say; and the requests that it sends. */
#ifndef PLAN_H
#define PLAN_H

#include <getopt.h>

#include "kafka.h"

enum { MOST_COUNTED = 64, MOST_TOPICS = 1000, SPREAD = 8 };

enum kind { PRODUCES, FETCHES, IDLES };

static struct plan {
    int port, core, connections, in_flight, version, topics, partitions, records, value_bytes;
    int min_bytes, max_bytes, partition_bytes, max_wait_ms;
    enum kind kind;
    bool stored; /* by a broker that keeps what it gets: offsets grow */
    double warm_up_s, seconds, rate;
    const char *topic[MOST_TOPICS];
    struct {
        const char *name;
        int pid;
    } counted[MOST_COUNTED];
    int counts;
} plan = {.core = -1, .connections = 1, .in_flight = 1, .version = 9, .partitions = 1, .records = 1, .value_bytes = 100,
          .min_bytes = 1, .max_bytes = 1 << 20, .partition_bytes = 1 << 20, .max_wait_ms = 500, .warm_up_s = 0.25, .seconds = 1};

static inline void print_text(const char *text) {
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\' || *text < ' ')
            printf("\\u%04x", *text);
        else
            putchar(*text);
    putchar('"');
}

static inline void fail(const char *why) {
    printf("{\"wrong\": ");
    print_text(why);
    printf("}\n");
    exit(1);
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static inline void count_process(char *word) {
    char *colon = strchr(word, ':');
    if (colon == NULL || plan.counts == MOST_COUNTED) fail("--count wants NAME:PID, 64 times at most");
    *colon = 0;
    plan.counted[plan.counts].name = word;
    plan.counted[plan.counts++].pid = atoi(colon + 1);
}

static inline void read_plan(int count, char **words) {
    enum {
        PORT = 1, CORE, KIND, CONNECTIONS, IN_FLIGHT, VERSION, TOPIC, PARTITIONS,
        RECORDS, VALUE, MIN_BYTES, MAX_BYTES, PARTITION_BYTES, MAX_WAIT, WARM_UP, SECONDS, RATE, STORED, COUNT
    };
    static const struct option options[] = {
        {"port", 1, 0, PORT}, {"core", 1, 0, CORE}, {"kind", 1, 0, KIND}, {"connections", 1, 0, CONNECTIONS},
        {"in-flight", 1, 0, IN_FLIGHT}, {"version", 1, 0, VERSION}, {"topic", 1, 0, TOPIC},
        {"partitions", 1, 0, PARTITIONS}, {"records", 1, 0, RECORDS}, {"value-bytes", 1, 0, VALUE},
        {"min-bytes", 1, 0, MIN_BYTES}, {"max-bytes", 1, 0, MAX_BYTES}, {"partition-bytes", 1, 0, PARTITION_BYTES},
        {"max-wait-ms", 1, 0, MAX_WAIT}, {"warm-up", 1, 0, WARM_UP},
        {"seconds", 1, 0, SECONDS}, {"rate", 1, 0, RATE}, {"stored", 0, 0, STORED}, {"count", 1, 0, COUNT}, {0, 0, 0, 0}};
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) switch (option) {
        case PORT: plan.port = atoi(optarg); break;
        case CORE: plan.core = atoi(optarg); break;
        case KIND: plan.kind = !strcmp(optarg, "produce") ? PRODUCES : !strcmp(optarg, "idle") ? IDLES : FETCHES; break;
        case CONNECTIONS: plan.connections = atoi(optarg); break;
        case IN_FLIGHT: plan.in_flight = atoi(optarg); break;
        case VERSION: plan.version = atoi(optarg); break;
        case TOPIC: if (plan.topics < MOST_TOPICS) plan.topic[plan.topics++] = optarg; break;
        case PARTITIONS: plan.partitions = atoi(optarg); break;
        case RECORDS: plan.records = atoi(optarg); break;
        case VALUE: plan.value_bytes = atoi(optarg); break;
        case MIN_BYTES: plan.min_bytes = atoi(optarg); break;
        case PARTITION_BYTES: plan.partition_bytes = atoi(optarg); break;
        case MAX_BYTES: plan.max_bytes = atoi(optarg); break;
        case MAX_WAIT: plan.max_wait_ms = atoi(optarg); break;
        case WARM_UP: plan.warm_up_s = atof(optarg); break;
        case SECONDS: plan.seconds = atof(optarg); break;
        case RATE: plan.rate = atof(optarg); break;
        case STORED: plan.stored = true; break;
        case COUNT: count_process(optarg); break;
        default: exit(2);
    }
    if (plan.port == 0 || plan.topics == 0) fail("--port and --topic are needed");
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* Connections that ask for one partition only spread over several. */
static inline int first_partition(int connection) { return plan.partitions == 1 ? connection % SPREAD : 0; }

static inline void put_header(struct out *out, int api, int version, bool flexible) {
    put16(out, (int16_t)api);
    put16(out, (int16_t)version);
    put32(out, 0); /* correlation id, later */
    out->flexible = false;
    put_string(out, "wire-bench");
    out->flexible = flexible;
    put_no_tags(out);
}

static inline void put_produce(struct out *out, int partition) {
    put_header(out, PRODUCE, plan.version, plan.version >= 9);
    put_string(out, NULL); /* transactional id */
    put16(out, -1);
    put32(out, 30000);
    put_length(out, plan.topics);
    for (int topic = 0; topic < plan.topics; topic++) {
        put_string(out, plan.topic[topic]);
        put_length(out, plan.partitions);
        for (int i = 0; i < plan.partitions; i++) {
            struct out batch = {0};
            put_batch(&batch, 0, plan.records, plan.value_bytes);
            put32(out, partition + i);
            put_length(out, (int32_t)batch.size);
            put_bytes(out, batch.data, batch.size);
            put_no_tags(out);
            free(batch.data);
        }
        put_no_tags(out);
    }
    put_no_tags(out);
}

/* `wait_at` gets the place of the longest wait. */
static inline void put_fetch(struct out *out, int partition, size_t *wait_at) {
    const int64_t log_end = 1 << 30; /* of the sink */
    put_header(out, FETCH, plan.version, plan.version >= 12);
    put32(out, -1); /* no replica */
    *wait_at = out->size;
    put32(out, plan.max_wait_ms);
    put32(out, plan.min_bytes);
    put32(out, plan.max_bytes);
    put8(out, 0);
    put32(out, 0); /* no session */
    put32(out, -1);
    put_length(out, plan.topics);
    for (int topic = 0; topic < plan.topics; topic++) {
        put_string(out, plan.topic[topic]);
        put_length(out, plan.partitions);
        for (int i = 0; i < plan.partitions; i++) {
            put32(out, partition + i);
            put32(out, -1); /* leader epoch */
            put64(out, plan.kind == IDLES ? log_end : 0);
            if (plan.version >= 12) put32(out, -1);
            put64(out, -1);
            put32(out, plan.partition_bytes);
            put_no_tags(out);
        }
        put_no_tags(out);
    }
    put_length(out, 0); /* nothing to forget */
    put_string(out, ""); /* no rack */
    put_no_tags(out);
}

#endif
