package tailrace.spark;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** The rows of a reader in Spark's own form, with those columns that a query needs. */
final class ProjectedRows implements PartitionReader<InternalRow> {
  private final PartitionReader<InternalRow> rows;
  private final UnsafeProjection projection;

  ProjectedRows(PartitionReader<InternalRow> rows, StructType schema, StructType required) {
    this.rows = rows;
    Expression[] columns =
        Arrays.stream(required.fields())
            .map(each -> new BoundReference(
                schema.fieldIndex(each.name()), each.dataType(), each.nullable()))
            .toArray(Expression[]::new);
    projection =
        UnsafeProjection.create(CollectionConverters.asScala(Arrays.asList(columns)).toSeq());
  }

  @Override
  public boolean next() throws IOException {
    return rows.next();
  }

  @Override
  public InternalRow get() {
    return projection.apply(rows.get());
  }

  @Override
  public void close() throws IOException {
    rows.close();
  }
}
