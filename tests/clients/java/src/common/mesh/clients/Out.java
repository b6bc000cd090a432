package mesh.clients;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** JSON lines on stdout, one whole line at a time from any thread. */
final class Out {
    private static final PrintStream STDOUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private Out() {}

    /** Prints an object of the given names and values in turn. */
    static void line(Object... namesAndValues) {
        String line = json(object(namesAndValues));
        synchronized (STDOUT) {
            STDOUT.println(line);
            STDOUT.flush();
        }
    }

    static void error(String at, Throwable error) {
        line("error", String.valueOf(error.getMessage()), "type", error.getClass().getName(), "at", at);
    }

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            object.put((String) namesAndValues[at], namesAndValues[at + 1]);
        }
        return object;
    }

    private static String json(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (Iterator<? extends Map.Entry<?, ?>> entries = map.entrySet().iterator(); entries.hasNext(); ) {
                Map.Entry<?, ?> entry = entries.next();
                quote(out, String.valueOf(entry.getKey()));
                out.append(':');
                write(out, entry.getValue());
                out.append(entries.hasNext() ? "," : "");
            }
            out.append('}');
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            for (Iterator<?> each = items.iterator(); each.hasNext(); ) {
                write(out, each.next());
                out.append(each.hasNext() ? "," : "");
            }
            out.append(']');
        } else {
            quote(out, value.toString());
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
