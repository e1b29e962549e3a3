package servertest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/server"
)

const (
	// readyWithin is how long a server may take until it answers; it probes its shards first.
	readyWithin = time.Minute
	// drain is how long requests that are under way may go on at the end: a test that still has one
	// has failed, or does not care.
	drain = time.Second
)

// Start serves a configuration (text is the YAML of its file; paths in it are below a folder of the
// test) until the test ends, or stop is called, which waits for the end and may be called again.
// Each change is made to the server's options before it is built. url is that of the main listener,
// without a slash at its end. A configuration that is not valid, and a server that ends before it
// is ready, end the test.
func Start(t testing.TB, text string, changes ...func(*server.Options)) (url string, stop func()) {
	t.Helper()
	cfg, err := config.Parse([]byte(text), t.TempDir())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ready := make(chan string, 1)
	opts := server.Options{
		Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "test", DrainTimeout: drain,
		Ready: func(main, _ net.Addr) { ready <- "http://" + main.String() },
	}
	for _, change := range changes {
		change(&opts)
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: it ends before the test's cleanups, and clients that they close may
	// be in the middle of a request.
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, context.Background()) }() // waited for by stop
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	t.Cleanup(stop)
	select {
	case url = <-ready:
	case err := <-ended:
		ended <- nil // for stop
		t.Fatalf("the proxy ended before it was ready: %v", err)
	case <-time.After(readyWithin):
		t.Fatalf("the proxy is not ready after %s", readyWithin)
	}
	return url, stop
}
