package cell.ycsb;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/**
 * Writes and reads records, each of which is the value of one key. A record is
 *
 * <pre>
 *   byte    1, the format's number
 *   then for each field
 *   u16     size of the field's name
 *   i32     size of its value
 *   bytes   the name in UTF-8, and the value
 * </pre>
 *
 * with little-endian numbers. Bytes that do not read as this give CellException.DATA_LOSS. Not thread-safe.
 */
final class Records {
  private static final byte FORMAT = 1;
  private static final int FIELD_HEADER_BYTES = 6;
  private static final int NAME_BYTES_MAX = 0xffff;
  private static final int NAMES_MAX = 256;
  private static final VarHandle SHORT = MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle NATIVE_INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());

  // The names of fields that were read last, by the field's place in its record: records mostly have the same ones, which then
  // cost no new strings.
  private byte[][] nameBytes = new byte[0][];
  private long[] nameWords = new long[0]; // The bytes of those that have at most 8, with zeros after them.
  private String[] names = new String[0];

  /** Takes the bytes of the values out of YCSB's iterators, which can be read once. */
  static Map<String, byte[]> bytesOf(Map<String, ByteIterator> fields) {
    final Map<String, byte[]> bytes = new LinkedHashMap<>(2 * fields.size());
    fields.forEach((name, value) -> bytes.put(name, value.toArray()));
    return bytes;
  }

  /** Returns a record that has these fields. */
  static byte[] write(Map<String, byte[]> fields) throws CellException {
    final byte[] record = new byte[1 + sizeOf(fields)];
    record[0] = FORMAT;
    append(fields, record, 1);
    return record;
  }

  /** Returns the record with the fields that `changes` has put in, or put in place of the former ones. */
  byte[] change(byte[] record, Map<String, byte[]> changes) throws CellException {
    final byte[] changed = Arrays.copyOf(record, Math.addExact(record.length, sizeOf(changes)));
    int end = 1;
    for (Field field = first(record, 0, record.length); field.next(); ) {
      if (changes.containsKey(field.name)) continue;
      System.arraycopy(record, field.begin, changed, end, field.end - field.begin);
      end += field.end - field.begin;
    }
    return Arrays.copyOf(changed, append(changes, changed, end));
  }

  /** Puts the fields of a record that are among `wanted`, or all of them if that is null, into `result`. */
  void read(byte[] record, Set<String> wanted, Map<String, ByteIterator> result) throws CellException {
    read(record, 0, record.length, wanted, result);
  }

  /** Adds the records of what NativeClient.scan has returned to `result`. */
  void readAll(byte[] pairs, Set<String> wanted, Vector<HashMap<String, ByteIterator>> result) throws CellException {
    for (int at = 0; at < pairs.length; ) {
      final int value = at + 8 + (int) NATIVE_INT.get(pairs, at);
      final int end = value + (int) NATIVE_INT.get(pairs, at + 4);
      final HashMap<String, ByteIterator> fields = new HashMap<>(32);
      read(pairs, value, end, wanted, fields);
      result.add(fields);
      at = end;
    }
  }

  private void read(byte[] bytes, int begin, int end, Set<String> wanted, Map<String, ByteIterator> result) throws CellException {
    for (Field field = first(bytes, begin, end); field.next(); ) {
      if (wanted == null || wanted.contains(field.name)) {
        result.put(field.name, new ByteArrayByteIterator(bytes, field.value, field.end - field.value));
      }
    }
  }

  private static int sizeOf(Map<String, byte[]> fields) throws CellException {
    long size = 0;
    for (Map.Entry<String, byte[]> field : fields.entrySet()) {
      size += FIELD_HEADER_BYTES + (long) utf8(field.getKey()).length + field.getValue().length;
    }
    if (size > Integer.MAX_VALUE / 4) {
      throw new CellException(CellException.INVALID_ARGUMENT, "a record of " + size + " bytes is larger than any value of Cell");
    }
    return (int) size;
  }

  /** Writes fields at `at`. Returns where they end. */
  private static int append(Map<String, byte[]> fields, byte[] record, int at) throws CellException {
    for (Map.Entry<String, byte[]> field : fields.entrySet()) {
      final byte[] name = utf8(field.getKey());
      final byte[] value = field.getValue();
      if (name.length > NAME_BYTES_MAX) {
        throw new CellException(CellException.INVALID_ARGUMENT, "the name of a field has more than " + NAME_BYTES_MAX + " bytes");
      }
      SHORT.set(record, at, (short) name.length);
      INT.set(record, at + 2, value.length);
      System.arraycopy(name, 0, record, at + FIELD_HEADER_BYTES, name.length);
      System.arraycopy(value, 0, record, at + FIELD_HEADER_BYTES + name.length, value.length);
      at += FIELD_HEADER_BYTES + name.length + value.length;
    }
    return at;
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private Field first(byte[] bytes, int begin, int end) throws CellException {
    if (begin == end || bytes[begin] != FORMAT) {
      throw new CellException(CellException.DATA_LOSS, "a key of the table has a value that is no record of this binding");
    }
    return new Field(bytes, begin + 1, end);
  }

  private String nameOf(int place, byte[] bytes, int from, int to) {
    if (place < names.length && isNameOf(place, bytes, from, to)) return names[place];
    final String name = new String(bytes, from, to - from, StandardCharsets.UTF_8);
    if (place >= NAMES_MAX) return name;
    if (place >= names.length) {
      final int known = names.length;
      names = Arrays.copyOf(names, place + 1);
      nameBytes = Arrays.copyOf(nameBytes, place + 1);
      nameWords = Arrays.copyOf(nameWords, place + 1);
      Arrays.fill(names, known, place + 1, "");
      Arrays.fill(nameBytes, known, place + 1, new byte[0]);
    }
    names[place] = name;
    nameBytes[place] = Arrays.copyOfRange(bytes, from, to);
    nameWords[place] = (long) LONG.get(Arrays.copyOf(nameBytes[place], Math.max(to - from, Long.BYTES)), 0);
    return name;
  }

  /** Returns whether these bytes are the name that was read last at this place. For short names that is one comparison. */
  private boolean isNameOf(int place, byte[] bytes, int from, int to) {
    final byte[] name = nameBytes[place];
    final int size = to - from;
    if (name.length != size) return false;
    if (size > 0 && size <= Long.BYTES && bytes.length - from >= Long.BYTES) {
      return (long) LONG.get(bytes, from) << 8 * (Long.BYTES - size) == nameWords[place] << 8 * (Long.BYTES - size);
    }
    return Arrays.equals(name, 0, size, bytes, from, to);
  }

  /** Goes through the fields of a record. */
  private final class Field {
    private final byte[] bytes;
    private final int recordEnd;
    private int place = -1; // Of the field in its record.
    private String name;
    private int begin; // Of its header.
    private int value; // Where its value begins.
    private int end;

    Field(byte[] bytes, int at, int recordEnd) {
      this.bytes = bytes;
      this.end = at;
      this.recordEnd = recordEnd;
    }

    /** Moves to the next field. Returns false if there is none. */
    boolean next() throws CellException {
      if (end == recordEnd) return false;
      begin = end;
      if (recordEnd - begin < FIELD_HEADER_BYTES) throw damaged();
      final int nameSize = (short) SHORT.get(bytes, begin) & NAME_BYTES_MAX;
      final int valueSize = (int) INT.get(bytes, begin + 2);
      final int room = recordEnd - begin - FIELD_HEADER_BYTES;
      if (valueSize < 0 || nameSize > room || valueSize > room - nameSize) throw damaged();
      final int nameBegin = begin + FIELD_HEADER_BYTES;
      value = nameBegin + nameSize;
      end = value + valueSize;
      name = nameOf(++place, bytes, nameBegin, value);
      return true;
    }

    private CellException damaged() {
      return new CellException(CellException.DATA_LOSS, "a field of a record ends after its record");
    }
  }
}
