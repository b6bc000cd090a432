/* The Kafka wire as far as the bench needs it: numbers, strings, arrays, each in its older and its flexible form, and
 * record batches of format 2. Big-endian throughout. Writers grow their buffer; readers never pass their end, and say
 * so afterwards (`bad`). */
#ifndef KAFKA_H
#define KAFKA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum api { PRODUCE = 0, FETCH = 1, METADATA = 3, API_VERSIONS = 18 };
enum fault { NO_FAULT = 0, CORRUPT_MESSAGE = 2, UNKNOWN_TOPIC = 3 };

static inline void *must(void *memory) {
    if (memory == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

struct out {
    uint8_t *data;
    size_t size, room;
    bool flexible;
};

static inline uint8_t *grow(struct out *out, size_t more) {
    if (out->size + more > out->room) {
        out->room = 2 * (out->size + more);
        out->data = must(realloc(out->data, out->room));
    }
    uint8_t *place = out->data + out->size;
    out->size += more;
    return place;
}

static inline void store(uint8_t *place, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) place[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static inline void put8(struct out *out, int8_t value) { *grow(out, 1) = (uint8_t)value; }
static inline void put16(struct out *out, int16_t value) { store(grow(out, 2), (uint16_t)value, 2); }
static inline void put32(struct out *out, int32_t value) { store(grow(out, 4), (uint32_t)value, 4); }
static inline void put64(struct out *out, int64_t value) { store(grow(out, 8), (uint64_t)value, 8); }

static inline void put_bytes(struct out *out, const void *bytes, size_t size) { memcpy(grow(out, size), bytes, size); }

static inline void put_uvarint(struct out *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *grow(out, 1) = (uint8_t)(value | 0x80);
    *grow(out, 1) = (uint8_t)value;
}

static inline void put_varint(struct out *out, int64_t value) {
    put_uvarint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* Of arrays and of records; -1 stands for null. */
static inline void put_length(struct out *out, int32_t length) {
    if (out->flexible)
        put_uvarint(out, (uint64_t)(length + 1));
    else
        put32(out, length);
}

static inline void put_string(struct out *out, const char *text) {
    size_t size = text ? strlen(text) : 0;
    if (out->flexible)
        put_uvarint(out, text ? size + 1 : 0);
    else
        put16(out, text ? (int16_t)size : -1);
    if (text) put_bytes(out, text, size);
}

static inline void put_no_tags(struct out *out) {
    if (out->flexible) put8(out, 0);
}

/* A frame begins with its size, which is known at its end. */
static inline size_t begin_frame(struct out *out) {
    put32(out, 0);
    return out->size;
}

static inline void end_frame(struct out *out, size_t begin) { store(out->data + begin - 4, out->size - begin, 4); }

/* --- reading ---------------------------------------------------------------------------------------------------- */

struct in {
    const uint8_t *at, *end;
    bool flexible, bad;
};

struct text {
    const uint8_t *at;
    int32_t size;
};

static inline uint64_t load_number(const uint8_t *place, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | place[i];
    return value;
}

static inline const uint8_t *take(struct in *in, int64_t size) {
    static const uint8_t nothing[8];
    if (size < 0 || size > in->end - in->at) {
        in->bad = true;
        in->at = in->end;
        return nothing;
    }
    in->at += size;
    return in->at - size;
}

static inline int8_t get8(struct in *in) { return (int8_t)*take(in, 1); }
static inline int16_t get16(struct in *in) { return (int16_t)load_number(take(in, 2), 2); }
static inline int32_t get32(struct in *in) { return (int32_t)load_number(take(in, 4), 4); }
static inline int64_t get64(struct in *in) { return (int64_t)load_number(take(in, 8), 8); }

static inline uint64_t get_uvarint(struct in *in) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = (uint8_t)get8(in);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    in->bad = true;
    return 0;
}

static inline int32_t get_length(struct in *in) { return in->flexible ? (int32_t)get_uvarint(in) - 1 : get32(in); }

static inline struct text get_string(struct in *in) {
    int32_t size = in->flexible ? (int32_t)get_uvarint(in) - 1 : get16(in);
    struct text text = {.size = size < 0 ? 0 : size};
    text.at = take(in, text.size);
    if (in->bad) text.size = 0;
    return text;
}

static inline void skip_tags(struct in *in) {
    if (!in->flexible) return;
    for (uint64_t left = get_uvarint(in); left > 0 && !in->bad; left--) {
        get_uvarint(in);
        take(in, (int64_t)get_uvarint(in));
    }
}

static inline bool is_text(struct text text, const char *expected) {
    return strlen(expected) == (size_t)text.size && memcmp(text.at, expected, (size_t)text.size) == 0;
}

/* --- record batches --------------------------------------------------------------------------------------------- */

enum { CRC_AT = 17, CRC_FROM = 21, BATCH_HEADER = 61, BATCH_PREFIX = 12, MAGIC_AT = 16, COUNT_AT = 57 };

/* CRC-32C, eight bytes a step ("slicing by 8"). */
static inline uint32_t crc32c(const uint8_t *data, size_t size) {
    static uint32_t table[8][256];
    if (table[0][1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
            table[0][i] = crc;
        }
        for (int slice = 1; slice < 8; slice++)
            for (int i = 0; i < 256; i++)
                table[slice][i] = table[slice - 1][i] >> 8 ^ table[0][table[slice - 1][i] & 0xff];
    }
    uint32_t crc = 0xffffffff;
    for (; size >= 8; data += 8, size -= 8) {
        crc = table[7][data[0] ^ (crc & 0xff)] ^ table[6][data[1] ^ (crc >> 8 & 0xff)] ^
              table[5][data[2] ^ (crc >> 16 & 0xff)] ^ table[4][data[3] ^ crc >> 24] ^ table[3][data[4]] ^
              table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size > 0; data++, size--) crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xff];
    return ~crc;
}

/* One batch, not compressed, of no idempotent producer. Values differ from record to record. */
static inline void put_batch(struct out *out, int64_t base_offset, int records, int value_bytes) {
    const int64_t timestamp = 1700000000000;
    size_t begin = out->size;
    struct out record = {0};
    put64(out, base_offset);
    put32(out, 0); /* length, below */
    put32(out, -1);
    put8(out, 2);
    put32(out, 0); /* CRC, below */
    put16(out, 0);
    put32(out, records - 1);
    put64(out, timestamp);
    put64(out, timestamp);
    put64(out, -1);
    put16(out, -1);
    put32(out, -1);
    put32(out, records);
    for (int i = 0; i < records; i++) {
        record.size = 0;
        put8(&record, 0);
        put_varint(&record, 0);
        put_varint(&record, i);
        put_varint(&record, -1); /* no key */
        put_varint(&record, value_bytes);
        memset(grow(&record, (size_t)value_bytes), 'a' + i % 26, (size_t)value_bytes);
        put_varint(&record, 0); /* no headers */
        put_varint(out, (int64_t)record.size);
        put_bytes(out, record.data, record.size);
    }
    free(record.data);
    store(out->data + begin + 8, out->size - begin - BATCH_PREFIX, 4);
    store(out->data + begin + CRC_AT, crc32c(out->data + begin + CRC_FROM, out->size - begin - CRC_FROM), 4);
}

/* Whether these bytes are whole batches with consecutive offsets; `thorough`: with the right CRC too. */
static inline bool are_batches(const uint8_t *at, size_t size, bool thorough) {
    int64_t next = -1;
    while (size > 0) {
        if (size < BATCH_HEADER) return false;
        uint64_t length = load_number(at + 8, 4) + BATCH_PREFIX;
        int64_t base = (int64_t)load_number(at, 8);
        if (length < BATCH_HEADER || length > size || at[MAGIC_AT] != 2 || (next >= 0 && base != next)) return false;
        if (thorough && crc32c(at + CRC_FROM, length - CRC_FROM) != load_number(at + CRC_AT, 4)) return false;
        next = base + (int64_t)load_number(at + COUNT_AT, 4);
        at += length;
        size -= length;
    }
    return true;
}

#endif
