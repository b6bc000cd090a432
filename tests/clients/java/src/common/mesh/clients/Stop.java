package mesh.clients;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Given at most once, to the order under way. */
final class Stop {
    private final CountDownLatch given = new CountDownLatch(1);
    private Runnable also = () -> {};

    synchronized void give() {
        if (!given()) {
            given.countDown();
            also.run();
        }
    }

    /** Runs this as well when the stop is given, or at once if it was. */
    synchronized void also(Runnable run) {
        also = run;
        if (given()) {
            run.run();
        }
    }

    boolean given() {
        return given.getCount() == 0;
    }

    /** Waits until it is given, for at most this long. */
    boolean given(long nanoseconds) throws InterruptedException {
        return given.await(nanoseconds, TimeUnit.NANOSECONDS);
    }
}
