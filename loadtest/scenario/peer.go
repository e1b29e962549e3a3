package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/loadtest/storm"
)

// Proxies of others, in front of the same servers.

// peerFor waits until the peer knows the servers, fresh ones, and aims the attack at it.
func (r *StormResult) peerFor(p bench.Peer) front {
	return func(ctx context.Context, f *fleet, _ int64, attack *storm.Attack) error {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		pid, err := p.Wait(ctx, r.Options.Say, func(ctx context.Context) error { return knows(ctx, client, p.URL, f.clusters()) })
		if err != nil {
			return err
		}
		if pid > 0 {
			f.members = append(f.members, member{name: p.Name, role: report.Proxy, url: p.URL, proc: foreign(pid)})
		}
		attack.Targets = []storm.Target{{URL: p.URL, Clusters: f.clusters()}}
		return nil
	}
}

// knows is an error as long as a proxy does not tell the servers apart by the label cluster.
func knows(ctx context.Context, client *http.Client, at string, clusters []string) error {
	text, err := bench.Get(ctx, client, at+"/api/v1/query?query="+url.QueryEscape("group by (cluster) (last_over_time(up[2h]))"))
	if err != nil {
		return err
	}
	var a struct {
		Data struct {
			Result []struct{ Metric struct{ Cluster string } }
		}
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	var got []string
	for _, s := range a.Data.Result {
		got = append(got, s.Metric.Cluster)
	}
	if slices.Sort(got); !slices.Equal(got, clusters) {
		return fmt.Errorf("%s has series of the clusters %q, want %q: each server's are to have its label cluster", at, strings.Join(got, " "), strings.Join(clusters, " "))
	}
	return nil
}

// foreign is the id of a process that was not started here.
type foreign int

func (p foreign) PID() int { return int(p) }

func (p foreign) RSS() (int64, error) {
	now, _, err := realprom.Memory(int(p))
	return now, err
}

func (p foreign) PeakRSS() (int64, error) {
	_, peak, err := realprom.Memory(int(p))
	return peak, err
}

// OutOfMemory is false: nobody here kills it.
func (foreign) OutOfMemory() bool { return false }

// Done is closed where there is no such process any more.
func (p foreign) Done() <-chan struct{} {
	done := make(chan struct{})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", p)); errors.Is(err, os.ErrNotExist) {
		close(done)
	}
	return done
}
