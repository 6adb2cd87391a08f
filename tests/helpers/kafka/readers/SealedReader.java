// Reads a topic of sealed sketches with Apache Kafka's own client alone: one JSON line for each window.
//
//     java -cp kafka-clients.jar:... SealedReader.java BOOTSTRAP TOPIC
//
// It follows docs/sealed-topic.md. The checksum of a body (BLAKE2b, which Java's library lacks) is not looked at.

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import java.util.zip.Inflater;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class SealedReader {
  record Place(String sketch, long start, long end, int revision, int partition) {}

  record Frontier(long sequence, long through, int partitions) {}

  /** The parts of msgpack that headers use: maps, lists, text, bytes, integers, booleans, nil. */
  static Object value(ByteBuffer in) {
    int b = in.get() & 255;
    if (b < 0x80) return (long) b;
    if (b < 0x90) return map(in, b & 15);
    if (b < 0xa0) return list(in, b & 15);
    if (b < 0xc0) return text(in, b & 31);
    if (b >= 0xe0) return (long) (byte) b;
    return switch (b) {
      case 0xc0 -> null;
      case 0xc2 -> false;
      case 0xc3 -> true;
      case 0xc4 -> bytes(in, in.get() & 255);
      case 0xc5 -> bytes(in, in.getShort() & 0xffff);
      case 0xc6 -> bytes(in, in.getInt());
      case 0xcc -> (long) (in.get() & 255);
      case 0xcd -> (long) (in.getShort() & 0xffff);
      case 0xce -> in.getInt() & 0xffffffffL;
      case 0xcf, 0xd3 -> in.getLong();
      case 0xd0 -> (long) in.get();
      case 0xd1 -> (long) in.getShort();
      case 0xd2 -> (long) in.getInt();
      case 0xd9 -> text(in, in.get() & 255);
      case 0xda -> text(in, in.getShort() & 0xffff);
      case 0xdb -> text(in, in.getInt());
      case 0xdc -> list(in, in.getShort() & 0xffff);
      case 0xdd -> list(in, in.getInt());
      case 0xde -> map(in, in.getShort() & 0xffff);
      case 0xdf -> map(in, in.getInt());
      default -> throw new IllegalArgumentException("not a header of a sealed sketch: " + b);
    };
  }

  static byte[] bytes(ByteBuffer in, int n) {
    byte[] out = new byte[n];
    in.get(out);
    return out;
  }

  static String text(ByteBuffer in, int n) {
    return new String(bytes(in, n), StandardCharsets.UTF_8);
  }

  static List<Object> list(ByteBuffer in, int n) {
    List<Object> out = new ArrayList<>();
    for (int i = 0; i < n; i++) out.add(value(in));
    return out;
  }

  static Map<String, Object> map(ByteBuffer in, int n) {
    Map<String, Object> out = new HashMap<>();
    for (int i = 0; i < n; i++) out.put((String) value(in), value(in));
    return out;
  }

  static byte[] inflated(byte[] data, int from, int n) throws Exception {
    Inflater inflater = new Inflater(true);
    inflater.setInput(data, from, n);
    var out = new java.io.ByteArrayOutputStream();
    byte[] part = new byte[1 << 16];
    for (int k = inflater.inflate(part); k > 0; k = inflater.inflate(part)) out.write(part, 0, k);
    inflater.end();
    return out.toByteArray();
  }

  /** The noisy counts of a body; see docs/format.md, sections 1 and 4. */
  static long[] counts(ByteBuffer data, int codec, int type, int n, int at, int length) throws Exception {
    long[] out = new long[n];
    int size = 1 << type;
    if (codec == 0) {
      for (int i = 0; i < n; i++) {
        int here = at + i * size;
        out[i] = type == 1 ? data.getShort(here) : type == 2 ? data.getInt(here) : data.getLong(here);
      }
      return out;
    }
    int shift = data.get(at);
    int tokensLength = (int) data.getLong(at + 8), excessLength = (int) data.getLong(at + 24);
    byte[] tokens = inflated(data.array(), at + 32, tokensLength);
    byte[] excess = inflated(data.array(), at + 32 + tokensLength, excessLength);
    int low = at + 32 + tokensLength + excessLength, next = 0;
    for (int i = 0; i < n; i++) {
      long z = tokens[i] & 255;
      if (z == 255) {
        long more = 0;
        for (int s = 0; ; s += 7) {
          byte b = excess[next++];
          more |= (long) (b & 127) << s;
          if (b >= 0) break;
        }
        z += more;
      }
      z <<= shift;
      for (int bit = 0; bit < shift; bit++) {
        long place = (long) i * shift + bit;
        if ((data.get(low + (int) (place >> 3)) >> (place & 7) & 1) != 0) z |= 1L << bit;
      }
      out[i] = z >>> 1 ^ -(z & 1);
    }
    return out;
  }

  static long number(String json, String name) {
    var found = java.util.regex.Pattern.compile('"' + name + "\":(-?[0-9]+)").matcher(json);
    if (!found.find()) throw new IllegalArgumentException("a frontier without " + name);
    return Long.parseLong(found.group(1));
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "enable.auto.commit", false);
    Map<String, TreeMap<Integer, byte[]>> chunks = new HashMap<>();
    Map<Place, byte[]> bodies = new HashMap<>();
    Map<String, Frontier> frontiers = new HashMap<>();
    var deserializer = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(settings, deserializer, deserializer)) {
      var parts = consumer.partitionsFor(arguments[1]).stream()
          .map(one -> new TopicPartition(one.topic(), one.partition())).toList();
      consumer.assign(parts);
      consumer.seekToBeginning(parts);
      var ends = consumer.endOffsets(parts);
      while (parts.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
        for (var record : consumer.poll(Duration.ofMillis(500))) {
          String[] key = record.key() == null
              ? new String[] {""} : new String(record.key(), StandardCharsets.UTF_8).split("/");
          if (key[0].equals("frontier") && key.length == 4) {
            String said = new String(record.value(), StandardCharsets.UTF_8);
            var one = new Frontier(
                number(said, "sequence"), number(said, "published_through"), (int) number(said, "partitions"));
            frontiers.merge(key[1] + "/" + key[2] + "/" + key[3], one,
                (known, news) -> news.sequence() >= known.sequence() ? news : known);
          } else if (key[0].equals("sealed") && key.length == 10) {
            var found = chunks.computeIfAbsent(
                String.join("/", Arrays.copyOfRange(key, 1, 8)), any -> new TreeMap<>());
            found.put(Integer.parseInt(key[8]), record.value());
            if (found.size() == Integer.parseInt(key[9])) {
              var body = ByteBuffer.allocate(found.values().stream().mapToInt(one -> one.length).sum());
              found.values().forEach(body::put);
              var place = new Place(key[1], Long.parseLong(key[3]), Long.parseLong(key[4]),
                  Integer.parseInt(key[2]), Integer.parseInt(key[5]));
              byte[] known = bodies.putIfAbsent(place, body.array());
              if (known != null && !Arrays.equals(known, body.array()))
                throw new IllegalStateException("incident: " + place + " was published twice");
            }
          }
        }
      }
    }
    Comparator<Place> order = Comparator.comparingLong(Place::start).thenComparing(Place::end)
        .thenComparing(Place::sketch);
    Map<Place, List<Place>> windows = bodies.keySet().stream().collect(Collectors.groupingBy(
        one -> new Place(one.sketch(), one.start(), one.end(), 0, 0), () -> new TreeMap<>(order), Collectors.toList()));
    for (var window : windows.entrySet()) {
      int revision = window.getValue().stream().mapToInt(Place::revision).max().getAsInt();
      Map<Integer, Place> here = new TreeMap<>();
      window.getValue().stream().filter(one -> one.revision() == revision).forEach(one -> here.put(one.partition(), one));
      String prefix = window.getKey().sketch() + "/" + revision + "/";
      int of = Collections.max(here.keySet()) + 1;
      for (var said : frontiers.entrySet())
        if (said.getKey().startsWith(prefix)) of = Math.max(of, said.getValue().partitions());
      StringBuilder values = new StringBuilder();
      for (var one : here.entrySet()) {
        ByteBuffer data = ByteBuffer.wrap(bodies.get(one.getValue())).order(ByteOrder.LITTLE_ENDIAN);
        if (data.getInt(0) != 0x534b53c1 && data.getInt(0) != Integer.reverseBytes(0xc1534b53))
          throw new IllegalStateException("not a sealed sketch");
        if (data.getShort(4) > 2) throw new IllegalStateException("of a later format");
        int head = data.getInt(12), n = (int) (data.getLong(16) * data.getLong(24));
        ByteBuffer header = ByteBuffer.wrap(data.array(), 40, head).slice();
        Map<?, ?> fields = (Map<?, ?>) value(header);
        for (String name : List.of("partitions_open", "partitions_seal"))
          of = Math.max(of, ((Long) ((Map<Object, Object>) fields).getOrDefault(name, 1L)).intValue());
        long[] counts = counts(data, data.get(6), data.get(8), n, 40 + head, (int) data.getLong(32));
        String first = Arrays.stream(counts).limit(5).mapToObj(Long::toString).collect(Collectors.joining(", "));
        values.append(String.format(", \"%d\": {\"n\": %d, \"sum\": %d, \"first\": [%s]}",
            one.getKey(), n, Arrays.stream(counts).sum(), first));
      }
      List<Integer> missing = new ArrayList<>();
      for (int p = 0; p < of; p++) {
        Frontier said = frontiers.get(prefix + p);
        if (!here.containsKey(p) && (said == null || said.through() < window.getKey().end())) missing.add(p);
      }
      System.out.printf("{\"sketch\": \"%s\", \"window\": [%d, %d], \"revision\": %d, \"missing\": %s%s}%n",
          window.getKey().sketch(), window.getKey().start(), window.getKey().end(), revision, missing, values);
    }
  }
}
