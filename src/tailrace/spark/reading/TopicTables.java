package tailrace.session;

import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.util.Utils;
import scala.Function1;
import scala.Some;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Makes the optimizer rule that plans a read of topics anew for each query.
 *
 * <p>Spark 4.3 keeps the plan of a Python data source, that is its tasks and pushed filters, in the
 * object behind a loaded DataFrame, and uses it for every later query of that DataFrame. It also
 * forgets the options of a table. The rule replaces Spark's table by one that does neither.
 *
 * <p>Janino, the compiler that Spark includes, compiles this file in the driver when a session is
 * prepared. It takes no type arguments.
 */
public class TopicTables extends AbstractFunction1 {
  static final String SOURCE = "tailrace";

  /** The option by which the reader in Python knows that its filters concern one scan only. */
  static final String FILTERS = "tailrace.filters";

  /** The option by which the reader in Python knows that Java reads the tasks. */
  static final String NATIVE = "tailrace.native";

  /** The setting of a session that turns the native reader off. */
  static final String SWITCH = "spark.tailrace.native";

  /** The version of the plans that the reader in Python makes. */
  static final int PLAN_VERSION = 1;

  public Object apply(Object session) {
    return new TopicTablesRule((SparkSession) session);
  }

  public static class TopicTablesRule extends Rule {
    private final SparkSession session;

    public TopicTablesRule(SparkSession session) {
      this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
      return ((LogicalPlan) plan).transformUp(new Replacement(session));
    }
  }

  static class Replacement extends AbstractPartialFunction {
    private final SparkSession session;

    Replacement(SparkSession session) {
      this.session = session;
    }

    public boolean isDefinedAt(Object node) {
      if (node instanceof V2WriteCommand) {
        return isTopic(((V2WriteCommand) node).table());
      }
      return isTopic(node);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      if (node instanceof V2WriteCommand) {
        V2WriteCommand write = (V2WriteCommand) node;
        return write.withNewTable(replaced((DataSourceV2Relation) write.table()));
      }
      return replaced((DataSourceV2Relation) node);
    }

    private static boolean isTopic(Object node) {
      if (!(node instanceof DataSourceV2Relation)) {
        return false;
      }
      Object table = ((DataSourceV2Relation) node).table();
      return table.getClass() == PythonTable.class
          && SOURCE.equalsIgnoreCase(((PythonTable) table).name());
    }

    private DataSourceV2Relation replaced(DataSourceV2Relation relation) {
      PythonTable python = (PythonTable) relation.table();
      TopicTable table = new TopicTable(session, python, options(relation));
      return relation.copy(
          table,
          relation.output(),
          relation.catalog(),
          relation.identifier(),
          relation.options(),
          relation.timeTravelSpec());
    }

    /** Returns the options of CREATE TABLE, if the relation is a table, and those of the read. */
    private Map options(DataSourceV2Relation relation) {
      Map options = new HashMap();
      if (relation.identifier().isDefined()) {
        CatalogTable table = stored((Identifier) relation.identifier().get());
        if (table.tableType().equals(CatalogTableType.EXTERNAL())) {
          options.put("path", table.location().getPath());
        }
        Iterator names = table.storage().properties().keysIterator();
        while (names.hasNext()) {
          String name = (String) names.next();
          options.put(name.toLowerCase(), table.storage().properties().apply(name));
        }
      }
      options.putAll(relation.options());
      return options;
    }

    private CatalogTable stored(Identifier name) {
      String[] spaces = name.namespace();
      TableIdentifier table =
          spaces.length == 0
              ? new TableIdentifier(name.name())
              : new TableIdentifier(name.name(), new Some(spaces[spaces.length - 1]));
      try {
        return session.sessionState().catalog().getTableMetadata(table);
      } catch (Exception error) {
        throw new IllegalStateException("cannot look up the options of " + table, error);
      }
    }
  }

  /** A table whose every scan has a plan of its own. */
  static class TopicTable extends PythonTable {
    /** The sources in Python, by the object behind a loaded DataFrame and by their options. */
    private static final Map CREATED = new WeakHashMap();

    private final SparkSession session;
    private final PythonDataSourceV2 loaded;
    private final Map options;

    TopicTable(SparkSession session, PythonTable table, Map options) {
      super(loaded(table), SOURCE, table.schema());
      this.session = session;
      this.loaded = loaded(table);
      this.options = options;
    }

    /** Shown in plans and in Spark's web pages. */
    public String name() {
      String[] names = {"subscribe", "subscribepattern", "assign", "path"};
      for (int i = 0; i < names.length; i++) {
        if (options.get(names[i]) != null) {
          return SOURCE + " " + options.get(names[i]);
        }
      }
      return SOURCE;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      Map all = new HashMap(options);
      all.putAll(given);
      if (SQLConf.get().pythonFilterPushDown()) {
        all.put(FILTERS, "true");
      }
      Constructor planned = nativeBuilder();
      if (planned != null) {
        all.put(NATIVE, "true");
      }
      CaseInsensitiveStringMap merged = new CaseInsensitiveStringMap(all);
      PythonDataSourceV2 provider = new PythonDataSourceV2();
      provider.setShortName(SOURCE);
      set(provider, created(all, merged));
      PythonScanBuilder builder = new PythonScanBuilder(provider, SOURCE, schema(), merged);
      if (planned == null) {
        return builder;
      }
      try {
        return (ScanBuilder) planned.newInstance(new Object[] {builder, schema()});
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }

    /**
     * Returns the constructor of the scan builder in the jar of the native reader; null if the
     * session has no such jar, has one for other plans, or does not want it.
     */
    private Constructor nativeBuilder() {
      if (SQLConf.get().getConfString(SWITCH, "true").equalsIgnoreCase("false")) {
        return null;
      }
      try {
        Class source = ofJar("tailrace.spark.TopicSource");
        if (source.getField("PLAN_VERSION").getInt(null) != PLAN_VERSION) {
          return null;
        }
        Class builder = ofJar("tailrace.spark.PlannedScanBuilder");
        return builder.getConstructor(new Class[] {PythonScanBuilder.class, StructType.class});
      } catch (ReflectiveOperationException error) {
        return null;
      }
    }

    /** Returns a class of spark.jars, or of a jar that was added to the running session. */
    private Class ofJar(String name) throws ClassNotFoundException {
      try {
        return Utils.getContextOrSparkClassLoader().loadClass(name);
      } catch (ClassNotFoundException error) {
        return session.sharedState().jarClassLoader().loadClass(name);
      }
    }

    private Object created(Map all, CaseInsensitiveStringMap merged) {
      synchronized (CREATED) {
        Map sources = (Map) CREATED.get(loaded);
        if (sources == null) {
          sources = new HashMap();
          CREATED.put(loaded, sources);
        }
        Object source = sources.get(all);
        if (source == null) {
          source =
              loaded.source().createDataSourceInPython(SOURCE, merged, new Some(schema()));
          sources.put(all, source);
        }
        return source;
      }
    }

    /** An INSERT INTO a table or view that reads one topic writes to that topic. */
    public WriteBuilder newWriteBuilder(final LogicalWriteInfo info) {
      Map all = new HashMap(options);
      all.putAll(info.options());
      String path = (String) all.get("path");
      Object hub = all.get("hub");
      Object topic = all.get("topic") == null ? all.get("subscribe") : all.get("topic");
      if (hub == null && path != null) {
        File file = new File(path.startsWith("file:") ? path.substring(5) : path);
        hub = topic == null ? file.getParent() : file.getPath();
        topic = topic == null ? file.getName() : topic;
      }
      if (info.options().containsKey("hub") && info.options().get("topic") != null
          || hub == null || topic == null) {
        return super.newWriteBuilder(info);
      }
      final Map written = new HashMap();
      written.put("hub", hub);
      written.put("topic", topic);
      return super.newWriteBuilder(new InsertInfo(info, new CaseInsensitiveStringMap(written)));
    }

    private static PythonDataSourceV2 loaded(PythonTable table) {
      try {
        Field field = PythonTable.class.getDeclaredField("ds");
        field.setAccessible(true);
        return (PythonDataSourceV2) field.get(table);
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }

    private static void set(PythonDataSourceV2 provider, Object source) {
      try {
        Field field = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
        field.setAccessible(true);
        field.set(provider, source);
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
    }
  }

  static class InsertInfo implements LogicalWriteInfo {
    private final LogicalWriteInfo info;
    private final CaseInsensitiveStringMap options;

    InsertInfo(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
      this.info = info;
      this.options = options;
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }

    public String queryId() {
      return info.queryId();
    }

    public StructType schema() {
      return info.schema();
    }
  }
}
