import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * FlinkCopy BROKER INPUT OUTPUT DIRECTORY FAILS-AT [CHECKPOINT]: copies INPUT to OUTPUT with Flink, exactly once, in a
 * cluster within this process.
 *
 * A "!" goes behind each value. Checkpoints are beneath DIRECTORY; it begins at CHECKPOINT if there is one. At the value
 * FAILS-AT it fails once, and goes on from its newest checkpoint. Runs until it is killed.
 */
public final class FlinkCopy {
    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "300 ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + words[3]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "3");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        if (words.length > 5) {
            settings.setString("execution.state-recovery.path", "file://" + words[5]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(words[0])
            .setTopics(words[1])
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "60000");
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(words[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setKafkaProducerConfig(producer)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(words[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
            .map(new Mark(words[4]))
            .sinkTo(sink);
        environment.execute("copy");
    }

    /** Puts the mark behind a value, and fails once in the life of this process. */
    private static final class Mark implements MapFunction<String, String> {
        private static final AtomicBoolean HAS_FAILED = new AtomicBoolean();
        private final String failsAt;

        private Mark(String failsAt) {
            this.failsAt = failsAt;
        }

        @Override
        public String map(String value) {
            if (value.equals(failsAt) && HAS_FAILED.compareAndSet(false, true)) {
                System.out.println("fails at " + value);
                throw new IllegalStateException("planted");
            }
            return value + "!";
        }
    }
}
