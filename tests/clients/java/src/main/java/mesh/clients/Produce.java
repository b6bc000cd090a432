package mesh.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records and prints what became of each: {"acked":id,"topic":...,"partition":...,"offset":...} or {"error":...,"id":...}.
 *
 * <p>With "--records stdin" the test writes the records, a line each: topic, key, value, timestamp, headers, separated by tabs; texts in
 * base64, "-" for none, headers as name.value joined by commas; their id is the line's number. Otherwise "--ids PREFIX --count N --rate
 * R --keys K" makes them up: PREFIX-0, PREFIX-1, ... to each topic in turn, the id being the value as well.
 */
final class Produce {
    private static final long NANOSECONDS_PER_SECOND = 1_000_000_000L;

    private final Options options;
    private final AtomicLong acked = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private long sent;

    Produce(Options options) {
        this.options = options;
    }

    void run() throws Exception {
        Properties config = options.clientConfig(Map.of("enable.idempotence", "true", "acks", "all"));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            if (options.has("records")) {
                sendFromStdin(producer);
            } else {
                sendMadeUp(producer);
            }
            producer.flush();
        }
        Out.line("summary", Out.object("sent", sent, "acked", acked.get(), "failed", failed.get()));
    }

    private void sendFromStdin(KafkaProducer<String, String> producer) throws Exception {
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
            String[] field = line.split("\t", -1);
            Long timestamp = field[3].equals("-") ? null : Long.valueOf(field[3]);
            send(producer, String.valueOf(sent), new ProducerRecord<>(
                    field[0], null, timestamp, text(field[1]), text(field[2]), headers(field[4])));
        }
    }

    private void sendMadeUp(KafkaProducer<String, String> producer) throws InterruptedException {
        StopSignal stop = StopSignal.onStdin(() -> {});
        List<String> topics = options.list("topics");
        String prefix = options.text("ids");
        long count = options.number("count", Long.MAX_VALUE);
        long keys = options.number("keys", 16);
        long rate = options.number("rate", 0);
        long start = System.nanoTime();
        while (sent < count && !stop.given()) {
            String id = prefix + "-" + sent;
            send(producer, id, new ProducerRecord<>(
                    topics.get((int) (sent % topics.size())), null, null, "key-" + sent % keys, id));
            if (rate > 0) {
                long due = start + sent * NANOSECONDS_PER_SECOND / rate;
                stop.given(due - System.nanoTime());
            }
        }
    }

    private void send(KafkaProducer<String, String> producer, String id, ProducerRecord<String, String> record) {
        sent++;
        try {
            producer.send(record, (metadata, error) -> {
                if (error == null) {
                    acked.incrementAndGet();
                    Out.line("acked", id, "topic", metadata.topic(), "partition", metadata.partition(),
                            "offset", metadata.offset());
                } else {
                    fail(id, error);
                }
            });
        } catch (KafkaException refused) {
            fail(id, refused);
        }
    }

    private void fail(String id, Exception error) {
        failed.incrementAndGet();
        Out.line("error", String.valueOf(error.getMessage()), "type", error.getClass().getName(), "at", "send", "id", id);
    }

    private static String text(String base64) {
        return base64.equals("-") ? null : new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static List<Header> headers(String pairs) {
        List<Header> headers = new ArrayList<>();
        if (!pairs.equals("-")) {
            for (String pair : pairs.split(",")) {
                String[] nameAndValue = pair.split("\\.", 2);
                headers.add(new RecordHeader(text(nameAndValue[0]), Base64.getDecoder().decode(nameAndValue[1])));
            }
        }
        return headers;
    }
}
