package plan

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPluginsQuestions: what the Grafana plugin asks of GPUs is not read from the shards as it is
// stored, whatever the range: of 4,000 GPUs and a week that would be 40 million samples.
func TestPluginsQuestions(t *testing.T) {
	now := time.Now()
	top := benchTopology(t, 4, nil)
	f, err := os.Open("../../relabel/testdata/experiment.promql")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, asked := bufio.NewScanner(f), 0
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		if !strings.Contains(line, "experiment:gpu:") || strings.HasPrefix(line, "#") {
			continue
		}
		asked++
		q := rangeOf(t, strings.ReplaceAll(line, "$range", "7d"), now)
		q.NoExplain = false
		p, err := NewView(top, now).Query(t.Context(), q)
		if err != nil || p.Refused != nil || p.Raw {
			t.Errorf("%s: %v, %+v", line, err, p.Root)
		}
	}
	if err := s.Err(); err != nil || asked < 20 {
		t.Errorf("%d questions: %v", asked, err)
	}
}
