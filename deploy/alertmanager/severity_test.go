package alertmanager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// TestOtherPeoplesRulesDrainNothing: what docs/remediation.md has for the Prometheus servers that
// evaluate other people's rules is a configuration, by which no alert of theirs has severity auto,
// and all others stay as they are.
func TestOtherPeoplesRulesDrainNothing(t *testing.T) {
	text, err := os.ReadFile("../../docs/remediation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(text), "\n### Before `--act`\n")
	if !ok {
		t.Fatal("no such chapter")
	}
	page, _, _ = strings.Cut(page, "\n### ")
	_, block, ok := strings.Cut(page, "```yaml\n   # prometheus.yml")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("the chapter has no prometheus.yml")
	}
	var lines []string
	for line := range strings.Lines("# " + block) {
		lines = append(lines, strings.TrimPrefix(line, "   ")) // it stands below a number
	}
	block = strings.Join(lines, "")
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, err := realprom.Promtool(t.Context(), "check", "config", file); err != nil {
		t.Fatalf("%v: %s\n%s", err, said, block)
	}
	conf, err := config.Load(block, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	for severity, want := range map[string]string{
		"auto": "warning", "critical": "critical", "warning": "warning", "info": "info", "": "", "automatic": "automatic", "AUTO": "AUTO",
	} {
		l := labels.NewBuilder(labels.FromStrings("alertname", "TeamsOwn", "node", "gpu-00001", "severity", severity))
		kept := relabel.ProcessBuilder(l, conf.AlertingConfig.AlertRelabelConfigs...)
		if !kept || l.Get("severity") != want || l.Get("node") != "gpu-00001" {
			t.Errorf("severity %q becomes %s", severity, l.Labels())
		}
	}
	// The rules of the shards have none either, so that theirs may have it, too.
	files, err := filepath.Glob("../../alerts/shard/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil || strings.Contains(string(text), "severity: auto") {
			t.Errorf("%s asks the remediator for something (%v)", f, err)
		}
	}
}
