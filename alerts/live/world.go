package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// World is the simulated cluster as its exporters, scraped at the present time. Its methods may be
// called from several goroutines.
type World struct {
	mu      sync.Mutex // guards opts and the order of swaps
	opts    cluster.Options
	current atomic.Pointer[shown]
	givenUp atomic.Int64
	hidden  atomic.Pointer[string] // the job that is not discovered
}

// shown is one state of the world: a model and its handler.
type shown struct {
	model   *cluster.Model
	handler http.Handler
}

// seedTries bounds the search for a quiet seed: about one seed in a hundred is quiet for twenty
// minutes.
const seedTries = 50_000

// NewWorld models a cluster whose own failures keep out of [now, now+quiet], and out of the ten
// minutes before: no node or process restarts, and each experiment runs from before until after.
// Seeds are tried from opts.Seed up; Options tells the one that was taken.
func NewWorld(opts cluster.Options, now time.Time, quiet time.Duration) (*World, error) {
	if opts.Start.IsZero() {
		opts.Start = now.Add(-20 * 24 * time.Hour).Truncate(time.Hour)
	}
	for range seedTries {
		m, err := cluster.New(opts)
		if err != nil {
			return nil, err
		}
		if isQuiet(m, now.Add(-10*time.Minute), now.Add(quiet)) {
			w := &World{opts: opts}
			w.show(m)
			return w, nil
		}
		opts.Seed++
	}
	return nil, fmt.Errorf("none of %d seeds keeps a cluster of %d nodes quiet for %s: ask for fewer nodes or less time", seedTries, opts.Nodes, quiet)
}

func isQuiet(m *cluster.Model, from, until time.Time) bool {
	for _, t := range m.Targets() {
		if len(m.Troubles(cluster.ProcessRestart, t.Job+"/"+t.Instance, from, until)) > 0 {
			return false
		}
		if node := t.Labels.Get("node"); node != "" && len(m.Troubles(cluster.NodeDown, node, from, until)) > 0 {
			return false
		}
	}
	for _, e := range m.Experiments(from, until) {
		if len(e.Runs) == 0 {
			return false
		}
		whole := false
		for _, r := range e.Runs {
			whole = whole || !r.From.After(from) && r.Until.After(until)
		}
		if !whole {
			return false
		}
	}
	return true
}

func (w *World) show(m *cluster.Model) {
	w.current.Store(&shown{m, m.Handler(time.Now)})
}

// Model is the cluster as it is staged now.
func (w *World) Model() *cluster.Model { return w.current.Load().model }

// Options are those of Model.
func (w *World) Options() cluster.Options { return w.Model().Options() }

// Stage adds troubles to the time line. Their From must not be past: what was scraped before would
// not fit to what comes.
func (w *World) Stage(troubles ...cluster.Trouble) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, t := range troubles {
		if t.From.Before(now) {
			return fmt.Errorf("stage %s of %s: it would begin %s ago; begin later", t.Kind, t.Target, now.Sub(t.From).Round(time.Millisecond))
		}
	}
	opts := w.opts
	opts.Troubles = append(opts.Troubles[:len(opts.Troubles):len(opts.Troubles)], troubles...)
	m, err := cluster.New(opts)
	if err != nil {
		return fmt.Errorf("stage %d troubles: %w", len(troubles), err)
	}
	w.opts = opts
	w.show(m)
	return nil
}

// Hide takes a job's targets out of service discovery, until another one's are, or "" none; they
// answer as before.
func (w *World) Hide(job string) { w.hidden.Store(&job) }

// discovered is /sd of the model without the job that is hidden.
func (w *World) discovered(rw http.ResponseWriter, r *http.Request, hidden string) {
	all := &answer{head: http.Header{}}
	w.current.Load().handler.ServeHTTP(all, r)
	var groups []struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(all.body.Bytes(), &groups); err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	kept := groups[:0]
	for _, g := range groups {
		if g.Labels["job"] != hidden {
			kept = append(kept, g)
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(kept) // nobody is left to tell
}

// answer keeps what a handler writes.
type answer struct {
	head http.Header
	body bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.head }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
func (a *answer) WriteHeader(int)             {}

// ServeHTTP serves the pages and /sd of the model, as its Handler does.
func (w *World) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if hidden := w.hidden.Load(); hidden != nil && *hidden != "" && r.URL.Path == "/sd" {
		w.discovered(rw, r, *hidden)
		return
	}
	w.current.Load().handler.ServeHTTP(rw, r)
	if r.Context().Err() != nil {
		w.givenUp.Add(1)
	}
}

// GivenUp counts the scrapes whose caller left before their end. A page takes milliseconds, and a
// target that is staged to be down answers at once: so this is a machine on which the rig does not
// get its share, and what fires then says nothing about the rules. A server that is killed leaves a
// few as well.
func (w *World) GivenUp() int64 { return w.givenUp.Load() }

// watched is a server of the rig that every Prometheus scrapes for the meta view.
type watched struct {
	job, instance string
	// address is host:port; labels are further target labels.
	address string
	labels  map[string]string
}

// discovery is Prometheus' HTTP service discovery of what becomes known while the rig starts.
type discovery struct {
	mu      sync.Mutex
	targets []watched
}

func (d *discovery) add(w watched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.targets = append(d.targets, w)
}

// ServeHTTP lists the targets. A server that is known stays in the list when it dies: that is what
// makes its up 0.
func (d *discovery) ServeHTTP(rw http.ResponseWriter, _ *http.Request) {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	d.mu.Lock()
	groups := make([]group, 0, len(d.targets))
	for _, t := range d.targets {
		ls := map[string]string{"job": t.job, "instance": t.instance}
		for k, v := range t.labels {
			ls[k] = v
		}
		groups = append(groups, group{[]string{t.address}, ls})
	}
	d.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(groups) // a server that went away asks again
}
