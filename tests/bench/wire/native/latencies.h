/* Latencies in a histogram whose buckets are narrower than a hundredth of what they hold. */
#ifndef LATENCIES_H
#define LATENCIES_H

#include <stdint.h>

enum { SUB_BUCKETS = 128, BUCKETS = 40 * SUB_BUCKETS };

struct latencies {
    int64_t in_bucket[BUCKETS], count, greatest_ns;
    double sum_ns;
};

static inline int bucket_of(int64_t ns) {
    int shift = 0;
    for (; ns >> shift >= 2 * SUB_BUCKETS; shift++) {}
    int bucket = shift * SUB_BUCKETS + (int)(ns >> shift);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static inline double top_of(int bucket) {
    int shift = bucket < 2 * SUB_BUCKETS ? 0 : bucket / SUB_BUCKETS - 1;
    return (double)(bucket - shift * SUB_BUCKETS + 1) * (double)(1L << shift);
}

static inline void note_latency(struct latencies *all, int64_t ns) {
    all->in_bucket[bucket_of(ns)]++;
    all->count++;
    all->sum_ns += (double)ns;
    if (ns > all->greatest_ns) all->greatest_ns = ns;
}

static inline double mean_us(const struct latencies *all) {
    return all->count ? all->sum_ns / (double)all->count / 1000 : 0;
}

static inline double percentile_us(const struct latencies *all, double part) {
    int64_t rank = (int64_t)(part * (double)all->count), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += all->in_bucket[bucket];
        if (seen > rank && top_of(bucket) < (double)all->greatest_ns) return top_of(bucket) / 1000;
    }
    return (double)all->greatest_ns / 1000;
}

#endif
