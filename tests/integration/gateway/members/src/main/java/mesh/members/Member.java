package mesh.members;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a group: reads so many records, settles them and leaves.
 *
 * <p>Arguments: kind (consumer or share), topics (separated by commas), number of records, name=value of client
 * properties. Each record is a line "value", a tab and its value; a fault is a line "fault", a tab, its class, a tab
 * and its message. A share member releases the first delivery of values that begin with "again", accepts the others,
 * and tells of each acknowledgement that failed.
 */
public final class Member {
  private static final Duration PATIENCE = Duration.ofSeconds(30);
  private static final Duration POLL = Duration.ofMillis(500);

  private final List<String> topics;
  private final int count;
  private final Properties properties = new Properties();
  private final long deadline = System.nanoTime() + PATIENCE.toNanos();
  private int settled;

  private Member(String[] arguments) {
    topics = List.of(arguments[1].split(","));
    count = Integer.parseInt(arguments[2]);
    properties.put("key.deserializer", StringDeserializer.class.getName());
    properties.put("value.deserializer", StringDeserializer.class.getName());
    for (int i = 3; i < arguments.length; i++) {
      String[] property = arguments[i].split("=", 2);
      properties.put(property[0], property[1]);
    }
  }

  public static void main(String[] arguments) {
    Member member = new Member(arguments);
    try {
      if (arguments[0].equals("share")) {
        member.share();
      } else {
        member.consume();
      }
    } catch (KafkaException fault) {
      tell("fault", fault.getClass().getSimpleName(), fault.getMessage());
    }
  }

  private void consume() {
    properties.put("auto.offset.reset", "earliest");
    properties.put("enable.auto.commit", "false");
    try (Consumer<String, String> consumer = new KafkaConsumer<>(properties)) {
      consumer.subscribe(topics);
      while (goesOn()) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          tell("value", record.value());
          settled++;
        }
      }
      consumer.commitSync();
    }
  }

  private void share() {
    properties.put("share.acknowledgement.mode", "explicit");
    try (ShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
      consumer.setAcknowledgementCommitCallback(
          (offsets, fault) -> {
            if (fault != null) {
              tell("fault", fault.getClass().getSimpleName(), String.valueOf(fault.getMessage()));
            }
          });
      consumer.subscribe(topics);
      while (goesOn()) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          boolean again = record.value().startsWith("again") && record.deliveryCount().orElse((short) 1) == 1;
          consumer.acknowledge(record, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
          tell(again ? "released" : "value", record.value());
          settled += again ? 0 : 1;
        }
        for (Map.Entry<TopicIdPartition, ?> result : consumer.commitSync().entrySet()) {
          tell("committed", result.getKey().topic());
        }
      }
    }
  }

  private boolean goesOn() {
    return settled < count && System.nanoTime() < deadline;
  }

  private static void tell(String... words) {
    System.out.println(String.join("\t", words));
  }
}
