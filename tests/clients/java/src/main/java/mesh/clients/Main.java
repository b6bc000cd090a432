package mesh.clients;

/**
 * A Kafka client for tests to steer: arguments say what to do, JSON lines on stdout say what happened.
 *
 * <p>produce and consume run until their count is reached or stdin says "stop"; admin and transact answer one
 * JSON line for each line of stdin. An error is printed as the application would see it; nothing is retried or hidden here.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            throw new IllegalArgumentException("say what to do: produce, consume, transact or admin");
        }
        Options options = Options.parse(arguments);
        switch (arguments[0]) {
            case "produce" -> new Produce(options).run();
            case "consume" -> new Consume(options).run();
            case "admin" -> new AdminShell(options).run();
            case "transact" -> new Transact(options).run();
            default -> throw new IllegalArgumentException(arguments[0] + " is not one of produce, consume, transact, admin");
        }
        // The thread that reads stdin may still be blocked in it.
        System.exit(0);
    }
}
