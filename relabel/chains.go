package relabel

import (
	prom "github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
)

// chains are the rules of each job in their order, as its metric_relabel_configs have them.
func chains(rules []propose.Rule) (map[string]*prove.Chain, error) {
	configs := map[string][]*prom.Config{}
	for _, r := range rules {
		configs[r.Job] = append(configs[r.Job], r.Relabel...)
	}
	out := make(map[string]*prove.Chain, len(configs))
	for job, of := range configs {
		chain, err := prove.NewChain(of)
		if err != nil {
			return nil, err
		}
		out[job] = chain
	}
	return out, nil
}
