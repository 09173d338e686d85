// calls is a gRPC service and its client, in clear text; and an HTTP/1.1 service for the port beside it.
//
//	calls both PORT COUNT AT_ONCE            serve on loopback, and echo on one connection
//	calls serve PORT                         /calls/echo answers at once, /calls/slow after 150 ms, /calls/watch likewise,
//	                                         and goes on to answer for a second
//	calls ask TARGET COUNT AT_ONCE SLOW      COUNT calls, SLOW of them slow; tells what each took as JSON
//	calls watch TARGET COUNT                 one after the other; tells what each took to its first answer
//	calls serve-http1 PORT
//	calls ask-http1 URL COUNT                one after the other, on one connection
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	slowness     = 150 * time.Millisecond
	news         = 3 // answers of a watch
	silence      = 400 * time.Millisecond
	toEachServer = `{"loadBalancingConfig": [{"round_robin": {}}]}`
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func answer(_ any, stream grpc.ServerStream) error {
	message := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(message); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	if method == "/calls/slow" || method == "/calls/watch" {
		time.Sleep(slowness)
	}
	for range news {
		if err := stream.SendMsg(message); err != nil || method != "/calls/watch" {
			return err
		}
		time.Sleep(silence)
	}
	return nil
}

func serve(address string) *grpc.Server {
	listener, err := net.Listen("tcp", address)
	must(err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(answer))
	go func() { must(server.Serve(listener)) }()
	return server
}

func dial(target string) *grpc.ClientConn {
	connection, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(toEachServer))
	must(err)
	return connection
}

// ask makes calls, atOnce at a time, and returns what each took, in ms.
func ask(target string, count, atOnce, slow int) []float64 {
	connection := dial(target)
	took, next := make([]float64, count), atomic.Int64{}
	var callers sync.WaitGroup
	for range atOnce {
		callers.Go(func() {
			asked, answered := wrapperspb.Bytes(make([]byte, 100)), new(wrapperspb.BytesValue)
			for i := next.Add(1) - 1; int(i) < count; i = next.Add(1) - 1 {
				method := "/calls/echo"
				if slow > 0 && int(i)%(count/slow) == 0 {
					method = "/calls/slow"
				}
				began := time.Now()
				must(connection.Invoke(context.Background(), method, asked, answered))
				took[i] = float64(time.Since(began)) / float64(time.Millisecond)
			}
		})
	}
	callers.Wait()
	must(connection.Close())
	return took
}

// watch makes calls whose answers go on, and returns what each took to its first one, in ms.
func watch(target string, count int) []float64 {
	connection := dial(target)
	took := make([]float64, count)
	for i := range took {
		began, answers := time.Now(), 0
		call, err := connection.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/calls/watch")
		must(err)
		must(call.SendMsg(wrapperspb.Bytes(make([]byte, 100))))
		must(call.CloseSend())
		for err = call.RecvMsg(new(wrapperspb.BytesValue)); err == nil; err = call.RecvMsg(new(wrapperspb.BytesValue)) {
			if answers++; answers == 1 {
				took[i] = float64(time.Since(began)) / float64(time.Millisecond)
			}
		}
		if err != io.EOF || answers != news {
			must(fmt.Errorf("calls: watch: %d answers, %w", answers, err))
		}
	}
	must(connection.Close())
	return took
}

func askHTTP1(url string, count int) []float64 {
	took := make([]float64, count)
	for i := range took {
		began := time.Now()
		answered, err := http.Get(url)
		must(err)
		_, err = io.Copy(io.Discard, answered.Body)
		must(err)
		must(answered.Body.Close())
		took[i] = float64(time.Since(began)) / float64(time.Millisecond)
	}
	return took
}

func main() {
	words := os.Args[2:]
	switch os.Args[1] {
	case "both":
		address := "127.0.0.1:" + words[0]
		server := serve(address)
		ask(address, number(words[1]), number(words[2]), 0)
		server.GracefulStop()
	case "serve":
		serve(":" + words[0])
		select {}
	case "ask":
		must(json.NewEncoder(os.Stdout).Encode(ask(words[0], number(words[1]), number(words[2]), number(words[3]))))
	case "watch":
		must(json.NewEncoder(os.Stdout).Encode(watch(words[0], number(words[1]))))
	case "serve-http1":
		must(http.ListenAndServe(":"+words[0], http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
			_, _ = to.Write([]byte("ok"))
		})))
	case "ask-http1":
		must(json.NewEncoder(os.Stdout).Encode(askHTTP1(words[0], number(words[1]))))
	default:
		must(fmt.Errorf("calls: %s: unknown", os.Args[1]))
	}
}
