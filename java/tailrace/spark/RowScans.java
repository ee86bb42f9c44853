package tailrace.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.MapInPandas;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Scan.ColumnarSupportMode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.WriteFiles;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Lets the native reader make rows where Spark would only make rows of its columns: for a result, a
 * write, a sort, a shuffle or a function in Python that takes whole rows. Spark copies each key and
 * value twice to make a row of columns, the reader once.
 *
 * <p>An optimizer rule chooses these scans. Spark would copy their rows once more, because it does
 * not know that they are in its own form; a planner strategy prevents this.
 */
public final class RowScans {
  private RowScans() {}

  /** Prepare a session; a second call changes nothing. */
  public static void install(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    synchronized (methods) {
      if (!methods.extraStrategies().exists(each -> each instanceof Planning)) {
        methods.extraStrategies_$eq(appended(methods.extraStrategies(), new Planning()));
        methods.extraOptimizations_$eq(appended(methods.extraOptimizations(), new Choice()));
      }
    }
  }

  private static <T> Seq<T> appended(Seq<T> all, T last) {
    List<T> list = new ArrayList<>(CollectionConverters.asJava(all));
    list.add(last);
    return sequence(list);
  }

  private static <T> Seq<T> sequence(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }

  /** Chooses rows for the scans whose consumer takes whole rows. */
  private static final class Choice extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      LogicalPlan root = plan instanceof Command ? plan : inRows(plan);
      return within(root);
    }

    private LogicalPlan within(LogicalPlan plan) {
      boolean rows = takesRows(plan);
      return plan.mapChildren(
          new AbstractFunction1<LogicalPlan, LogicalPlan>() {
            @Override
            public LogicalPlan apply(LogicalPlan child) {
              return within(rows ? inRows(child) : child);
            }
          });
    }

    private static boolean takesRows(LogicalPlan plan) {
      return plan instanceof Command
          || plan instanceof WriteFiles
          || plan instanceof RepartitionOperation
          || plan instanceof Sort
          || plan instanceof MapInArrow
          || plan instanceof MapInPandas;
    }

    private static LogicalPlan inRows(LogicalPlan plan) {
      if (plan instanceof DataSourceV2ScanRelation relation
          && relation.scan() instanceof NativeScan scan
          && RecordRows.canMake(scan.readSchema())) {
        return relation.copy(
            relation.relation(),
            scan.inRows(),
            relation.output(),
            relation.keyGroupedPartitioning(),
            relation.ordering(),
            relation.pushedFilters(),
            relation.mergeableScan());
      }
      return plan;
    }
  }

  /** Plans the chosen scans. */
  private static final class Planning extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      if (plan instanceof DataSourceV2ScanRelation relation && isInRows(relation.scan())) {
        return sequence(
            List.of(
                new BatchScanExec(
                    relation.output(),
                    relation.scan(),
                    sequence(List.of()),
                    relation.ordering(),
                    relation.relation().table(),
                    relation.keyGroupedPartitioning())));
      }
      return sequence(List.of());
    }

    private static boolean isInRows(Scan scan) {
      return scan instanceof NativeScan
          && scan.columnarSupportMode() == ColumnarSupportMode.UNSUPPORTED;
    }
  }
}
