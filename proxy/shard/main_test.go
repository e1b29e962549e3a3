package shard

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonconfig "github.com/prometheus/common/config"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds how long a test waits for what has to happen. It ends a test that hangs; nothing
// is asserted about how fast the thing does happen.
const patience = time.Minute

// group is a group of one shard whose replicas have the given URLs.
func group(urls ...string) config.Group {
	s := config.Shard{}
	for _, u := range urls {
		s.Replicas = append(s.Replicas,
			config.Replica{URL: u, Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig})
	}
	return config.Group{
		Name: "jaguar", Labels: map[string]string{"cluster": "jaguar"}, ReplicaLabels: []string{"prometheus_replica"},
		Shards: []config.Shard{s},
	}
}

// build makes a topology that is closed at the end of the test; started tells whether it probes.
func build(t testing.TB, o Options, started bool, groups ...config.Group) *Topology {
	t.Helper()
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	top, err := New(groups, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	if started {
		top.Start(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := top.WaitFirstProbe(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func one(t testing.TB, cfg fakeshard.Config, o Options) (*Replica, *fakeshard.Shard) {
	t.Helper()
	fake := fakeshard.Start(t, cfg)
	return build(t, o, false, group(fake.URL())).Groups[0].Shards[0].Replicas[0], fake
}

var seriesRequest = &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}, Limit: 10}

// readAll does a call and reads its answer to the end.
func readAll(ctx context.Context, r *Replica, req *endpoint.Request, o CallOptions) ([]byte, error) {
	resp, err := r.Do(ctx, req, o)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func kindOf(err error) string {
	if err == nil {
		return "ok"
	}
	return qerr.From(err).Kind.String()
}
