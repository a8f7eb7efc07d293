package cell.ycsb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * Tests the binding against the cluster in its first argument. Runs the test that the second one names, or all. Prints a line for
 * each that has passed; the first that fails ends it.
 */
public final class BindingTest {
  private static String cluster;

  private interface Test {
    void run() throws Exception;
  }

  private BindingTest() {}

  public static void main(String[] arguments) throws Exception {
    cluster = arguments[0];
    final Map<String, Test> tests = new TreeMap<>();
    tests.put("fields", BindingTest::fields);
    tests.put("random", BindingTest::random);
    tests.put("scans", BindingTest::scans);
    tests.put("tables", BindingTest::tables);
    tests.put("concurrent-updates", () -> concurrentUpdates(false));
    tests.put("concurrent-updates-shared", () -> concurrentUpdates(true));
    tests.put("sizes", BindingTest::sizes);
    tests.put("strange-records", BindingTest::strangeRecords);
    tests.put("wrong-use", BindingTest::wrongUse);
    tests.put("closed", BindingTest::closed);
    tests.put("closed-meanwhile", BindingTest::closedMeanwhile);
    tests.put("no-cluster", BindingTest::noCluster);
    for (Map.Entry<String, Test> test : tests.entrySet()) {
      if (arguments.length > 1 && !test.getKey().equals(arguments[1])) continue;
      test.getValue().run();
      System.out.println("passed: " + test.getKey());
    }
  }

  private static void fields() throws Exception {
    final CellClient db = open();
    expect(Status.NOT_FOUND, db.read("fields", "a", null, new HashMap<>()));
    expect(Status.NOT_FOUND, db.update("fields", "a", values("x", "1")));
    expect(Status.NOT_FOUND, db.read("fields", "a", null, new HashMap<>()));
    expect(Status.NOT_FOUND, db.delete("fields", "a"));
    expect(Status.OK, db.insert("fields", "a", values("x", "1", "y", "", "\u00fc\u20ac", "\u00e4\n")));
    expect(Map.of("x", "1", "y", "", "\u00fc\u20ac", "\u00e4\n"), read(db, "fields", "a", null));
    expect(Map.of("y", "", "x", "1"), read(db, "fields", "a", Set.of("x", "y", "none")));
    expect(Map.of(), read(db, "fields", "a", Set.of("none")));
    expect(Status.OK, db.update("fields", "a", values("y", "longer than before", "z", "new")));
    expect(Map.of("x", "1", "y", "longer than before", "z", "new", "\u00fc\u20ac", "\u00e4\n"), read(db, "fields", "a", null));
    expect(Status.OK, db.insert("fields", "a", values("w", "alone")));
    expect(Map.of("w", "alone"), read(db, "fields", "a", null));
    expect(Status.OK, db.insert("fields", "b", values()));
    expect(Map.of(), read(db, "fields", "b", null));
    expect(Status.OK, db.delete("fields", "a"));
    expect(Status.NOT_FOUND, db.delete("fields", "a"));
    db.cleanup();
  }

  /** Compares random operations with a map of maps. */
  private static void random() throws Exception {
    final long seed = System.nanoTime();
    System.out.println("seed " + seed);
    final Random random = new Random(seed);
    final CellClient db = open();
    final TreeMap<String, Map<String, String>> model = new TreeMap<>();
    for (int i = 0; i < 4000; ++i) {
      final String key = String.format("k%03d", random.nextInt(200));
      final Map<String, String> given = new HashMap<>();
      for (int field = random.nextInt(4); field >= 0; --field) given.put("f" + random.nextInt(6), "v".repeat(random.nextInt(60)) + i);
      final Map<String, String> known = model.get(key);
      switch (random.nextInt(5)) {
        case 0:
          expect(Status.OK, db.insert("random", key, StringByteIterator.getByteIteratorMap(given)));
          model.put(key, given);
          break;
        case 1:
          expect(known == null ? Status.NOT_FOUND : Status.OK, db.update("random", key, StringByteIterator.getByteIteratorMap(given)));
          if (known != null) known.putAll(given);
          break;
        case 2:
          expect(known == null ? Status.NOT_FOUND : Status.OK, db.delete("random", key));
          model.remove(key);
          break;
        case 3:
          final Vector<HashMap<String, ByteIterator>> found = new Vector<>();
          final int count = random.nextInt(30);
          expect(Status.OK, db.scan("random", key, count, null, found));
          final List<Map<String, String>> wanted = new ArrayList<>(model.tailMap(key).values());
          expect(wanted.subList(0, Math.min(count, wanted.size())), strings(found));
          break;
        default:
          final Map<String, ByteIterator> result = new HashMap<>();
          expect(known == null ? Status.NOT_FOUND : Status.OK, db.read("random", key, null, result));
          if (known != null) expect(known, StringByteIterator.getStringMap(result));
      }
    }
    db.cleanup();
  }

  /** Compares scans with ranges of a TreeMap: the records of keys that are there, all of them, in the order of the keys. */
  private static void scans() throws Exception {
    final Random random = new Random(7);
    final TreeMap<String, Map<String, String>> model = new TreeMap<>();
    final CellClient db = open();
    for (int i = 0; i < 3000; ++i) {
      final String key = "user" + Long.toUnsignedString(random.nextLong());
      final Map<String, String> record = Map.of("key", key, "other", "x".repeat(random.nextInt(1500)));
      model.put(key, record);
      expect(Status.OK, db.insert("scans", key, StringByteIterator.getByteIteratorMap(record)));
    }
    final List<String> keys = new ArrayList<>(model.keySet());
    for (int i = 0; i < 300; ++i) {
      final String some = keys.get(random.nextInt(keys.size()));
      final String from = i % 3 == 0 ? some.substring(0, 4 + random.nextInt(4)) : i % 3 == 1 ? some : some + "0";
      final int count = i % 50 == 0 ? 5000 : random.nextInt(101);
      final Vector<HashMap<String, ByteIterator>> found = new Vector<>();
      expect(Status.OK, db.scan("scans", from, count, i % 2 == 0 ? null : Set.of("key"), found));
      final List<String> wanted = new ArrayList<>(model.tailMap(from).keySet());
      final List<String> got = new ArrayList<>();
      for (Map<String, String> record : strings(found)) {
        got.add(record.get("key"));
        expect(i % 2 == 0 ? model.get(record.get("key")) : Map.of("key", record.get("key")), record);
      }
      expect(wanted.subList(0, Math.min(count, wanted.size())), got);
    }
    db.cleanup();
    // What NativeClient returns has the keys themselves.
    try (NativeClient client = new NativeClient("cluster", cluster)) {
      final ByteBuffer pairs = ByteBuffer.wrap(client.scan(bytes("scans/"), bytes("scans0"), 1000)).order(ByteOrder.nativeOrder());
      for (String key : keys.subList(0, 1000)) {
        final byte[] name = new byte[pairs.getInt()];
        final int valueSize = pairs.getInt();
        pairs.get(name);
        expect("scans/" + key, new String(name, StandardCharsets.UTF_8));
        pairs.position(pairs.position() + valueSize);
      }
      expect(0, pairs.remaining());
    }
  }

  /** A scan ends with its table, and a table's name cannot look like another table with a key. */
  private static void tables() throws Exception {
    final CellClient db = open();
    for (String table : List.of("t", "t1", "ta", "s")) {
      for (int i = 0; i < 3; ++i) expect(Status.OK, db.insert(table, "k" + i, values("in", table)));
    }
    for (String table : List.of("t", "t1", "ta", "s")) {
      final Vector<HashMap<String, ByteIterator>> found = new Vector<>();
      expect(Status.OK, db.scan(table, "", 100, null, found));
      expect(List.of(Map.of("in", table), Map.of("in", table), Map.of("in", table)), strings(found));
    }
    expect(Status.BAD_REQUEST, db.read("t/k", "1", null, new HashMap<>()));
    db.cleanup();
  }

  /** Threads that update their own field of one record, again and again, lose none of their writes. */
  private static void concurrentUpdates(boolean shared) throws Exception {
    final int threads = 4;
    final int updates = 2000;
    final CellClient db = open();
    expect(Status.OK, db.insert("updates", "one", values()));
    final ExecutorService pool = Executors.newFixedThreadPool(threads);
    final List<Future<?>> running = new ArrayList<>();
    for (int thread = 0; thread < threads; ++thread) {
      final String field = "field" + thread;
      running.add(pool.submit((Callable<Void>) () -> {
        final CellClient mine = open("cell.share", Boolean.toString(shared));
        for (int i = 0; i < updates; ++i) {
          expect(Status.OK, mine.update("updates", "one", values(field, "value " + i)));
          expect(Map.of(field, "value " + i), read(mine, "updates", "one", Set.of(field)));
        }
        mine.cleanup();
        return null;
      }));
    }
    pool.shutdown();
    for (Future<?> one : running) one.get();
    expect(threads, read(db, "updates", "one", null).size());
    db.cleanup();
  }

  private static void sizes() throws Exception {
    final CellClient db = open();
    final String large = "l".repeat(1_000_000);
    expect(Status.OK, db.insert("sizes", "large", values("a", large, "b", "small")));
    expect(Map.of("a", large, "b", "small"), read(db, "sizes", "large", null));
    expect(Status.OK, db.update("sizes", "large", values("b", "other")));
    // More than Cell's largest value. The record stays as it was.
    expect(Status.BAD_REQUEST, db.update("sizes", "large", values("c", large)));
    expect(Status.BAD_REQUEST, db.insert("sizes", "large", values("a", large, "b", large)));
    expect(Map.of("a", large, "b", "other"), read(db, "sizes", "large", null));
    expect(Status.BAD_REQUEST, db.insert("sizes", "k".repeat(5000), values("a", "1")));
    expect(Status.BAD_REQUEST, db.insert("sizes", "a", values("n".repeat(70_000), "1")));
    final Vector<HashMap<String, ByteIterator>> found = new Vector<>();
    for (int i = 0; i < 20; ++i) expect(Status.OK, db.insert("sizes", "large" + i, values("a", large)));
    expect(Status.OK, db.scan("sizes", "large", 100, Set.of("a"), found));
    expect(21, found.size());
    for (Map<String, String> record : strings(found)) expect(Map.of("a", large), record);
    for (int i = 0; i < 20; ++i) expect(Status.OK, db.delete("sizes", "large" + i));
    db.cleanup();
  }

  /** Values that others have put under a table's keys are errors, whatever they are. */
  private static void strangeRecords() throws Exception {
    final CellClient db = open();
    final Random random = new Random(11);
    try (NativeClient client = new NativeClient("cluster", cluster)) {
      final byte[] good = Records.write(Records.bytesOf(values("field", "value")));
      final List<byte[]> strange = new ArrayList<>();
      strange.add(new byte[0]);
      strange.add(bytes("text of somebody"));
      strange.add(new byte[] {1, 0, 0, -1, -1, -1, -1});
      strange.add(new byte[] {1, -1, -1, 0, 0, 0, 0});
      strange.add(new byte[] {1, 0, 0, -1, -1, -1, 0x7f});
      for (int size = 0; size < good.length; ++size) {
        if (size == 1) continue; // A record without fields.
        strange.add(Arrays.copyOf(good, size));
      }
      for (byte[] bytes : strange) {
        client.put(bytes("strange/a"), bytes, NativeClient.Condition.ALWAYS, 0);
        expect(Status.UNEXPECTED_STATE, db.read("strange", "a", null, new HashMap<>()));
        expect(Status.UNEXPECTED_STATE, db.update("strange", "a", values("x", "1")));
        expect(Status.UNEXPECTED_STATE, db.scan("strange", "", 10, null, new Vector<>()));
      }
      for (int i = 0; i < 2000; ++i) { // Any bytes give a status.
        final byte[] bytes = good.clone();
        for (int change = random.nextInt(4); change >= 0; --change) bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
        client.put(bytes("strange/a"), bytes, NativeClient.Condition.ALWAYS, 0);
        db.read("strange", "a", null, new HashMap<>());
        db.update("strange", "a", values("x", "1"));
      }
    }
    expect(Status.OK, db.delete("strange", "a"));
    db.cleanup();
  }

  private static void wrongUse() throws Exception {
    try (NativeClient client = new NativeClient("cluster", cluster)) {
      final byte[] key = bytes("wrong");
      final byte[] none = null;
      final NativeClient.Condition always = NativeClient.Condition.ALWAYS;
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.get(none));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.get(new byte[0]));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.get(new byte[20 << 20]));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.getWithStamp(none));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.put(none, key, always, 0));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.put(key, none, always, 0));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.put(key, new byte[20 << 20], always, 0));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.delete(none));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.scan(none, key, 1));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.scan(key, none, 1));
      throwsCode(CellException.INVALID_ARGUMENT, () -> client.scan(key, key, -1));
      expect(0, client.scan(key, key, 1).length);
      expect(0, client.scan(key, bytes("x"), 0).length);
      expect(0, client.scan(bytes("x"), key, 10).length);
      expect(true, client.put(key, new byte[0], always, 0));
      expect(0, client.get(key).length);
      final long stamp = client.getWithStamp(key).stamp;
      expect(false, client.put(key, key, NativeClient.Condition.IF_STAMP, stamp + 1));
      expect(true, client.put(key, key, NativeClient.Condition.IF_STAMP, stamp));
      expect(false, client.put(key, key, NativeClient.Condition.IF_STAMP, stamp));
      expect(true, client.delete(key));
      expect(false, client.delete(key));
    }
    final String[] noOptions = null;
    throwsCode(CellException.INVALID_ARGUMENT, () -> new NativeClient(noOptions).close());
    throwsCode(CellException.INVALID_ARGUMENT, () -> new NativeClient("cluster", null).close());
    throwsCode(CellException.INVALID_ARGUMENT, () -> new NativeClient("path", "sideways").close());
    final CellClient db = open();
    expect(Status.BAD_REQUEST, db.scan("t", "a", -1, null, new Vector<>()));
    try {
      db.init();
      throw new AssertionError("a second init");
    } catch (DBException expected) {
      expect(Status.NOT_FOUND, db.read("t", "none", null, new HashMap<>()));
    }
    db.cleanup();
  }

  private static void closed() throws Exception {
    final CellClient db = new CellClient();
    expect(Status.SERVICE_UNAVAILABLE, db.read("t", "a", null, new HashMap<>())); // Before init.
    db.cleanup();
    for (String share : List.of("false", "true")) {
      final CellClient other = open("cell.share", share);
      final CellClient third = open("cell.share", share);
      other.cleanup();
      other.cleanup();
      expect(Status.SERVICE_UNAVAILABLE, other.read("t", "a", null, new HashMap<>()));
      expect(Status.SERVICE_UNAVAILABLE, other.scan("t", "a", 1, null, new Vector<>()));
      expect(Status.SERVICE_UNAVAILABLE, other.insert("t", "a", values("x", "1")));
      expect(Status.SERVICE_UNAVAILABLE, other.update("t", "a", values("x", "1")));
      expect(Status.SERVICE_UNAVAILABLE, other.delete("t", "a"));
      expect(Status.NOT_FOUND, third.read("t", "none", null, new HashMap<>()));
      third.cleanup();
    }
    final NativeClient client = new NativeClient("cluster", cluster);
    client.close();
    client.close();
    final byte[] key = bytes("a");
    throwsCode(CellException.CANCELLED, () -> client.get(key));
    throwsCode(CellException.CANCELLED, () -> client.getWithStamp(key));
    throwsCode(CellException.CANCELLED, () -> client.put(key, key, NativeClient.Condition.ALWAYS, 0));
    throwsCode(CellException.CANCELLED, () -> client.delete(key));
    throwsCode(CellException.CANCELLED, () -> client.scan(key, key, 1));
  }

  /** A client that another thread closes is closed between two operations. */
  private static void closedMeanwhile() throws Exception {
    for (int i = 0; i < 30; ++i) {
      final NativeClient client = new NativeClient("cluster", cluster);
      final Thread closer = new Thread(client::close);
      closer.start();
      try {
        for (;;) client.put(bytes("meanwhile"), bytes("value"), NativeClient.Condition.ALWAYS, 0);
      } catch (CellException error) {
        expect(CellException.CANCELLED, error.code());
      }
      closer.join();
    }
  }

  private static void noCluster() throws Exception {
    for (String share : List.of("false", "true")) {
      failsToOpen("/nowhere", "cell.cluster", "/nowhere/cluster", "cell.share", share);
      failsToOpen("cell.cluster is not set", "cell.share", share);
      failsToOpen("there is no option cell.colour", "cell.cluster", cluster, "cell.colour", "red", "cell.share", share);
      failsToOpen("this value is not possible: cell.path=sideways", "cell.cluster", cluster, "cell.path", "sideways", "cell.share", share);
    }
  }

  private static void failsToOpen(String message, String... properties) {
    final CellClient db = new CellClient();
    db.setProperties(propertiesOf(properties));
    try {
      db.init();
    } catch (DBException error) {
      if (!error.getMessage().contains(message)) throw new AssertionError("not \"" + message + "\": " + error.getMessage());
      expect(Status.SERVICE_UNAVAILABLE, db.read("t", "a", null, new HashMap<>()));
      return;
    }
    throw new AssertionError("init did not fail: " + message);
  }

  private static void throwsCode(int code, Test test) throws Exception {
    try {
      test.run();
    } catch (CellException error) {
      expect(code, error.code());
      return;
    }
    throw new AssertionError("no error, instead of code " + code);
  }

  private static CellClient open(String... properties) throws DBException {
    final CellClient db = new CellClient();
    db.setProperties(propertiesOf(properties));
    db.getProperties().setProperty("cell.cluster", cluster);
    db.init();
    return db;
  }

  private static Properties propertiesOf(String... namesAndValues) {
    final Properties properties = new Properties();
    for (int i = 0; i < namesAndValues.length; i += 2) properties.setProperty(namesAndValues[i], namesAndValues[i + 1]);
    return properties;
  }

  private static Map<String, String> read(CellClient db, String table, String key, Set<String> fields) {
    final Map<String, ByteIterator> result = new HashMap<>();
    expect(Status.OK, db.read(table, key, fields, result));
    return strings(result);
  }

  // Not StringByteIterator.getStringMap: ByteIterator.toString takes each byte for a character.
  private static Map<String, String> strings(Map<String, ByteIterator> fields) {
    final Map<String, String> texts = new HashMap<>();
    fields.forEach((name, value) -> texts.put(name, new String(value.toArray(), StandardCharsets.UTF_8)));
    return texts;
  }

  private static List<Map<String, String>> strings(Vector<HashMap<String, ByteIterator>> records) {
    final List<Map<String, String>> texts = new ArrayList<>();
    for (HashMap<String, ByteIterator> record : records) texts.add(strings(record));
    return texts;
  }

  private static Map<String, ByteIterator> values(String... namesAndValues) {
    final Map<String, ByteIterator> fields = new HashMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      fields.put(namesAndValues[i], new ByteArrayByteIterator(bytes(namesAndValues[i + 1])));
    }
    return fields;
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void expect(Object wanted, Object got) {
    if (!wanted.equals(got)) {
      throw new AssertionError("wanted " + shortened(wanted) + ", got " + shortened(got));
    }
  }

  private static String shortened(Object value) {
    final String text = String.valueOf(value);
    return text.length() > 500 ? text.substring(0, 500) + "..." : text;
  }
}
