package exporters

import (
	"bufio"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The files, as they are deployed.
var (
	// Prometheus is prometheus.yml, before Render.
	//
	//go:embed prometheus.yml
	Prometheus string
	// DCGMCounters is dcgm-counters.csv.
	//
	//go:embed dcgm-counters.csv
	DCGMCounters string
	// KubeStateMetrics is kube-state-metrics.flags.
	//
	//go:embed kube-state-metrics.flags
	KubeStateMetrics string
	// NodeExporter is node-exporter.flags.
	//
	//go:embed node-exporter.flags
	NodeExporter string
)

// Options are what differs between the Prometheus servers of a cluster.
type Options struct {
	// Cluster is the external label `cluster`.
	Cluster string
	// Shard is the server's slice, from 0; Shards how many there are, from 1 to 65,536.
	Shard, Shards int
	// Replica tells the copies of a shard apart: the external label `prometheus_replica`.
	Replica string
}

var (
	word        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	placeholder = regexp.MustCompile(`\$\{(\w+)\}`)
)

// Render fills in prometheus.yml, as envsubst does.
func Render(o Options) (string, error) {
	switch {
	case !word.MatchString(o.Cluster):
		return "", fmt.Errorf("cluster %q: must be letters, digits, dots, underscores and hyphens", o.Cluster)
	case !word.MatchString(o.Replica):
		return "", fmt.Errorf("replica %q: must be letters, digits, dots, underscores and hyphens", o.Replica)
	case o.Shards < 1 || o.Shards > 65536:
		return "", fmt.Errorf("%d shards: must be from 1 to 65536", o.Shards)
	case o.Shard < 0 || o.Shard >= o.Shards:
		return "", fmt.Errorf("shard %d of %d: must be from 0 to %d", o.Shard, o.Shards, o.Shards-1)
	}
	values := map[string]string{
		"CLUSTER": o.Cluster, "REPLICA": o.Replica, "SHARD": strconv.Itoa(o.Shard),
		"SHARDS": strconv.Itoa(o.Shards),
	}
	var unknown error
	out := placeholder.ReplaceAllStringFunc(Prometheus, func(p string) string {
		name := placeholder.FindStringSubmatch(p)[1]
		v, ok := values[name]
		if !ok && unknown == nil {
			unknown = fmt.Errorf("prometheus.yml: nothing is known to put in the place of %s", p)
		}
		return v
	})
	return out, unknown
}

// Flags are the flags of a .flags file, without its comments.
func Flags(text string) []string {
	var out []string
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if line := strings.TrimSpace(sc.Text()); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
