package tailrace.spark;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The headers of some records: a msgpack map of text to bytes in each header block. Names and
 * values are ranges of the bytes that were read.
 */
final class Headers {
  /** The header of a record that only one consumer may process: no message for other readers. */
  private static final byte[] FOR = "tailrace.for".getBytes(StandardCharsets.UTF_8);

  int[] nameStarts = new int[64];
  int[] nameEnds = new int[64];
  int[] valueStarts = new int[64];
  int[] valueEnds = new int[64];
  private int count;

  private byte[] data;
  private int at;
  private int end;

  void clear() {
    count = 0;
  }

  int count() {
    return count;
  }

  /** Drop the headers from an index on. */
  void truncate(int length) {
    count = length;
  }

  /** Add the headers of a block; return true if the record is addressed to one consumer. */
  boolean add(byte[] bytes, int start, int blockEnd, int position) throws DamagedRecord {
    data = bytes;
    at = start;
    end = blockEnd;
    boolean addressed = false;
    try {
      for (int left = mapLength(); left > 0; left--) {
        if (count == nameStarts.length) {
          grow();
        }
        int length = itemLength();
        nameStarts[count] = at;
        at = skip(length);
        nameEnds[count] = at;
        length = itemLength();
        valueStarts[count] = at;
        at = skip(length);
        valueEnds[count] = at;
        addressed |=
            Arrays.equals(data, nameStarts[count], nameEnds[count], FOR, 0, FOR.length);
        count++;
      }
    } catch (IndexOutOfBoundsException error) {
      throw new DamagedRecord(position, "the header block does not decode");
    }
    return addressed;
  }

  private int mapLength() {
    int kind = unsigned(1);
    if (kind >> 4 == 8) {
      return kind & 15;
    }
    return switch (kind) {
      case 0xde -> unsigned(2);
      case 0xdf -> unsigned(4);
      default -> throw new IndexOutOfBoundsException();
    };
  }

  private int itemLength() {
    int kind = unsigned(1);
    if (kind >> 5 == 5) {
      return kind & 31;
    }
    return switch (kind) {
      case 0xc4, 0xd9 -> unsigned(1);
      case 0xc5, 0xda -> unsigned(2);
      case 0xc6, 0xdb -> unsigned(4);
      default -> throw new IndexOutOfBoundsException();
    };
  }

  private int unsigned(int bytes) {
    int number = 0;
    for (int next = skip(bytes); at < next; at++) {
      number = number << 8 | data[at] & 0xff;
    }
    return number;
  }

  private int skip(int bytes) {
    if (bytes < 0 || bytes > end - at) {
      throw new IndexOutOfBoundsException();
    }
    return at + bytes;
  }

  private void grow() {
    int length = 2 * count;
    nameStarts = Arrays.copyOf(nameStarts, length);
    nameEnds = Arrays.copyOf(nameEnds, length);
    valueStarts = Arrays.copyOf(valueStarts, length);
    valueEnds = Arrays.copyOf(valueEnds, length);
  }
}
