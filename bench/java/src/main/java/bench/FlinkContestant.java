package bench;

import bench.Fold.Change;
import bench.Task.Column;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.ParquetWriterFactory;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.filesystem.OutputFileConfig;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Contestant: Flink, in Java, in one process (its own mini cluster), exactly once: KafkaSource, keyBy the session,
 * KeyedProcessFunction with keyed state, FileSink.
 *
 * Settings, each as its documentation recommends for throughput: the hash-map state backend (state is small: no
 * RocksDB); object reuse, so that chained operators hand on objects without copying them; as many subtasks as cores; a
 * checkpoint each second, as often as the others commit; tuples and rows, which have serializers of Flink's own (never Kryo);
 * records cross the shuffle as bytes and are decoded behind it. The heap is Java's default, a quarter of the machine.
 */
public final class FlinkContestant {
    private static final long CHECKPOINT_MILLIS = 1000;

    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        Progress progress = new Progress(task.warmup(), task.messages());
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("execution.checkpointing.dir", task.folder().resolve("checkpoints").toUri().toString());
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(task.cores(), settings);
        environment.enableCheckpointing(CHECKPOINT_MILLIS); // exactly once is the default
        environment.getConfig().enableObjectReuse();

        KafkaSource<Tuple4<String, Integer, Long, byte[]>> source = KafkaSource.<Tuple4<String, Integer, Long, byte[]>>builder()
            .setBootstrapServers(task.bootstrap())
            .setTopics(task.topic())
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setDeserializer(new Records())
            .build();
        List<Column> columns = List.copyOf(task.columns());
        FileSink<Change> sink = FileSink
            .forBulkFormat(new Path(task.folder().resolve("changes").toUri()),
                new ParquetWriterFactory<Change>(file -> ParquetChanges.writer(file, columns)))
            .withOutputFileConfig(OutputFileConfig.builder().withPartSuffix(".parquet").build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "records")
            .keyBy(record -> record.f0)
            .process(new Rebuild(columns, progress), TypeInformation.of(Change.class))
            .sinkTo(sink);
        environment.execute();
        progress.finish();
    }

    private static final class Records implements KafkaRecordDeserializationSchema<Tuple4<String, Integer, Long, byte[]>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple4<String, Integer, Long, byte[]>> out) {
            String session = new String(record.key(), java.nio.charset.StandardCharsets.UTF_8);
            out.collect(Tuple4.of(session, record.partition(), record.offset(), record.value()));
        }

        @Override
        public TypeInformation<Tuple4<String, Integer, Long, byte[]>> getProducedType() {
            return TypeInformation.of(new TypeHint<>() {});
        }
    }

    private static final class Rebuild extends KeyedProcessFunction<String, Tuple4<String, Integer, Long, byte[]>, Change> {
        private final List<Column> columns;
        private final Progress progress;
        private transient Decoder decoder;
        private transient State state;

        Rebuild(List<Column> columns, Progress progress) {
            this.columns = columns;
            this.progress = progress;
        }

        @Override
        public void open(OpenContext context) {
            TypeInformation<?>[] types = columns.stream().map(Rebuild::type).toArray(TypeInformation[]::new);
            decoder = new Decoder(columns);
            state = new State(
                getRuntimeContext().getState(new ValueStateDescriptor<>("sequence", Types.LONG)),
                getRuntimeContext().getMapState(new MapStateDescriptor<>("rows", Types.STRING, Types.ROW(types))),
                columns.size());
        }

        private static TypeInformation<?> type(Column column) {
            return switch (column.type()) {
                case "double" -> Types.DOUBLE;
                case "long" -> Types.LONG;
                default -> Types.STRING;
            };
        }

        @Override
        public void processElement(Tuple4<String, Integer, Long, byte[]> record, Context context, Collector<Change> out)
                throws Exception {
            Fold.apply(decoder.decode(record.f3), state, record.f0, record.f1, record.f2, out::collect);
            progress.one();
        }
    }

    /** The table of the current key's session, in Flink's state. */
    private record State(ValueState<Long> number, MapState<String, Row> rows, int width) implements Fold.Table {
        @Override
        public long sequence() throws Exception {
            Long known = number.value();
            return known == null ? 0 : known;
        }

        @Override
        public void sequence(long value) throws Exception {
            number.update(value);
        }

        @Override
        public Object[] get(String key) throws Exception {
            Row row = rows.get(key);
            if (row == null) {
                return null;
            }
            Object[] values = new Object[width];
            for (int place = 0; place < width; place++) {
                values[place] = row.getField(place);
            }
            return values;
        }

        @Override
        public void put(String key, Object[] row) throws Exception {
            rows.put(key, Row.of(row));
        }

        @Override
        public void clear() {
            rows.clear();
        }
    }
}
