package mesh.bench;

import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Kroxylicious with a configuration file: what its own launcher does, which is not on Maven Central. */
final class Kroxylicious {
    private Kroxylicious() {}

    public static void main(String[] arguments) throws Exception {
        ConfigParser parser = new ConfigParser();
        String configuration = Files.readString(Path.of(arguments[0]));
        try (KafkaProxy proxy =
                new KafkaProxy(parser, parser.parseConfiguration(configuration), Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
