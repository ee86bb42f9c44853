package tailrace.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Some decoded records. Keys, values and headers are ranges of the bytes that were read, and valid
 * until the next {@code fill}.
 */
final class Records {
  /** The maximum number of records at a time: their positions fit into the caches. */
  private static final int ROWS_MAX = 8192;

  private static final int OVERHEAD_BYTES = 29;
  private static final int HEADERS_BIT = 0x80;
  private static final int MODE_MAX = 2;
  private static final int OP_MAX = 4;
  private static final int COMPLETE = 2;
  private static final int COMMAND = 3;
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

  final long[] offsets = new long[ROWS_MAX];
  final long[] times = new long[ROWS_MAX];
  final int[] keyStarts = new int[ROWS_MAX];
  final int[] keyEnds = new int[ROWS_MAX];
  final int[] valueStarts = new int[ROWS_MAX];
  final int[] valueEnds = new int[ROWS_MAX];
  final byte[] flags = new byte[ROWS_MAX];
  final int[] headersEnds = new int[ROWS_MAX];
  final Headers headers = new Headers();
  byte[] data;

  private final long start;
  private final long end;
  private final boolean control;
  private int rows;

  /** Control records are left out unless {@code control}. */
  Records(ReadRange range, boolean control) {
    start = range.start;
    end = range.end;
    this.control = control;
  }

  int count() {
    return rows;
  }

  byte[] copy(int from, int to) {
    byte[] bytes = new byte[to - from];
    System.arraycopy(data, from, bytes, 0, bytes.length);
    return bytes;
  }

  /** Read records from a position on, of the range alone; return the position after the last. */
  int fill(byte[] bytes, int from, int limit) throws DamagedRecord {
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
        add(at, offset, keyEnd, at + 21 + length);
      }
      at += 21 + length;
    }
    return at;
  }

  private void add(int at, long offset, int keyEnd, int valueEnd) throws DamagedRecord {
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
}
