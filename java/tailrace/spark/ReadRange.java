package tailrace.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * Records of one partition from offset {@code start} to {@code end}, without {@code end}, and the
 * files that hold them.
 *
 * <p>A plan is the version, the number of ranges, and the ranges; as text, in Base64. Numbers are
 * big-endian. A range is its topic, storage topic (4 bytes), partition (4), start (8), end (8), the
 * number of files (4), and for each file its path and its batch entries as in an index file. Text
 * and entries have their length in bytes (4) before them.
 */
final class ReadRange implements InputPartition {
  private static final long serialVersionUID = 1;

  final String topic;
  final int storage;
  final int partition;
  final long start;
  final long end;
  final String[] files;
  final byte[][] entries;

  private ReadRange(ByteBuffer plan) {
    topic = text(plan);
    storage = plan.getInt();
    partition = plan.getInt();
    start = plan.getLong();
    end = plan.getLong();
    int count = plan.getInt();
    files = new String[count];
    entries = new byte[count][];
    for (int i = 0; i < count; i++) {
      files[i] = text(plan);
      entries[i] = bytes(plan);
    }
  }

  static ReadRange[] decode(String encoded) {
    if (encoded == null) {
      throw new IllegalArgumentException("the native reader needs a plan; use tailrace.spark.read");
    }
    return decode(Base64.getDecoder().decode(encoded));
  }

  static ReadRange[] decode(byte[] packed) {
    ByteBuffer plan = ByteBuffer.wrap(packed);
    int version = plan.getInt();
    if (version != TopicSource.PLAN_VERSION) {
      throw new IllegalArgumentException(
          "the plan has version " + version + ", the jar reads " + TopicSource.PLAN_VERSION
              + "; use the jar of the installed tailrace");
    }
    ReadRange[] ranges = new ReadRange[plan.getInt()];
    for (int i = 0; i < ranges.length; i++) {
      ranges[i] = new ReadRange(plan);
    }
    return ranges;
  }

  /** The number of bytes of all batches of the range. */
  long bytes() {
    return total(BatchEntries::bytes);
  }

  /** The number of records of all batches of the range. */
  long records() {
    return total(BatchEntries::records);
  }

  @Override
  public String toString() {
    return topic + "/" + storage + "." + partition + "@" + start + " to @" + end;
  }

  private interface Count {
    long of(BatchEntries entries, int row);
  }

  private long total(Count count) {
    long total = 0;
    for (byte[] each : entries) {
      BatchEntries rows = new BatchEntries(each);
      for (int row = 0; row < rows.count(); row++) {
        total += count.of(rows, row);
      }
    }
    return total;
  }

  private static String text(ByteBuffer plan) {
    return new String(bytes(plan), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(ByteBuffer plan) {
    byte[] read = new byte[plan.getInt()];
    plan.get(read);
    return read;
  }
}
