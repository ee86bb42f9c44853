package tailrace.spark;

import java.util.Arrays;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A read of some columns of all ranges of a plan, one range in each task. */
final class TopicScan implements NativeScan, SupportsReportStatistics, Batch {
  private final StructType required;
  private final ReadRange[] ranges;
  private final boolean control;
  private final ColumnarSupportMode columnar;

  TopicScan(
      StructType required, ReadRange[] ranges, boolean control, ColumnarSupportMode columnar) {
    this.required = required;
    this.ranges = ranges;
    this.control = control;
    this.columnar = columnar;
  }

  @Override
  public TopicScan inRows() {
    return new TopicScan(required, ranges, control, ColumnarSupportMode.UNSUPPORTED);
  }

  @Override
  public StructType readSchema() {
    return required;
  }

  @Override
  public String description() {
    String topics =
        Arrays.stream(ranges).map(range -> range.topic).distinct().collect(Collectors.joining(","));
    return topics + " (native)";
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return columnar;
  }

  @Override
  public Statistics estimateStatistics() {
    long bytes = Arrays.stream(ranges).mapToLong(ReadRange::bytes).sum();
    long records = Arrays.stream(ranges).mapToLong(ReadRange::records).sum();
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(bytes);
      }

      @Override
      public OptionalLong numRows() {
        return OptionalLong.of(records);
      }
    };
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return ranges;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(required, control);
  }

  private static final class Factory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;
    private final StructType required;
    private final boolean control;

    Factory(StructType required, boolean control) {
      this.required = required;
      this.control = control;
    }

    @Override
    public boolean supportColumnarReads(InputPartition range) {
      return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition range) {
      return new RowReader(RangeReader.open((ReadRange) range, control), required);
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition range) {
      return new ColumnReader(RangeReader.open((ReadRange) range, control), required);
    }
  }
}
