package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/recording"
)

const (
	// evaluationInterval is that of rule groups without one, and the step of subqueries without
	// one: the proxy pushes nothing to servers that differ in it.
	evaluationInterval = time.Minute
	// recordedAtMost is how much of the history gets recorded series: two thousand evaluations of
	// each rule are enough to look back on.
	recordedAtMost = 24 * time.Hour
	// recordedPiece is how much is asked through the proxy at once.
	recordedPiece = time.Hour
	// looksBack is how much of the newest history has no recorded series until the older one is
	// there: rates, and rules that read others', look back on as much.
	looksBack = 5 * time.Minute
	// shortestInterval is no longer than that of any global rule group. catchUps is how often the
	// ruler's past is brought to within it of the moment at which its rules begin.
	shortestInterval = 30 * time.Second
	catchUps         = 10
	// monitoring is the cluster of what the ruler scrapes itself, as deployed.
	monitoring = "monitoring"
)

// ruler evaluates the global rules by asking the demo's proxy over HTTP, as deploy/ruler does, and
// keeps what they record in a Prometheus of its own, which is the proxy's group `rules`. That one
// scrapes the proxy too. Rules with scope shard run in the shards.
type ruler struct {
	store   *localprom.Shard
	dir     string
	late    time.Duration // how far back samples may be
	targets string        // file that names the proxy's admin listener once it is known

	transport *http.Transport
	proxy     recording.Remote // known once it is serving: see serve
	serving   chan struct{}    // closed when the past is recorded and rules may ask
	once      sync.Once
}

// newRuler writes the rule files below dir. Rules about Spillway and its rulers are not among those
// of the shards: they would miss the servers that a demo does not have.
func newRuler(dir string, history time.Duration) (*ruler, error) {
	r := &ruler{
		dir: dir, late: min(history, recordedAtMost) + time.Hour, targets: filepath.Join(dir, "proxy.json"),
		transport: &http.Transport{MaxIdleConnsPerHost: 4}, serving: make(chan struct{}),
	}
	for scope, files := range map[string]fs.FS{"global": alerts.Global(), "shard": shardRules()} {
		names, err := fs.Glob(files, "*.yaml")
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(r.folder(scope), 0o700); err != nil {
			return nil, fmt.Errorf("write the demo's rules: %w", err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err == nil {
				err = os.WriteFile(filepath.Join(r.folder(scope), name), text, 0o600)
			}
			if err != nil {
				return nil, fmt.Errorf("write the demo's rules: %w", err)
			}
		}
	}
	return r, nil
}

// shardRules are the files of alerts/shard without the one that runs beside the rulers.
func shardRules() fs.FS { return recording.Without(alerts.Shard(), "spillway.yaml") }

// folder has the rule files of a scope, files is their pattern.
func (r *ruler) folder(scope string) string { return filepath.Join(r.dir, scope) }
func (r *ruler) files(scope string) string  { return filepath.Join(r.folder(scope), "*.yaml") }

// start starts the ruler. Its rules wait until serve has been called and the past is recorded.
func (r *ruler) start(ctx context.Context) (err error) {
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]string{
			"scrape_interval": scrapeInterval.String(), "scrape_timeout": "10s",
			"evaluation_interval": evaluationInterval.String(),
		},
		"rule_files": []string{r.files("global")},
		"storage":    map[string]any{"tsdb": map[string]string{"out_of_order_time_window": model.Duration(r.late).String()}},
		"scrape_configs": []any{map[string]any{
			"job_name": "spillway", "file_sd_configs": []any{map[string]any{"files": []string{r.targets}, "refresh_interval": "5s"}},
		}},
	})
	if err != nil {
		return err
	}
	r.store, err = localprom.Start(ctx, localprom.Options{
		Dir: filepath.Join(r.dir, "data"), DisableWAL: true, Config: string(config), RuleQuery: r.ask, Retention: 30 * 24 * time.Hour,
	})
	if err != nil {
		return fmt.Errorf("start the ruler: %w", err)
	}
	return nil
}

// ask answers a rule through the proxy.
func (r *ruler) ask(ctx context.Context, expr string, t time.Time) (promql.Vector, error) {
	select {
	case <-r.serving:
		return r.proxy.Instant(ctx, expr, t)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// meet tells the ruler where the proxy is.
func (r *ruler) meet(main, admin net.Addr) error {
	c, err := api.NewClient(api.Config{Address: "http://" + main.String(), RoundTripper: r.transport})
	if err != nil {
		return fmt.Errorf("the ruler's way to the proxy: %w", err)
	}
	r.proxy = recording.NewRemote(c)
	targets := fmt.Sprintf(`[{"targets": [%q], "labels": {"cluster": %q}}]`, admin.String(), monitoring)
	if err := os.WriteFile(r.targets, []byte(targets), 0o600); err != nil {
		return fmt.Errorf("tell the ruler where the proxy is: %w", err)
	}
	return nil
}

// serve lets the rules ask.
func (r *ruler) serve() { r.once.Do(func() { close(r.serving) }) }

func (r *ruler) close() error {
	var err error
	if r.store != nil {
		err = r.store.Close()
	}
	r.transport.CloseIdleConnections()
	return err
}

// record evaluates the rules over what is filled in: over the newest history at once, and over the
// older one when it is there. The demo goes on without where that fails.
func (d *demo) record(ctx context.Context, from, middle, until time.Time, filled <-chan struct{}) {
	seam := middle
	if from.Before(middle) {
		seam = middle.Add(looksBack)
	}
	reached := until
	global, err := d.ruler.past()
	if err == nil {
		err = d.recordStretch(ctx, global, seam, until)
		// The ruler's rules wait meanwhile, and make up for one evaluation at most when they may
		// ask: what else they have missed by then is past, too.
		for range catchUps {
			now := time.Now()
			if ctx.Err() != nil || now.Sub(reached) < shortestInterval {
				break
			}
			if _, missed := global.Fill(ctx, reached, now); err == nil {
				err = missed
			}
			reached = now
		}
	}
	d.ruler.serve()
	if !d.recorded(ctx, err, seam, reached) || !from.Before(middle) {
		return
	}
	select {
	case <-filled:
	case <-ctx.Done():
		return
	}
	from = latest(from, until.Add(-recordedAtMost))
	// The state of alerts begins anew: the newer stretch has been evaluated without it, and alerts
	// that began before it began their wait with it.
	if global, err = d.ruler.past(); err == nil {
		err = d.recordStretch(ctx, global, from, seam)
	}
	d.recorded(ctx, err, from, seam)
}

// past evaluates the global rules over the past, at the moments at which the ruler does as time
// goes by.
func (r *ruler) past() (*recording.Filler, error) {
	return recording.New(recording.Options{
		Rules: alerts.Global(), Dir: r.folder("global"), Interval: evaluationInterval,
		Query: r.proxy.Range, Append: r.store.Storage(),
	})
}

// recorded says how it went and whether to go on.
func (d *demo) recorded(ctx context.Context, err error, from, until time.Time) bool {
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		d.Logger.Warn("some recorded history is missing", "err", err)
	}
	d.Say("recorded series and alerts are there for %s of history", model.Duration(until.Sub(from).Round(time.Minute)))
	return true
}

// recordStretch fills in what shards record and then what the ruler does.
func (d *demo) recordStretch(ctx context.Context, global *recording.Filler, from, until time.Time) error {
	var errs []error
	for _, g := range d.groups {
		for s, replicas := range g.shards {
			if err := d.recordShard(ctx, g.name, s, replicas, from, until); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for at := from; at.Before(until) && ctx.Err() == nil; at = at.Add(recordedPiece) {
		if _, err := global.Fill(ctx, at, earliest(at.Add(recordedPiece), until)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// recordShard evaluates the rules of one shard over its first replica, and gives all of them the
// block.
func (d *demo) recordShard(ctx context.Context, group string, s int, replicas []*localprom.Shard, from, until time.Time) error {
	blocks := filepath.Join(d.dir, fmt.Sprintf("%s-%d-recorded-%d", group, s, from.Unix()))
	_, err := recording.Blocks(ctx, blocks, recording.Options{
		Rules: shardRules(), Dir: d.ruler.folder("shard"),
		Interval: evaluationInterval,
	}, replicas[0].Engine(), replicas[0].Storage(), from, until)
	for _, p := range replicas {
		if err == nil {
			err = p.AddBlocks(ctx, blocks)
		}
	}
	if err != nil {
		return fmt.Errorf("record the history of shard %d of %s: %w", s, group, err)
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
