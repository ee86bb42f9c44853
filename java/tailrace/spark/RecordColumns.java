package tailrace.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Records as columns. Keys and values are not copied: the columns refer to the bytes that were
 * read, and are valid until the next {@code fill}.
 */
final class RecordColumns {
  private static final int ROWS_MAX = 8192;
  private static final int OVERHEAD_BYTES = 29;
  private static final int HEADERS_BIT = 0x80;
  private static final int MODE_MAX = 2;
  private static final int OP_MAX = 4;
  private static final int COMPLETE = 2;
  private static final int COMMAND = 3;
  private static final UTF8String[] OPS = texts("insert", "update", "delete", "command", "noop");
  private static final UTF8String[] MODES = texts("copy", "sync", "complete");
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

  private final long start;
  private final long end;
  private final long[] offsets = new long[ROWS_MAX];
  private final long[] times = new long[ROWS_MAX];
  private final int[] keyStarts = new int[ROWS_MAX];
  private final int[] keyEnds = new int[ROWS_MAX];
  private final int[] valueStarts = new int[ROWS_MAX];
  private final int[] valueEnds = new int[ROWS_MAX];
  private final byte[] flags = new byte[ROWS_MAX];
  private final int[] headersEnds = new int[ROWS_MAX];
  private final Headers headers = new Headers();
  private final ColumnarBatch batch;
  private byte[] data;
  private int rows;

  RecordColumns(ReadRange range, StructType required) {
    start = range.start;
    end = range.end;
    StructField[] fields = required.fields();
    ColumnVector[] vectors = new ColumnVector[fields.length];
    for (int i = 0; i < fields.length; i++) {
      vectors[i] = vector(fields[i], range);
    }
    batch = new ColumnarBatch(vectors);
  }

  int rows() {
    return rows;
  }

  ColumnarBatch batch() {
    batch.setNumRows(rows);
    return batch;
  }

  /** Read records from a position on, of the range alone; return the position after the last. */
  int fill(byte[] bytes, int from, int limit, boolean control) throws DamagedRecord {
    data = bytes;
    rows = 0;
    headers.clear();
    int at = from;
    while (at < limit && rows < ROWS_MAX) {
      int left = limit - at;
      if (left < OVERHEAD_BYTES) {
        throw new DamagedRecord(at, left + " bytes left, a record has at least 29");
      }
      int length = (int) INT.get(bytes, at + 8);
      if (length < 0 || length > left - 21) {
        throw new DamagedRecord(
            at, "message length " + (length & 0xffffffffL) + " goes beyond the last byte");
      }
      int keyLength = (int) INT.get(bytes, at + 21);
      if (keyLength < 0 || keyLength > length - 8) {
        throw new DamagedRecord(
            at, "key length " + (keyLength & 0xffffffffL) + " goes beyond the message length "
                + length);
      }
      int keyEnd = at + 25 + keyLength;
      int dataLength = (int) INT.get(bytes, keyEnd);
      if (dataLength != length - keyLength - 8) {
        throw new DamagedRecord(
            at, "message length " + length + " is not " + keyLength + " + "
                + (dataLength & 0xffffffffL) + " + 8");
      }
      long offset = (long) LONG.get(bytes, at);
      if (offset >= start && offset < end) {
        add(at, offset, keyEnd, at + 21 + length, control);
      }
      at += 21 + length;
    }
    return at;
  }

  private void add(int at, long offset, int keyEnd, int valueEnd, boolean control)
      throws DamagedRecord {
    int bits = data[at + 20] & 0xff;
    int mode = bits & 3;
    int op = bits >> 2 & 7;
    if ((bits & 0x60) != 0 || mode > MODE_MAX || op > OP_MAX) {
      throw new DamagedRecord(at, String.format("mode byte %#04x has no meaning", bits));
    }
    int valueStart = keyEnd + 4;
    int headersBefore = headers.count();
    boolean addressed = false;
    if ((bits & HEADERS_BIT) != 0) {
      int length = valueEnd - valueStart < 4 ? -1 : (int) INT.get(data, valueStart);
      if (length < 0 || length > valueEnd - valueStart - 4) {
        throw new DamagedRecord(at, "the header block is longer than the data");
      }
      addressed = headers.add(data, valueStart + 4, valueStart + 4 + length, at);
      valueStart += 4 + length;
    }
    if (!control && (addressed || mode == COMPLETE || op >= COMMAND)) {
      headers.truncate(headersBefore);
      return;
    }
    int row = rows++;
    offsets[row] = offset;
    times[row] = (long) LONG.get(data, at + 12) * 1000;
    keyStarts[row] = at + 25;
    keyEnds[row] = keyEnd;
    valueStarts[row] = valueStart;
    valueEnds[row] = valueEnd;
    flags[row] = (byte) bits;
    headersEnds[row] = headers.count();
  }

  private ColumnVector vector(StructField field, ReadRange range) {
    switch (field.name()) {
      case "key":
        return new Nullable(field) {
          @Override
          public boolean isNullAt(int row) {
            return keyStarts[row] == keyEnds[row];
          }

          @Override
          public byte[] getBinary(int row) {
            return isNullAt(row) ? null : copy(keyStarts[row], keyEnds[row]);
          }
        };
      case "value":
        return new Vector(field.dataType()) {
          @Override
          public byte[] getBinary(int row) {
            return copy(valueStarts[row], valueEnds[row]);
          }
        };
      case "topic":
        return new Texts(field, texts(range.topic), 0, 0);
      case "op":
        return new Texts(field, OPS, 2, 7);
      case "mode":
        return new Texts(field, MODES, 0, 3);
      case "partition":
        return new Constant(field, range.partition);
      case "storage":
        return new Constant(field, range.storage);
      case "offset":
        return new Longs(field, offsets);
      case "timestamp":
        return new Longs(field, times);
      case "headers":
        return new HeadersVector(field, new Pairs(((ArrayType) field.dataType()).elementType()));
      default:
        throw new IllegalArgumentException("a topic has no column " + field.name());
    }
  }

  private byte[] copy(int from, int to) {
    byte[] bytes = new byte[to - from];
    System.arraycopy(data, from, bytes, 0, bytes.length);
    return bytes;
  }

  private static UTF8String[] texts(String... names) {
    UTF8String[] texts = new UTF8String[names.length];
    for (int i = 0; i < names.length; i++) {
      texts[i] = UTF8String.fromString(names[i]);
    }
    return texts;
  }

  /** A column that may have nulls. */
  private abstract class Nullable extends Vector {
    Nullable(StructField field) {
      super(field.dataType());
    }

    @Override
    public int numNulls() {
      int nulls = 0;
      for (int row = 0; row < rows; row++) {
        nulls += isNullAt(row) ? 1 : 0;
      }
      return nulls;
    }
  }

  /** One text of a few, by some bits of the mode byte. */
  private final class Texts extends Vector {
    private final UTF8String[] texts;
    private final int shift;
    private final int mask;

    Texts(StructField field, UTF8String[] texts, int shift, int mask) {
      super(field.dataType());
      this.texts = texts;
      this.shift = shift;
      this.mask = mask;
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return texts[flags[row] >> shift & mask];
    }
  }

  /** The same number in each row. */
  private static final class Constant extends Vector {
    private final int number;

    Constant(StructField field, int number) {
      super(field.dataType());
      this.number = number;
    }

    @Override
    public int getInt(int row) {
      return number;
    }
  }

  /** A number for each row. */
  private static final class Longs extends Vector {
    private final long[] numbers;

    Longs(StructField field, long[] numbers) {
      super(field.dataType());
      this.numbers = numbers;
    }

    @Override
    public long getLong(int row) {
      return numbers[row];
    }
  }

  /** The headers of each row; null if it has none. */
  private final class HeadersVector extends Nullable {
    private final Pairs pairs;

    HeadersVector(StructField field, Pairs pairs) {
      super(field);
      this.pairs = pairs;
    }

    private int first(int row) {
      return row == 0 ? 0 : headersEnds[row - 1];
    }

    @Override
    public boolean isNullAt(int row) {
      return first(row) == headersEnds[row];
    }

    @Override
    public ColumnarArray getArray(int row) {
      int first = first(row);
      return new ColumnarArray(pairs, first, headersEnds[row] - first);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return pairs;
    }
  }

  /** Names and values of all headers, or those of both that the query reads. */
  private final class Pairs extends Vector {
    private final ColumnVector[] children;

    Pairs(DataType type) {
      super(type);
      StructField[] fields = ((StructType) type).fields();
      children = new ColumnVector[fields.length];
      for (int i = 0; i < fields.length; i++) {
        children[i] = fields[i].name().equals("key") ? new Names(fields[i]) : new Values(fields[i]);
      }
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return children[ordinal];
    }
  }

  private final class Names extends Vector {
    Names(StructField field) {
      super(field.dataType());
    }

    @Override
    public UTF8String getUTF8String(int header) {
      int from = headers.nameStarts[header];
      return UTF8String.fromBytes(data, from, headers.nameEnds[header] - from);
    }
  }

  private final class Values extends Vector {
    Values(StructField field) {
      super(field.dataType());
    }

    @Override
    public byte[] getBinary(int header) {
      return copy(headers.valueStarts[header], headers.valueEnds[header]);
    }
  }
}
