package mesh.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** One line: a name, and settings as name=value; `property.NAME=VALUE` goes to the Kafka client as it is. */
final class Order {
    private static final String PROPERTY = "property.";

    private final String name;
    private final String bootstrap;
    private final Map<String, String> settings = new HashMap<>();
    private final List<String> records = new ArrayList<>();

    private Order(String name, String bootstrap) {
        this.name = name;
        this.bootstrap = bootstrap;
    }

    static Order parse(String line, String bootstrap) {
        String[] words = line.split(" ");
        Order order = new Order(words[0], bootstrap);
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            order.settings.put(pair[0], pair[1]);
        }
        return order;
    }

    String name() {
        return name;
    }

    /** The lines below the order, one for each record to send. */
    List<String> records() {
        return records;
    }

    boolean has(String setting) {
        return settings.containsKey(setting);
    }

    String text(String setting) {
        String value = settings.get(setting);
        if (value == null) {
            throw new IllegalArgumentException(name + ": " + setting + " is missing");
        }
        return value;
    }

    List<String> list(String setting) {
        return List.of(text(setting).split(","));
    }

    long number(String setting, long otherwise) {
        return has(setting) ? Long.parseLong(settings.get(setting)) : otherwise;
    }

    private static void logIn(Properties config, String[] userAndPassword) {
        config.setProperty("security.protocol", "SASL_PLAINTEXT");
        config.setProperty("sasl.mechanism", "SCRAM-SHA-256");
        config.setProperty("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                + userAndPassword[0] + "\" password=\"" + userAndPassword[1] + "\";");
    }

    /** Client properties: the order's own over these. The bootstrap may begin with USER:PASSWORD@. */
    Properties clientConfig(Map<String, String> defaults) {
        Properties config = new Properties();
        int login = bootstrap.lastIndexOf('@');
        config.setProperty("bootstrap.servers", bootstrap.substring(login + 1));
        if (login >= 0) {
            logIn(config, bootstrap.substring(0, login).split(":", 2));
        }
        config.putAll(defaults);
        settings.forEach((setting, value) -> {
            if (setting.startsWith(PROPERTY)) {
                config.setProperty(setting.substring(PROPERTY.length()), value);
            }
        });
        return config;
    }
}
