package merge

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestListsMustBeThere: an answer without the list that was asked for is no empty list, whichever
// shard sends it. A list that is empty, or null, is.
func TestListsMustBeThere(t *testing.T) {
	merges := map[string]func(context.Context, *Writer, []Source, *admit.Budget) (Result, error){
		"targets": MergeTargets, "scrape pools": MergeScrapePools, "alertmanagers": MergeAlertmanagers,
		"alerts": MergeAlerts,
		"rules": func(ctx context.Context, w *Writer, shards []Source, b *admit.Budget) (Result, error) {
			return MergeRules(ctx, w, RulesPage{}, shards, b)
		},
	}
	for _, c := range []struct {
		name, whole string
		lacking     []string // data without a key, and what the log says
	}{
		{"targets", `{"activeTargets":[],"droppedTargets":[]}`, []string{`{"droppedTargets":[]}`, `{"activeTargets":[{"labels":{}}]}`}},
		{"scrape pools", `{"scrapePools":null}`, []string{`{"pools":["a"]}`}},
		{"alertmanagers", `{"activeAlertmanagers":[],"droppedAlertmanagers":null}`, []string{`{"droppedAlertmanagers":[]}`, `{"activeAlertmanagers":[]}`}},
		{"alerts", `{"alerts":[]}`, []string{`{"groups":[]}`}},
		{"rules", `{"groups":[]}`, []string{`{"alerts":[]}`}},
	} {
		ask := func(data string) error {
			shards := []Source{
				{Name: "one", Body: strings.NewReader(envelope(c.whole))},
				{Name: "two", Body: strings.NewReader(envelope(data))},
			}
			_, err := merges[c.name](context.Background(), NewWriter(&bytes.Buffer{}, nil), shards, nil)
			return err
		}
		if err := ask(c.whole); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, data := range append(c.lacking, "{}", "null") {
			var e *qerr.Error
			var scan *ScanError
			if err := ask(data); !errors.As(err, &e) || e.Kind != qerr.ShardFailed || len(e.Shards) != 1 || e.Shards[0] != "two" ||
				!errors.As(err, &scan) || scan.Kind != WrongShape || !strings.HasPrefix(scan.Reason, "it has no ") {
				t.Errorf("%s of %s: %v", c.name, data, err)
			}
		}
	}
}
