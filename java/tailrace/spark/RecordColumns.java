package tailrace.spark;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** Records as columns, valid until the next records are decoded. */
final class RecordColumns {
  static final UTF8String[] OPS = texts("insert", "update", "delete", "command", "noop");
  static final UTF8String[] MODES = texts("copy", "sync", "complete");

  private final Records records;
  private final ColumnarBatch batch;

  RecordColumns(Records records, ReadRange range, StructType required) {
    this.records = records;
    StructField[] fields = required.fields();
    ColumnVector[] vectors = new ColumnVector[fields.length];
    for (int i = 0; i < fields.length; i++) {
      vectors[i] = vector(fields[i], range);
    }
    batch = new ColumnarBatch(vectors);
  }

  ColumnarBatch batch() {
    batch.setNumRows(records.count());
    return batch;
  }

  private ColumnVector vector(StructField field, ReadRange range) {
    switch (field.name()) {
      case "key":
        return new Nullable(field) {
          @Override
          public boolean isNullAt(int row) {
            return records.keyStarts[row] == records.keyEnds[row];
          }

          @Override
          public byte[] getBinary(int row) {
            int from = records.keyStarts[row];
            return isNullAt(row) ? null : records.copy(from, records.keyEnds[row]);
          }
        };
      case "value":
        return new Vector(field.dataType()) {
          @Override
          public byte[] getBinary(int row) {
            return records.copy(records.valueStarts[row], records.valueEnds[row]);
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
        return new Longs(field, records.offsets);
      case "timestamp":
        return new Longs(field, records.times);
      case "headers":
        return new HeadersVector(field, new Pairs(((ArrayType) field.dataType()).elementType()));
      default:
        throw new IllegalArgumentException("a topic has no column " + field.name());
    }
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
      for (int row = 0; row < records.count(); row++) {
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
      return texts[records.flags[row] >> shift & mask];
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
      return row == 0 ? 0 : records.headersEnds[row - 1];
    }

    @Override
    public boolean isNullAt(int row) {
      return first(row) == records.headersEnds[row];
    }

    @Override
    public ColumnarArray getArray(int row) {
      int first = first(row);
      return new ColumnarArray(pairs, first, records.headersEnds[row] - first);
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
      int from = records.headers.nameStarts[header];
      return UTF8String.fromBytes(records.data, from, records.headers.nameEnds[header] - from);
    }
  }

  private final class Values extends Vector {
    Values(StructField field) {
      super(field.dataType());
    }

    @Override
    public byte[] getBinary(int header) {
      return records.copy(records.headers.valueStarts[header], records.headers.valueEnds[header]);
    }
  }
}
