package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// peerFlag are the peers that answer beside Spillway.
type peerFlag []peer

// peer is a program that answers as one Prometheus for several. One without a path is thanos.
type peer struct{ name, path string }

var peers peerFlag

func init() {
	flag.Var(&peers, "fidelity.peer", "thanos (the one of tools/bin), or name=program, which is asked beside Spillway; may be given several times. A program is started with host:port to listen on and, for each shard, host:port of its "+
		"replicas with commas between them; it is ready when it answers /-/ready. Where a peer wants a configuration file the program is a script that writes it")
}

func (p *peerFlag) String() string {
	var names []string
	for _, x := range *p {
		names = append(names, x.name)
	}
	return strings.Join(names, ",")
}

// Set implements flag.Value.
func (p *peerFlag) Set(text string) error {
	name, path, given := strings.Cut(text, "=")
	if name == "" || given == (path == "") || !given && name != "thanos" {
		return fmt.Errorf("%q is neither thanos nor name=program", text)
	}
	*p = append(*p, peer{name, path})
	return nil
}

// serve starts the peer in front of the replicas.
func (p peer) serve(t testing.TB, h held) asked {
	t.Helper()
	if p.path == "" {
		return h.asked(t, thanos(t, h))
	}
	program, addrs, err := realprom.StartOnPorts(t.Context(),
		realprom.PortOptions{Name: p.name, Path: p.path, Ports: 1, Args: func(at []string) []string {
			args := at
			for _, shard := range h.shards {
				args = append(args, strings.ReplaceAll(strings.Join(shard, ","), "http://", ""))
			}
			return args
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Stop(); err != nil {
			t.Errorf("stop %s: %v", p.name, err)
		}
	})
	return h.asked(t, "http://"+addrs[0])
}

// thanos is a Thanos Query over a sidecar of each replica, once it has found them all. What it
// cannot ask is an error there, not a warning.
func thanos(t testing.TB, h held) string {
	t.Helper()
	var stores []string
	for _, url := range slices.Concat(h.shards...) {
		stores = append(stores, realpromtest.Sidecar(t, url).GRPC())
	}
	base := realpromtest.ThanosQuery(t, stores, "--query.replica-label=replica", "--deduplication.func=penalty",
		"--no-query.partial-response").URL()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		found, err := sidecars(t, client, base)
		if err == nil && found == len(stores) {
			return base
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute Thanos Query has %d of %d sidecars: %v", found, len(stores), err)
		}
	}
}

// sidecars is how many a Thanos Query has found, with their labels.
func sidecars(t testing.TB, client *http.Client, base string) (n int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/stores", nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var body struct {
		Data map[string][]struct {
			LabelSets []map[string]string
			LastError any
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return 0, err
	}
	for _, s := range body.Data["sidecar"] {
		if len(s.LabelSets) > 0 && s.LastError == nil {
			n++
		}
	}
	return n, nil
}

// TestPeerFlag: what is no peer is refused, before a world is made for it.
func TestPeerFlag(t *testing.T) {
	for _, text := range []string{"", "promxy", "promxy=", "=/bin/promxy", "thanos="} {
		if err := new(peerFlag).Set(text); err == nil {
			t.Errorf("%q is taken for a peer", text)
		}
	}
	var p peerFlag
	for _, text := range []string{"thanos", "promxy=/a=b"} {
		if err := p.Set(text); err != nil {
			t.Error(err)
		}
	}
	if want := (peerFlag{{"thanos", ""}, {"promxy", "/a=b"}}); !slices.Equal(p, want) || p.String() != "thanos,promxy" {
		t.Errorf("%v, want %v", p, want)
	}
}
