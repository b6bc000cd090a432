package mesh.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers in one JVM, steered by lines of stdin, "TRANSACTIONAL-ID COMMAND ARGUMENT...":
 * open BOOTSTRAP NAME=VALUE..., init, begin, send TOPIC VALUE, flush, offset GROUP TOPIC OFFSET (of partition 0), commit, abort, close.
 *
 * <p>Each is answered by one line: {"result":...} or {"error":...,"type":...}. The result of flush are the types of the errors of the
 * sends before it. Several commands that follow one another may stand in one line, separated by tabs; the first error ends the line.
 */
final class Transact {
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, List<String>> failed = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Transact transact = new Transact();
        for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
            try {
                Object result = true;
                for (String command : line.split("\t")) {
                    result = transact.answer(command.split(" ", 4));
                }
                Out.line("result", result);
            } catch (KafkaException refused) {
                Out.error(line, refused);
            }
        }
        System.exit(0);
    }

    private Object answer(String[] command) {
        String id = command[0];
        KafkaProducer<String, String> producer = producers.get(id);
        switch (command[1]) {
            case "open":
                producers.put(id, open(command));
                failed.put(id, Collections.synchronizedList(new ArrayList<>()));
                return true;
            case "init":
                producer.initTransactions();
                return true;
            case "begin":
                producer.beginTransaction();
                return true;
            case "send":
                List<String> errors = failed.get(id);
                producer.send(new ProducerRecord<>(command[2], command[3], command[3]), (sent, error) -> {
                    if (error != null) {
                        errors.add(error.getClass().getSimpleName());
                    }
                });
                return true;
            case "flush":
                producer.flush();
                List<String> told = new ArrayList<>(failed.get(id));
                failed.get(id).clear();
                return told;
            case "offset":
                String[] place = command[3].split(" ");
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(place[0], 0), new OffsetAndMetadata(Long.parseLong(place[1]))),
                        new ConsumerGroupMetadata(command[2]));
                return true;
            case "commit":
                producer.commitTransaction();
                return true;
            case "abort":
                producer.abortTransaction();
                return true;
            case "close":
                producers.remove(id).close();
                return true;
            default:
                throw new IllegalArgumentException("not a command: " + command[1]);
        }
    }

    private static KafkaProducer<String, String> open(String[] command) {
        Properties config = new Properties();
        config.setProperty("bootstrap.servers", command[2]);
        config.setProperty("transactional.id", command[0]);
        config.setProperty("max.block.ms", "20000");
        if (command.length > 3) {
            for (String property : command[3].split(" ")) {
                String[] pair = property.split("=", 2);
                config.setProperty(pair[0], pair[1]);
            }
        }
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }
}
