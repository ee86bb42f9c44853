package tailrace.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32;
import org.apache.spark.SparkRuntimeException;

/**
 * Reads the records of a range, in order. It reads neighbouring batches of a file together, and
 * verifies the checksum of each before it returns one of their records.
 *
 * <p>It opens all files first: a compaction that replaces them meanwhile does not disturb it.
 */
final class RangeReader implements AutoCloseable {
  /** The approximate number of bytes that are read at a time: they fit into the caches. */
  private static final long READ_BYTES = 1 << 20;

  private final ReadRange range;
  private final Records records;
  private final CRC32 checksum = new CRC32();

  private final FileChannel[] channels;

  private int file = -1;
  private BatchEntries entries = new BatchEntries(new byte[0]);
  private int row;
  private int rowsEnd;
  private int groupFirst;
  private byte[] data = new byte[0];
  private int at;
  private int limit;

  private RangeReader(ReadRange range, boolean control) {
    this.range = range;
    this.records = new Records(range, control);
    this.channels = new FileChannel[range.files.length];
  }

  /** Open the files of a range; {@link ReadFailure} if this host cannot open one. */
  static RangeReader open(ReadRange range, boolean control) {
    RangeReader reader = new RangeReader(range, control);
    try {
      reader.openFiles();
    } catch (RuntimeException failure) {
      reader.close();
      throw failure;
    }
    return reader;
  }

  ReadRange range() {
    return range;
  }

  /** The records that {@code next} has read last. */
  Records records() {
    return records;
  }

  /** Read more records, at least one; false after the last. */
  boolean next() throws IOException {
    while (true) {
      while (at == limit) {
        if (!loadGroup()) {
          return false;
        }
      }
      try {
        at = records.fill(data, at, limit);
      } catch (DamagedRecord damaged) {
        throw failure(groupFirst, damaged.getMessage());
      }
      if (records.count() > 0) {
        return true;
      }
    }
  }

  @Override
  public void close() {
    for (FileChannel channel : channels) {
      if (channel != null) {
        try {
          channel.close();
        } catch (IOException error) {
          // All that was wanted of the file has been read and verified.
        }
      }
    }
  }

  /** Load the next batches that overlap the range; false after the last. */
  private boolean loadGroup() throws IOException {
    while (row == rowsEnd) {
      if (++file == channels.length) {
        file--;
        return false;
      }
      enter();
    }
    int first = row;
    long begin = entries.position(first);
    long end = begin;
    do {
      end += entries.bytes(row++);
    } while (row < rowsEnd
        && entries.position(row) == end
        && end + entries.bytes(row) - begin <= READ_BYTES);
    load(first, begin, (int) (end - begin));
    return true;
  }

  private void openFiles() {
    for (file = 0; file < channels.length; file++) {
      enter();
      if (row < rowsEnd) {
        String name = range.files[file];
        try {
          channels[file] = FileChannel.open(Path.of(name), StandardOpenOption.READ);
        } catch (IOException error) {
          long last = entries.end(rowsEnd - 1) - 1;
          throw ReadFailure.unopened(range, name, entries.base(row), last, error);
        }
      }
    }
    file = -1;
    row = rowsEnd = 0;
  }

  /** Go to the batches of the present file that overlap the range. */
  private void enter() {
    entries = new BatchEntries(range.entries[file]);
    row = 0;
    rowsEnd = entries.count();
    while (row < rowsEnd && entries.end(row) <= range.start) {
      row++;
    }
    while (row < rowsEnd && entries.base(rowsEnd - 1) >= range.end) {
      rowsEnd--;
    }
  }

  private void load(int first, long position, int size) throws IOException {
    if (data.length < size) {
      data = new byte[(int) Math.max(size, READ_BYTES)];
    }
    ByteBuffer buffer = ByteBuffer.wrap(data, 0, size);
    while (buffer.hasRemaining() && channels[file].read(buffer, position + buffer.position()) > 0) {
      // The kernel may return less than asked for.
    }
    int begin = 0;
    for (int each = first; each < row; each++) {
      int length = (int) entries.bytes(each);
      int missing = begin + length - buffer.position();
      if (missing > 0) {
        throw failure(each, "the file ends " + Math.min(missing, length) + " bytes early");
      }
      checksum.reset();
      checksum.update(data, begin, length);
      if (checksum.getValue() != entries.checksum(each)) {
        throw failure(each, "the checksum does not match");
      }
      begin += length;
    }
    groupFirst = first;
    at = 0;
    limit = size;
  }

  private SparkRuntimeException failure(int entry, String reason) {
    long last = entries.end(entry) - 1;
    return ReadFailure.damaged(range, range.files[file], entries.base(entry), last, reason);
  }
}
