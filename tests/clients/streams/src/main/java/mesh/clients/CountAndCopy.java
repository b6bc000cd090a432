package mesh.clients;

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Copies each record to two topics in one transaction, and counts the values. Runs until it is killed.
 *
 * <p>"CountAndCopy BOOTSTRAP APPLICATION-ID STATE-FOLDER INPUT COPIES OTHER-COPIES COUNTS INSTANCE". An exception of a thread
 * goes to stderr, and another thread takes its place.
 */
public final class CountAndCopy {
    private static final Duration TRANSACTION = Duration.ofSeconds(45);
    private static final Duration SESSION = Duration.ofSeconds(45);

    private CountAndCopy() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put("auto.offset.reset", "earliest");
        // An instance that was killed takes its place in the group again as soon as it is back.
        config.put("group.instance.id", arguments[7]);
        // A broker that was killed needs longer to come back than the 10 s of Streams' own default.
        config.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), (int) TRANSACTION.toMillis());
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), (int) SESSION.toMillis());

        KafkaStreams streams = new KafkaStreams(topology(arguments).build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((state, before) -> System.err.println("state " + before + " -> " + state));
        streams.start();
        new CountDownLatch(1).await();
    }

    private static StreamsBuilder topology(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input =
                builder.stream(arguments[3], Consumed.with(Serdes.String(), Serdes.String()));
        input.to(arguments[4]);
        input.to(arguments[5]);
        input.groupBy((id, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[6], Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }
}
