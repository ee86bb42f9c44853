package tailrace.spark;

import org.apache.spark.sql.connector.read.Scan;

/** A read by the native reader: in columns, unless {@link RowScans} chooses rows. */
interface NativeScan extends Scan {
  /** The same read, in rows. */
  NativeScan inRows();
}
