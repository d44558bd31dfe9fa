import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/** YCSB's core over Jedis: a record of one field is one string. Property: terrace.port. */
public class TerraceClient extends DB {
  private static final String FIELD = "field0";
  private Jedis jedis;

  @Override
  public void init() {
    String port = getProperties().getProperty("terrace.port", "6379");
    // A minute: whoever is slow here is the machine.
    jedis = new Jedis("127.0.0.1", Integer.parseInt(port), 60_000);
  }

  @Override
  public void cleanup() {
    jedis.close();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    String value = jedis.get(key);
    if (value == null) {
      return Status.NOT_FOUND;
    }
    result.put(FIELD, new StringByteIterator(value));
    return Status.OK;
  }

  @Override
  public Status scan(
      String table,
      String start,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return insert(table, key, values);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    String reply = jedis.set(key, values.get(FIELD).toString());
    return "OK".equals(reply) ? Status.OK : Status.ERROR;
  }

  @Override
  public Status delete(String table, String key) {
    return jedis.del(key) == 1 ? Status.OK : Status.NOT_FOUND;
  }
}
