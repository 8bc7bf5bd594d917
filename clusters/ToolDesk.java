import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other in one JVM, which starts once.
 *
 * Asked on standard input, a line each time: the class, then its arguments, each in base64, separated by spaces,
 * after a sign that keeps an empty one a word.
 * Answers on standard output, a line each time: the exit code, then standard output and standard error in base64.
 */
public final class ToolDesk {
    /** In place of the end of the JVM. An Error, so that a tool's "catch (Exception e)" lets it pass. */
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        System.setIn(new ByteArrayInputStream(new byte[0]));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(ToolDesk::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.println(code + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
        System.exit(0);  // some tools leave threads behind
    }

    private static int run(String tool, String[] arguments) throws Exception {
        int[] first = {Integer.MIN_VALUE};
        Exit.Procedure end = (code, message) -> {
            if (first[0] == Integer.MIN_VALUE) {
                first[0] = code;
                if (message != null) {
                    System.err.println(message);
                }
                // The JVM would be gone now, so nobody would hear what a tool says of this Error.
                System.setOut(new PrintStream(OutputStream.nullOutputStream()));
                System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            }
            throw new Ended(first[0]);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        }
        return first[0] == Integer.MIN_VALUE ? 0 : first[0];
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return "=" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
