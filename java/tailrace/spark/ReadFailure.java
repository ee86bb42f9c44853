package tailrace.spark;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import scala.collection.immutable.Map;

/**
 * Errors for a file of a hub that cannot be read, and for damaged bytes in it, in one sentence.
 *
 * <p>Their classes, and those of their causes, are of Spark and Java: the driver decodes the errors
 * of tasks without the classes of a jar that was added to a running session, and would lose the
 * sentence. Spark shows an error of this class without the stack of the task.
 */
final class ReadFailure {
  private ReadFailure() {}

  private static SparkRuntimeException failure(String message, Throwable cause) {
    return new SparkRuntimeException(
        "USER_RAISED_EXCEPTION",
        new Map.Map1<>("errorMessage", message),
        cause,
        new QueryContext[0],
        "");
  }

  /** Bytes that are not the committed ones, in a batch of a range. */
  static SparkRuntimeException damaged(
      ReadRange range, String file, long first, long last, String reason) {
    return failure(
        records(range, first, last) + " is damaged in " + file + ": " + reason
            + " · list all damage: tailrace segment verify " + partition(range),
        null);
  }

  /** A file that this host cannot open. */
  static SparkRuntimeException unopened(
      ReadRange range, String file, long first, long last, IOException error) {
    // The hub is the directory above topics/TOPIC/PARTITION.
    Path hub = Path.of(file).getParent().getParent().getParent().getParent();
    if (error instanceof NoSuchFileException) {
      if (Files.exists(hub.resolve("hub.db"))) {
        return failure(
            records(range, first, last) + " has no file " + file
                + ": it was compacted or removed after the read was planned · read the topic again;"
                + " if its file is missing then too: tailrace segment verify " + partition(range),
            error);
      }
      return failure(
          "host " + host() + " does not see the hub " + hub
              + " · make its directory visible under the same path on every host that runs"
              + " executors, or run the executors on the hub's host",
          error);
    }
    if (error instanceof AccessDeniedException) {
      return failure(
          "user " + System.getProperty("user.name") + " on host " + host() + " may not read " + file
              + " · give this user the right to read the hub's directory and its files, or run the"
              + " executors as another user",
          error);
    }
    return failure(
        "host " + host() + " cannot read " + file + ": " + error.getMessage(), error);
  }

  private static String records(ReadRange range, long first, long last) {
    return partition(range) + "@" + first + " to @" + last;
  }

  private static String partition(ReadRange range) {
    return range.topic + "/" + range.storage + "." + range.partition;
  }

  private static String host() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException error) {
      return "unknown";
    }
  }
}
