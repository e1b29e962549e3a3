package verify_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/verify"
)

// What we ship agrees with itself: the configuration for exporters takes nothing that our rules and
// dashboards look at, on no shard.
func TestWhatWeShip(t *testing.T) {
	text, err := os.ReadFile("../../deploy/exporters/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, shard := range []string{"0", "1", "2", "3"} {
		files = append(files, file(t, "prometheus.yml", strings.NewReplacer("${SHARDS}", "4", "${SHARD}", shard).Replace(string(text))))
	}
	r := check(t, verify.Options{
		Prometheus: files, Rules: []string{"../../alerts/global", "../../alerts/shard"},
		Dashboards: []string{"../../dashboards"},
	})
	if r.State != verify.OK || len(r.Findings) > 0 || r.Rules == 0 || r.Uses < 500 {
		t.Error(textOf(t, r))
	}
}
