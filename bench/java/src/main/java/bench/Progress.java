package bench;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts messages over all threads, and notes when the warm-up was over and when the last one was done: steady speed is
 * told by when messages left the operator. What comes after (the last commit) counts in the total alone.
 */
record Progress(long warmup, long messages) implements java.io.Serializable {
    // Of the process: Flink makes copies of the operators that hold a Progress.
    private static final AtomicLong DONE = new AtomicLong();
    private static volatile long warmAt;
    private static volatile long lastAt;

    void one() {
        long done = DONE.incrementAndGet();
        if (done == warmup) {
            warmAt = System.nanoTime();
        } else if (done == messages) {
            lastAt = System.nanoTime();
        }
    }

    boolean done() {
        return DONE.get() >= messages;
    }

    void finish() {
        System.out.printf("{\"messages\": %d, \"seconds\": %.6f}%n", messages - warmup, (lastAt - warmAt) / 1e9);
    }
}
