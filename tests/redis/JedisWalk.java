import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/**
 * Uses a gateway by Jedis, step by step, and prints a line for each (walk.txt has what is expected).
 *
 * <p>JedisWalk HOST PORT PREFIX
 */
final class JedisWalk {
  private static final ProtocolCommand NOSUCH = () -> "NOSUCH".getBytes(StandardCharsets.UTF_8);

  private final JedisPooled jedis;
  private final String prefix;

  private JedisWalk(JedisPooled jedis, String prefix) {
    this.jedis = jedis;
    this.prefix = prefix;
  }

  private String key(String name) {
    return prefix + name;
  }

  private String timeLeft(String key) {
    return Steps.timeLeft(jedis.ttl(key));
  }

  private void connect() {
    String info = new String((byte[]) jedis.sendCommand(Protocol.Command.CLIENT, "INFO"), StandardCharsets.UTF_8);
    Steps.say("connect", jedis.ping(), "by RESP" + info.replaceAll("(?s).*resp=(\\d).*", "$1"));
  }

  private void strings() throws Exception {
    String color = key("color"), other = key("other"), missing = key("missing"), n = key("n");
    Steps.say("set and get", jedis.set(color, "red"), jedis.get(color));
    Steps.say("get of a missing key", jedis.get(missing));
    SetParams nx = SetParams.setParams().nx(), xx = SetParams.setParams().xx();
    Steps.say("set NX", jedis.set(other, "red", nx), jedis.set(other, "green", nx), jedis.get(other));
    Steps.say("set XX", jedis.set(missing, "x", xx), jedis.set(other, "blue", xx), jedis.get(other));
    Steps.say("set EX", jedis.set(other, "blue", SetParams.setParams().ex(100)), timeLeft(other));
    Steps.say("set KEEPTTL and GET", jedis.setGet(other, "pink", SetParams.setParams().keepTtl()), timeLeft(other));
    Steps.say("mset and mget", jedis.mset(key("m1"), "a", key("m2"), "b"), jedis.mget(key("m1"), key("m2"), missing));
    Steps.say("incr, incrby, decr", jedis.incr(n), jedis.incrBy(n, 10), jedis.decr(n));
    Steps.say("exists, del, unlink", jedis.exists(n, key("m1"), key("m2"), missing), jedis.del(key("m1")),
        jedis.unlink(key("m2"), key("m1")), jedis.exists(n, key("m2")));
    boolean expires = jedis.expire(other, 100) == 1;
    String left = timeLeft(other);
    Steps.say("expire, ttl, persist", expires, left, jedis.persist(other) == 1, timeLeft(other), timeLeft(missing));
    jedis.pexpire(other, 1);
    while (jedis.exists(other)) Thread.sleep(10);
    Steps.say("pexpire and expiry", jedis.get(other));
    String text = key("text");
    Steps.say("append and strlen", jedis.append(text, "hello"), jedis.append(text, " world"), jedis.strlen(text),
        jedis.get(text));
  }

  private void hashes() {
    String fruit = key("fruit");
    Steps.say("hset", jedis.hset(fruit, Map.of("apple", "red", "plum", "blue", "rose", "white")),
        jedis.hset(fruit, "rose", "pink"));
    Steps.say("hget", jedis.hget(fruit, "apple"), jedis.hget(fruit, "pear"));
    Steps.say("hgetall", jedis.hgetAll(fruit));
    Steps.say("hmget", jedis.hmget(fruit, "apple", "pear", "plum"));
    Steps.say("hdel and hincrby", jedis.hdel(fruit, "plum", "rose", "pear"), jedis.hincrBy(fruit, "n", 5),
        jedis.hincrBy(fruit, "n", -2));
    Steps.say("type", jedis.type(key("color")), jedis.type(fruit), jedis.type(key("missing")));
  }

  private void many() {
    try (Pipeline pipe = jedis.pipelined()) {
      for (int i = 0; i < Steps.SCANNED; i++) pipe.set(key(Steps.scanned(i)), String.valueOf(i));
    }
    List<String> found = new ArrayList<>();
    ScanParams params = new ScanParams().match(key("scan:*")).count(37);
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<String> page = jedis.scan(cursor, params);
      found.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    Steps.say("scan", found.size() + " keys, " + new HashSet<>(found).size() + " different ones");
    try (Pipeline pipe = jedis.pipelined()) {
      for (int i = 0; i < Steps.SCANNED; i++) {
        pipe.incr(key("turn"));
        pipe.get(key(Steps.scanned(i)));
      }
      Steps.say("pipeline", Steps.order(pipe.syncAndReturnAll()));
    }
  }

  private void transactions() {
    String color = key("color"), seen = key("seen");
    try (AbstractTransaction transaction = jedis.multi()) {
      transaction.set(seen, "0");
      Response<Long> number = transaction.incr(seen);
      transaction.get(color);
      List<Object> replies = transaction.exec();
      Steps.say("multi and exec", replies);
      if (number.get() != 1)
        throw new IllegalStateException("INCR's own reply is " + number.get());
    }
    for (boolean changed : new boolean[] {false, true}) {
      try (AbstractTransaction transaction = jedis.transaction(false)) {
        transaction.watch(seen);
        if (changed)
          jedis.set(seen, "theirs"); // By another connection of the pool.
        transaction.multi();
        transaction.set(seen, "mine");
        List<Object> replies = transaction.exec();
        if (changed) {
          Steps.say("exec after another connection has changed the watched key", replies, jedis.get(seen));
        } else {
          Steps.say("exec without changes to the watched key", replies);
        }
      }
    }
    try (AbstractTransaction transaction = jedis.multi()) {
      transaction.set(color, "black");
      transaction.discard();
    }
    Steps.say("discard", jedis.get(color));
    try (AbstractTransaction transaction = jedis.multi()) {
      transaction.set(color, "black");
      transaction.sendCommand(NOSUCH, "it");
      Steps.say("exec after a command that was refused", Steps.firstWord(Steps.errorOf(transaction::exec)));
    }
    if (!jedis.get(color).equals("red"))
      throw new IllegalStateException("the transaction ran");
  }

  private void ranges() {
    for (String letter : List.of("a", "b", "c", "d")) jedis.set(key("lex:" + letter), letter);
    String keys = "cell:keys:" + key("lex:");
    Steps.say("zrangebylex of cell:keys",
        jedis.zrangeByLex("cell:keys", "[" + key("lex:b"), "(" + key("lex:d"))
            .stream()
            .map(name -> name.substring(prefix.length()))
            .collect(Collectors.toList()));
    Steps.say("zrangebylex with a prefix and LIMIT", jedis.zrangeByLex(keys, "-", "+", 1, 2));
    Steps.say("zrevrangebylex", jedis.zrevrangeByLex(keys, "+", "(b"));
  }

  private void errors() {
    Steps.say("unknown command", Steps.errorOf(() -> jedis.sendCommand(NOSUCH, "it")));
    Steps.say("wrong type", Steps.errorOf(() -> jedis.incr(key("fruit"))));
    Steps.say("not a number", Steps.errorOf(() -> jedis.incr(key("color"))));
  }

  private void bytes() {
    byte[] key = key("bytes").getBytes(StandardCharsets.UTF_8);
    jedis.set(key, Steps.binaryValue());
    Steps.sayBytes("binary", jedis.get(key), Steps.binaryValue());
    jedis.set(key, Steps.largeValue());
    Steps.sayBytes("large value", jedis.get(key), Steps.largeValue());
  }

  private void counter() throws Exception {
    Steps.inThreads(() -> {
      for (int i = 0; i < Steps.INCREMENTS; i++) jedis.incr(key("count"));
    });
    Steps.say("counter", jedis.get(key("count")));
  }

  public static void main(String[] arguments) throws Exception {
    HostAndPort address = new HostAndPort(arguments[0], Integer.parseInt(arguments[1]));
    JedisClientConfig config =
        DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).timeoutMillis(60_000).build();
    try (JedisPooled jedis = new JedisPooled(address, config)) {
      JedisWalk walk = new JedisWalk(jedis, arguments[2]);
      walk.connect();
      walk.strings();
      walk.hashes();
      walk.many();
      walk.transactions();
      walk.ranges();
      walk.errors();
      walk.bytes();
      walk.counter();
    }
  }
}
