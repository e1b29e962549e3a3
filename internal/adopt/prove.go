package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// asked is the configuration with the servers that were found in the places that it gives them, as
// they are reached from here.
func (p *Plan) asked(r *Reach) (*config.Config, error) {
	cfg, err := p.Config()
	if err != nil {
		return nil, err
	}
	for i := range cfg.Groups {
		g := &cfg.Groups[i]
		g.ShardsFrom = config.ShardsFrom{}
		var order []string
		for _, s := range p.Groups[i].Servers {
			n := slices.Index(order, s.Shard)
			if n < 0 {
				n = len(order)
				order = append(order, s.Shard)
				one := config.Shard{}
				if p.Groups[i].Modulus > 0 {
					one.Hash = config.Hash{N: uint64(s.Hash), Set: true}
				}
				g.Shards = append(g.Shards, one)
			}
			one := config.Replicas(r.URL(s))[0]
			one.HTTPClient.ProxyURL = commonconfig.URL{URL: r.proxy}
			g.Shards[n].Replicas = append(g.Shards[n].Replicas, one)
		}
	}
	return cfg, nil
}

// Prove asks the servers whether they are what the configuration says, as check config --online
// does. Without problems the list is empty.
func (p *Plan) Prove(ctx context.Context, r *Reach) (problems []string, err error) {
	cfg, err := p.asked(r)
	if err != nil {
		return nil, err
	}
	found, err := shard.CheckOnline(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("prove the configuration: %w", err)
	}
	for _, f := range found {
		problems = append(problems, strings.ReplaceAll(f.Message, r.secret, "")) // the path is one of no file
	}
	return problems, nil
}
