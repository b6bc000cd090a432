package mesh.members;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
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
 * One member of a group: reads so many different values, settles them and leaves.
 *
 * <p>Arguments: kind (consumer, pair or share), topics (separated by commas), number of values, name=value of client
 * properties. Each record is a line "value", a tab and its value; a fault is a line "fault", a tab, its class, a tab
 * and its message. A pair are two consumers of one group; a line "partitions", a tab and their number is said of each
 * when all is read. A share member releases the first delivery of values that begin with "again", accepts the others,
 * tells the delivery count of each record, and of each acknowledgement that failed.
 */
public final class Member {
  private static final Duration PATIENCE = Duration.ofSeconds(60);
  private static final Duration POLL = Duration.ofMillis(500);
  private static final Duration TURN = Duration.ofMillis(50);

  private final List<String> topics;
  private final int count;
  private final Properties properties = new Properties();
  private final long deadline = System.nanoTime() + PATIENCE.toNanos();
  private final Set<String> settled = new HashSet<>();

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
      switch (arguments[0]) {
        case "share" -> member.share();
        case "pair" -> member.consumeAsPair();
        default -> member.consume();
      }
    } catch (KafkaException fault) {
      tell("fault", fault.getClass().getSimpleName(), fault.getMessage());
    }
  }

  private void consume() {
    try (Consumer<String, String> consumer = consumer()) {
      while (goesOn()) {
        read(consumer, POLL);
      }
      consumer.commitSync();
    }
  }

  private void consumeAsPair() {
    try (Consumer<String, String> one = consumer();
        Consumer<String, String> other = consumer()) {
      while (goesOn() || (isInTime() && (one.assignment().isEmpty() || other.assignment().isEmpty()))) {
        read(one, TURN);
        read(other, TURN);
      }
      for (Consumer<String, String> each : List.of(one, other)) {
        each.commitSync();
        tell("partitions", String.valueOf(each.assignment().size()));
      }
    }
  }

  private Consumer<String, String> consumer() {
    properties.put("auto.offset.reset", "earliest");
    properties.put("enable.auto.commit", "false");
    Consumer<String, String> consumer = new KafkaConsumer<>(properties);
    consumer.subscribe(topics);
    return consumer;
  }

  private void read(Consumer<String, String> consumer, Duration patience) {
    for (ConsumerRecord<String, String> record : consumer.poll(patience)) {
      tell("value", record.value());
      settled.add(record.value());
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
          tell("delivery", record.value(), String.valueOf(record.deliveryCount().orElse((short) 0)));
          tell(again ? "released" : "value", record.value());
          if (!again) {
            settled.add(record.value());
          }
        }
        for (Map.Entry<TopicIdPartition, ?> result : consumer.commitSync().entrySet()) {
          tell("committed", result.getKey().topic());
        }
      }
    }
  }

  private boolean goesOn() {
    return settled.size() < count && isInTime();
  }

  private boolean isInTime() {
    return System.nanoTime() < deadline;
  }

  private static void tell(String... words) {
    System.out.println(String.join("\t", words));
  }
}
