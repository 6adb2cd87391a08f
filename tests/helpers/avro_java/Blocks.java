// Encodes Avro values anew with Apache Avro for Java, whose blocks of arrays and maps give their sizes.
//
// In: lines of standard input, "schema JSON" and "value HEX". Out: a line of hexadecimal digits for each value.
// Touches: nothing.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

public class Blocks {
    public static void main(String[] arguments) throws Exception {
        EncoderFactory encoders = new EncoderFactory().configureBlockSize(Integer.parseInt(arguments[0]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Schema schema = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String given = line.substring(line.indexOf(' ') + 1);
            if (line.startsWith("schema ")) {
                schema = new Schema.Parser().parse(given);
                continue;
            }
            byte[] body = HexFormat.of().parseHex(given);
            Object value = new GenericDatumReader<>(schema).read(null, DecoderFactory.get().binaryDecoder(body, null));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = encoders.blockingBinaryEncoder(out, null);
            new GenericDatumWriter<>(schema).write(value, encoder);
            encoder.flush();
            System.out.println(HexFormat.of().formatHex(out.toByteArray()));
        }
    }
}
