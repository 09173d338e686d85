// calls serves gRPC on a port of loopback and calls itself: `calls PORT COUNT AT_ONCE` echoes on one connection.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func echo(_ any, stream grpc.ServerStream) error {
	message := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(message); err != nil {
		return err
	}
	return stream.SendMsg(message)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	count, err := strconv.Atoi(os.Args[2])
	must(err)
	atOnce, err := strconv.Atoi(os.Args[3])
	must(err)

	listener, err := net.Listen("tcp", address)
	must(err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(echo))
	go func() { must(server.Serve(listener)) }()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)

	var callers sync.WaitGroup
	for range atOnce {
		callers.Add(1)
		go func() {
			defer callers.Done()
			asked, answered := wrapperspb.Bytes(make([]byte, 100)), new(wrapperspb.BytesValue)
			for range count / atOnce {
				must(connection.Invoke(context.Background(), "/calls/echo", asked, answered))
			}
		}()
	}
	callers.Wait()
	must(connection.Close())
	server.GracefulStop()
}
