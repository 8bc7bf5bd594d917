import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of Java's own clients, one program for each of them: `copy`, `work` and `fence`.
 *
 * copy BROKER INPUT OUTPUT GROUP ID RECORDS: consume, transform, produce, exactly once. Records of INPUT go to OUTPUT
 * with "!" behind their value, the offsets with them. Every third transaction is aborted after its records and offsets
 * were sent, and done again. Ends when RECORDS were read, with a line that says how many transactions were committed and
 * aborted.
 *
 * work BROKER INPUT OUTPUT GROUP ID: the same without an end, each record to the partition that it came from. It says
 * on a line of its own what it does: begun, written, offsets, committed, aborted. After any trouble it ends, and says
 * why: fenced, or "ends:" and the error.
 *
 * fence BROKER OUTPUT ID: a second producer takes the id of the first over, whose open transaction is aborted. Ends with
 * what the first one is told.
 */
public final class ExactlyOnce {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("copy")) {
            copy(words[1], words[2], words[3], words[4], words[5], Integer.parseInt(words[6]));
        } else if (words[0].equals("work")) {
            try {
                work(words[1], words[2], words[3], words[4], words[5]);
            } catch (ProducerFencedException told) {
                say("fenced");
            } catch (KafkaException told) {
                say("ends: " + told);
            }
            Runtime.getRuntime().halt(0); // at once: what is under way stays as it is, as after a kill
        } else {
            fence(words[1], words[2], words[3]);
        }
    }

    private static void say(String word) {
        System.out.println(word);
        System.out.flush();
    }

    private static void work(String broker, String input, String output, String group, String id) {
        KafkaProducer<String, String> producer = producer(broker, id);
        producer.initTransactions();
        KafkaConsumer<String, String> consumer = consumer(broker, group);
        consumer.subscribe(Set.of(input));
        for (int number = 1; ; ) {
            ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(100));
            if (batch.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            say("begun");
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : batch) {
                producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value() + "!"));
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            producer.flush();
            say("written");
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            say("offsets");
            if (number++ % 4 != 0) {
                producer.commitTransaction();
                say("committed");
            } else {
                producer.abortTransaction();
                say("aborted");
                rewind(consumer);
            }
        }
    }

    private static void copy(String broker, String input, String output, String group, String id, int records) {
        int read = 0;
        int committed = 0;
        int aborted = 0;
        try (KafkaConsumer<String, String> consumer = consumer(broker, group);
             KafkaProducer<String, String> producer = producer(broker, id)) {
            producer.initTransactions();
            consumer.subscribe(Set.of(input));
            while (read < records) {
                ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(200));
                if (batch.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : batch) {
                    producer.send(new ProducerRecord<>(output, record.key(), record.value() + "!"));
                    offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if ((committed + aborted) % 3 == 2) {
                    producer.abortTransaction();
                    aborted++;
                    rewind(consumer);
                } else {
                    producer.commitTransaction();
                    committed++;
                    read += batch.count();
                }
            }
        }
        System.out.println("committed " + committed + " aborted " + aborted);
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }

    private static void fence(String broker, String output, String id) throws Exception {
        try (KafkaProducer<String, String> first = producer(broker, id);
             KafkaProducer<String, String> second = producer(broker, id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(output, "key", "of a zombie")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(output, "key", "of its successor"));
            second.commitTransaction();
            try {
                first.commitTransaction();
                System.out.println("not fenced");
            } catch (ProducerFencedException told) {
                System.out.println("fenced");
            } catch (KafkaException told) {
                System.out.println("told " + told);
            }
        }
    }

    private static KafkaProducer<String, String> producer(String broker, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        settings.put("transactional.id", id);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String broker, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        settings.put("group.id", group);
        settings.put("group.protocol", "classic");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "50");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
