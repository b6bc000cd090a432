import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after the other in this JVM: a JVM for each call costs more than the call.
 *
 * <p>A line on stdin is a call: the class, the text for the tool's stdin and the arguments, in base64 with tabs between.
 * The answer is a line: the exit code, and what the tool printed on stdout and stderr. Each call loads the tool's
 * classes anew, because tools count in static fields. The end of stdin ends the JVM.
 */
public final class ToolHost {
    /** Ends the thread that asked for the end of the JVM. */
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** Loads what is in the jar of the tools itself, and leaves everything else to the JVM. */
    private static final class Tools extends URLClassLoader {
        Tools(URL jar) {
            super(new URL[] {jar}, ToolHost.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found == null && name.startsWith("org.apache.kafka.tools.")) {
                    try {
                        found = findClass(name);
                    } catch (ClassNotFoundException inAnotherJar) {
                        found = null;
                    }
                }
                return found == null ? super.loadClass(name, resolve) : found;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        URL jar = new File(arguments[0]).toURI().toURL();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            answers.println(called(jar, call.split("\t", -1)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String called(URL jar, String[] call) throws Exception {
        List<String> given = new ArrayList<>();
        for (String each : call) {
            given.add(new String(Base64.getDecoder().decode(each), StandardCharsets.UTF_8));
        }
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        AtomicReference<Integer> code = new AtomicReference<>();
        List<Runnable> atTheEnd = new ArrayList<>();
        Exit.setExitProcedure((status, message) -> {
            code.compareAndSet(null, status);
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, hook) -> atTheEnd.add(hook));
        System.setIn(new ByteArrayInputStream(given.get(1).getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        try (Tools tools = new Tools(jar)) {
            Thread thread = new Thread(() -> run(tools, given, code), given.get(0));
            thread.setContextClassLoader(tools);
            thread.start();
            thread.join();
            for (Runnable hook : atTheEnd) {
                attempted(hook);
            }
        }
        code.compareAndSet(null, 0);
        return String.join("\t", code.get().toString(), text(printed), text(complained));
    }

    private static void run(Tools tools, List<String> given, AtomicReference<Integer> code) {
        try {
            String[] arguments = given.subList(2, given.size()).toArray(new String[0]);
            tools.loadClass(given.get(0)).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Exited)) {
                ended.getCause().printStackTrace();
                code.compareAndSet(null, 1);
            }
        } catch (ReflectiveOperationException noTool) {
            noTool.printStackTrace();
            code.compareAndSet(null, 1);
        }
    }

    private static void attempted(Runnable hook) {
        try {
            hook.run();
        } catch (Exited asked) {
            // it is the end
        } catch (RuntimeException failed) {
            failed.printStackTrace();
        }
    }

    private static String text(ByteArrayOutputStream written) {
        return Base64.getEncoder().encodeToString(written.toByteArray());
    }
}
