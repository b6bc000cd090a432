package mesh.clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What older versions call by other names, or lack. */
final class Api {
    /** Idempotence keeps the order of so many requests. */
    static final String IN_FLIGHT_IN_ORDER = "5";

    private Api() {}

    static ProducerRecord<String, String> record(
            String topic, Long timestamp, String key, String value, Map<String, String> headers) {
        List<Header> raw = new ArrayList<>();
        headers.forEach((name, text) -> raw.add(new RecordHeader(name, text.getBytes(StandardCharsets.UTF_8))));
        return new ProducerRecord<>(topic, null, timestamp, key, value, raw);
    }

    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long milliseconds) {
        return consumer.poll(Duration.ofMillis(milliseconds));
    }

    static void sendOffsets(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            String group) {
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    static Map<String, String> headers(ConsumerRecord<String, String> record) {
        Map<String, String> headers = new HashMap<>();
        for (Header header : record.headers()) {
            headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8));
        }
        return headers;
    }
}
