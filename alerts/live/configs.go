package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/config"
)

const (
	// clusterName is the group's label on every series.
	clusterName = "jaguar"
	// shards and replicas are the rig's size; the shard's number is what hashmod of node keeps.
	shards, replicas = 2, 2
)

// replicaName is the value of prometheus_replica.
func replicaName(r int) string { return string(rune('a' + r)) }

// mapping and list are YAML.
type (
	mapping = map[string]any
	list    = []any
)

// jobsOfAllNodes are the jobs whose series name nodes that are not the target's: both shards scrape
// them, and each keeps the series of its own nodes, as shard_by: [node] promises.
var jobsOfAllNodes = []string{cluster.JobKubeStateMetrics, cluster.JobNodeMesh}

// prometheusConfig is prometheus.yml of one replica: what deploy/exporters does to the series of
// each job, over targets that the rig's HTTP discovery lists (site is its host:port) and that are
// divided by the hash of node, or of instance where there is none. Jobs in own have a section of
// their own even if deploy/exporters does nothing to their series. What both shards scrape, the
// servers of the meta view among it, has the label seen_by, so that no series is on two shards.
func prometheusConfig(shard, replica int, interval time.Duration, site, alertmanager, rules string, own []string) (string, error) {
	deployed, err := exporters.Render(exporters.Options{Cluster: clusterName, Shard: shard, Shards: shards, Replica: replicaName(replica)})
	if err != nil {
		return "", fmt.Errorf("read deploy/exporters/prometheus.yml: %w", err)
	}
	var jobs struct {
		Scrape []deployedJob `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(deployed), &jobs); err != nil {
		return "", fmt.Errorf("read deploy/exporters/prometheus.yml: %w", err)
	}
	scrape := scrapeConfigs(jobs.Scrape, shard, site, own)
	every := model.Duration(interval).String()
	text, err := yaml.Marshal(mapping{
		"global": mapping{
			"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every,
			"external_labels": mapping{"cluster": clusterName, "prometheus_replica": replicaName(replica)},
		},
		"rule_files": []string{rules},
		"alerting": mapping{
			"alert_relabel_configs": list{mapping{"regex": "prometheus_replica|seen_by", "action": "labeldrop"}},
			"alertmanagers":         list{mapping{"static_configs": list{mapping{"targets": []string{alertmanager}}}}},
		},
		"scrape_configs": scrape,
	})
	if err != nil {
		return "", fmt.Errorf("write prometheus.yml: %w", err)
	}
	return string(text), nil
}

// deployedJob is what deploy/exporters says of one job.
type deployedJob struct {
	Job     string `yaml:"job_name"`
	Honor   bool   `yaml:"honor_labels"`
	Relabel list   `yaml:"metric_relabel_configs"`
}

// scrapeConfigs are the sections of prometheusConfig: of the meta view, of the mesh, of each job
// that has one, and of all others together.
func scrapeConfigs(jobs []deployedJob, shard int, site string, own []string) list {
	number := strconv.Itoa(shard)
	keep := func(labels ...string) mapping {
		return mapping{"source_labels": labels, "regex": number, "action": "keep"}
	}
	hash := func(label string) mapping {
		return mapping{"source_labels": []string{label}, "modulus": shards, "target_label": "__tmp_hash", "action": "hashmod"}
	}
	seenBy := mapping{"target_label": "seen_by", "replacement": number}
	discover := func(path string) list {
		return list{mapping{"url": "http://" + site + path, "refresh_interval": "2s"}}
	}
	mine := list{
		mapping{"source_labels": []string{"instance"}, "target_label": "__tmp_key"},
		mapping{"source_labels": []string{"node"}, "regex": "(.+)", "target_label": "__tmp_key"},
		hash("__tmp_key"), keep("__tmp_hash"),
	}
	special := slices.Clone(jobsOfAllNodes)
	scrape := list{
		mapping{"job_name": "meta", "http_sd_configs": discover("/sd/meta"), "relabel_configs": list{seenBy}},
		mapping{
			"job_name": cluster.JobNodeMesh, "http_sd_configs": discover("/sd"),
			"relabel_configs": list{
				mapping{"source_labels": []string{"job"}, "regex": cluster.JobNodeMesh, "action": "keep"},
				seenBy,
			},
			"metric_relabel_configs": list{hash("node"), keep("__tmp_hash"), mapping{"regex": "__tmp_.+|seen_by", "action": "labeldrop"}},
		},
	}
	for _, j := range jobs {
		if len(j.Relabel) == 0 && !slices.Contains(own, j.Job) {
			continue
		}
		own = slices.DeleteFunc(slices.Clone(own), func(job string) bool { return job == j.Job })
		relabel := list{mapping{"source_labels": []string{"job"}, "regex": j.Job, "action": "keep"}}
		if slices.Contains(jobsOfAllNodes, j.Job) {
			relabel = append(relabel, seenBy)
		} else {
			relabel = append(relabel, mine...)
			special = append(special, j.Job)
		}
		section := mapping{"job_name": j.Job, "honor_labels": j.Honor, "http_sd_configs": discover("/sd"), "relabel_configs": relabel}
		if len(j.Relabel) > 0 {
			section["metric_relabel_configs"] = j.Relabel
		}
		scrape = append(scrape, section)
	}
	for _, job := range own {
		if job == cluster.JobNodeMesh {
			continue
		}
		special = append(special, job)
		scrape = append(scrape, mapping{
			"job_name": job, "http_sd_configs": discover("/sd"),
			"relabel_configs": append(list{mapping{"source_labels": []string{"job"}, "regex": job, "action": "keep"}}, mine...),
		})
	}
	others := append(list{mapping{"source_labels": []string{"job"}, "regex": strings.Join(special, "|"), "action": "drop"}}, mine...)
	return append(scrape, mapping{"job_name": "others", "http_sd_configs": discover("/sd"), "relabel_configs": others})
}

// rulesConfig is prometheus.yml of the ruler's store. Its evaluation interval is that of the
// shards, which is the step of subqueries without one: where it differs, the proxy pushes nothing.
func rulesConfig(interval time.Duration) string {
	return fmt.Sprintf("global: {evaluation_interval: %s}\n", model.Duration(interval))
}

// spillwayConfig is the proxy's file: the shards as one group, the ruler's Prometheus as another,
// which has no labels of its own because what it holds carries cluster already.
func spillwayConfig(replicaURLs [shards][replicas]string, rulesURL string) *config.Config {
	main := config.Group{
		Name: clusterName, Labels: map[string]string{"cluster": clusterName}, ReplicaLabels: []string{"prometheus_replica"},
		Heartbeat: "up",
		ShardBy:   []string{"node"}, Hashmod: config.Hashmod{Labels: []string{"node"}, Modulus: shards},
	}
	for s, urls := range replicaURLs {
		main.Shards = append(main.Shards, config.Shard{Hash: config.Hash{N: uint64(s), Set: true}, Replicas: config.Replicas(urls[:]...)})
	}
	return config.Of(main, config.Group{
		Name: "rules", ReplicaLabels: []string{"ruler_replica"}, Names: ruler.Names(),
		Shards: []config.Shard{{Replicas: config.Replicas(rulesURL)}},
	})
}

// remoteWriteConfig is where the ruler writes: at once, since its own for-clauses and the proxy's
// readers wait for it.
func remoteWriteConfig(url string) string {
	return fmt.Sprintf("remote_write:\n  - url: %q\n    name: rules\n    queue_config: {batch_send_deadline: 100ms}\n", url+"/api/v1/write")
}
