package bench

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/internal/pause"
)

// peerWait is how long a peer may take to answer.
const peerWait = 10 * time.Minute

// Peer is another proxy, started by others, in front of the same servers.
type Peer struct{ Name, URL string }

// ParsePeers reads peers as a command line has them, NAME=URL each.
func ParsePeers(texts []string) (all []Peer, err error) {
	for _, t := range texts {
		name, at, ok := strings.Cut(t, "=")
		if !ok {
			return nil, fmt.Errorf("--peer=%s: it is written NAME=URL", t)
		}
		all = append(all, Peer{Name: name, URL: strings.TrimSuffix(at, "/")})
	}
	return all, nil
}

// CheckPeers adds what is wrong with peers, which may have none of the names that are taken.
func (p *Problems) CheckPeers(peers []Peer, taken ...string) {
	taken = slices.Clone(taken)
	for _, peer := range peers {
		p.Check(peer.Name != "" && !slices.Contains(taken, peer.Name), "peer %q: its name is empty or taken", peer.Name)
		taken = append(taken, peer.Name)
		u, err := url.Parse(peer.URL)
		p.Check(err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == "",
			"peer %s: %q is no URL such as http://127.0.0.1:8082", peer.Name, peer.URL)
	}
}

// CheckPorts adds what is wrong with listening on n ports from the first one on; 0 is nowhere.
func (p *Problems) CheckPorts(first, n int) {
	p.Check(first == 0 || first > 1023 && first+n-1 <= 65535, "port: %d to %d are no ports to listen on", first, first+n-1)
}

// Wait asks until ask has no error, for ten minutes, and returns the peer's process id; 0 where
// that is not on this machine or not visible, which is said.
func (p Peer) Wait(ctx context.Context, say func(string, ...any), ask func(context.Context) error) (pid int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, peerWait, fmt.Errorf("it did not answer as it should within %s", peerWait))
	defer cancel()
	say("waiting for %s at %s", p.Name, p.URL)
	for {
		err := ask(ctx)
		if err == nil {
			break
		}
		if pause.For(ctx, time.Second/2) != nil {
			return 0, fmt.Errorf("peer %s: %w: %w", p.Name, context.Cause(ctx), err)
		}
	}
	if pid, err = listener(p.URL); err != nil {
		say("%s: processor time and memory are not measured: %v", p.Name, err)
	}
	return pid, nil
}
