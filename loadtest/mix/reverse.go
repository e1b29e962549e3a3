package mix

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// nodeOfQuery finds the node in a query of the mix, which is part of the URL; it is the quickest
// that can tell shards apart, and knows nothing else.
var nodeOfQuery = regexp.MustCompile(`node%3D%22([^%]+)%22`)

// shardOfQuery is which of so many shards has the node that a query names; -1 where it names none,
// or there are no shards.
func shardOfQuery(raw string, shards int) int {
	if shards == 0 {
		return -1
	}
	m := nodeOfQuery.FindStringSubmatch(raw)
	if m == nil {
		return -1
	}
	return Shard(labels.FromStrings("node", m[1]), shards)
}

// ReverseProxy serves Go's httputil.ReverseProxy in front of one server until ctx ends: the measure
// of what any proxy written in Go takes. It is a process of its own in the benchmark, so that its
// processor time can be read. Where shards are given, a query that names a node goes to the one of
// them that has it (Shard): the least that any proxy over shards could take for such a query, and
// no proxy over shards for all others, which the one server answers.
func ReverseProxy(ctx context.Context, listen, upstream string, shards ...string) error {
	var targets []*url.URL
	for _, u := range append([]string{upstream}, shards...) {
		target, err := url.Parse(u)
		if err != nil || target.Host == "" {
			return fmt.Errorf("upstream %q: it must be a URL such as http://127.0.0.1:9090", u)
		}
		targets = append(targets, target)
	}
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(targets[1+shardOfQuery(r.In.URL.RawQuery, len(shards))])
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32 // the default of 2 would make it dial
	h := &http.Server{
		Handler:           &httputil.ReverseProxy{Transport: transport, Rewrite: rewrite, ErrorLog: log.Default()},
		ReadHeaderTimeout: 5 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
