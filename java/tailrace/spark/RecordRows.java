package tailrace.spark;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Records as rows in Spark's own form, each written into the same buffer with one copy of its key
 * and value.
 *
 * <p>The buffer has a word of null bits, a word for each column, the texts of the topic, op and
 * mode, and then the key and the value. Texts, partition and storage are the same for all records
 * of a range with the same mode byte, so they are written only when that byte changes.
 */
final class RecordRows {
  private static final int WORD_BYTES = 8;
  private static final int ABSENT = -1;

  private final Records records;
  private final ReadRange range;
  private final StructField[] fields;
  private final int key;
  private final int value;
  private final int offset;
  private final int timestamp;
  private final UnsafeRow row;

  private byte[] buffer = new byte[1024];
  private int textsEnd;
  private int writtenFlags = ABSENT;

  RecordRows(Records records, ReadRange range, StructType required) {
    this.records = records;
    this.range = range;
    fields = required.fields();
    key = position(required, "key");
    value = position(required, "value");
    offset = position(required, "offset");
    timestamp = position(required, "timestamp");
    row = new UnsafeRow(fields.length);
  }

  /** True if rows of these columns can be made: of all but headers. */
  static boolean canMake(StructType required) {
    return !Arrays.asList(required.fieldNames()).contains("headers");
  }

  /** Make a row of a record, valid until the next call. */
  UnsafeRow row(int record) {
    if (records.flags[record] != writtenFlags) {
      writeConstants(records.flags[record]);
    }
    int keyBytes = key == ABSENT ? 0 : records.keyEnds[record] - records.keyStarts[record];
    int valueBytes = value == ABSENT ? 0 : records.valueEnds[record] - records.valueStarts[record];
    int valueAt = textsEnd + padded(keyBytes);
    int end = valueAt + padded(valueBytes);
    if (end > buffer.length) {
      buffer = Arrays.copyOf(buffer, Math.max(end, buffer.length + buffer.length / 2));
    }
    if (key != ABSENT) {
      putLong(0, keyBytes == 0 ? 1L << key : 0);
      long place = keyBytes == 0 ? 0 : place(textsEnd, keyBytes);
      put(key, place, textsEnd, records.keyStarts[record], keyBytes);
    }
    if (value != ABSENT) {
      put(value, place(valueAt, valueBytes), valueAt, records.valueStarts[record], valueBytes);
    }
    if (offset != ABSENT) {
      putLong(word(offset), records.offsets[record]);
    }
    if (timestamp != ABSENT) {
      putLong(word(timestamp), records.times[record]);
    }
    row.pointTo(buffer, end);
    return row;
  }

  private void put(int column, long place, int at, int from, int bytes) {
    putLong(word(column), place);
    if (bytes > 0) {
      // The last word may have bytes after the end, which are zero in Spark's rows.
      putLong(at + padded(bytes) - WORD_BYTES, 0);
      System.arraycopy(records.data, from, buffer, at, bytes);
    }
  }

  private void writeConstants(byte flags) {
    writtenFlags = flags;
    textsEnd = word(fields.length);
    putLong(0, 0);
    for (int i = 0; i < fields.length; i++) {
      switch (fields[i].name()) {
        case "topic" -> putText(i, UTF8String.fromString(range.topic));
        case "op" -> putText(i, RecordColumns.OPS[flags >> 2 & 7]);
        case "mode" -> putText(i, RecordColumns.MODES[flags & 3]);
        case "partition" -> putLong(word(i), range.partition);
        case "storage" -> putLong(word(i), range.storage);
        default -> {
          // Each row has its own.
        }
      }
    }
  }

  private void putText(int column, UTF8String text) {
    int bytes = text.numBytes();
    int end = textsEnd + padded(bytes);
    if (end > buffer.length) {
      buffer = Arrays.copyOf(buffer, 2 * end);
    }
    putLong(word(column), place(textsEnd, bytes));
    Arrays.fill(buffer, textsEnd, end, (byte) 0);
    text.writeToMemory(buffer, Platform.BYTE_ARRAY_OFFSET + textsEnd);
    textsEnd = end;
  }

  private void putLong(int at, long number) {
    Platform.putLong(buffer, Platform.BYTE_ARRAY_OFFSET + at, number);
  }

  private static int position(StructType required, String name) {
    return Arrays.asList(required.fieldNames()).indexOf(name);
  }

  /** The position of the word of a column. */
  private static int word(int column) {
    return WORD_BYTES * (1 + column);
  }

  private static long place(int at, int bytes) {
    return (long) at << 32 | bytes;
  }

  private static int padded(int bytes) {
    return bytes + WORD_BYTES - 1 & -WORD_BYTES;
  }
}
