package mesh.clients;

import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Timestamps, but no headers. */
final class Api {
    /** What is sent again would come after the next ones. */
    static final String IN_FLIGHT_IN_ORDER = "1";

    private Api() {}

    static ProducerRecord<String, String> record(
            String topic, Long timestamp, String key, String value, Map<String, String> headers) {
        return new ProducerRecord<>(topic, null, timestamp, key, value);
    }

    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long milliseconds) {
        return consumer.poll(milliseconds);
    }

    static Map<String, String> headers(ConsumerRecord<String, String> record) {
        return Map.of();
    }
}
