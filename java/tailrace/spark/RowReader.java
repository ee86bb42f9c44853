package tailrace.spark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;

/** Reads the records of a range in rows, each valid until the next one. */
final class RowReader implements PartitionReader<InternalRow> {
  private final RangeReader reader;
  private final Records records;
  private final RecordRows rows;
  private int row = -1;
  private int count;

  RowReader(RangeReader reader, StructType required) {
    this.reader = reader;
    this.records = reader.records();
    this.rows = new RecordRows(records, reader.range(), required);
  }

  @Override
  public boolean next() throws IOException {
    if (++row < count) {
      return true;
    }
    row = 0;
    count = 0;
    if (!reader.next()) {
      return false;
    }
    count = records.count();
    return true;
  }

  @Override
  public InternalRow get() {
    return rows.row(row);
  }

  @Override
  public void close() {
    reader.close();
  }
}
