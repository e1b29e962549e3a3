package live

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/relabel/emit"
)

// planned is over how long the series are that drop rules are made from.
const planned = 10 * time.Minute

// makePlan makes the drop rules, where there are to be any.
func (r *Rig) makePlan(ctx context.Context) error {
	if r.opts.Drop == nil {
		return nil
	}
	now, dir := time.Now(), filepath.Join(r.opts.Dir, "stored")
	if _, err := r.World.Model().Backfill(ctx, dir,
		cluster.BackfillOptions{From: now.Add(-planned), Until: now, Interval: 30 * time.Second}); err != nil {
		return fmt.Errorf("write what drop rules are made from: %w", err)
	}
	var err error
	r.plan, err = r.opts.Drop(dir)
	return err
}

// prometheusConfig is prometheus.yml of one replica, with the drop rules if there are any.
func (r *Rig) prometheusConfig(shard, replica int, site, alertmanager, rules string) (string, error) {
	var own []string
	if r.plan != nil {
		for _, j := range r.plan.Jobs {
			own = append(own, j.Job)
		}
	}
	text, err := prometheusConfig(shard, replica, r.opts.Interval, site, alertmanager, rules, own)
	if err != nil || r.plan == nil {
		return text, err
	}
	merged, _, err := emit.Merge(r.plan, []byte(text))
	if err != nil {
		return "", fmt.Errorf("merge the drop rules: %w", err)
	}
	return string(merged), nil
}
