package tailrace.spark;

/** Bytes that are not whole records: the position of the damaged record, and the reason. */
final class DamagedRecord extends Exception {
  private static final long serialVersionUID = 1;

  DamagedRecord(int position, String reason) {
    super("damaged record at byte " + position + ": " + reason);
  }
}
