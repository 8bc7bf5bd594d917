// franz-go's clients, one program for each of: produce, consume, work and share.
//
// produce BROKER TOPIC COUNT: idempotent, a batch with each codec in turn, to every partition. Values are 0 to COUNT-1.
//
// consume BROKER TOPIC GROUP PROTOCOL: a member of the group, of the protocol "consumer" (KIP-848) or "classic". It says
// on a line of its own "have" and the partitions whenever these change, and "read PARTITION OFFSET VALUE" for a record,
// then commits. Leaves the group when its standard input ends.
//
// work BROKER INPUT OUTPUT GROUP ID PROTOCOL: consume, transform, produce, exactly once, each record to the partition
// that it came from, with "!" behind. It says what it does: begun, written, offsets, committed, aborted. Every fourth
// transaction is aborted. After any trouble it ends, and says why: fenced, or "ends:" and the error.
//
// share BROKER TOPIC GROUP COUNT: a member of a share group (KIP-932). A value says what is to become of it: "release" is
// released the first time, "reject" is rejected, for "renew" more time is asked, all others are accepted. It says each
// value with its delivery count, and ends when COUNT are done.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var output sync.Mutex

func say(format string, words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", words...)
}

func main() {
	words := os.Args[1:]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	programs := map[string]func(context.Context, []string) error{
		"produce": produce, "consume": consume, "work": work, "share": share,
	}
	if err := programs[words[0]](ctx, words[1:]); err != nil {
		if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
			say("fenced")
		} else {
			say("ends: %v", err)
		}
		os.Exit(1)
	}
}

func produce(ctx context.Context, words []string) error {
	count, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	each := (count + len(codecs) - 1) / len(codecs)
	for at, codec := range codecs {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(words[0]), kgo.DefaultProduceTopic(words[1]), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		)
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for number := at * each; number < min((at+1)*each, count); number++ {
			records = append(records, kgo.StringRecord(strconv.Itoa(number)))
		}
		err = client.ProduceSync(ctx, records...).FirstErr()
		client.Close()
		if err != nil {
			return err
		}
	}
	say("produced %d", count)
	return nil
}

// groupOptions are those of a member that notices soon what happens, in the protocol of that name.
func groupOptions(broker, topic, group, protocol string) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.RetryTimeout(20 * time.Second),
	}
	if protocol == "consumer" {
		return append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	return append(options,
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(3*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))
}

// possession is what a member has been given, and says so.
type possession struct {
	lock       sync.Mutex
	partitions map[int32]bool
}

func (p *possession) change(parts map[string][]int32, has bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, numbers := range parts {
		for _, number := range numbers {
			if has {
				p.partitions[number] = true
			} else {
				delete(p.partitions, number)
			}
		}
	}
	numbers := make([]int, 0, len(p.partitions))
	for number := range p.partitions {
		numbers = append(numbers, int(number))
	}
	sort.Ints(numbers)
	say("have %v", numbers)
}

func consume(ctx context.Context, words []string) error {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		}
		stop()
	}()
	mine := &possession{partitions: map[int32]bool{}}
	taken := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { mine.change(parts, true) }
	gone := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { mine.change(parts, false) }
	client, err := kgo.NewClient(append(groupOptions(words[0], words[1], words[2], words[3]),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(taken), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 100)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for _, record := range records {
			say("read %d %d %s", record.Partition, record.Offset, record.Value)
		}
		if err := client.CommitRecords(context.Background(), records...); err != nil {
			return err
		}
		client.AllowRebalance()
	}
}

func work(ctx context.Context, words []string) error {
	broker, input, target, group, id, protocol := words[0], words[1], words[2], words[3], words[4], words[5]
	session, err := kgo.NewGroupTransactSession(append(groupOptions(broker, input, group, protocol),
		kgo.TransactionalID(id), kgo.TransactionTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return err
	}
	defer session.Close()
	for number := 1; ; {
		fetches := session.PollRecords(ctx, 50)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		say("begun")
		var records []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			value := append(append([]byte{}, record.Value...), '!')
			records = append(records, &kgo.Record{Topic: target, Partition: record.Partition, Key: record.Key, Value: value})
		})
		failed := session.ProduceSync(ctx, records...).FirstErr()
		say("written")
		say("offsets")
		committed, err := session.End(ctx, kgo.TransactionEndTry(failed == nil && number%4 != 0))
		if err = errors.Join(failed, err); err != nil {
			return err
		}
		number++
		if committed {
			say("committed")
		} else {
			say("aborted")
		}
	}
}

func share(ctx context.Context, words []string) error {
	left, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	refused := func(_ *kgo.Client, results kgo.ShareAckResults) {
		if err := results.Error(); err != nil {
			say("refused: %v", err)
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(words[0]), kgo.ConsumeTopics(words[1]), kgo.ShareGroup(words[2]), kgo.ShareAckCallback(refused))
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		fetches := client.PollRecords(ctx, 100)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			value, count := string(record.Value), record.DeliveryCount()
			say("%s %d", value, count)
			switch {
			case value == "release" && count == 1:
				record.Ack(kgo.AckRelease)
				continue
			case value == "reject":
				record.Ack(kgo.AckReject)
			case value == "renew":
				record.Ack(kgo.AckRenew)
				if err := client.FlushAcks(ctx); err != nil {
					return err
				}
				record.Ack(kgo.AckAccept)
			default:
				record.Ack(kgo.AckAccept)
			}
			left--
		}
		if err := client.FlushAcks(ctx); err != nil {
			return err
		}
	}
	return nil
}
