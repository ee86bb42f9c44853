package tailrace.spark;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
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
final class PlannedScan implements Scan, SupportsMetadata {
  private final PythonScan python;
  private final StructType schema;
  private final StructType required;

  PlannedScan(PythonScan python, StructType schema, StructType required) {
    this.python = python;
    this.schema = schema;
    this.required = required;
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
    return ColumnarSupportMode.SUPPORTED;
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
      throw new UnsupportedOperationException("the native reader reads columns");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      PlannedTask planned = PlannedTask.unpickle(((PythonInputPartition) task).pickedPartition());
      if (planned == null) {
        return new NoRecords();
      }
      try {
        return RangeReader.open(planned.range, required, planned.control);
      } catch (ReadFailure failure) {
        if (failure.getCause() instanceof NoSuchFileException) {
          return new RowsAsColumns(python.createReader(task), schema, required);
        }
        throw failure;
      }
    }
  }

  /** The task that Spark makes if there is nothing to read. */
  private static final class NoRecords implements PartitionReader<ColumnarBatch> {
    @Override
    public boolean next() {
      return false;
    }

    @Override
    public ColumnarBatch get() {
      throw new IllegalStateException("there are no records");
    }

    @Override
    public void close() throws IOException {
      // Nothing was opened.
    }
  }
}
