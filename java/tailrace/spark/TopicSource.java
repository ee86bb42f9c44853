package tailrace.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The native reader of topics: a data source for tailrace.spark.read, which passes a plan and a
 * schema. It opens no hub; it reads the byte ranges that the plan names.
 */
public final class TopicSource implements TableProvider {
  /** The version of the plan that this jar reads. Python uses another reader if it writes another. */
  public static final int PLAN_VERSION = 1;

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw new IllegalArgumentException("the native reader needs a schema; use tailrace.spark.read");
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new TopicTable(schema);
  }
}
