import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs Kafka's own clients for the judge: each line of stdin is an order, each line of stdout its answer, both JSON.
 *
 * An order names its client, what to do, and its own number, which the answer repeats. A client is one producer, consumer
 * or share consumer with a thread of its own: the orders of one client run one after the other, those of others meanwhile.
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();
    private static PrintStream out;

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JsonNode order = JSON.readTree(line);
            Client client = CLIENTS.computeIfAbsent(order.get("client").asText(), Client::new);
            client.thread.submit(() -> client.obey(order));
        }
        Runtime.getRuntime().halt(0); // the judge has gone; nothing here outlives it
    }

    private static synchronized void answer(ObjectNode answer) {
        out.println(answer);
        out.flush();
    }

    private static final class Client implements ConsumerRebalanceListener {
        final ExecutorService thread;
        private final String name;
        private KafkaProducer<byte[], byte[]> producer;
        private KafkaConsumer<byte[], byte[]> consumer;
        private KafkaShareConsumer<byte[], byte[]> share;
        private final List<ConsumerRecord<byte[], byte[]>> taken = new ArrayList<>();
        private boolean rebalanced;

        Client(String name) {
            this.name = name;
            this.thread = Executors.newSingleThreadExecutor(work -> {
                Thread made = new Thread(work, name);
                made.setDaemon(true);
                return made;
            });
        }

        void obey(JsonNode order) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                carryOut(order, answer);
            } catch (Throwable failure) {
                tell(answer, failure);
            }
            answer.set("id", order.get("id"));
            answer(answer);
        }

        private void tell(ObjectNode answer, Throwable failure) {
            Throwable cause = failure instanceof java.util.concurrent.ExecutionException ? failure.getCause() : failure;
            answer.put("error", cause.getClass().getSimpleName());
            answer.put("message", String.valueOf(cause.getMessage()));
        }

        private void carryOut(JsonNode order, ObjectNode answer) throws Exception {
            switch (order.get("do").asText()) {
                case "producer" -> producer = new KafkaProducer<>(settings(order), new ByteArraySerializer(), new ByteArraySerializer());
                case "consumer" -> consumer = new KafkaConsumer<>(settings(order), new ByteArrayDeserializer(), new ByteArrayDeserializer());
                case "share" -> share = new KafkaShareConsumer<>(settings(order), new ByteArrayDeserializer(), new ByteArrayDeserializer());
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "commit-transaction" -> producer.commitTransaction();
                case "abort-transaction" -> producer.abortTransaction();
                case "send" -> send(order, answer);
                case "assign" -> assign(order);
                case "subscribe" -> subscribe(topics(order));
                case "poll" -> poll(order, answer);
                case "positions" -> positions(order, answer);
                case "commit" -> commit(order);
                case "acknowledge" -> acknowledge(order, answer);
                case "close" -> close(Duration.ofMillis(order.get("within_ms").asLong()));
                default -> throw new IllegalArgumentException("no order is called " + order.get("do"));
            }
        }

        private Properties settings(JsonNode order) {
            Properties settings = new Properties();
            order.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
            return settings;
        }

        private static List<String> topics(JsonNode order) {
            List<String> topics = new ArrayList<>();
            order.get("topics").forEach(each -> topics.add(each.asText()));
            return topics;
        }

        private void send(JsonNode order, ObjectNode answer) throws Exception {
            List<Object> sent = new ArrayList<>();
            for (JsonNode each : order.get("records")) {
                try {
                    sent.add(producer.send(new ProducerRecord<>(
                        each.get(0).asText(), each.get(1).asInt(), null, each.get(2).binaryValue())));
                } catch (org.apache.kafka.common.KafkaException refused) {
                    sent.add(refused);
                }
            }
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(order.get("within_ms").asLong());
            ArrayNode offsets = answer.putArray("offsets");
            ArrayNode errors = answer.putArray("errors");
            for (Object each : sent) {
                try {
                    if (each instanceof RuntimeException refused) {
                        throw refused;
                    }
                    @SuppressWarnings("unchecked")
                    RecordMetadata stored = ((Future<RecordMetadata>) each).get(Math.max(1, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
                    offsets.add(stored.hasOffset() ? stored.offset() : -1);
                    errors.addNull();
                } catch (Exception failure) {
                    Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                    offsets.add(-1);
                    errors.add(cause.getClass().getSimpleName() + ": " + cause.getMessage());
                }
            }
        }

        private void assign(JsonNode order) {
            List<TopicPartition> partitions = new ArrayList<>();
            order.get("partitions").forEach(each -> partitions.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
            consumer.assign(partitions);
            partitions.forEach(each -> consumer.seek(each, 0));
        }

        private void subscribe(List<String> topics) {
            if (share != null) {
                share.subscribe(topics);
            } else {
                consumer.subscribe(topics, this);
            }
        }

        private void poll(JsonNode order, ObjectNode answer) {
            rebalanced = false;
            Duration within = Duration.ofMillis(order.get("within_ms").asLong());
            ArrayNode records = answer.putArray("records");
            try {
                for (ConsumerRecord<byte[], byte[]> each : share != null ? share.poll(within) : consumer.poll(within)) {
                    ArrayNode record = records.addArray().add(each.topic()).add(each.partition()).add(each.offset()).add(each.value());
                    each.deliveryCount().ifPresent(record::add);
                    if (share != null) {
                        taken.add(each);
                    }
                }
            } finally {
                answer.put("rebalanced", rebalanced);
            }
        }

        private void positions(JsonNode order, ObjectNode answer) {
            ArrayNode marks = answer.putArray("marks");
            Duration within = Duration.ofMillis(order.get("within_ms").asLong());
            for (TopicPartition each : consumer.assignment()) {
                marks.addArray().add(each.topic()).add(each.partition()).add(consumer.position(each, within));
            }
        }

        private void commit(JsonNode order) {
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            order.get("marks").forEach(each -> positions.put(
                new TopicPartition(each.get(0).asText(), each.get(1).asInt()), new OffsetAndMetadata(each.get(2).asLong())));
            consumer.commitSync(positions, Duration.ofMillis(order.get("within_ms").asLong()));
        }

        private void acknowledge(JsonNode order, ObjectNode answer) {
            AcknowledgeType how = AcknowledgeType.valueOf(order.get("as").asText());
            taken.forEach(each -> share.acknowledge(each, how));
            taken.clear();
            ArrayNode errors = answer.putArray("errors");
            share.commitSync(Duration.ofMillis(order.get("within_ms").asLong())).forEach((partition, failure) ->
                failure.ifPresent(each -> errors.add(partition + ": " + each)));
        }

        private void close(Duration within) {
            CLIENTS.remove(name, this);
            thread.shutdown();
            if (producer != null) {
                producer.close(within);
            }
            if (consumer != null) {
                consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(within));
            }
            if (share != null) {
                share.close(within);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            rebalanced = true;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rebalanced = true;
        }
    }
}
