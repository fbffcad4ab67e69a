package bench;

import bench.Decoder.Message;
import java.util.function.Consumer;

/** The ordered work itself, the same for both: checks the sequence and every row change, keeps the session's table. */
final class Fold {
    /** A session's table, wherever the contestant keeps it. */
    interface Table {
        long sequence() throws Exception;

        void sequence(long number) throws Exception;

        Object[] get(String key) throws Exception;

        void put(String key, Object[] row) throws Exception;

        void clear() throws Exception;
    }

    record Change(String session, int partition, long offset, long sequence, String op, Object[] row) {}

    private Fold() {}

    static void apply(Message message, Table table, String session, int partition, long offset, Consumer<Change> out)
            throws Exception {
        long sequence = table.sequence() + 1;
        if (message.sequence() != sequence) {
            throw new IllegalStateException(session + ": sequence " + message.sequence() + ", not " + sequence + ", at " + offset);
        }
        table.sequence(sequence);
        if (message.type().equals("update")) {
            Object[] patch = message.rows().get(0);
            Object[] old = table.get((String) patch[0]);
            if (old == null) {
                throw new IllegalStateException(session + ": update of a missing row at " + offset);
            }
            Object[] row = merged(old, patch);
            table.put((String) row[0], row);
            out.accept(new Change(session, partition, offset, sequence, "update", row));
        } else {
            table.clear();
            for (Object[] row : message.rows()) {
                table.put((String) row[0], row);
                out.accept(new Change(session, partition, offset, sequence, "insert", row));
            }
        }
    }

    private static Object[] merged(Object[] old, Object[] patch) {
        Object[] row = old.clone();
        for (int place = 0; place < row.length; place++) {
            if (patch[place] != null) {
                row[place] = patch[place];
            }
        }
        return row;
    }
}
