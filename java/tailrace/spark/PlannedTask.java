package tailrace.spark;

import java.io.IOException;
import java.util.Map;
import net.razorvine.pickle.Unpickler;

/** A task as Python pickles it: NativeTask in tailrace/spark/tasks.py. */
final class PlannedTask {
  final ReadRange range;
  final boolean control;

  private PlannedTask(ReadRange range, boolean control) {
    this.range = range;
    this.control = control;
  }

  /** Decode a task; null if it has no range, because there is nothing to read. */
  static PlannedTask unpickle(byte[] pickled) {
    Map<?, ?> fields;
    try {
      fields = (Map<?, ?>) new Unpickler().loads(pickled);
    } catch (IOException error) {
      throw new IllegalArgumentException("the task is not one of the data source tailrace", error);
    }
    byte[] plan = (byte[]) fields.get("value");
    if (plan == null) {
      return null;
    }
    return new PlannedTask(ReadRange.decode(plan)[0], (Boolean) fields.get("control"));
  }
}
