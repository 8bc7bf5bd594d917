import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A worker of Java's own: BROKER TOPIC GROUP RECORDS.
 *
 * Takes records until RECORDS are done. A value says what is to become of it: "release" is released the first time,
 * "reject" is rejected, for "renew" more time is asked, after which the next poll has it again; all others are accepted. Prints each record
 * with its delivery count, and what the broker refused.
 */
public final class ShareWorker {
    public static void main(String[] words) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[0]);
        properties.put("group.id", words[2]);
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        int left = Integer.parseInt(words[3]);
        Set<Long> renewed = new HashSet<>();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(words[1]));
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int count = record.deliveryCount().orElse((short) 0);
                    System.out.println(record.value() + " " + count);
                    if (record.value().equals("release") && count == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                        continue;
                    }
                    if (record.value().equals("renew") && renewed.add(record.offset())) {
                        consumer.acknowledge(record, AcknowledgeType.RENEW);
                        continue;
                    }
                    boolean isRejected = record.value().equals("reject");
                    consumer.acknowledge(record, isRejected ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    left--;
                }
                tell(consumer.commitSync());
            }
        }
    }

    private static void tell(Map<TopicIdPartition, Optional<KafkaException>> results) {
        results.forEach((partition, error) -> error.ifPresent(one -> System.out.println("refused: " + one)));
    }
}
