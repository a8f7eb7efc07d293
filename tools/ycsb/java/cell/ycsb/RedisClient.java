package cell.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;

/**
 * Is Cell's own binding of YCSB to Redis, to compare Cell with. YCSB's binding is not on Maven Central.
 *
 * <p>A record is a hash TABLE/KEY. The keys of a table are members of a sorted set, TABLE, all with the score 0, which Redis keeps
 * in the order of their bytes: so scans are in true order, too. An update sets the fields that it is given and makes the record
 * if there is none.
 *
 * <p>Properties: redis.host and redis.port. Each thread has one connection.
 */
public final class RedisClient extends DB {
  private Jedis redis;
  private boolean complained;

  @Override
  public void init() {
    redis = new Jedis(getProperties().getProperty("redis.host", "127.0.0.1"), Integer.parseInt(getProperties().getProperty("redis.port", "6379")));
  }

  @Override
  public void cleanup() {
    redis.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    try {
      if (fields == null) {
        take(redis.hgetAll(keyOf(table, key)), result);
      } else {
        final byte[][] names = fields.stream().map(RedisClient::bytes).toArray(byte[][]::new);
        final List<byte[]> values = redis.hmget(keyOf(table, key), names);
        for (int i = 0; i < names.length; ++i) {
          if (values.get(i) != null) result.put(text(names[i]), new ByteArrayByteIterator(values.get(i)));
        }
      }
      return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status scan(String table, String startkey, int recordcount, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    try {
      final List<byte[]> keys = redis.zrangeByLex(bytes(table), bytes("[" + startkey), bytes("+"), 0, recordcount);
      final List<Response<Map<byte[], byte[]>>> found = new ArrayList<>(keys.size());
      try (Pipeline pipeline = redis.pipelined()) {
        for (byte[] key : keys) found.add(pipeline.hgetAll(keyOf(table, text(key))));
      }
      for (Response<Map<byte[], byte[]>> one : found) {
        final HashMap<String, ByteIterator> record = new HashMap<>(32);
        take(one.get(), record);
        if (fields != null) record.keySet().retainAll(fields);
        result.add(record);
      }
      return Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try (Pipeline pipeline = redis.pipelined()) {
      final Response<Long> written = pipeline.hset(keyOf(table, key), bytesOf(values));
      final Response<Long> listed = pipeline.zadd(bytes(table), 0, bytes(key));
      pipeline.sync();
      written.get();  // Throws what Redis has refused.
      listed.get();
      return Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      redis.hset(keyOf(table, key), bytesOf(values));
      return Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try (Pipeline pipeline = redis.pipelined()) {
      final Response<Long> deleted = pipeline.del(keyOf(table, key));
      final Response<Long> removed = pipeline.zrem(bytes(table), bytes(key));
      pipeline.sync();
      removed.get();
      return deleted.get() > 0 ? Status.OK : Status.NOT_FOUND;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  private Status failed(JedisException error) {
    if (!complained) System.err.println("RedisClient: " + error.getMessage() + " (this thread shows no more errors)");
    complained = true;
    return Status.ERROR;
  }

  private static void take(Map<byte[], byte[]> fields, Map<String, ByteIterator> result) {
    fields.forEach((name, value) -> result.put(text(name), new ByteArrayByteIterator(value)));
  }

  private static Map<byte[], byte[]> bytesOf(Map<String, ByteIterator> values) {
    final Map<byte[], byte[]> fields = new HashMap<>(2 * values.size());
    values.forEach((name, value) -> fields.put(bytes(name), value.toArray()));
    return fields;
  }

  private static byte[] keyOf(String table, String key) {
    return bytes(table + "/" + key);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
