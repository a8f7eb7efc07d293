package cell.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Is YCSB's binding to Cell. A record is the value of one key of the tree, TABLE/KEY (see Records for its bytes).
 *
 * <p>A read is one get, and a scan is one scan of the tree, so its records come in the order of their keys. An insert puts the
 * whole record, whether or not there is one. An update reads the record with its stamp, changes its fields, and puts it back on
 * the condition that it still has this stamp; otherwise it does so again. So concurrent updates of different fields lose none.
 *
 * <p>Properties: cell.NAME sets the option NAME of cell_options_set, and cell.cluster is needed. With cell.share=true all threads
 * use one client, one at a time, and without it each has its own.
 */
public final class CellClient extends DB {
  private static final String PREFIX = "cell.";
  private static final String SHARE = "cell.share";
  private static final char SEPARATOR = '/';
  // An update whose condition does not hold has met another one that took effect. So this many failures are no accident.
  private static final int TRIES_MAX = 10_000;
  private static final Status MAYBE_APPLIED = new Status("MAYBE_APPLIED", "The write was sent, and its answer was lost.");
  private static final Status CONFLICT = new Status("CONFLICT", "Others have changed the record at each of many tries.");

  // With cell.share. Guarded by the class.
  private static NativeClient shared;
  private static int sharers;

  private final Records records = new Records();
  private final Set<Integer> shown = new HashSet<>(); // Codes of errors whose messages were shown.
  private NativeClient client; // Null: before init, and after cleanup.
  private boolean sharing;
  private String table; // The one that `tableFrom` and `tableTo` belong to.
  private byte[] tableFrom;
  private byte[] tableTo;

  @Override
  public void init() throws DBException {
    if (client != null) throw new DBException("this client is connected already");
    try {
      sharing = Boolean.parseBoolean(getProperties().getProperty(SHARE, "false"));
      client = sharing ? share(optionsOf(getProperties())) : new NativeClient(optionsOf(getProperties()));
    } catch (CellException error) {
      throw new DBException("Cell: " + error.getMessage(), error);
    } catch (LinkageError error) {
      throw new DBException("libcell_ycsb.so is not in a directory of -Djava.library.path: " + error.getMessage(), error);
    }
  }

  @Override
  public void cleanup() {
    if (client == null) return;
    if (sharing) {
      unshare();
    } else {
      client.close();
    }
    client = null;
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      final byte[] record = connected().get(keyOf(table, key));
      if (record == null) return Status.NOT_FOUND;
      records.read(record, fields, result);
      return Status.OK;
    } catch (CellException error) {
      return statusOf(error, "read");
    }
  }

  @Override
  public Status scan(String table, String startkey, int recordcount, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    try {
      final byte[] from = keyOf(table, startkey);
      records.readAll(connected().scan(from, tableTo, recordcount), fields, result);
      return Status.OK;
    } catch (CellException error) {
      return statusOf(error, "scan");
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      final byte[] record = Records.write(Records.bytesOf(values));
      connected().put(keyOf(table, key), record, NativeClient.Condition.ALWAYS, 0);
      return Status.OK;
    } catch (CellException error) {
      return statusOf(error, "insert");
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      final byte[] stored = keyOf(table, key);
      final Map<String, byte[]> changes = Records.bytesOf(values);
      for (int tries = 0; tries < TRIES_MAX; ++tries) {
        final NativeClient.Stamped found = connected().getWithStamp(stored);
        if (found == null) return Status.NOT_FOUND;
        final byte[] changed = records.change(found.value, changes);
        if (connected().put(stored, changed, NativeClient.Condition.IF_STAMP, found.stamp)) return Status.OK;
      }
      return CONFLICT;
    } catch (CellException error) {
      return statusOf(error, "update");
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      return connected().delete(keyOf(table, key)) ? Status.OK : Status.NOT_FOUND;
    } catch (CellException error) {
      return statusOf(error, "delete");
    }
  }

  private NativeClient connected() throws CellException {
    if (client == null) throw new CellException(CellException.CANCELLED, "the client is not connected, or was closed");
    return client;
  }

  /** Returns the key of a record in the tree. Sets `tableFrom` and `tableTo`, between which are the table's keys. */
  private byte[] keyOf(String name, String key) throws CellException {
    if (!name.equals(table)) {
      // Otherwise key c of table a/b would be key b/c of table a.
      if (name.indexOf(SEPARATOR) >= 0) throw new CellException(CellException.INVALID_ARGUMENT, "a table's name cannot have a " + SEPARATOR);
      tableFrom = (name + SEPARATOR).getBytes(StandardCharsets.UTF_8);
      tableTo = (name + (char) (SEPARATOR + 1)).getBytes(StandardCharsets.UTF_8);
      table = name;
    }
    final byte[] last = key.getBytes(StandardCharsets.UTF_8);
    final byte[] whole = Arrays.copyOf(tableFrom, tableFrom.length + last.length);
    System.arraycopy(last, 0, whole, tableFrom.length, last.length);
    return whole;
  }

  private Status statusOf(CellException error, String operation) {
    if (shown.add(error.code())) {
      System.err.println("CellClient: " + operation + ": " + error.getMessage() + " (this thread shows no more errors of this kind)");
    }
    switch (error.code()) {
      case CellException.INVALID_ARGUMENT:
        return Status.BAD_REQUEST;
      case CellException.NOT_FOUND:
        return Status.NOT_FOUND;
      case CellException.PERMISSION_DENIED:
        return Status.FORBIDDEN;
      case CellException.CANCELLED:
      case CellException.DEADLINE_EXCEEDED:
      case CellException.RESOURCE_EXHAUSTED:
      case CellException.UNAVAILABLE:
        return Status.SERVICE_UNAVAILABLE;
      case CellException.DATA_LOSS:
        return Status.UNEXPECTED_STATE;
      case CellException.MAYBE_APPLIED:
        return MAYBE_APPLIED;
      default:
        return Status.ERROR;
    }
  }

  private static String[] optionsOf(Properties properties) throws DBException {
    final List<String> options = new ArrayList<>();
    for (String name : properties.stringPropertyNames()) {
      if (!name.startsWith(PREFIX) || name.equals(SHARE)) continue;
      options.add(name.substring(PREFIX.length()));
      options.add(properties.getProperty(name));
    }
    if (properties.getProperty(PREFIX + "cluster") == null) {
      throw new DBException("the property cell.cluster is not set: it is the cluster's directory, or zk://HOST:PORT/NAME");
    }
    return options.toArray(new String[0]);
  }

  private static synchronized NativeClient share(String[] options) throws CellException {
    if (shared == null) shared = new NativeClient(options);
    ++sharers;
    return shared;
  }

  private static synchronized void unshare() {
    if (--sharers > 0) return;
    shared.close();
    shared = null;
  }
}
