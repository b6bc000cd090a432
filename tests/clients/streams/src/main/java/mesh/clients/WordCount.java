package mesh.clients;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words: by way of a repartition topic into a store with a changelog. Ends, in good order, with stdin.
 *
 * <p>"WordCount BOOTSTRAP APPLICATION-ID GUARANTEE STATE-FOLDER INPUT OUTPUT GROUP-PROTOCOL LOGIN"; prints its
 * states, a JSON line each. LOGIN is a file of properties, which is empty for a client that does not log in.
 */
public final class WordCount {
    private static final Duration CLOSING = Duration.ofSeconds(20);

    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        try (InputStream login = Files.newInputStream(Path.of(arguments[7]))) {
            config.load(login);
        }
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        config.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[6]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put("auto.offset.reset", "earliest");
        if (arguments[6].equals("classic")) {
            // Streams does not leave its group when it closes; its next life takes over as the same static member.
            config.put("group.instance.id", "counter");
        }

        CountDownLatch ended = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(topology(arguments[4], arguments[5]).build(), config)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                ended.countDown();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.setStateListener((state, before) -> {
                System.out.println("{\"state\":\"" + state + "\"}");
                System.out.flush();
            });
            Thread stdin = new Thread(() -> {
                try (InputStream in = System.in) {
                    in.transferTo(OutputStream.nullOutputStream());
                } catch (IOException closed) {
                    closed.printStackTrace();
                }
                ended.countDown();
            });
            stdin.setDaemon(true);
            stdin.start();
            streams.start();
            ended.await();
            if (!streams.close(CLOSING)) {
                throw new IllegalStateException("still closing after " + CLOSING);
            }
        }
    }

    private static StreamsBuilder topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }
}
