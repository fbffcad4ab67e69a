package bench;

import bench.Fold.Change;
import bench.Task.Column;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Contestant: Kafka Streams, in Java, exactly_once_v2. It has no file sink: its row changes go to an output topic, as
 * JSON, compressed with zstd; turning them into Parquet would be one more program, and its time is not in here.
 * The argument says which store: `memory` or `rocksdb`. Both keep their changelog topics, which is how state survives.
 *
 * Settings: as many threads as cores; a commit each second, as often as the others (its default under exactly once is ten times as
 * often: less throughput for less delay); caches on the stores, large enough for all rows, so that a changelog gets a row
 * once for each commit; larger producer batches with zstd. One broker, so one replica. The rest is default.
 */
public final class StreamsContestant {
    private static final String ROWS = "rows";
    private static final String SEQUENCES = "sequences";
    private static final int COMMIT_MILLIS = 1000;
    private static final long CACHE_BYTES = 256L << 20;
    private static final char SEPARATOR = '\u0000';

    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        Progress progress = new Progress(task.warmup(), task.messages());
        boolean memory = arguments[0].equals("memory");
        Topology topology = new Topology();
        topology.addSource("records", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), task.topic());
        topology.addProcessor("rebuild", () -> new Rebuild(task, progress), "records");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(store(memory, ROWS), Serdes.String(), new RowSerde(task.columns())).withCachingEnabled(),
            "rebuild");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(store(memory, SEQUENCES), Serdes.String(), Serdes.Long()).withCachingEnabled(),
            "rebuild");
        topology.addSink("changes", task.outputTopic(), Serdes.String().serializer(), new ChangeSerializer(task.columns()), "rebuild");

        KafkaStreams streams = new KafkaStreams(topology, settings(task));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (!progress.done()) {
            Thread.sleep(2);
        }
        streams.close(); // commits
        progress.finish();
    }

    private static KeyValueBytesStoreSupplier store(boolean memory, String name) {
        return memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name);
    }

    private static Properties settings(Task task) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, task.outputTopic());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, task.bootstrap());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, task.cores());
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, COMMIT_MILLIS);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, CACHE_BYTES);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, task.folder().resolve("state").toString());
        settings.put("auto.offset.reset", "earliest");
        settings.put("compression.type", "zstd");
        settings.put("batch.size", 256 << 10);
        return settings;
    }

    private static final class Rebuild implements Processor<String, byte[], String, Change> {
        private final Decoder decoder;
        private final Progress progress;
        private ProcessorContext<String, Change> context;
        private State state;

        Rebuild(Task task, Progress progress) {
            decoder = new Decoder(task.columns());
            this.progress = progress;
        }

        @Override
        public void init(ProcessorContext<String, Change> processorContext) {
            context = processorContext;
            state = new State(context.getStateStore(ROWS), context.getStateStore(SEQUENCES));
        }

        @Override
        public void process(Record<String, byte[]> record) {
            RecordMetadata at = context.recordMetadata().orElseThrow();
            state.session = record.key();
            try {
                Fold.apply(decoder.decode(record.value()), state, record.key(), at.partition(), at.offset(),
                    change -> context.forward(record.withValue(change)));
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            progress.one();
        }
    }

    /** The tables of all sessions of a partition: one entry for each row, under the session's name and the row's key. */
    private static final class State implements Fold.Table {
        private final KeyValueStore<String, Object[]> rows;
        private final KeyValueStore<String, Long> sequences;
        private String session;

        State(KeyValueStore<String, Object[]> rows, KeyValueStore<String, Long> sequences) {
            this.rows = rows;
            this.sequences = sequences;
        }

        @Override
        public long sequence() {
            Long known = sequences.get(session);
            return known == null ? 0 : known;
        }

        @Override
        public void sequence(long number) {
            sequences.put(session, number);
        }

        @Override
        public Object[] get(String key) {
            return rows.get(session + SEPARATOR + key);
        }

        @Override
        public void put(String key, Object[] row) {
            rows.put(session + SEPARATOR + key, row);
        }

        @Override
        public void clear() {
            try (KeyValueIterator<String, Object[]> old = rows.prefixScan(session + SEPARATOR, new StringSerializer())) {
                while (old.hasNext()) {
                    KeyValue<String, Object[]> row = old.next();
                    rows.delete(row.key);
                }
            }
        }
    }

    /** A change as JSON: what the others write as columns. */
    private static final class ChangeSerializer implements org.apache.kafka.common.serialization.Serializer<Change> {
        private final JsonFactory factory = new JsonFactory();
        private final List<Column> columns;

        ChangeSerializer(List<Column> columns) {
            this.columns = columns;
        }

        @Override
        public byte[] serialize(String topic, Change change) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
            try (JsonGenerator json = factory.createGenerator(bytes)) {
                json.writeStartObject();
                json.writeStringField("session", change.session());
                json.writeNumberField("partition", change.partition());
                json.writeNumberField("offset", change.offset());
                json.writeNumberField("sequence", change.sequence());
                json.writeStringField("op", change.op());
                for (int place = 0; place < columns.size(); place++) {
                    json.writeFieldName(columns.get(place).name());
                    switch (columns.get(place).type()) {
                        case "double" -> json.writeNumber((double) change.row()[place]);
                        case "long" -> json.writeNumber((long) change.row()[place]);
                        default -> json.writeString((String) change.row()[place]);
                    }
                }
                json.writeEndObject();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            return bytes.toByteArray();
        }
    }
}
