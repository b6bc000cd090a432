package mesh.clients;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * A Kafka client for tests to steer: lines on stdin are orders, JSON lines on stdout say what happened (../steered.py).
 *
 * <p>What happens is one queue of events, lines and the ends of orders, taken by one thread; an order runs in another. "Main BOOTSTRAP".
 */
public final class Main {
    private sealed interface Event {}

    private record Line(String text) implements Event {}

    private record EndOfStdin() implements Event {}

    private record Ended(Runnable tell) implements Event {}

    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private final String bootstrap;

    private Main(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 1) {
            throw new IllegalArgumentException("expected the bootstrap address");
        }
        Main main = new Main(arguments[0]);
        Thread reader = new Thread(main::readStdin, "stdin");
        reader.setDaemon(true);
        reader.start();
        main.serve();
        // Clients of old versions leave threads behind.
        System.exit(0);
    }

    private void serve() throws InterruptedException {
        boolean more = true;
        while (more && events.take() instanceof Line line) {
            if (!line.text().equals("stop")) { // otherwise what was to be stopped has ended by itself
                more = obey(Order.parse(line.text(), bootstrap));
            }
        }
    }

    /** Carries out an order; it ends early when a line says "stop", or when there are no more lines: then the answer is false. */
    private boolean obey(Order order) throws InterruptedException {
        for (long left = order.number("records", 0); left > 0; left--) {
            order.records().add(((Line) events.take()).text());
        }
        Stop stop = new Stop();
        new Thread(() -> events.add(new Ended(carryOut(order, stop))), order.name()).start();
        boolean more = true;
        while (true) {
            Event event = events.take();
            if (event instanceof Ended ended) {
                ended.tell().run(); // from here on a line is the next order: nobody sends one before
                return more;
            }
            stop.give();
            more &= event instanceof Line;
        }
    }

    private static Runnable carryOut(Order order, Stop stop) {
        try {
            Object answer = switch (order.name()) {
                case "produce" -> new Produce(order, stop).run();
                case "consume" -> new Consume(order, stop).run();
                default -> Questions.answer(order);
            };
            return () -> Out.line("done", answer);
        } catch (Exception error) {
            return () -> Out.line("failed", error.toString());
        }
    }

    private void readStdin() {
        try (BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
                events.add(new Line(line));
            }
        } catch (IOException closed) {
            Out.error("stdin", closed);
        }
        events.add(new EndOfStdin());
    }
}
