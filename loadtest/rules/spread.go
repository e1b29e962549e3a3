package rules

import (
	"fmt"
	"path/filepath"
	"time"

	prommodel "github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

const (
	// maxSpread keeps what is recorded within the five minutes that a query looks back.
	maxSpread = 4
	// spreadMost is the longest interval of a group that is spread, and the one of a group that
	// says none.
	spreadMost = time.Minute
)

// intervals are those that the rule files have, by scope, file and group.
type intervals map[string]time.Duration

func (in intervals) key(shard bool, file, group string) string {
	return fmt.Sprint(shard, ";", filepath.Base(file), ";", group)
}

// restore sets the interval of a group to the one that its file has.
func (in intervals) restore(g *Group) {
	if d, ok := in[in.key(g.Shard, g.File, g.Name)]; ok {
		g.Interval = d
	}
}

// spread are the rule files with the intervals at which their groups are evaluated here.
func (o *Options) spread() (files, shardFiles map[string][]byte, told intervals, err error) {
	told = intervals{}
	if files, err = o.spreadFiles(o.Files, false, told); err == nil {
		shardFiles, err = o.spreadFiles(o.ShardFiles, true, told)
	}
	return files, shardFiles, told, err
}

func (o *Options) spreadFiles(files map[string][]byte, shard bool, told intervals) (map[string][]byte, error) {
	out := make(map[string][]byte, len(files))
	for name, text := range files {
		var doc struct {
			Groups []map[string]any `yaml:"groups"`
		}
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, g := range doc.Groups {
			every := spreadMost
			if said, ok := g["interval"].(string); ok {
				d, err := prommodel.ParseDuration(said)
				if err != nil {
					return nil, fmt.Errorf("%s: the interval of group %v: %w", name, g["name"], err)
				}
				every = time.Duration(d)
			}
			told[told.key(shard, name, fmt.Sprint(g["name"]))] = every
			if every <= spreadMost {
				g["interval"] = prommodel.Duration(every * time.Duration(o.Spread)).String()
			}
		}
		changed, err := yaml.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = changed
	}
	return out, nil
}
