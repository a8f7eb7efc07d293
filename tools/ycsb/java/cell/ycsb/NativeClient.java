package cell.ycsb;

/**
 * Is a client of a Cell cluster, over the C API. Threads may share it: one operation runs at a time. Keys and values are arrays
 * of any bytes. After {@link #close} every operation throws CellException.CANCELLED.
 *
 * <p>Each method crosses into native code once (tools/ycsb/cell_jni.cc), a scan with all of its pairs included.
 */
final class NativeClient implements AutoCloseable {
  static {
    System.loadLibrary("cell_ycsb"); // From -Djava.library.path.
  }

  /** Says when {@link #put} writes. */
  enum Condition { ALWAYS, IF_STAMP }

  /** Is a value and the stamp of its pair, which names this version of it. */
  static final class Stamped {
    final byte[] value;
    final long stamp;

    Stamped(byte[] value, long stamp) {
      this.value = value;
      this.stamp = stamp;
    }
  }

  private long handle; // A cell_client*, or 0 once it is closed. Guarded by this.

  /** Connects. `options` has names and values by turns, those of cell_options_set. */
  NativeClient(String... options) throws CellException {
    handle = open(options);
  }

  /** Returns the value, or null if there is no such key. */
  synchronized byte[] get(byte[] key) throws CellException {
    return get(handle, key, null);
  }

  /** Returns the value with its stamp, or null if there is no such key. */
  synchronized Stamped getWithStamp(byte[] key) throws CellException {
    final long[] stamp = new long[1];
    final byte[] value = get(handle, key, stamp);
    return value == null ? null : new Stamped(value, stamp[0]);
  }

  /** Puts a pair. Returns false if the condition did not hold, so that nothing was written. */
  synchronized boolean put(byte[] key, byte[] value, Condition condition, long stamp) throws CellException {
    return put(handle, key, value, condition == Condition.IF_STAMP, stamp);
  }

  /** Deletes a key. Returns whether it was there. */
  synchronized boolean delete(byte[] key) throws CellException {
    return delete(handle, key);
  }

  /**
   * Returns the first `count` pairs with keys from `from` up to and without `to`, in their order. Each one is the size of its key
   * and the size of its value, as ints in the machine's byte order, and then the two.
   */
  synchronized byte[] scan(byte[] from, byte[] to, int count) throws CellException {
    return scan(handle, from, to, count);
  }

  @Override
  public synchronized void close() {
    final long closed = handle;
    handle = 0;
    if (closed != 0) close(closed);
  }

  // The functions of cell_jni.cc. They throw for a handle of 0. Any other one must be open, and used by one thread at a time.
  private static native long open(String[] options) throws CellException;

  private static native void close(long handle);

  private static native byte[] get(long handle, byte[] key, long[] stamp) throws CellException;

  private static native boolean put(long handle, byte[] key, byte[] value, boolean ifStamp, long stamp) throws CellException;

  private static native boolean delete(long handle, byte[] key) throws CellException;

  private static native byte[] scan(long handle, byte[] from, byte[] to, int count) throws CellException;
}
