package bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** What a contestant is told: bench/task.py, in the environment. */
record Task(String bootstrap, String topic, Path folder, long messages, int partitions, long warmup,
            List<Column> columns, int cores, String outputTopic) {

    /** A column's name and type (string, double or long). The first one is the key. */
    record Column(String name, String type) implements java.io.Serializable {}

    static Task read() throws IOException {
        JsonNode told = new ObjectMapper().readTree(System.getenv("BENCH_TASK"));
        List<Column> columns = new ArrayList<>();
        told.get("columns").forEach(pair -> columns.add(new Column(pair.get(0).asText(), pair.get(1).asText())));
        return new Task(told.get("bootstrap").asText(), told.get("topic").asText(), Path.of(told.get("folder").asText()),
            told.get("messages").asLong(), told.get("partitions").asInt(), told.get("warmup").asLong(),
            columns, told.get("cores").asInt(), told.get("output_topic").asText());
    }
}
