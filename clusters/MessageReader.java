import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages of the protocol with Kafka's own classes, and writes them again.
 *
 * Asked on standard input, a line each: the message's name, its version, its bytes in base64.
 * Answers on standard output, a line each: how many bytes were left over, the message written again in base64, and as
 * Kafka's own JSON. What it cannot read ends it, with the reason on standard error.
 */
public final class MessageReader {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            Class<?> kind = Class.forName("org.apache.kafka.common.message." + words[0] + "Data");
            Message message = (Message) kind.getDeclaredConstructor().newInstance();
            ByteBuffer given = ByteBuffer.wrap(Base64.getDecoder().decode(words[2]));
            try {
                message.read(new ByteBufferAccessor(given), version);
            } catch (RuntimeException error) {
                throw new IllegalArgumentException(words[0] + " " + version + ": " + error, error);
            }
            ObjectSerializationCache sizes = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(sizes, version));
            message.write(new ByteBufferAccessor(again), sizes, version);
            Object json = Class.forName(kind.getName() + "JsonConverter")
                .getMethod("write", kind, short.class)
                .invoke(null, message, version);
            String bytes = Base64.getEncoder().encodeToString(again.array());
            answers.append(given.remaining()).append(' ').append(bytes).append(' ').append(json).append('\n');
        }
        System.out.write(answers.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
