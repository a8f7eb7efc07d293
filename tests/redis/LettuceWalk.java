import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.Limit;
import io.lettuce.core.Range;
import io.lettuce.core.Range.Boundary;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Uses a gateway by Lettuce, step by step, and prints a line for each (walk.txt has what is expected).
 *
 * <p>LettuceWalk HOST PORT PREFIX
 */
final class LettuceWalk {
  private static final ProtocolKeyword NOSUCH = () -> "NOSUCH".getBytes(StandardCharsets.UTF_8);

  private final RedisClient client;
  private final StatefulRedisConnection<String, String> connection;
  private final RedisCommands<String, String> redis;
  private final String prefix;

  private LettuceWalk(RedisClient client, String prefix) {
    this.client = client;
    this.connection = client.connect();
    this.redis = connection.sync();
    this.prefix = prefix;
  }

  private String key(String name) {
    return prefix + name;
  }

  private String timeLeft(String key) {
    return Steps.timeLeft(redis.ttl(key));
  }

  private static List<String> values(List<KeyValue<String, String>> pairs) {
    return pairs.stream().map(pair -> pair.getValueOrElse(null)).collect(Collectors.toList());
  }

  private Object unknown(RedisCommands<String, String> commands) {
    return commands.dispatch(
        NOSUCH, new StatusOutput<>(StringCodec.UTF8), new CommandArgs<>(StringCodec.UTF8).add("it"));
  }

  private void connect() {
    Steps.say("connect", redis.ping(), "by RESP" + redis.clientInfo().replaceAll("(?s).*resp=(\\d).*", "$1"));
  }

  private void strings() throws Exception {
    String color = key("color"), other = key("other"), missing = key("missing"), n = key("n");
    Steps.say("set and get", redis.set(color, "red"), redis.get(color));
    Steps.say("get of a missing key", redis.get(missing));
    SetArgs nx = SetArgs.Builder.nx(), xx = SetArgs.Builder.xx();
    Steps.say("set NX", redis.set(other, "red", nx), redis.set(other, "green", nx), redis.get(other));
    Steps.say("set XX", redis.set(missing, "x", xx), redis.set(other, "blue", xx), redis.get(other));
    Steps.say("set EX", redis.set(other, "blue", SetArgs.Builder.ex(100)), timeLeft(other));
    Steps.say("set KEEPTTL and GET", redis.setGet(other, "pink", SetArgs.Builder.keepttl()), timeLeft(other));
    Steps.say("mset and mget", redis.mset(Map.of(key("m1"), "a", key("m2"), "b")),
        values(redis.mget(key("m1"), key("m2"), missing)));
    Steps.say("incr, incrby, decr", redis.incr(n), redis.incrby(n, 10), redis.decr(n));
    Steps.say("exists, del, unlink", redis.exists(n, key("m1"), key("m2"), missing), redis.del(key("m1")),
        redis.unlink(key("m2"), key("m1")), redis.exists(n, key("m2")));
    boolean expires = redis.expire(other, 100);
    String left = timeLeft(other);
    Steps.say("expire, ttl, persist", expires, left, redis.persist(other), timeLeft(other), timeLeft(missing));
    redis.pexpire(other, 1);
    while (redis.exists(other) == 1) Thread.sleep(10);
    Steps.say("pexpire and expiry", redis.get(other));
    String text = key("text");
    Steps.say("append and strlen", redis.append(text, "hello"), redis.append(text, " world"), redis.strlen(text),
        redis.get(text));
  }

  private void hashes() {
    String fruit = key("fruit");
    Steps.say("hset", redis.hset(fruit, Map.of("apple", "red", "plum", "blue", "rose", "white")),
        redis.hset(fruit, "rose", "pink") ? 1 : 0);
    Steps.say("hget", redis.hget(fruit, "apple"), redis.hget(fruit, "pear"));
    Steps.say("hgetall", redis.hgetall(fruit));
    Steps.say("hmget", values(redis.hmget(fruit, "apple", "pear", "plum")));
    Steps.say("hdel and hincrby", redis.hdel(fruit, "plum", "rose", "pear"), redis.hincrby(fruit, "n", 5),
        redis.hincrby(fruit, "n", -2));
    Steps.say("type", redis.type(key("color")), redis.type(fruit), redis.type(key("missing")));
  }

  private void many() throws Exception {
    try (StatefulRedisConnection<String, String> piped = client.connect()) {
      piped.setAutoFlushCommands(false);
      RedisAsyncCommands<String, String> pipe = piped.async();
      List<RedisFuture<?>> sets = new ArrayList<>();
      for (int i = 0; i < Steps.SCANNED; i++) sets.add(pipe.set(key(Steps.scanned(i)), String.valueOf(i)));
      piped.flushCommands();
      LettuceFutures.awaitAll(Duration.ofSeconds(60), sets.toArray(new RedisFuture<?>[ 0 ]));
      List<String> found = new ArrayList<>();
      ScanIterator.scan(redis, ScanArgs.Builder.matches(key("scan:*")).limit(37)).forEachRemaining(found::add);
      Steps.say("scan", found.size() + " keys, " + new HashSet<>(found).size() + " different ones");
      List<RedisFuture<?>> sent = new ArrayList<>();
      for (int i = 0; i < Steps.SCANNED; i++) {
        sent.add(pipe.incr(key("turn")));
        sent.add(pipe.get(key(Steps.scanned(i))));
      }
      piped.flushCommands();
      List<Object> replies = new ArrayList<>();
      for (RedisFuture<?> one : sent) replies.add(one.get());
      Steps.say("pipeline", Steps.order(replies));
    }
  }

  private void transactions() {
    String color = key("color"), seen = key("seen");
    redis.multi();
    redis.set(seen, "0");
    redis.incr(seen);
    redis.get(color);
    Steps.say("multi and exec", redis.exec().stream().collect(Collectors.toList()));
    for (boolean changed : new boolean[] {false, true}) {
      redis.watch(seen);
      if (changed) {
        try (StatefulRedisConnection<String, String> other = client.connect()) {
          other.sync().set(seen, "theirs");
        }
      }
      redis.multi();
      redis.set(seen, "mine");
      TransactionResult replies = redis.exec();
      if (changed) {
        Steps.say("exec after another connection has changed the watched key", replies.wasDiscarded() ? null : "it ran",
            redis.get(seen));
      } else {
        Steps.say("exec without changes to the watched key", replies.stream().collect(Collectors.toList()));
      }
    }
    redis.multi();
    redis.set(color, "black");
    redis.discard();
    Steps.say("discard", redis.get(color));
    redis.multi();
    redis.set(color, "black");
    unknown(redis);
    Steps.say("exec after a command that was refused", Steps.firstWord(Steps.errorOf(redis::exec)));
    if (!redis.get(color).equals("red"))
      throw new IllegalStateException("the transaction ran");
  }

  private void ranges() {
    for (String letter : List.of("a", "b", "c", "d")) redis.set(key("lex:" + letter), letter);
    String keys = "cell:keys:" + key("lex:");
    Range<String> some = Range.from(Boundary.including(key("lex:b")), Boundary.excluding(key("lex:d")));
    Steps.say("zrangebylex of cell:keys",
        redis.zrangebylex("cell:keys", some)
            .stream()
            .map(name -> name.substring(prefix.length()))
            .collect(Collectors.toList()));
    Steps.say("zrangebylex with a prefix and LIMIT", redis.zrangebylex(keys, Range.unbounded(), Limit.create(1, 2)));
    Steps.say("zrevrangebylex", redis.zrevrangebylex(keys, Range.from(Boundary.excluding("b"), Boundary.unbounded())));
  }

  private void errors() {
    Steps.say("unknown command", Steps.errorOf(() -> unknown(redis)));
    Steps.say("wrong type", Steps.errorOf(() -> redis.incr(key("fruit"))));
    Steps.say("not a number", Steps.errorOf(() -> redis.incr(key("color"))));
  }

  private void bytes() {
    byte[] key = key("bytes").getBytes(StandardCharsets.UTF_8);
    try (StatefulRedisConnection<byte[], byte[]> raw = client.connect(ByteArrayCodec.INSTANCE)) {
      raw.sync().set(key, Steps.binaryValue());
      Steps.sayBytes("binary", raw.sync().get(key), Steps.binaryValue());
      raw.sync().set(key, Steps.largeValue());
      Steps.sayBytes("large value", raw.sync().get(key), Steps.largeValue());
    }
  }

  private void counter() throws Exception {
    Steps.inThreads(() -> {
      try (StatefulRedisConnection<String, String> own = client.connect()) {
        for (int i = 0; i < Steps.INCREMENTS; i++) own.sync().incr(key("count"));
      }
    });
    Steps.say("counter", redis.get(key("count")));
  }

  public static void main(String[] arguments) throws Exception {
    RedisClient client = RedisClient.create(RedisURI.create(arguments[0], Integer.parseInt(arguments[1])));
    LettuceWalk walk = new LettuceWalk(client, arguments[2]);
    walk.connect();
    walk.strings();
    walk.hashes();
    walk.many();
    walk.transactions();
    walk.ranges();
    walk.errors();
    walk.bytes();
    walk.counter();
    walk.connection.close();
    client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
  }
}
