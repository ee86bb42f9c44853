package tailrace.spark;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.function.Function;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.Map;

/**
 * A read whose tasks Python planned and Java reads. A task whose files a compaction has replaced
 * since is read by Python, which looks the files up again.
 */
final class PlannedScan implements NativeScan, SupportsMetadata {
  private final PythonScan python;
  private final StructType schema;
  private final StructType required;
  private final ColumnarSupportMode columnar;

  PlannedScan(
      PythonScan python, StructType schema, StructType required, ColumnarSupportMode columnar) {
    this.python = python;
    this.schema = schema;
    this.required = required;
    this.columnar = columnar;
  }

  @Override
  public PlannedScan inRows() {
    return new PlannedScan(python, schema, required, ColumnarSupportMode.UNSUPPORTED);
  }

  @Override
  public StructType readSchema() {
    return required;
  }

  @Override
  public String description() {
    return "(native)";
  }

  @Override
  public Map<String, String> getMetaData() {
    return python.getMetaData();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return columnar;
  }

  @Override
  public Batch toBatch() {
    Batch planned = python.toBatch();
    return new Batch() {
      @Override
      public InputPartition[] planInputPartitions() {
        return planned.planInputPartitions();
      }

      @Override
      public PartitionReaderFactory createReaderFactory() {
        return new Factory(planned.createReaderFactory(), schema, required);
      }
    };
  }

  private static final class Factory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;
    private final PartitionReaderFactory python;
    private final StructType schema;
    private final StructType required;

    Factory(PartitionReaderFactory python, StructType schema, StructType required) {
      this.python = python;
      this.schema = schema;
      this.required = required;
    }

    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      return reader(
          task,
          found -> new RowReader(found, required),
          rows -> new ProjectedRows(rows, schema, required));
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      return reader(
          task,
          found -> new ColumnReader(found, required),
          rows -> new RowsAsColumns(rows, schema, required));
    }

    /** Read a task by Java, or by Python if its files are no longer there. */
    private <T> PartitionReader<T> reader(
        InputPartition task,
        Function<RangeReader, PartitionReader<T>> byJava,
        Function<PartitionReader<InternalRow>, PartitionReader<T>> byPython) {
      PlannedTask planned = PlannedTask.unpickle(((PythonInputPartition) task).pickedPartition());
      if (planned == null) {
        return new NoRecords<>();
      }
      try {
        return byJava.apply(RangeReader.open(planned.range, planned.control));
      } catch (SparkRuntimeException failure) {
        if (failure.getCause() instanceof NoSuchFileException) {
          return byPython.apply(python.createReader(task));
        }
        throw failure;
      }
    }
  }

  /** The task that Spark makes if there is nothing to read. */
  private static final class NoRecords<T> implements PartitionReader<T> {
    @Override
    public boolean next() {
      return false;
    }

    @Override
    public T get() {
      throw new IllegalStateException("there are no records");
    }

    @Override
    public void close() throws IOException {
      // Nothing was opened.
    }
  }
}
