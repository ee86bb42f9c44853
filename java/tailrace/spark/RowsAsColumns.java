package tailrace.spark;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of a reader as columns, of which a query needs some. */
final class RowsAsColumns implements PartitionReader<ColumnarBatch> {
  private static final int ROWS_MAX = 4096;

  private final PartitionReader<InternalRow> rows;
  private final RowToColumnConverter converter;
  private final OnHeapColumnVector[] vectors;
  private final ColumnarBatch batch;

  RowsAsColumns(PartitionReader<InternalRow> rows, StructType schema, StructType required) {
    this.rows = rows;
    converter = new RowToColumnConverter(schema);
    vectors = OnHeapColumnVector.allocateColumns(ROWS_MAX, schema);
    batch =
        new ColumnarBatch(
            Arrays.stream(required.fieldNames())
                .map(name -> vectors[schema.fieldIndex(name)])
                .toArray(ColumnVector[]::new));
  }

  @Override
  public boolean next() throws IOException {
    for (OnHeapColumnVector vector : vectors) {
      vector.reset();
    }
    int count = 0;
    while (count < ROWS_MAX && rows.next()) {
      converter.convert(rows.get(), vectors);
      count++;
    }
    batch.setNumRows(count);
    return count > 0;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    for (OnHeapColumnVector vector : vectors) {
      vector.close();
    }
    rows.close();
  }
}
