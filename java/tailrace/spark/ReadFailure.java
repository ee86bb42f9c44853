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
 * A file of a hub that cannot be read, or damaged bytes in it, in one sentence.
 *
 * <p>Spark shows an error of its own classes that has a condition without the stack of the task.
 */
final class ReadFailure extends SparkRuntimeException {
  private static final long serialVersionUID = 1;

  private ReadFailure(String message, Throwable cause) {
    super(
        "USER_RAISED_EXCEPTION",
        new Map.Map1<>("errorMessage", message),
        cause,
        new QueryContext[0],
        "");
  }

  /** Bytes that are not the committed ones, in a batch of a range. */
  static ReadFailure damaged(
      ReadRange range, String file, long first, long last, String reason, Throwable cause) {
    String partition = range.topic + "/" + range.storage + "." + range.partition;
    return new ReadFailure(
        partition + "@" + first + " to @" + last + " is damaged in " + file + ": " + reason
            + " · list all damage: tailrace segment verify " + partition,
        cause);
  }

  /** A file that this host cannot open; as damage, if the host sees the hub. */
  static ReadFailure unopened(
      ReadRange range, String file, long first, long last, IOException error) {
    // The hub is the directory above topics/TOPIC/PARTITION.
    Path hub = Path.of(file).getParent().getParent().getParent().getParent();
    if (error instanceof NoSuchFileException) {
      if (Files.exists(hub.resolve("hub.db"))) {
        return damaged(range, file, first, last, "the file is missing", error);
      }
      return new ReadFailure(
          "host " + host() + " does not see the hub " + hub
              + " · make its directory visible under the same path on every host that runs"
              + " executors, or run the executors on the hub's host",
          error);
    }
    if (error instanceof AccessDeniedException) {
      return new ReadFailure(
          "user " + System.getProperty("user.name") + " on host " + host() + " may not read " + file
              + " · give this user the right to read the hub's directory and its files, or run the"
              + " executors as another user",
          error);
    }
    return new ReadFailure(
        "host " + host() + " cannot read " + file + ": " + error.getMessage(), error);
  }

  private static String host() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException error) {
      return "unknown";
    }
  }
}
