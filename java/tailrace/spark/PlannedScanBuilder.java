package tailrace.spark;

import java.util.Arrays;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Scan.ColumnarSupportMode;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Builds the scan of a query over the data source tailrace: the source in Python plans it, with the
 * filters of the query, and Java reads the columns that the query needs. Only TopicTables.java in
 * the Python package makes one.
 */
public final class PlannedScanBuilder
    implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
  private final PythonScanBuilder python;
  private final StructType schema;
  private StructType required;

  public PlannedScanBuilder(PythonScanBuilder python, StructType schema) {
    this.python = python;
    this.schema = schema;
    this.required = schema;
  }

  @Override
  public Filter[] pushFilters(Filter[] filters) {
    return python.pushFilters(filters);
  }

  @Override
  public Filter[] pushedFilters() {
    return python.pushedFilters();
  }

  /** Keep whole columns: Python, which may have to read a task, makes no parts of headers. */
  @Override
  public void pruneColumns(StructType requiredSchema) {
    Set<String> names = Arrays.stream(requiredSchema.fieldNames()).collect(Collectors.toSet());
    required =
        new StructType(
            Arrays.stream(schema.fields())
                .filter(field -> names.contains(field.name()))
                .toArray(StructField[]::new));
  }

  @Override
  public Scan build() {
    return new PlannedScan(
        (PythonScan) python.build(), schema, required, ColumnarSupportMode.SUPPORTED);
  }
}
