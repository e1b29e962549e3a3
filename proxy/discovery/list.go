package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/version"
	prom "github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/refresh"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/spillwayproject/spillway/internal/clip"
)

// maxCommas is how many commas a list may have, and with them groups, targets and labels: one of
// three bytes takes hundreds once it is read.
const maxCommas = 400_000

// list reads a list at a URL as Prometheus' http_sd does, which has no bound for it.
type list struct {
	url    string
	client *http.Client
	every  time.Duration
	groups int // in the last one
	state  listState
}

// discoverer is Prometheus' own of what refreshes, for the list.
func (l *list) discoverer(client commonconfig.HTTPClientConfig, o prom.DiscovererOptions, m prom.RefreshMetricsInstantiator,
) (prom.Discoverer, error) {
	options, err := listOptions(l.url, client)
	if err != nil {
		return nil, err
	}
	if l.client, err = commonconfig.NewClientFromConfig(client, "http", options...); err != nil {
		return nil, err
	}
	l.client.Timeout = l.every
	l.client.Transport = &limited{
		RoundTripper: l.client.Transport, most: maxList, what: "the list",
		advice: fmt.Sprintf("a group has at most %d servers, so have it list only those", MaxServers),
	}
	return refresh.NewDiscovery(refresh.Options{
		Logger: o.Logger, Mech: "http", SetName: o.SetName, Interval: l.every, RefreshF: l.refresh, MetricsInstantiator: m,
	}), nil
}

var listType = regexp.MustCompile(`^(?i:application/json(;\s*charset=("utf-8"|utf-8))?)$`)

// refresh reads the list, and notes what came of it.
func (l *list) refresh(ctx context.Context) ([]*targetgroup.Group, error) {
	groups, err := l.read(ctx)
	l.state.set(time.Now(), err)
	return groups, err
}

// read is what the list says now.
func (l *list) read(ctx context.Context) ([]*targetgroup.Group, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "Spillway/"+version.Version)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("X-Prometheus-Refresh-Interval-Seconds", strconv.FormatFloat(l.every.Seconds(), 'f', -1, 64))
	resp, err := l.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the list at %s: %w", plain(r.URL), cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the list at %s: the server answers HTTP status %s", plain(r.URL), clip.Text(resp.Status, 100))
	}
	if kind := resp.Header.Get("Content-Type"); !listType.MatchString(strings.TrimSpace(kind)) {
		return nil, fmt.Errorf("the list at %s is no application/json, but %q", plain(r.URL), clip.Text(kind, 100))
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(body, []byte(",")); n > maxCommas {
		return nil, fmt.Errorf("the list at %s has %d commas, and %d are allowed; a group has at most %d servers, so have it list only those",
			plain(r.URL), n, maxCommas, MaxServers)
	}
	var groups []*targetgroup.Group
	if err := json.Unmarshal(body, &groups); err != nil {
		return nil, fmt.Errorf("the list at %s: %w", plain(r.URL), err)
	}
	return l.named(groups)
}

// named gives groups the names by which the next list replaces them, and empties those that are no
// more.
func (l *list) named(groups []*targetgroup.Group) ([]*targetgroup.Group, error) {
	name := func(i int) string { return l.url + ":" + strconv.Itoa(i) }
	for i, g := range groups {
		if g == nil {
			return nil, errors.New("a group of the list is null")
		}
		g.Source = name(i)
		if g.Labels == nil {
			g.Labels = model.LabelSet{}
		}
		g.Labels[model.MetaLabelPrefix+"url"] = model.LabelValue(l.url)
	}
	n := len(groups)
	for i := n; i < l.groups; i++ {
		groups = append(groups, &targetgroup.Group{Source: name(i)})
	}
	l.groups = n
	return groups, nil
}

// exchangeTimeout is how long one exchange with a list's server or its token endpoint may take,
// where there is one.
const exchangeTimeout = 10 * time.Second

// listOptions are for the client that reads a list at a URL. prometheus/common fetches oauth2
// tokens by a client of its own, which follows redirects and waits without end: it reaches nobody
// but the two servers that are configured, and each connection has its time.
func listOptions(list string, c commonconfig.HTTPClientConfig) ([]commonconfig.HTTPClientOption, error) {
	if c.OAuth2 == nil {
		return nil, nil
	}
	if p := c.OAuth2.ProxyConfig; p.ProxyURL.URL != nil || p.ProxyFromEnvironment || c.ProxyFromEnvironment {
		return nil, errors.New("http_client.oauth2 of a list goes by no proxy, behind which a redirect could not be told; remove its proxy")
	}
	allowed := map[string]bool{}
	for _, text := range []string{list, c.OAuth2.TokenURL, proxyOf(c)} {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			allowed[hostPort(u)] = true
		}
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !allowed[addr] {
			return nil, fmt.Errorf("a redirect to %s is not followed", addr)
		}
		conn, err := (&net.Dialer{Timeout: exchangeTimeout}).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(exchangeTimeout))
		}
		return conn, err
	}
	return []commonconfig.HTTPClientOption{commonconfig.WithDialContextFunc(dial), commonconfig.WithKeepAlivesDisabled()}, nil
}

func proxyOf(c commonconfig.HTTPClientConfig) string {
	if c.ProxyURL.URL == nil {
		return ""
	}
	return c.ProxyURL.String()
}

func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
