// Package relabeltest makes drop rules for the simulated cluster from all that this project itself
// looks at, for tests that then live with these rules.
package relabeltest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/loadtest/usage"
	drop "github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Uses are the mixin's dashboards and rules, the queries of the experiment plugin, and a day of
// people who look at a cluster of this name. root is the repository's folder as seen from the
// test's.
func Uses(t testing.TB, root, cluster string, now time.Time) *uses.Set {
	t.Helper()
	log := filepath.Join(t.TempDir(), "usage.jsonl")
	if err := day(log, cluster, now); err != nil {
		t.Fatal(err)
	}
	set := new(uses.Set)
	if err := errors.Join(
		uses.Dashboards(set, filepath.Join(root, "dashboards")),
		uses.Rules(set, filepath.Join(root, "alerts", "global")),
		uses.Rules(set, filepath.Join(root, "alerts", "shard")),
		uses.File(set, filepath.Join(root, "relabel", "testdata", "experiment.promql")),
		uses.Log(t.Context(), set, log, uses.LogOptions{Window: 24 * time.Hour, Now: now}),
	); err != nil {
		t.Fatal(err)
	}
	return set
}

func day(file, cluster string, now time.Time) (err error) {
	o := usage.Options{
		Cluster: cluster, Namespaces: []string{"research-nlp", "research-vision"}, End: now, Length: 24 * time.Hour,
		Users: 10, Seed: 1,
	}
	for i := range 12 {
		o.Nodes = append(o.Nodes, fmt.Sprintf("gpu-%05d", i))
	}
	for _, name := range dashboards.Names() {
		d, err := dashboards.Load(name)
		if err != nil {
			return err
		}
		o.Dashboards = append(o.Dashboards, d)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	_, err = usage.Write(w, o)
	return errors.Join(err, w.Flush())
}

// Plan is the plan for what is stored. It fails the test where less than a third of the series go:
// then it would show little to live with it. (The simulated cluster's lean pages have little but
// what is looked at; of full ones, as real exporters write them, three quarters go:
// docs/drop-rules.md.)
func Plan(t testing.TB, root, cluster string, src inventory.Source, now time.Time) *drop.Plan {
	t.Helper()
	p, err := drop.Make(t.Context(), drop.Options{
		Source: src, Uses: Uses(t, root, cluster, now), External: []string{"cluster", "replica"}, Owner: "platform", Now: now,
		Propose: propose.Options{Risk: propose.Medium, Window: 24 * time.Hour}, Replay: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rules drop %d of %d series; %d refused", len(p.Rules), p.Dropped.Series, p.Stored.Series, len(p.Refused))
	if 3*p.Dropped.Series < p.Stored.Series {
		t.Errorf("%d of %d series go, less than a third", p.Dropped.Series, p.Stored.Series)
	}
	return p
}

// Configs are a plan's rules by job.
func Configs(p *drop.Plan) map[string][]*relabel.Config {
	out := map[string][]*relabel.Config{}
	for _, r := range p.Rules {
		out[r.Job] = append(out[r.Job], r.Relabel...)
	}
	return out
}
