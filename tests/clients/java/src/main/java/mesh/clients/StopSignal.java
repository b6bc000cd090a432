package mesh.clients;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** True once stdin said "stop" or ended: a test that dies takes its clients with it. */
final class StopSignal {
    private final CountDownLatch stopped = new CountDownLatch(1);

    static StopSignal onStdin(Runnable alsoRun) {
        StopSignal signal = new StopSignal();
        Thread reader = new Thread(() -> {
            signal.awaitStopLine();
            signal.stopped.countDown();
            alsoRun.run();
        }, "stdin");
        reader.setDaemon(true);
        reader.start();
        return signal;
    }

    boolean given() {
        return stopped.getCount() == 0;
    }

    /** Waits until the signal is given, for at most this long. */
    boolean given(long nanoseconds) throws InterruptedException {
        return stopped.await(nanoseconds, TimeUnit.NANOSECONDS);
    }

    private void awaitStopLine() {
        try {
            BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in));
            String line = stdin.readLine();
            while (line != null && !line.strip().equals("stop")) {
                line = stdin.readLine();
            }
        } catch (IOException closed) {
            Out.error("stdin", closed);
        }
    }
}
