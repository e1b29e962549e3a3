package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/pause"
)

const (
	// maxOpen is how many requests of one part are under way at most.
	maxOpen = 2048
	// slowBuffer is what the kernel keeps for a slow reader; without a bound of it, megabytes would
	// be "read" at once.
	slowBuffer = 32 << 10
)

// A Target is somewhere to ask.
type Target struct {
	URL string
	// Clusters are the values of the label cluster that dashboards choose from here, in turn; none
	// where it is one cluster, whose series do not have the label.
	Clusters []string
}

// An Attack is where requests go, and with what.
type Attack struct {
	// Targets are asked in turn.
	Targets []Target
	// Tokens are the bearer tokens by tenant; nothing is sent for one that has none.
	Tokens map[string]string
	// Pods are names for ${pod}.
	Pods []string
	// Seed draws the arrivals.
	Seed uint64
}

// session is an attack with its connections.
type session struct {
	Attack
	began time.Time
	fast  *http.Client
	slow  *http.Client
	mu    sync.Mutex
	all   []Reply
	wg    sync.WaitGroup
}

func (a Attack) session(began time.Time) *session {
	dial := &net.Dialer{Timeout: 5 * time.Second}
	transport := func(d func(context.Context, string, string) (net.Conn, error)) *http.Client {
		return &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 64, DisableCompression: true, DialContext: d, ReadBufferSize: 16 << 10,
		}}
	}
	return &session{
		Attack: a, began: began, fast: transport(dial.DialContext),
		slow: transport(func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial.DialContext(ctx, network, address)
			if t, ok := c.(*net.TCPConn); ok && err == nil {
				err = t.SetReadBuffer(slowBuffer)
			}
			return c, err
		}),
	}
}

func (s *session) close() {
	s.fast.CloseIdleConnections()
	s.slow.CloseIdleConnections()
}

// Run sends the parts for so long, counted from begin, and returns when each request has its
// answer, or ctx has ended. Times in replies count from begin.
func (a Attack) Run(ctx context.Context, begin time.Time, length time.Duration, parts ...Part) []Reply {
	return a.run(ctx, begin, length, false, parts)
}

// RunEvenly is Run with arrivals that are as far from each other as their rate says.
func (a Attack) RunEvenly(ctx context.Context, begin time.Time, length time.Duration, parts ...Part) []Reply {
	return a.run(ctx, begin, length, true, parts)
}

func (a Attack) run(ctx context.Context, begin time.Time, length time.Duration, evenly bool, parts []Part) []Reply {
	s := a.session(begin)
	defer s.close()
	var senders sync.WaitGroup
	for _, p := range parts {
		at := p.arrivals(a.Seed, length, evenly) // before anything is sent
		senders.Go(func() { s.send(ctx, p, at) })
	}
	senders.Wait()
	s.wg.Wait()
	return s.all
}

// send starts each request of a part when it is due, and waits for none.
func (s *session) send(ctx context.Context, p Part, at []time.Duration) {
	var open atomic.Int64
	n := 0
	for _, due := range at {
		if pause.For(ctx, time.Until(s.began.Add(due))) != nil {
			return
		}
		for range p.Burst {
			call := call{part: p, request: p.Requests[n%len(p.Requests)], n: n, due: due}
			n++
			if open.Load() >= maxOpen {
				s.keep(Reply{
					Part: p.Name, Request: call.request.Name, Due: due, Took: time.Duration(p.Patience), Verdict: Failed,
					Outcome: "not sent: too many under way",
				})
				continue
			}
			open.Add(1)
			s.wg.Go(func() {
				defer open.Add(-1)
				s.callAgain(ctx, call)
			})
		}
	}
}

func (s *session) keep(r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
}

// call is one request that is due.
type call struct {
	part    Part
	request Request
	n       int
	due     time.Duration
}

// callAgain asks until there is an answer, as often as the part says. What is asked again is due at
// that moment.
func (s *session) callAgain(ctx context.Context, c call) {
	for try := 0; ; try++ {
		r := s.ask(ctx, c)
		r.Again = try > 0
		s.keep(r)
		if r.Verdict == OK || try >= c.part.Again || ctx.Err() != nil {
			return
		}
		c.due = time.Since(s.began)
	}
}

// Goodput is how many requests of a part are answered each second when four callers ask one after
// the other, for so long, and nobody else does.
func (a Attack) Goodput(ctx context.Context, p Part, length time.Duration) float64 {
	const callers = 4
	s := a.session(time.Now())
	defer s.close()
	for caller := range callers {
		s.wg.Go(func() {
			for i := caller; ctx.Err() == nil && time.Since(s.began) < length; i += callers {
				s.keep(s.ask(ctx, call{part: p, request: p.Requests[i%len(p.Requests)], n: i, due: time.Since(s.began)}))
			}
		})
	}
	s.wg.Wait()
	took, ok := time.Since(s.began), 0
	for _, r := range s.all {
		if r.Verdict == OK {
			ok++
		}
	}
	return float64(ok) / took.Seconds()
}

var (
	errPatience = errors.New("the caller has no patience left")
	errLeaves   = errors.New("the caller hangs up")
)

// ask sends one request and reads its answer to the end.
func (s *session) ask(ctx context.Context, c call) Reply {
	r := Reply{Part: c.part.Name, Request: c.request.Name, Due: c.due}
	ctx, cancel := context.WithDeadlineCause(ctx, s.began.Add(c.due+time.Duration(c.part.Patience)), errPatience)
	defer cancel()
	if c.part.LeaveAfter > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(c.part.LeaveAfter), errLeaves)
		defer cancel()
	}
	s.fetch(ctx, c, &r)
	r.Took = time.Since(s.began) - c.due
	return r
}

// fetch fills in everything about the answer but how long it took.
func (s *session) fetch(ctx context.Context, c call, r *Reply) {
	req, err := s.request(ctx, c)
	if err != nil {
		r.Verdict, r.Outcome = Failed, err.Error()
		return
	}
	client := s.fast
	if c.part.ReadBytesPerSecond > 0 {
		client = s.slow
	}
	res, err := client.Do(req)
	if err != nil {
		r.Verdict, r.Outcome = lost(ctx, err)
		return
	}
	defer res.Body.Close()
	r.Status = res.StatusCode
	var body io.Reader = res.Body
	if c.part.ReadBytesPerSecond > 0 {
		body = slowly{ctx, res.Body, c.part.ReadBytesPerSecond}
	}
	var head bytes.Buffer
	r.Bytes, err = io.Copy(&head, io.LimitReader(body, headBytes))
	if err == nil {
		var more int64
		more, err = io.Copy(io.Discard, body)
		r.Bytes += more
	}
	if err != nil {
		r.Verdict, r.Outcome = lost(ctx, err)
		return
	}
	r.Verdict, r.Outcome = judge(res.StatusCode, res.Header.Get("Content-Type"), head.Bytes())
}

// slowly reads so many bytes a second, a quarter of them each time.
type slowly struct {
	ctx       context.Context
	r         io.Reader
	perSecond int
}

// Read implements io.Reader.
func (s slowly) Read(b []byte) (int, error) {
	n, err := s.r.Read(b[:min(len(b), max(s.perSecond/4, 1))])
	if n > 0 {
		if left := pause.For(s.ctx, time.Duration(n)*time.Second/time.Duration(s.perSecond)); left != nil {
			return n, left
		}
	}
	return n, err
}

// request builds what is sent.
func (s *session) request(ctx context.Context, c call) (req *http.Request, err error) {
	round := c.n / len(c.part.Requests) // each request comes to each target and cluster
	target := s.Targets[round%len(s.Targets)]
	v := vars{now: time.Now(), n: c.n, pods: s.Pods}
	if k := len(target.Clusters); k > 0 {
		v.cluster = fmt.Sprintf("cluster=%q,", target.Clusters[round%k])
	}
	if c.request.RemoteRead != "" {
		req, err = remoteRead(ctx, target.URL, c.request, v)
	} else {
		req, err = apiRequest(ctx, target.URL, c.request, v)
	}
	if err != nil {
		return nil, err
	}
	for name, template := range c.part.Headers {
		text, err := expand(template, v)
		if err != nil {
			return nil, err
		}
		req.Header.Set(name, text)
	}
	if token := s.Tokens[c.part.Tenant]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

func apiRequest(ctx context.Context, base string, r Request, v vars) (*http.Request, error) {
	path, err := expand(r.Path, v)
	if err != nil {
		return nil, err
	}
	params := url.Values{}
	for name, template := range r.Params {
		text, err := expand(template, v)
		if err != nil {
			return nil, err
		}
		params.Set(name, text)
	}
	if r.Method == http.MethodGet {
		return http.NewRequestWithContext(ctx, http.MethodGet, base+path+"?"+params.Encode(), nil)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(params.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

// remoteRead asks as Prometheus does (storage/remote/client.go), and takes streamed chunks.
func remoteRead(ctx context.Context, base string, r Request, v vars) (*http.Request, error) {
	text, err := expand(r.RemoteRead, v)
	if err != nil {
		return nil, err
	}
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
	if err != nil {
		return nil, err
	}
	q, err := remote.ToQuery(v.now.Add(-time.Duration(r.Range)).UnixMilli(), v.now.UnixMilli(), []*labels.Matcher(ms), nil)
	if err != nil {
		return nil, err
	}
	body, err := (&prompb.ReadRequest{
		Queries:               []*prompb.Query{q},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
	}).Marshal()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Content-Encoding": "snappy", "Accept-Encoding": "snappy", "Content-Type": "application/x-protobuf",
		"X-Prometheus-Remote-Read-Version": "0.1.0", "User-Agent": "Prometheus/3.0.0",
	} {
		req.Header.Set(name, value)
	}
	return req, nil
}
