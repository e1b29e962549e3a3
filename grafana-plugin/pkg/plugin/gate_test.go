package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/config"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// counting answers a request when its user is let go, and counts those that are under way.
type counting struct {
	mu    sync.Mutex
	now   map[caller]int
	letGo map[string]chan struct{}
}

func (c *counting) Instant(ctx context.Context, _ string, _ time.Time) (prom.Answer, error) {
	who, _ := ctx.Value(callerKey{}).(caller)
	c.mu.Lock()
	c.now[who]++
	ch := c.letGo[who.user]
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now[who]--
		c.mu.Unlock()
	}()
	select {
	case <-ch:
		return prom.Answer{}, nil
	case <-ctx.Done():
		return prom.Answer{}, context.Cause(ctx)
	}
}

func (c *counting) Range(ctx context.Context, query string, _, until time.Time, _ time.Duration) (prom.Answer, error) {
	return c.Instant(ctx, query, until)
}

func (c *counting) underWay(user string, alert bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now[caller{user, alert}]
}

// One user, and all of them together, leave room for alerts; one user leaves room for the others.
func TestPlaces(t *testing.T) {
	d := open(t, backend.DataSourceInstanceSettings{URL: "http://127.0.0.1:1"})
	synctest.Test(t, func(t *testing.T) {
		c := &counting{now: map[caller]int{}, letGo: map[string]chan struct{}{}}
		for _, user := range []string{"ada", "eve", "bob", "scheduler"} {
			c.letGo[user] = make(chan struct{})
		}
		one := &Datasource{settings: d.settings, asker: newGate(c), now: func() time.Time { return until }}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		send := func(user string, alert bool, requests int) {
			for range requests {
				wg.Go(func() {
					req := queries(`{"queryType":"promql","expr":"up"}`)
					req.PluginContext.User = &backend.User{Login: user}
					if alert {
						req.Headers = map[string]string{"FromAlert": "true"}
					}
					if _, err := one.QueryData(ctx, req); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		want := func(user string, alert bool, n int) {
			t.Helper()
			if got := c.underWay(user, alert); got != n {
				t.Errorf("%s has %d requests under way, want %d", user, got, n)
			}
		}
		send("eve", false, 100)
		want("eve", false, userRequests)
		send("ada", false, 100)
		want("ada", false, maxRequests-alertRequests-userRequests)
		send("scheduler", true, alertRequests+1)
		want("scheduler", true, alertRequests)
		// What is free next goes to an alert, then to who has least.
		send("bob", false, 1)
		c.letGo["eve"] <- struct{}{}
		synctest.Wait()
		want("scheduler", true, alertRequests+1)
		want("bob", false, 0)
		c.letGo["scheduler"] <- struct{}{}
		synctest.Wait()
		want("bob", false, 1)
		want("eve", false, userRequests-1)
		// Nothing of those who left stays.
		cancel()
		wg.Wait()
		g := one.asker.(*gate)
		if g.all != 0 || g.users != 0 || len(g.of) != 0 || len(g.waiting) != 0 {
			t.Errorf("left over: %d, %d, %v, %d", g.all, g.users, g.of, len(g.waiting))
		}
	})
}

// However many alerts ask, some places are others'.
func TestAlertsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{now: map[caller]int{}, letGo: map[string]chan struct{}{}}
		g := newGate(c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, who := range []caller{{"scheduler", true}, {"ada", false}} {
			for range 100 {
				wg.Go(func() { _, _ = g.Instant(context.WithValue(ctx, callerKey{}, who), "up", until) })
			}
			synctest.Wait()
		}
		if a, u := c.underWay("scheduler", true), c.underWay("ada", false); a != maxRequests-othersRequests || u != othersRequests {
			t.Errorf("%d of alerts and %d of a user are under way", a, u)
		}
		cancel()
		wg.Wait()
	})
}

// A query that waits for its user's own requests says so.
func TestNoPlaceOfOnesOwn(t *testing.T) {
	g := newGate(panics{})
	g.all, g.users, g.of["eve"] = userRequests, userRequests, userRequests
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callerKey{}, caller{user: "eve"}), time.Nanosecond)
	defer cancel()
	var f *prom.Failure
	_, err := g.Instant(ctx, "up", until)
	if !errors.As(err, &f) || f.Status != 504 || !strings.Contains(f.Message, "16 requests of yours") {
		t.Errorf("%v", err)
	}
}

// A request with more queries than are answered says how many are.
func TestManyQueries(t *testing.T) {
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(good)) })
	for n, refused := range map[int]bool{maxQueries: false, maxQueries + 1: true} {
		const up = `{"queryType":"promql","expr":"up"}`
		req := queries(strings.Split(strings.Repeat(up+";", n-1)+up, ";")...)
		for i := range req.Queries {
			req.Queries[i].RefID = fmt.Sprint("Q", i)
		}
		resp, err := d.QueryData(t.Context(), req)
		if err != nil || len(resp.Responses) != n {
			t.Fatalf("%d answers, %v", len(resp.Responses), err)
		}
		for ref, r := range resp.Responses {
			if (r.Error != nil) != refused ||
				refused && (r.Status != 400 || !strings.Contains(r.Error.Error(), "the request has 101 queries, and at most 100")) {
				t.Fatalf("%d queries: %s: %d %v", n, ref, r.Status, r.Error)
			}
		}
	}
}

// Each query's answer is bound, and so is what all of a request have together: the others say so.
func TestManyPoints(t *testing.T) {
	var asked atomic.Int64
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2,"1"],[3,"1"]]},`+
			`{"metric":{"a":"b"},"values":[[1,"1"],[2,"1"]]}]}}`)
	})
	const five = `{"queryType":"promql","expr":"up"}`
	for most, refused := range map[int64]int{0: 0, 30: 0, 29: 1, 15: 3, 4: 6} {
		d.mostPoints = most
		asked.Store(0)
		n := 0
		for ref, r := range ask(t, d, five, five, five, five, five, five) {
			if r.Error == nil {
				continue
			}
			n++
			want := fmt.Sprintf("more than %d points", most)
			if r.Status != 400 || len(r.Frames) > 0 || !strings.Contains(r.Error.Error(), want) {
				t.Errorf("%s: %d %v with %d frames, want %s", ref, r.Status, r.Error, len(r.Frames), want)
			}
		}
		if n != refused {
			t.Errorf("of at most %d points: %d of 6 queries are refused, want %d", most, n, refused)
		}
	}
	// What is asked after the bound is not asked for at all.
	d.mostPoints = 4
	asked.Store(0)
	req := queries(five, five, five, five)
	req.PluginContext.GrafanaConfig = config.NewGrafanaCfg(map[string]string{config.ConcurrentQueryCount: "1"})
	if _, err := d.QueryData(t.Context(), req); err != nil || asked.Load() != 1 {
		t.Errorf("%d questions, %v", asked.Load(), err)
	}
}

// A query ends after four times the timeout of one request, whatever it asks, and says so.
func TestDeadline(t *testing.T) {
	d := open(t, backend.DataSourceInstanceSettings{URL: "http://127.0.0.1:1"})
	if d.timeout != 30*time.Second {
		t.Errorf("a request may take %s", d.timeout)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &counting{now: map[caller]int{}, letGo: map[string]chan struct{}{}}
		one := &Datasource{settings: d.settings, asker: newGate(c), timeout: d.timeout, now: func() time.Time { return until }}
		for name, ask := range map[string]func() (int, string){
			"query": func() (int, string) {
				resp, err := one.QueryData(t.Context(), queries(`{"queryType":"cost"}`))
				if err != nil {
					t.Fatal(err)
				}
				return int(resp.Responses["A"].Status), resp.Responses["A"].Error.Error()
			},
			"resource": func() (int, string) {
				status, body, _ := get(t, one, "GET", "teams", "")
				return status, body
			},
		} {
			begin := time.Now()
			status, text := ask()
			if took := time.Since(begin); took != 2*time.Minute || status != 504 || !strings.Contains(text, "more than 2m0s in all") {
				t.Errorf("%s: %s, %d %s", name, took, status, text)
			}
		}
	})
}
