package mesh.clients;

import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Neither timestamps nor headers. */
final class Api {
    /** What is sent again would come after the next ones. */
    static final String IN_FLIGHT_IN_ORDER = "1";

    private Api() {}

    static ProducerRecord<String, String> record(
            String topic, Long timestamp, String key, String value, Map<String, String> headers) {
        return new ProducerRecord<>(topic, null, key, value);
    }
}
