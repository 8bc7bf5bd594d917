import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other in one JVM, which starts once.
 *
 * Asked on standard input, a line each time: the class, what it finds on its own standard input, then its arguments,
 * each in base64, after a sign that keeps an empty one a word, and separated by spaces.
 * Answers on standard output, a line each time: the exit code, then standard output and standard error in base64.
 */
public final class ToolDesk {
    /** In place of the end of the JVM. An Error, so that a tool's "catch (Exception e)" lets it pass. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final int STILL_RUNNING = Integer.MIN_VALUE;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(ToolDesk::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            int code = run(words[0], Arrays.copyOfRange(words, 2, words.length));
            answers.println(code + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
        System.exit(0);  // some tools leave threads behind
    }

    private static int run(String tool, String[] arguments) throws Exception {
        List<Runnable> hooks = new ArrayList<>();  // the console producer sends its last records in one
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        int[] first = {STILL_RUNNING};
        Exit.Procedure end = (code, message) -> {
            if (first[0] == STILL_RUNNING) {
                first[0] = code;
                if (message != null) {
                    System.err.println(message);
                }
                hooks.forEach(Runnable::run);
                // The JVM would be gone now, so nobody would hear what a tool says of this Error.
                System.setOut(new PrintStream(OutputStream.nullOutputStream()));
                System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ClassNotFoundException missing) {
            missing.printStackTrace();
            first[0] = 1;
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace();
                first[0] = 1;
            }
        }
        if (first[0] == STILL_RUNNING) {
            first[0] = 0;
            hooks.forEach(Runnable::run);
        }
        return first[0];
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return "=" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
