import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * RegistryClient URL serialize BROKER TOPIC: two versions of an order through Flink's serializer for registries, Java's
 * producer and consumer, and Flink's deserializer, which reads both with the newer one.
 * RegistryClient URL client: the calls of Confluent's own Java client, a line for each answer.
 *
 * Confluent's client is in Flink's jar, under names of Flink's: its own jars are not on Maven Central.
 */
public final class RegistryClient {
    private static final String BEGIN = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[";
    private static final String FIRST = BEGIN + "{\"name\":\"id\",\"type\":\"string\"}]}";
    private static final String SECOND = BEGIN
        + "{\"name\":\"id\",\"type\":\"string\"},{\"name\":\"paise\",\"type\":\"long\",\"default\":7}]}";
    private static final String BROKEN = BEGIN + "{\"name\":\"other\",\"type\":\"int\"}]}";

    public static void main(String[] words) throws Exception {
        if (words[1].equals("serialize")) {
            serialize(words[0], words[2], words[3]);
        } else {
            call(words[0]);
        }
    }

    private static void serialize(String url, String broker, String topic) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", broker);
        Schema first = new Schema.Parser().parse(FIRST);
        Schema second = new Schema.Parser().parse(SECOND);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Schema schema : List.of(first, second)) {
                GenericRecord order = new GenericData.Record(schema);
                order.put("id", "o" + schema.getFields().size());
                if (schema == second) {
                    order.put("paise", 250L);
                }
                byte[] value = ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-value", schema, url)
                    .serialize(order);
                producer.send(new ProducerRecord<>(topic, value)).get();
            }
        }
        ConfluentRegistryAvroDeserializationSchema<GenericRecord> reader =
            ConfluentRegistryAvroDeserializationSchema.forGeneric(second, url);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<GenericRecord> found = new ArrayList<>();
            while (found.size() < 2) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(reader.deserialize(record.value()));
                }
            }
            found.forEach(System.out::println);
        }
    }

    private interface Call {
        Object ask() throws Exception;
    }

    private static void tell(String what, Call call) throws Exception {
        try {
            System.out.println(what + " " + call.ask());
        } catch (RestClientException refused) {
            System.out.println(what + " refused " + refused.getStatus() + " " + refused.getErrorCode());
        }
    }

    private static void call(String url) throws Exception {
        try (CachedSchemaRegistryClient client = fresh(url); CachedSchemaRegistryClient other = fresh(url)) {
            AvroSchema first = new AvroSchema(FIRST);
            AvroSchema second = new AvroSchema(SECOND);
            AvroSchema broken = new AvroSchema(BROKEN);
            tell("unknown-subject", () -> client.getId("java", first));
            tell("register", () -> client.register("java", first));
            tell("unknown-schema", () -> client.getId("java", second));
            tell("compatible", () -> client.testCompatibility("java", second));
            tell("incompatible", () -> client.testCompatibility("java", broken));
            tell("reasons", () -> !client.testCompatibilityVerbose("java", broken).isEmpty());
            tell("register-normalized", () -> client.register("java", second, true));
            tell("register-broken", () -> client.register("java", broken));
            tell("id", () -> other.getId("java", second));
            tell("version", () -> other.getVersion("java", first));
            tell("by-id", () -> other.getSchemaById(1).equals(first));
            tell("by-subject-and-id", () -> other.getSchemaBySubjectAndId("java", 2).equals(second));
            tell("no-such-id", () -> other.getSchemaById(99));
            tell("latest", () -> client.getLatestSchemaMetadata("java").getVersion());
            tell("schema-of-1", () -> client.getSchemaMetadata("java", 1).getSchema().equals(FIRST));
            tell("versions", () -> client.getAllVersions("java"));
            tell("subjects-by-id", () -> client.getAllSubjectsById(1));
            tell("versions-by-id", () -> client.getAllVersionsById(2));
            tell("schemas", () -> client.getSchemas("java", false, true).size());
            SchemaReference reference = new SchemaReference("shop.Order", "java", 2);
            AvroSchema using = new AvroSchema(
                "{\"type\":\"array\",\"items\":\"shop.Order\"}", List.of(reference), Map.of("shop.Order", SECOND), null);
            tell("register-using", () -> client.register("using", using));
            tell("using", () -> other.getSchemaById(3).equals(using));
            tell("referenced", () -> client.deleteSchemaVersion("java", "2"));
            tell("in-a-context", () -> client.register(":.eu:java", second));
            tell("of-the-context", () -> other.getSchemaBySubjectAndId(":.eu:java", 1).equals(second));
            tell("level", () -> client.updateCompatibility("java", "FULL_TRANSITIVE"));
            tell("level-of", () -> client.getCompatibility("java"));
            tell("level-of-all", () -> client.updateCompatibility(null, "FORWARD"));
            client.deleteCompatibility("java");
            tell("level-gone", () -> client.getCompatibility("java"));
            tell("mode", () -> client.setMode("READONLY", "java"));
            tell("read-only", () -> client.register("java", broken));
            client.deleteMode("java");
            tell("mode-of-all", () -> client.getMode());
            tell("subjects", () -> new TreeSet<>(client.getAllSubjects()));
            tell("delete-using", () -> client.deleteSubject("using"));
            tell("delete-version", () -> client.deleteSchemaVersion("java", "1"));
            tell("versions-left", () -> client.getAllVersions("java"));
            tell("versions-ever", () -> client.getAllVersions("java", true));
            tell("delete-for-good", () -> client.deleteSchemaVersion("java", "1", true));
            tell("subjects-ever", () -> new TreeSet<>(client.getAllSubjects(true)));
        }
    }

    private static CachedSchemaRegistryClient fresh(String url) {
        return new CachedSchemaRegistryClient(List.of(url), 100, List.of(new AvroSchemaProvider()), Map.of());
    }
}
