package mesh.clients;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends the records of the order, or made-up ones at its rate until the stop, and prints what became of each.
 *
 * <p>The id of a record is the number of its line; of a made-up one it is its value: PREFIX-0, PREFIX-1, ...
 */
final class Produce {
    private static final long NANOSECONDS_PER_SECOND = 1_000_000_000L;

    private final Order order;
    private final Stop stop;
    private long sent;

    Produce(Order order, Stop stop) {
        this.order = order;
        this.stop = stop;
    }

    boolean run() throws InterruptedException {
        // Versions that do not know a property say so in their log, and go on.
        Properties config = order.clientConfig(Map.of(
                "acks", order.text("acks"),
                "compression.type", order.text("compression"),
                "enable.idempotence", order.text("idempotent"),
                "retries", "100", // before 2.1 there were none by default
                "max.in.flight.requests.per.connection", Api.IN_FLIGHT_IN_ORDER,
                "delivery.timeout.ms", "58000", // a little less than what tests wait for
                "request.timeout.ms", "29000"));
        // Closing waits until all is sent; 0.8.2 has nothing else for that.
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String line : order.records()) {
                send(producer, String.valueOf(sent), record(line));
            }
            if (order.has("ids")) {
                sendMadeUp(producer);
            }
        }
        return true;
    }

    private void sendMadeUp(KafkaProducer<String, String> producer) throws InterruptedException {
        List<String> topics = order.list("topics");
        long keys = order.number("keys", 16);
        long rate = order.number("rate", 100);
        long start = System.nanoTime();
        while (!stop.given()) {
            String id = order.text("ids") + "-" + sent;
            send(producer, id, Api.record(topics.get((int) (sent % topics.size())), null, "key-" + sent % keys, id, Map.of()));
            long due = start + sent * NANOSECONDS_PER_SECOND / rate;
            stop.given(due - System.nanoTime());
        }
    }

    private void send(KafkaProducer<String, String> producer, String id, ProducerRecord<String, String> record) {
        sent++;
        try {
            producer.send(record, (metadata, error) -> {
                if (error == null) {
                    Out.line("acked", id, "topic", metadata.topic(), "partition", metadata.partition(),
                            "offset", metadata.offset());
                } else {
                    Out.error("produce", error);
                }
            });
        } catch (KafkaException refused) {
            Out.error("produce", refused);
        }
    }

    private static ProducerRecord<String, String> record(String line) {
        String[] field = line.split("\t", -1);
        Long timestamp = field[3].equals("-") ? null : Long.valueOf(field[3]);
        return Api.record(field[0], timestamp, text(field[1]), text(field[2]), headers(field[4]));
    }

    private static String text(String base64) {
        return base64.equals("-") ? null : new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static Map<String, String> headers(String pairs) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (!pairs.equals("-")) {
            for (String pair : pairs.split(",")) {
                String[] nameAndValue = pair.split("\\.", 2);
                headers.put(text(nameAndValue[0]), text(nameAndValue[1]));
            }
        }
        return headers;
    }
}
