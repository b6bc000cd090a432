package mesh.clients;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** The arguments after the sub-command: pairs of "--name value". "--config k=v" may be repeated and goes to the Kafka client. */
final class Options {
    private final Map<String, String> values = new HashMap<>();
    private final Properties config = new Properties();

    static Options parse(String[] arguments) {
        Options options = new Options();
        for (int at = 1; at < arguments.length; at += 2) {
            if (!arguments[at].startsWith("--") || at + 1 == arguments.length) {
                throw new IllegalArgumentException("expected '--name value' at '" + arguments[at] + "'");
            }
            String name = arguments[at].substring(2);
            String value = arguments[at + 1];
            if (name.equals("config")) {
                String[] pair = value.split("=", 2);
                options.config.setProperty(pair[0], pair[1]);
            } else {
                options.values.put(name, value);
            }
        }
        return options;
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    List<String> list(String name) {
        return List.of(text(name).split(","));
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? Long.parseLong(values.get(name)) : otherwise;
    }

    /** Client properties: the given ones over the defaults of the sub-command. */
    Properties clientConfig(Map<String, String> defaults) {
        Properties merged = new Properties();
        merged.setProperty("bootstrap.servers", text("bootstrap"));
        merged.putAll(defaults);
        merged.putAll(config);
        return merged;
    }
}
