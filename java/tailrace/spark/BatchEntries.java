package tailrace.spark;

import java.nio.ByteBuffer;

/** Batch entries of a segment, as an index file has them: 56 bytes each, see docs/format.md. */
final class BatchEntries {
  private static final int ENTRY_BYTES = 56;

  private final ByteBuffer packed;

  BatchEntries(byte[] packed) {
    this.packed = ByteBuffer.wrap(packed);
  }

  int count() {
    return packed.capacity() / ENTRY_BYTES;
  }

  /** The offset of the first record of a batch. */
  long base(int row) {
    return packed.getLong(row * ENTRY_BYTES);
  }

  long records(int row) {
    return unsigned(row, 8);
  }

  /** The first offset after a batch. */
  long end(int row) {
    return base(row) + records(row);
  }

  /** The position of a batch in its file. */
  long position(int row) {
    return unsigned(row, 16);
  }

  long bytes(int row) {
    return unsigned(row, 20);
  }

  long checksum(int row) {
    return unsigned(row, 48);
  }

  private long unsigned(int row, int at) {
    return packed.getInt(row * ENTRY_BYTES + at) & 0xffffffffL;
  }
}
