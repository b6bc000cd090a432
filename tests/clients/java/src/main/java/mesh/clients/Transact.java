package mesh.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer, steered by lines of stdin: init, begin, send TOPIC VALUE, flush, commit, abort. Each is answered by one
 * line: {"result":...} or {"error":...,"type":...}. The result of flush are the types of the errors of the sends before it.
 */
final class Transact {
    private final Options options;
    private final List<String> failed = Collections.synchronizedList(new ArrayList<>());

    Transact(Options options) {
        this.options = options;
    }

    void run() throws Exception {
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, String> defaults = Map.of("transactional.id", options.text("transactional-id"), "max.block.ms", "20000");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(options.clientConfig(defaults), new StringSerializer(), new StringSerializer())) {
            for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
                try {
                    Out.line("result", answer(producer, line.split(" ")));
                } catch (KafkaException refused) {
                    Out.error(line, refused);
                }
            }
        }
    }

    private Object answer(KafkaProducer<String, String> producer, String[] command) {
        switch (command[0]) {
            case "init":
                producer.initTransactions();
                return true;
            case "begin":
                producer.beginTransaction();
                return true;
            case "send":
                producer.send(new ProducerRecord<>(command[1], command[2], command[2]), (sent, error) -> {
                    if (error != null) {
                        failed.add(error.getClass().getSimpleName());
                    }
                });
                return true;
            case "flush":
                producer.flush();
                List<String> errors = new ArrayList<>(failed);
                failed.clear();
                return errors;
            case "commit":
                producer.commitTransaction();
                return true;
            case "abort":
                producer.abortTransaction();
                return true;
            default:
                throw new IllegalArgumentException("not a command: " + command[0]);
        }
    }
}
