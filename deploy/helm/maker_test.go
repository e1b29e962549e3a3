package helm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// obj is a mapping of a file of values.
type obj = map[string]any

// maker makes files of values.
type maker struct {
	*rand.Rand
	configs []map[string]any
}

func newMaker(t testing.TB) *maker {
	t.Helper()
	m := &maker{}
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	for _, f := range files {
		m.configs = append(m.configs, valuesOf(t, f))
	}
	return m
}

func pick[T any](m *maker, of ...T) T { return of[m.IntN(len(of))] }

// few gives some of what it is given, in its order, and perhaps nothing.
func few(m *maker, of ...any) []any {
	out := []any{}
	for _, v := range of {
		if m.IntN(2) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// maybe sets keys, each or not.
func (m *maker) maybe(keys map[string]any) map[string]any {
	out := obj{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if m.IntN(2) == 0 {
			out[k] = keys[k]
		}
	}
	return out
}

// text is one that YAML or a template could take for something else.
func (m *maker) text() string {
	return pick(m, "plain", "yes", "null", "1e3", "0x1f", "a: b", "# no comment", "{{ .Values }}",
		"{a}", "'", `"`, `\`, "two\nlines", " spaces ", "größe",
		"-", "~", "2026-10-01", "%", "@", "&a", "*a", "!t", "|", ">")
}

func (m *maker) name() string {
	return pick(m, "a", "spillway", "queries-2", "x0", strings.Repeat("n", 52))
}

func (m *maker) labels() map[string]any {
	out := m.maybe(obj{"team": pick(m, "platform", "yes", "null", "1e3", "007", ""), "example.org/a_b": "A.b-c", "true": "true"})
	if m.IntN(4) == 0 { // one that the chart sets too
		out[pick(m, "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "app.kubernetes.io/component", "helm.sh/chart")] = "mine"
	}
	return out
}

func (m *maker) annotations() map[string]any {
	return m.maybe(obj{"example.org/a": m.text(), "b": m.text()})
}

func (m *maker) selector() map[string]any {
	return pick(m,
		obj{"matchLabels": obj{"app.kubernetes.io/name": "prometheus"}},
		obj{"matchExpressions": []any{obj{"key": "a", "operator": "In", "values": []any{"yes", "1"}}}},
		obj{},
	)
}

func (m *maker) peers() []any {
	return few(m,
		obj{"podSelector": m.selector()},
		obj{"namespaceSelector": m.selector(), "podSelector": m.selector()},
		obj{"ipBlock": obj{"cidr": "10.0.0.0/8", "except": []any{"10.1.0.0/16"}}},
	)
}

// config is one of the examples, with some limits changed.
func (m *maker) config() map[string]any {
	c := clone(pick(m, m.configs...)).(map[string]any)
	if m.IntN(2) == 0 {
		c["limits"] = m.maybe(obj{
			"max_samples": pick(m, 50_000_000, 1_000_000, 1<<40),
			"timeout":     pick(m, "25s", "1m"), "max_response_bytes": pick[any](m, "64MiB", 1<<30),
			"read_slots": pick(m, 1, 8), "max_range": "31d",
		})
	}
	delete(c, "usage_log") // its folder may not be mounted
	delete(c, "memory")    // one may be above the container's
	if m.IntN(3) == 0 {
		c["memory"] = obj{"budget": pick[any](m, "300MB", ".5GiB", "536870912B", 1<<28)}
	}
	return c
}

// clone is a copy in which nothing is shared.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := obj{}
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// base are values of the program and its pod.
func (m *maker) base() map[string]any {
	v := m.maybe(obj{
		"nameOverride": m.name(), "fullnameOverride": m.name(), "replicaCount": m.IntN(20),
		"configKind": pick(m, "Secret", "ConfigMap"),
		"image": m.maybe(obj{
			"repository": pick(m, "spillway", "registry.example.org:5000/a/b"), "tag": pick(m, "1.0", "v0.1.0-rc.1", "latest"),
			"digest": "sha256:" + strings.Repeat("0a", 32), "pullPolicy": pick(m, "Always", "Never"),
		}),
		"imagePullSecrets": few(m, obj{"name": "registry"}),
		"log":              m.maybe(obj{"level": pick(m, "debug", "error"), "format": "json"}),
		"resources": obj{
			"limits":   m.maybe(obj{"memory": pick[any](m, "512Mi", "1.5Gi", "4G", 1<<31), "cpu": pick[any](m, 4, "2500m", 0.5)}),
			"requests": m.maybe(obj{"memory": "256Mi", "cpu": pick[any](m, "100m", 0.25)}), // never above a limit
		},
		"strategy":                      m.maybe(obj{"type": "Recreate", "rollingUpdate": obj{"maxUnavailable": 1, "maxSurge": m.IntN(2)}}),
		"shutdownDelaySeconds":          pick(m, 0, 1, 300),
		"readyWaitSeconds":              pick(m, 0, 1, 600, 86_400),
		"terminationGracePeriodSeconds": 20 + m.IntN(600), "podAnnotations": m.annotations(), "podLabels": m.labels(),
		"podSecurityContext": m.maybe(obj{"runAsUser": pick[any](m, 1000, nil), "fsGroup": 0, "fsGroupChangePolicy": "OnRootMismatch"}),
		"priorityClassName":  "", "nodeSelector": m.labels(), "serviceAccount": m.maybe(obj{
			"create": m.IntN(2) == 0, "name": m.name(), "annotations": m.annotations(),
		}),
		"rbac": m.maybe(obj{"create": m.IntN(2) == 0, "namespaces": few(m, "shards-a", "monitoring"), "clusterWide": m.IntN(4) == 0}),
		"service": m.maybe(obj{
			"type": pick(m, "NodePort", "LoadBalancer"), "port": 1 + m.IntN(65535), "annotations": m.annotations(), "labels": m.labels(),
		}),
		"probes": m.maybe(obj{
			"startup": m.maybe(obj{"failureThreshold": 90}), "liveness": m.maybe(obj{"periodSeconds": 30, "failureThreshold": 3}),
			"readiness": m.maybe(obj{"periodSeconds": 1, "failureThreshold": 10}),
		}),
	})
	if m.IntN(8) == 0 {
		v["existingSecret"] = "mine"
	} else {
		v["config"] = m.config()
	}
	web := m.maybe(obj{
		"externalUrl": pick(m, "https://a.example.org/spillway", `https://a.example.org/?a="b"`), "routePrefix": "/p",
		"graphUrl":       m.text(),
		"consoleUrl":     m.text(),
		"maxConnections": 1 + m.IntN(1_000_000), "maxConnectionsPerAddress": pick(m, 0, 1),
	})
	if m.IntN(3) == 0 {
		web["existingSecret"], web["tls"], web["clientCertificates"] = "web", m.IntN(2) == 0, m.IntN(2) == 0
		v["admin"] = obj{"exposed": m.IntN(2) == 0}
	}
	v["web"] = web
	return v
}

// around are values of what stands beside the pods, and of what is added to them.
func (m *maker) around() map[string]any {
	on := func() bool { return m.IntN(3) > 0 }
	shard := m.maybe(obj{
		"namespace": "shards-a", "port": 1 + m.IntN(65535), "from": m.peers(), "thanosFrom": m.peers(), "thanosPort": 1 + m.IntN(65535),
		"ingress": few(m, obj{"from": m.peers(), "ports": []any{obj{"port": pick[any](m, 8080, "web"), "protocol": "TCP"}}}),
	})
	shard["name"], shard["podSelector"] = "main", m.selector()
	host := pick(m, "metrics.example.org", "*.example.org")
	return m.maybe(obj{
		"state":               obj{"enabled": on()},
		"usageLog":            obj{"enabled": on(), "sizeLimit": pick[any](m, "3Gi", "20G", 1<<32)},
		"podDisruptionBudget": obj{"enabled": on(), "maxUnavailable": pick[any](m, 1, 3, "50%", "100%")},
		"autoscaling": obj{
			"enabled": on(), "minReplicas": 1 + m.IntN(4), "maxReplicas": 4 + m.IntN(20),
			"targetCPUUtilizationPercentage":    50 + m.IntN(40),
			"targetBudgetUtilizationPercentage": pick(m, 0, 50),
			"behavior":                          m.maybe(obj{"scaleUp": obj{"stabilizationWindowSeconds": 60}}),
		},
		"tolerations": few(m, obj{"key": "a", "operator": "Exists"}, obj{"key": "b", "value": "yes", "effect": "NoSchedule"}),
		"affinity": m.maybe(obj{"podAntiAffinity": obj{"requiredDuringSchedulingIgnoredDuringExecution": []any{
			obj{"topologyKey": "kubernetes.io/hostname", "labelSelector": m.selector()},
		}}}),
		"topologySpreadConstraints": few(m,
			obj{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2},
			obj{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": m.selector()}),
		"ingress": obj{
			"enabled": on(), "className": pick(m, "", "nginx"), "annotations": m.annotations(),
			"tls":   few(m, obj{"secretName": "tls", "hosts": []any{host}}),
			"hosts": []any{obj{"host": host, "paths": few(m, obj{"path": "/a", "pathType": "Exact"}, obj{"path": "/"})}},
		},
		"httpRoute": obj{
			"enabled": on(), "annotations": m.annotations(),
			"parentRefs": []any{obj{"name": "g", "namespace": "gateways", "port": 443}},
			"hostnames":  few(m, host), "pathPrefix": pick(m, "/", "/spillway"),
		},
		"serviceMonitor": obj{
			"enabled": on(), "labels": m.labels(), "namespace": pick(m, "", "monitoring"), "interval": pick(m, "15s", "1m"),
			"scrapeTimeout": "10s",
			"targetLabels":  m.maybe(obj{"job": "spillway", "cluster": m.text()}),
			"relabelings":   few(m, obj{"action": "labeldrop", "regex": "pod|node"}),
			"tlsConfig":     m.maybe(obj{"insecureSkipVerify": true, "serverName": "a"}),
		},
		"mixin": obj{
			"rules": obj{
				"enabled": m.IntN(6) == 0, "labels": m.labels(),
				"files": []any{pick(m, "shard/*.yaml", "shard/spillway.yaml", "global/dns.yaml")},
			},
			"dashboards": obj{
				"enabled": m.IntN(10) == 0, "labels": m.labels(), "annotations": m.annotations(),
				"files": []any{"alerts.json", "c*.json"},
			},
		},
		"networkPolicy": obj{
			"enabled": on(), "clients": m.peers(), "metricsFrom": m.peers(), "shards": few(m, shard),
			"egress": few(m, obj{"to": m.peers()}),
		},
		"plugin": obj{"datasource": m.maybe(obj{
			"enabled": on(), "labels": m.labels(), "name": m.text(), "uid": pick(m, "a", "007", "A_b-1"),
			"jsonData": m.maybe(obj{"idleBelow": 7}),
		})},
		"remediator": m.remediator(on()),
		"extraArgs":  few(m, "--config.auto-reload-interval=5s", "--web.cors.origin=https?://(a|b)\\.c", "--no-auto-gomemlimit"),
		"extraEnv": few(m, obj{"name": "A", "value": m.text()},
			obj{"name": "B", "valueFrom": obj{"fieldRef": obj{"fieldPath": "metadata.name"}}}),
		"extraVolumes": few(m, obj{"name": "usage", "emptyDir": obj{"sizeLimit": "1Gi"}},
			obj{"name": "keys", "secret": obj{"secretName": "k", "defaultMode": 288}}),
		"extraVolumeMounts": []any{},
		"extraObjects": few(m, obj{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{"name": "beside", "namespace": "monitoring"},
			"data": obj{"a": m.text()},
		}),
	})
}

// remediator are values of the program that cordons nodes.
func (m *maker) remediator(on bool) map[string]any {
	r := m.maybe(obj{
		"maxNodes": 1 + m.IntN(100), "window": pick(m, "1h", "90m", "2h30m"), "maxCordoned": pick[any](m, 0.02, 1, 0.00001),
		"markCordoned": m.IntN(2) == 0, "watchdog": pick(m, "", "Watchdog", "007"), "watchdogScope": pick(m, "", "fleet", "1"),
		"fleetAlerts": pick(m, "Fleet.+|LocationLost|KubeStateMetricsIncomplete", "A|B", "{{ .Values }}", "'"), "clients": m.peers(),
		"egress":         few(m, obj{"to": m.peers()}),
		"maxOf":          pick(m, obj{}, obj{"rack": 1 + m.IntN(9), "nvidia.com/gpu.clique": 1}),
		"podAnnotations": m.annotations(), "alertmanagerTokenFile": pick(m, "", "/var/run/secrets/token", "/var/lib/t"),
		"leavingTaints":  few(m, "ToBeDeletedByClusterAutoscaler", "example.com/leaves", "x"),
		"exclude":        few(m, "node-role.kubernetes.io/control-plane", "!gpu", "role in (ingress, storage),pool!=a"),
		"serviceAccount": pick(m, obj{"create": m.IntN(2) == 0, "name": pick(m, "janitor", "007")}, obj{"annotations": m.annotations()}),
		"resources": obj{
			"limits":   m.maybe(obj{"memory": pick[any](m, "64Mi", 1<<28), "cpu": 0.5}),
			"requests": m.maybe(obj{"memory": pick(m, "1Mi", "64Mi"), "cpu": "0.5"}),
		},
		"priorityClassName": "monitoring", "nodeSelector": m.labels(), "tolerations": few(m, obj{"key": "a", "operator": "Exists"}),
	})
	r["enabled"], r["cluster"] = on, pick(m, "jaguar", "a_b.c-1", "007")
	r["alertmanager"] = pick(m, "http://a:9093", "https://a.example.org/b")
	if m.IntN(2) == 0 {
		r["act"], r["existingSecret"] = m.IntN(2) == 0, "token"
	}
	if m.IntN(2) == 0 {
		r["extraVolumes"] = []any{obj{"name": "ca", "secret": obj{"secretName": "k"}}}
		r["extraVolumeMounts"] = []any{obj{"name": "ca", "mountPath": "/etc/ca", "readOnly": true}}
		r["alertmanagerCaFile"] = "/etc/ca/ca.crt"
	}
	return r
}

// values are ones that the chart takes.
func (m *maker) values() map[string]any {
	v := m.base()
	maps.Copy(v, m.around())
	if scaled, ok := v["autoscaling"].(obj); ok && v["existingSecret"] != nil { // its budget is not known
		scaled["targetBudgetUtilizationPercentage"] = 0
	}
	if volumes, ok := v["extraVolumes"].([]any); ok && len(volumes) > 0 {
		v["extraVolumeMounts"] = []any{obj{"name": volumes[0].(map[string]any)["name"], "mountPath": "/var/lib/spillway"}}
	}
	return v
}

// spoil changes one place in values: a key that is not known, or a value of another type. It gives
// the place, as the schema's errors name it, and the key.
func (m *maker) spoil(v map[string]any) (path, key string) {
	var at any = v
	for {
		switch here := at.(type) {
		case map[string]any:
			keys := slices.Sorted(maps.Keys(here))
			if len(keys) == 0 || m.IntN(6) == 0 {
				here["unknownKey"] = "a"
				return path, "unknownKey"
			}
			key = pick(m, keys...)
			if deeper(here[key]) && m.IntN(4) > 0 {
				at, path = here[key], path+"/"+step(key)
				continue
			}
			here[key] = m.other(here[key])
			return path + "/" + step(key), key
		case []any:
			i := m.IntN(len(here))
			path = fmt.Sprintf("%s/%d", path, i)
			if deeper(here[i]) {
				at = here[i]
				continue
			}
			here[i] = m.other(here[i])
			return path, key
		}
	}
}

// step is a key in a JSON pointer.
func step(key string) string { return strings.ReplaceAll(key, "/", "~1") }

func deeper(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return true
	case []any:
		return len(v) > 0
	}
	return false
}

// other is a value of another type.
func (m *maker) other(v any) any {
	switch v.(type) {
	case map[string]any, []any:
		return pick[any](m, "text", 7, true)
	case string:
		return pick[any](m, obj{"a": 1}, []any{"a"}, true)
	}
	return pick[any](m, obj{"a": 1}, []any{"a"}, "text")
}
