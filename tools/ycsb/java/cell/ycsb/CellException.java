package cell.ycsb;

/** Is an error of Cell, with its code (cell_code in cell/c/cell.h) and its message. */
public final class CellException extends Exception {
  static final int CANCELLED = 1;
  static final int INVALID_ARGUMENT = 3;
  static final int DEADLINE_EXCEEDED = 4;
  static final int NOT_FOUND = 5;
  static final int PERMISSION_DENIED = 7;
  static final int RESOURCE_EXHAUSTED = 8;
  static final int ABORTED = 10;
  static final int UNAVAILABLE = 14;
  static final int DATA_LOSS = 15;
  static final int MAYBE_APPLIED = 100;

  private static final long serialVersionUID = 1;

  private final int code;

  /** Native code calls this constructor. */
  CellException(int code, String message) {
    super(message);
    this.code = code;
  }

  /** Returns the number of the error's cell_code. */
  public int code() {
    return code;
  }
}
