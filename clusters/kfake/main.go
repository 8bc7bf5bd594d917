// kfake, franz-go's broker in a process, as a program.
//
// kfake PORT DIRECTORY: one broker on the loopback with its data on disk. It answers before it syncs, as Kafka does; with
// a third word, "sync", it syncs every batch first. Ends in order at SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("kfake PORT DIRECTORY [sync]")
	}
	port, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	options := []kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(words[1]), kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(1),
	}
	if len(words) > 2 && words[2] == "sync" {
		options = append(options, kfake.SyncWrites())
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return err
	}
	<-ends
	cluster.Close()
	return nil
}
