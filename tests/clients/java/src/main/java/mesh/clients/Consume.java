package mesh.clients;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads as a member of a group and commits what it printed, after each poll.
 *
 * <p>"--topics a,b" or "--pattern REGEX", "--group G"; ends at exactly "--count N" records, after "--idle-ms" without one, or at "stop".
 * Prints {"assigned":[...]} at each assignment, {"received":value,...} for each record and {"committed":{partition:offset}}.
 */
final class Consume {
    /** An application would give up; a test wants to see a few of them first. */
    private static final int ERRORS_BEFORE_GIVING_UP = 10;
    private static final Duration POLL = Duration.ofMillis(200);

    private final Options options;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private long received;
    private int errors;

    Consume(Options options) {
        this.options = options;
    }

    void run() {
        Properties config = options.clientConfig(Map.of(
                "group.id", options.text("group"), "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        long count = options.number("count", Long.MAX_VALUE);
        long idleMs = options.number("idle-ms", Long.MAX_VALUE);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            StopSignal stop = StopSignal.onStdin(consumer::wakeup);
            subscribe(consumer);
            long lastReceived = System.currentTimeMillis();
            while (received < count && !stop.given() && errors < ERRORS_BEFORE_GIVING_UP
                    && System.currentTimeMillis() - lastReceived < idleMs) {
                long before = received;
                step(consumer, count);
                if (received > before) {
                    lastReceived = System.currentTimeMillis();
                }
            }
        }
        Out.line("summary", Out.object("received", received, "errors", errors));
    }

    private void step(KafkaConsumer<String, String> consumer, long count) {
        String at = "poll";
        try {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            for (ConsumerRecord<String, String> record : records) {
                if (received < count) {
                    print(record);
                }
            }
            at = "commit";
            commit(consumer);
        } catch (RebalanceInProgressException anotherMemberCameOrWent) {
            // As documented for commitSync: the next poll takes part in the rebalance, then there is something to commit or not.
        } catch (WakeupException stop) {
            // "stop" may interrupt the commit of what was printed: once woken, the next call goes through.
            commit(consumer);
        } catch (KafkaException error) {
            errors++;
            Out.error(at, error);
        }
    }

    private void commit(KafkaConsumer<String, String> consumer) {
        if (uncommitted.isEmpty()) {
            return;
        }
        consumer.commitSync(uncommitted);
        Map<String, Long> committed = new HashMap<>();
        uncommitted.forEach((partition, offset) -> committed.put(partition.toString(), offset.offset()));
        uncommitted.clear();
        Out.line("committed", committed);
    }

    private void print(ConsumerRecord<String, String> record) {
        received++;
        uncommitted.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        Map<String, Object> headers = new HashMap<>();
        for (Header header : record.headers()) {
            headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8));
        }
        Out.line("received", record.value(), "topic", record.topic(), "partition", record.partition(),
                "offset", record.offset(), "timestamp", record.timestamp(), "key", record.key(), "headers", headers);
    }

    private void subscribe(KafkaConsumer<String, String> consumer) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> added) {
                List<String> assigned = new ArrayList<>();
                consumer.assignment().forEach(partition -> assigned.add(partition.toString()));
                Out.line("assigned", assigned);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                uncommitted.keySet().removeAll(revoked);
            }
        };
        if (options.has("pattern")) {
            consumer.subscribe(Pattern.compile(options.text("pattern")), listener);
        } else {
            consumer.subscribe(options.list("topics"), listener);
        }
    }
}
