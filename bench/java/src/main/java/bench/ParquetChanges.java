package bench;

import bench.Fold.Change;
import bench.Task.Column;
import java.util.HashMap;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Types;

/** Row changes as zstd Parquet, written field by field: no detour over Avro. Everything else is Parquet's default. */
final class ParquetChanges extends ParquetWriter.Builder<Change, ParquetChanges> {
    private final List<Column> columns;

    private ParquetChanges(OutputFile file, List<Column> columns) {
        super(file);
        this.columns = columns;
    }

    static ParquetWriter<Change> writer(OutputFile file, List<Column> columns) throws java.io.IOException {
        return new ParquetChanges(file, columns).withCompressionCodec(CompressionCodecName.ZSTD).build();
    }

    @Override
    protected ParquetChanges self() {
        return this;
    }

    @Override
    protected WriteSupport<Change> getWriteSupport(Configuration configuration) {
        return new Support(columns);
    }

    private static final class Support extends WriteSupport<Change> {
        private final List<Column> columns;
        private RecordConsumer consumer;

        Support(List<Column> columns) {
            this.columns = columns;
        }

        @Override
        public WriteContext init(Configuration configuration) {
            Types.MessageTypeBuilder schema = Types.buildMessage();
            text(schema, "session");
            schema.required(PrimitiveTypeName.INT32).named("partition");
            schema.required(PrimitiveTypeName.INT64).named("offset");
            schema.required(PrimitiveTypeName.INT64).named("sequence");
            text(schema, "op");
            for (Column column : columns) {
                switch (column.type()) {
                    case "double" -> schema.required(PrimitiveTypeName.DOUBLE).named(column.name());
                    case "long" -> schema.required(PrimitiveTypeName.INT64).named(column.name());
                    default -> text(schema, column.name());
                }
            }
            MessageType type = schema.named("change");
            return new WriteContext(type, new HashMap<>());
        }

        private static void text(Types.MessageTypeBuilder schema, String name) {
            schema.required(PrimitiveTypeName.BINARY).as(LogicalTypeAnnotation.stringType()).named(name);
        }

        @Override
        public void prepareForWrite(RecordConsumer recordConsumer) {
            consumer = recordConsumer;
        }

        @Override
        public void write(Change change) {
            consumer.startMessage();
            field("session", 0, change.session());
            field("partition", 1, change.partition());
            field("offset", 2, change.offset());
            field("sequence", 3, change.sequence());
            field("op", 4, change.op());
            for (int place = 0; place < columns.size(); place++) {
                field(columns.get(place).name(), place + 5, change.row()[place]);
            }
            consumer.endMessage();
        }

        private void field(String name, int place, Object value) {
            consumer.startField(name, place);
            if (value instanceof String text) {
                consumer.addBinary(Binary.fromString(text));
            } else if (value instanceof Double number) {
                consumer.addDouble(number);
            } else if (value instanceof Integer number) {
                consumer.addInteger(number);
            } else {
                consumer.addLong((Long) value);
            }
            consumer.endField(name, place);
        }
    }
}
