package adopt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// maxConfig is the most bytes of a server's answer about its configuration.
	maxConfig = 16 << 20
	// maxUp is the most bytes of the series of up, and maxTargets the most of them.
	maxUp, maxTargets = 96 << 20, 1 << 19
	// askPatience is how long one server may take for each of two questions.
	askPatience = 30 * time.Second
)

// Reach is the road to the servers: through the API server, or straight to their addresses. Close
// it.
//
// What checks a configuration asks URLs, and names servers by their hosts; and kubeconfigs have
// credentials that no configuration of Spillway can spell. So each server is asked at the name of
// its pod, by way of a proxy that listens on a free port of 127.0.0.1 while this is open. It passes
// on what asks for one of the servers under a path that nobody else on the machine knows.
type Reach struct {
	http   *http.Client
	server *http.Server
	done   chan struct{}
	secret string
	proxy  *url.URL
	target func(*Server) *url.URL
	// patience is how long Spillway's pods may take to reach the servers.
	patience time.Duration

	mu sync.Mutex
	at map[string]*url.URL // by host
}

// Direct reaches the servers at the addresses of their pods: from inside the cluster.
func Direct() (*Reach, error) {
	return listen(&http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}, nil, func(s *Server) *url.URL {
		return &url.URL{Scheme: s.Workload.Scheme, Host: s.address()}
	})
}

// Through reaches the servers through the API server (the subresource proxy of their pods), with
// the credentials of the client.
func Through(c *Client) (*Reach, error) {
	return listen(c.http.Transport, c.seen, func(s *Server) *url.URL {
		pod := s.Pod + ":" + strconv.Itoa(int(s.Port))
		if s.Workload.Scheme == "https" {
			pod = "https:" + pod
		}
		u := *c.base
		u.Path = strings.TrimSuffix(u.Path, "/") + "/api/v1/namespaces/" + s.Workload.Namespace + "/pods/" + pod + "/proxy"
		return &u
	})
}

func listen(transport http.RoundTripper, seen func(*http.Request), target func(*Server) *url.URL) (*Reach, error) {
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the questions to the servers: %w", err)
	}
	r := &Reach{
		done: make(chan struct{}), secret: "/" + hex.EncodeToString(secret[:]), proxy: &url.URL{Scheme: "http", Host: ln.Addr().String()},
		target: target, patience: sightPatience, at: map[string]*url.URL{},
	}
	r.http = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(r.proxy), MaxIdleConnsPerHost: examined}}
	proxy := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0), // whoever asked is told
		Rewrite: func(p *httputil.ProxyRequest) {
			u := *r.of(p.In)
			u.Path += strings.TrimPrefix(p.In.URL.Path, r.secret)
			u.RawQuery = p.In.URL.RawQuery
			p.Out.URL, p.Out.Host = &u, ""
			p.Out.Header.Del("Authorization")
			if seen != nil {
				seen(p.Out)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	r.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		if !strings.HasPrefix(in.URL.Path, r.secret+"/") || r.of(in) == nil {
			http.NotFound(w, in)
			return
		}
		proxy.ServeHTTP(w, in)
	})}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(ln) // ends by Close
	}()
	return r, nil
}

func (r *Reach) of(in *http.Request) *url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[in.URL.Host]
}

// Close ends what listens and all connections.
func (r *Reach) Close() {
	r.http.CloseIdleConnections()
	_ = r.server.Close()
	<-r.done
}

// URL is where a server is asked by way of the proxy, up to /api/v1.
func (r *Reach) URL(s *Server) string {
	host := s.Pod + "." + s.Workload.Namespace + ":" + strconv.Itoa(int(s.Port))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[host] = r.target(s)
	return "http://" + host + r.secret + s.Workload.Prefix
}

// ask is the field data of a server's answer.
func (r *Reach) ask(ctx context.Context, s *Server, call string, query url.Values, most int64, data any) error {
	b, err := r.fetch(ctx, s, call+"?"+query.Encode(), most)
	if err != nil {
		return err
	}
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal(b, &answer); err != nil {
		return fmt.Errorf("what answers is no Prometheus: %w", err)
	}
	return json.Unmarshal(answer.Data, data)
}

// fetch is a server's answer, of at most so many bytes.
func (r *Reach) fetch(ctx context.Context, s *Server, call string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askPatience, fmt.Errorf("no answer within %s", askPatience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL(s)+call, nil)
	if err != nil {
		return nil, err
	}
	res, err := r.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		call, _, _ = strings.Cut(call, "?")
		return nil, fmt.Errorf("the answer of %s is longer than %d MiB", path.Base(call), most>>20)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %d: %s", res.StatusCode, clip.Text(strings.TrimSpace(string(b)), 200))
	}
	return b, nil
}

// hashRule is by which rule a server keeps its share of the targets.
type hashRule struct {
	// label is the stored label whose hash decides, modulus by how much it is divided, and n what
	// this server keeps. Modulus is 0 where no rule says so for all jobs.
	label      string
	modulus, n int
	// why says what is in the way, where there is a rule and it cannot be used.
	why string
}

// ownConfig is what is read of a server's configuration.
type ownConfig struct {
	Global struct {
		ExternalLabels map[string]string `yaml:"external_labels"`
	}
	ScrapeConfigs []struct {
		JobName              string       `yaml:"job_name"`
		HonorLabels          bool         `yaml:"honor_labels"`
		RelabelConfigs       []relabelled `yaml:"relabel_configs"`
		MetricRelabelConfigs []relabelled `yaml:"metric_relabel_configs"`
	} `yaml:"scrape_configs"`
}

type relabelled struct {
	SourceLabels []string `yaml:"source_labels,flow"`
	Regex        string
	Modulus      int
	TargetLabel  string `yaml:"target_label"`
	Action       string
}

// examine asks a server for its external labels, its rule of hashing, and its targets.
func (r *Reach) examine(ctx context.Context, s *Server) {
	var status struct{ YAML string }
	if err := r.ask(ctx, s, "/api/v1/status/config", nil, maxConfig, &status); err != nil {
		s.unasked = err.Error()
		return
	}
	var own ownConfig
	if err := yaml.Unmarshal([]byte(status.YAML), &own); err != nil {
		s.unasked = "its configuration cannot be read: " + err.Error()
		return
	}
	s.External = own.Global.ExternalLabels
	s.hashed = own.rule()
	var vector struct {
		Result []struct{ Metric map[string]string }
	}
	if err := r.ask(ctx, s, "/api/v1/query", url.Values{"query": {"up"}}, maxUp, &vector); err != nil {
		s.unasked = err.Error()
		return
	}
	if len(vector.Result) > maxTargets {
		s.unasked = fmt.Sprintf("it has %d targets, and %d are looked at", len(vector.Result), maxTargets)
		return
	}
	s.targets = make(map[uint64]bool, len(vector.Result))
	for _, e := range vector.Result {
		var b strings.Builder
		for _, name := range sorted(e.Metric) {
			if _, external := s.External[name]; !external {
				fmt.Fprintf(&b, "%q=%q,", name, e.Metric[name])
			}
		}
		s.targets[xxhash.Sum64String(b.String())] = true
	}
}

// rule is by which rule the configuration divides all that it scrapes.
func (o *ownConfig) rule() hashRule {
	var all hashRule
	without := ""
	for _, job := range o.ScrapeConfigs {
		one, found := jobRule(job.RelabelConfigs)
		switch {
		case !found:
			without = job.JobName
			continue
		case one.why != "":
			return hashRule{why: "job " + job.JobName + ": " + one.why}
		case job.HonorLabels:
			return hashRule{why: "job " + job.JobName + " has honor_labels, so that " + one.label + " may be what the target says"}
		case slices.ContainsFunc(job.MetricRelabelConfigs, func(c relabelled) bool { return c.TargetLabel == one.label }):
			return hashRule{why: "job " + job.JobName + " rewrites " + one.label + " after the scrape"}
		case all.modulus != 0 && all != one:
			return hashRule{why: "its jobs are divided by different rules"}
		}
		all = one
	}
	if all.modulus != 0 && without != "" {
		return hashRule{why: "job " + without + " is not divided, so that its series have " + all.label + " and are elsewhere"}
	}
	return all
}

// jobRule is the rule of one job; false where it has none.
func jobRule(rules []relabelled) (hashRule, bool) {
	i := slices.IndexFunc(rules, func(c relabelled) bool { return c.Action == "hashmod" })
	if i < 0 {
		return hashRule{}, false
	}
	c := rules[i]
	if len(c.SourceLabels) != 1 {
		return hashRule{why: fmt.Sprintf("the hash is that of %s together, and Spillway takes one stored label", strings.Join(c.SourceLabels, ", "))}, true
	}
	source, copied := c.SourceLabels[0], -1
	if source == tmpHash { // as the operator writes it: the address, unless somebody has set the label before
		copied = slices.IndexFunc(rules[:i], func(r relabelled) bool {
			return r.TargetLabel == tmpHash && slices.Equal(r.SourceLabels, []string{"__address__", tmpHash}) && r.Regex == "(.+);"
		})
		if copied >= 0 {
			source = "__address__"
		}
	}
	h := hashRule{label: source}
	if source == "__address__" {
		h.label = "instance" // which is the address, where no rule writes it
	} else if strings.HasPrefix(source, "__") {
		return hashRule{why: source + " is hashed, which is not stored"}, true
	}
	for j, k := range rules {
		mapped := strings.HasPrefix(k.Action, "label") // labelmap, labeldrop, labelkeep
		switch {
		case j != i && j != copied && (k.TargetLabel == tmpHash || k.TargetLabel == noSharding):
			return hashRule{why: "a rule writes " + k.TargetLabel + ", so that some targets are divided in another way"}, true
		case (k.TargetLabel == h.label || mapped) && (j > i || h.label == "instance"), k.TargetLabel == "__address__" && j > i:
			return hashRule{why: "a rule beside the hashmod may write " + h.label}, true
		case j > i && k.Action == "keep" && len(k.SourceLabels) > 0 && k.SourceLabels[0] == c.TargetLabel:
			number, rest := k.Regex, ""
			if slices.Equal(k.SourceLabels[1:], []string{noSharding}) {
				number, rest, _ = strings.Cut(k.Regex, ";")
			}
			plain := rest == "" && len(k.SourceLabels) == 1
			if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < c.Modulus && (plain || rest == "|.+;.+") {
				h.modulus, h.n = c.Modulus, n
			}
		}
	}
	if h.modulus == 0 {
		return hashRule{why: "what the hash keeps cannot be read"}, true
	}
	return h, true
}

// The operator's labels of sharding: what is hashed, and what says that a target is everywhere.
const tmpHash, noSharding = "__tmp_hash", "__tmp_disable_sharding"
