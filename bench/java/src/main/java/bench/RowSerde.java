package bench;

import bench.Task.Column;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/** A row as bytes, for Kafka Streams' stores: numbers in eight bytes, text with its length before it. */
final class RowSerde implements Serde<Object[]> {
    private final String[] types;

    RowSerde(List<Column> columns) {
        types = columns.stream().map(Column::type).toArray(String[]::new);
    }

    @Override
    public Serializer<Object[]> serializer() {
        return (topic, row) -> row == null ? null : written(row);
    }

    @Override
    public Deserializer<Object[]> deserializer() {
        return (topic, bytes) -> bytes == null ? null : read(ByteBuffer.wrap(bytes));
    }

    private byte[] written(Object[] row) {
        byte[][] texts = new byte[row.length][];
        int size = 0;
        for (int place = 0; place < row.length; place++) {
            if (row[place] instanceof String text) {
                texts[place] = text.getBytes(StandardCharsets.UTF_8);
                size += Integer.BYTES + texts[place].length;
            } else {
                size += Long.BYTES;
            }
        }
        ByteBuffer out = ByteBuffer.allocate(size);
        for (int place = 0; place < row.length; place++) {
            switch (types[place]) {
                case "double" -> out.putDouble((double) row[place]);
                case "long" -> out.putLong((long) row[place]);
                default -> out.putInt(texts[place].length).put(texts[place]);
            }
        }
        return out.array();
    }

    private Object[] read(ByteBuffer in) {
        Object[] row = new Object[types.length];
        for (int place = 0; place < row.length; place++) {
            row[place] = switch (types[place]) {
                case "double" -> in.getDouble();
                case "long" -> in.getLong();
                default -> text(in);
            };
        }
        return row;
    }

    private static String text(ByteBuffer in) {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
