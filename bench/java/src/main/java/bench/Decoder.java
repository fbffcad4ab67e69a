package bench;

import bench.Task.Column;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A record's bytes to a message, by Jackson's streaming parser: the fastest way to read JSON that its users have. */
final class Decoder {
    /** Rows in the order of the columns; of an update there is one, with nulls for what it does not change. */
    record Message(String type, long sequence, List<Object[]> rows) {}

    private final JsonFactory factory = new JsonFactory();
    private final Map<String, Integer> places = new HashMap<>();
    private final String[] types;

    Decoder(List<Column> columns) {
        types = columns.stream().map(Column::type).toArray(String[]::new);
        for (Column column : columns) {
            places.put(column.name(), places.size());
        }
    }

    Message decode(byte[] value) throws IOException {
        String type = null;
        long sequence = 0;
        List<Object[]> rows = List.of();
        try (JsonParser parser = factory.createParser(value)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "type" -> type = parser.getText();
                    case "seq" -> sequence = parser.getLongValue();
                    case "row" -> rows = List.<Object[]>of(row(parser));
                    case "rows" -> rows = rows(parser);
                    default -> parser.skipChildren();
                }
            }
        }
        return new Message(type, sequence, rows);
    }

    private List<Object[]> rows(JsonParser parser) throws IOException {
        List<Object[]> rows = new ArrayList<>();
        while (parser.nextToken() != JsonToken.END_ARRAY) {
            rows.add(row(parser));
        }
        return rows;
    }

    private Object[] row(JsonParser parser) throws IOException {
        Object[] row = new Object[types.length];
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            Integer place = places.get(parser.currentName());
            parser.nextToken();
            if (place == null) {
                throw new IOException("no such column: " + parser.currentName());
            }
            row[place] = switch (types[place]) {
                case "double" -> parser.getDoubleValue();
                case "long" -> parser.getLongValue();
                default -> parser.getText();
            };
        }
        return row;
    }
}
