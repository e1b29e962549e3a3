package helm

import (
	"net"
	"strconv"
	"testing"

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/spillwayproject/spillway/deploy/ruler"
)

// scraped is what is read of a scrape configuration.
type scraped struct {
	Job    string `yaml:"job_name"`
	Static []struct {
		Targets []string
		Labels  map[string]string
	} `yaml:"static_configs"`
	DNS []struct {
		Names []string
		Type  string
		Port  int
	} `yaml:"dns_sd_configs"`
	Relabel []*relabel.Config `yaml:"relabel_configs"`
	Metrics []*relabel.Config `yaml:"metric_relabel_configs"`
}

// TestRulerTargets: the small Prometheus of the ruler scrapes every pod of the two releases, by the
// Services that the chart makes and on their port, whether the cluster has IPv4 or IPv6, with the
// role that the alerts tell apart. The Service by its name, which is there when no pod is, is only
// watched.
func TestRulerTargets(t *testing.T) {
	roles := map[string]string{} // by the Service
	for ci, role := range map[string]string{"operator": "people", "ruler": "rules"} {
		all, err := render(valuesOf(t, ciFiles(t)[ci]))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if s, ok := o.in.(*corev1.Service); ok && s.Spec.ClusterIP == corev1.ClusterIPNone {
				roles[net.JoinHostPort(s.Name+"."+s.Namespace+".svc", strconv.Itoa(int(s.Spec.Ports[0].Port)))] = role
			}
		}
	}
	text, err := ruler.File("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Scrapes []scraped `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	pods, names := map[string]int{}, 0 // pods by the type of records
	for _, sc := range doc.Scrapes {
		if sc.Job != "spillway" {
			continue
		}
		target := func(service string, of map[string]string) promlabels.Labels {
			if roles[service] == "" {
				t.Errorf("%s is no metrics Service of the chart: %v", service, roles)
			}
			b := promlabels.NewBuilder(promlabels.FromMap(of))
			if !relabel.ProcessBuilder(b, validated(t, sc.Relabel)...) || b.Get("role") != roles[service] || b.Get("cluster") == "" {
				t.Errorf("a target of %s is %s", service, b.Labels())
			}
			return b.Labels()
		}
		kept := func(l promlabels.Labels) bool {
			return relabel.ProcessBuilder(promlabels.NewBuilder(l), validated(t, sc.Metrics)...)
		}
		for _, d := range sc.DNS {
			for _, name := range d.Names {
				pods[d.Type]++
				l := target(net.JoinHostPort(name, strconv.Itoa(d.Port)), map[string]string{"__meta_dns_name": name})
				instance := map[string]string{"A": "10.0.0.1:9092", "AAAA": "[fd00::5]:9092"}[d.Type]
				if instance == "" || !kept(promlabels.NewBuilder(l).Set("instance", instance).Labels()) {
					t.Errorf("the pods of %s are not scraped", name)
				}
			}
		}
		for _, s := range sc.Static {
			for _, at := range s.Targets {
				names++
				if l := target(at, s.Labels); kept(promlabels.NewBuilder(l).Set("instance", at).Labels()) {
					t.Errorf("%s counts twice: its pods are scraped too", at)
				}
			}
		}
	}
	if pods["A"] != len(roles) || pods["AAAA"] != len(roles) || names != len(roles) {
		t.Errorf("%v Services are asked for pods, by A and by AAAA, and %d are watched, of %v", pods, names, roles)
	}
}

func validated(t *testing.T, all []*relabel.Config) []*relabel.Config {
	t.Helper()
	for _, c := range all {
		if err := c.Validate(model.UTF8Validation); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
