package tailrace.spark;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the records of a range in columns. */
final class ColumnReader implements PartitionReader<ColumnarBatch> {
  private final RangeReader reader;
  private final RecordColumns columns;

  ColumnReader(RangeReader reader, StructType required) {
    this.reader = reader;
    this.columns = new RecordColumns(reader.records(), reader.range(), required);
  }

  @Override
  public boolean next() throws IOException {
    return reader.next();
  }

  @Override
  public ColumnarBatch get() {
    return columns.batch();
  }

  @Override
  public void close() {
    reader.close();
  }
}
