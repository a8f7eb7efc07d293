import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** What the walks of Jedis and Lettuce have in common: how a step's line is written (walk.txt), and the values used. */
final class Steps {
  static final int SCANNED = 500;
  static final int WORKERS = 8;
  static final int INCREMENTS = 125; // Of each worker.

  private Steps() {}

  static void say(String step, Object... values) {
    StringBuilder line = new StringBuilder(step).append(":");
    for (Object value : values) line.append(" ").append(shown(value));
    System.out.println(line);
  }

  /** Returns how a walk writes a result. */
  static String shown(Object value) {
    if (value instanceof Map) {
      List<String> pairs = new ArrayList<>();
      new TreeMap<>((Map<?, ?>) value).forEach((field, its) -> pairs.add(field + "=" + its));
      return String.join(" ", pairs);
    }
    if (value instanceof List) {
      List<String> all = new ArrayList<>();
      for (Object one : (List<?>) value) all.add(shown(one));
      return String.join(" ", all);
    }
    return String.valueOf(value);
  }

  /** Returns how a walk writes the reply to TTL. */
  static String timeLeft(long seconds) {
    if (40 < seconds && seconds <= 100)
      return "about 100 s";
    return seconds == -1 ? "none" : seconds == -2 ? "missing" : seconds + " s";
  }

  interface Call {
    Object run();
  }

  /** Returns the message of the error that a call has. */
  static String errorOf(Call call) {
    try {
      return "no error but " + shown(call.run());
    } catch (RuntimeException error) {
      return error.getMessage().trim();
    }
  }

  static String firstWord(String text) {
    return text.split(" ", 2)[0];
  }

  static String scanned(int i) {
    return String.format("scan:%03d", i);
  }

  /** Returns what the walk says of the replies to INCR and GET of each key in turn. */
  static String order(List<?> replies) {
    for (int i = 0; i < replies.size(); i++) {
      String wanted = String.valueOf(i % 2 == 0 ? i / 2 + 1 : i / 2);
      if (!wanted.equals(shown(replies.get(i)))) {
        return replies.size() + " replies of which number " + i + " is " + shown(replies.get(i));
      }
    }
    return replies.size() + " replies in order";
  }

  static byte[] binaryValue() {
    byte[] value = new byte[256];
    for (int i = 0; i < value.length; i++) value[i] = (byte) i;
    return value;
  }

  static byte[] largeValue() {
    byte[] value = new byte[500_000], pattern = "0123456789\r\n\0$".getBytes();
    for (int i = 0; i < value.length; i++) value[i] = pattern[i % pattern.length];
    return value;
  }

  static void sayBytes(String step, byte[] read, byte[] written) {
    say(step, (java.util.Arrays.equals(read, written) ? read.length : 0) + " of " + written.length + " bytes");
  }

  /** Runs this in WORKERS threads, and waits for them. */
  static void inThreads(Runnable work) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(WORKERS);
    List<Future<?>> all = new ArrayList<>();
    for (int i = 0; i < WORKERS; i++) all.add(threads.submit(work));
    for (Future<?> one : all) one.get();
    threads.shutdown();
  }
}
