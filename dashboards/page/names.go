package page

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Names reads a JSON list of names from a file, and returns what gives them to experiments of a
// demo's clusters and to their teams: of those whose pods there were in the half hour before the
// demo began every second one, so that others stay what they are. It is asked once for each of the
// demo's clusters. With fewer experiments than names the last answer is an error: more nodes have
// more.
func Names(file string, clusters int) (func(m *cluster.Model, now time.Time) (map[string]cluster.Called, error), error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return nil, fmt.Errorf("%s holds no JSON list of names: %w", file, err)
	}
	rest := names
	return func(m *cluster.Model, now time.Time) (map[string]cluster.Called, error) {
		clusters--
		out := map[string]cluster.Called{}
		for i, e := range m.Experiments(now.Add(-30*time.Minute), now.Add(-5*time.Minute)) {
			if i%2 == 1 && len(rest) > 0 {
				out[e.Name] = cluster.Called{Experiment: rest[0], Team: rest[0]}
				rest = rest[1:]
			}
		}
		if clusters == 0 && len(rest) > 0 {
			return nil, fmt.Errorf("%s has %d names more than the demo's clusters have experiments; give them more nodes", file, len(rest))
		}
		return out, nil
	}, nil
}
