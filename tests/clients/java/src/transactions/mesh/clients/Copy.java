package mesh.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads the order's count of records in a group, and writes each to every topic, with the offsets, in one transaction. */
final class Copy {
    private static final long POLL_MS = 200;

    private Copy() {}

    static boolean run(Order order) {
        Properties reading = order.clientConfig(Map.of(
                "group.id", order.text("group"),
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest"));
        Properties writing = order.clientConfig(Map.of("transactional.id", order.text("id")));
        try (KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(order.list("source"));
            List<ConsumerRecord<String, String>> records = read(consumer, order.number("count", 0));
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                for (String topic : order.list("topics")) {
                    producer.send(new ProducerRecord<>(topic, record.key(), record.value()));
                }
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            Api.sendOffsets(producer, consumer, ends, order.text("group"));
            if (order.text("commits").equals("true")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        return true;
    }

    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, long count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        while (records.size() < count) {
            Api.poll(consumer, POLL_MS).forEach(records::add);
        }
        return records.subList(0, (int) count);
    }
}
