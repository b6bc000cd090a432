package mesh.clients;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads as a member of a group, to exactly the order's count or until the stop, and commits what it printed after each poll. */
final class Consume {
    /** An application would give up; a test wants to see a few of them first. */
    private static final int ERRORS_BEFORE_GIVING_UP = 10;
    private static final long POLL_MS = 200;

    private final Order order;
    private final Stop stop;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private long left;
    private int errors;

    Consume(Order order, Stop stop) {
        this.order = order;
        this.stop = stop;
        this.left = order.number("count", Long.MAX_VALUE);
    }

    boolean run() {
        Properties config = order.clientConfig(Map.of(
                "group.id", order.text("group"),
                "isolation.level", order.text("isolation"),
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest"));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            stop.also(consumer::wakeup);
            subscribe(consumer);
            while (left > 0 && !stop.given() && errors < ERRORS_BEFORE_GIVING_UP) {
                step(consumer);
            }
            stop.also(() -> {});
        }
        return true;
    }

    private void step(KafkaConsumer<String, String> consumer) {
        String at = "poll";
        try {
            for (ConsumerRecord<String, String> record : Api.poll(consumer, POLL_MS)) {
                if (left > 0) {
                    print(record);
                }
            }
            at = "commit";
            commit(consumer);
        } catch (RebalanceInProgressException anotherMemberCameOrWent) {
            // As documented for commitSync: the next poll takes part in the rebalance, then there is something to commit or not.
        } catch (WakeupException stopped) {
            // The stop may interrupt the commit of what was printed: once woken, the next call goes through.
            commit(consumer);
        } catch (KafkaException error) {
            errors++;
            Out.error(at, error);
        }
    }

    private void commit(KafkaConsumer<String, String> consumer) {
        if (!uncommitted.isEmpty()) {
            consumer.commitSync(uncommitted);
            uncommitted.clear();
        }
    }

    private void print(ConsumerRecord<String, String> record) {
        left--;
        uncommitted.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        Out.line("received", record.value(), "topic", record.topic(), "partition", record.partition(),
                "offset", record.offset(), "timestamp", record.timestamp(), "key", record.key(), "headers", Api.headers(record));
    }

    private void subscribe(KafkaConsumer<String, String> consumer) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> added) {}

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                uncommitted.keySet().removeAll(revoked);
            }
        };
        if (order.has("pattern")) {
            consumer.subscribe(Pattern.compile(order.text("pattern")), listener);
        } else {
            consumer.subscribe(order.list("topics"), listener);
        }
    }
}
