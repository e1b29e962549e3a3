package helm

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// schema is one of JSON Schema, draft 2020-12.
type schema = map[string]any

// the words in which the schema of the values is written.
var (
	anyText = schema{"type": "string"}
	filled  = schema{"type": "string", "minLength": 1}
	yesOrNo = schema{"type": "boolean"}
	port    = whole(1, 65535)
	// name is one of DNS, of an object; empty where the chart has a default.
	name = schema{"type": "string", "maxLength": 52, "pattern": `^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`}
	// longName is that of an object which the chart does not make.
	longName = schema{"type": "string", "maxLength": 253, "pattern": `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`}
	host     = schema{"type": "string", "maxLength": 253, "pattern": `^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`}
	// label and annotation are what the API server takes as such.
	labelKey    = `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labels      = schema{"type": "object", "propertyNames": schema{"pattern": labelKey}, "additionalProperties": labelValue}
	labelValue  = pattern(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
	annotations = schema{"type": "object", "propertyNames": schema{"pattern": labelKey}, "additionalProperties": anyText}
	// memory is a quantity that the chart computes with.
	memory   = schema{"type": []string{"string", "integer"}, "pattern": `^[0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?$`, "minimum": 1}
	cpu      = schema{"type": []string{"string", "number"}, "pattern": `^([0-9]+m|[0-9]+(\.[0-9]+)?)$`, "minimum": 0}
	quantum  = schema{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i)?$`, "minimum": 0}
	duration = schema{"type": "string", "pattern": `^([0-9]+h)?([0-9]+m)?([0-9]+s)?$`, "minLength": 2}
)

func pattern(p string) schema      { return schema{"type": "string", "pattern": p} }
func oneOf(words ...string) schema { return schema{"enum": words} }
func whole(least, most int64) schema {
	return schema{"type": "integer", "minimum": least, "maximum": most}
}
func list(of schema) schema { return schema{"type": "array", "items": of} }
func some(of schema) schema { return schema{"type": "array", "items": of, "minItems": 1} }

// section is an object of the keys that are given, and no others.
func section(keys schema, required ...string) schema {
	s := schema{"type": "object", "properties": keys, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// part is a section that can be off: then its keys are known, and what they hold is nobody's
// business.
func part(keys schema, required ...string) schema {
	known := schema{"enabled": yesOrNo}
	for k := range keys {
		known[k] = true
	}
	s := section(known)
	on := schema{"properties": keys}
	if len(required) > 0 {
		on["required"] = required
	}
	s["if"] = schema{"properties": schema{"enabled": schema{"const": true}}, "required": []string{"enabled"}}
	s["then"] = on
	return s
}

// product is the schema of spillway.yaml (docs/spillway.schema.json) under names of its own. The
// chart adds keys, so config itself may be without groups.
func product(t *testing.T, defs schema) schema {
	b, err := os.ReadFile("../../docs/spillway.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	text := strings.ReplaceAll(string(b), `"#/$defs/`, `"#/$defs/spillway.`)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	for name, def := range s["$defs"].(schema) {
		defs["spillway."+name] = def
	}
	for _, key := range []string{"$schema", "$defs", "required", "title"} {
		delete(s, key)
	}
	return s
}

// valuesSchema is values.schema.json. What is free text is so because the program or the API
// server takes any.
func valuesSchema(t *testing.T) schema {
	k := kinds{schema{}}
	peers := list(typed[networkingv1.NetworkPolicyPeer](k))
	relabel := list(typed[monitoringv1.RelabelConfig](k))
	top := section(schema{
		"global": true, "nameOverride": name, "fullnameOverride": name, "replicaCount": whole(0, 1000),
		"image": section(schema{
			"repository": pattern(`^[a-z0-9]([a-zA-Z0-9._:/-]*[a-z0-9])?$`),
			"tag":        pattern(`^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`),
			"digest":     pattern(`^(sha256:[0-9a-f]{64})?$`),
			"pullPolicy": oneOf("Always", "IfNotPresent", "Never"),
		}),
		"imagePullSecrets": list(typed[corev1.LocalObjectReference](k)),
		"config":           product(t, k.defs), "configKind": oneOf("Secret", "ConfigMap"), "existingSecret": longName,
		"log": section(schema{"level": oneOf("debug", "info", "warn", "error"), "format": oneOf("logfmt", "json")}),
		"web": section(schema{
			"externalUrl": anyText, "routePrefix": pattern(`^(/.*)?$`), "graphUrl": anyText, "consoleUrl": anyText,
			"maxConnections":           whole(1, 1_000_000),
			"maxConnectionsPerAddress": whole(0, 1_000_000), "existingSecret": longName,
			"key": pattern(`^[-._a-zA-Z0-9]+$`),
			"tls": yesOrNo, "clientCertificates": yesOrNo,
		}),
		"admin":                         section(schema{"exposed": yesOrNo}),
		"resources":                     section(schema{"requests": amounts(), "limits": amounts(), "claims": true}),
		"terminationGracePeriodSeconds": whole(20, 3600),
		"strategy":                      typed[appsv1.DeploymentStrategy](k),
		"readyWaitSeconds":              whole(0, 86_400),
		"shutdownDelaySeconds":          whole(0, 3000),
		"state":                         section(schema{"enabled": yesOrNo}),
		"usageLog":                      part(schema{"sizeLimit": memory}, "sizeLimit"),
		"service": section(schema{
			"type": oneOf("ClusterIP", "NodePort", "LoadBalancer"), "port": port, "annotations": annotations, "labels": labels,
		}),
		"serviceAccount": section(schema{"create": yesOrNo, "name": longName, "annotations": annotations}),
		"rbac": section(schema{
			"create": yesOrNo, "clusterWide": yesOrNo,
			"namespaces": list(pattern(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)),
		}),
		"podDisruptionBudget": part(schema{"maxUnavailable": schema{
			"type": []string{"integer", "string"}, "minimum": 1, "pattern": `^[1-9][0-9]?%$|^100%$`,
		}}, "maxUnavailable"),
		"autoscaling": part(schema{
			"minReplicas": whole(1, 1000), "maxReplicas": whole(1, 1000),
			"targetCPUUtilizationPercentage": whole(0, 1000), "targetBudgetUtilizationPercentage": whole(0, 100),
			"metrics": list(typed[autoscalingv2.MetricSpec](k)), "behavior": typed[autoscalingv2.HorizontalPodAutoscalerBehavior](k),
		}, "minReplicas", "maxReplicas"),
		"podAnnotations": annotations, "podLabels": labels, "priorityClassName": longName, "nodeSelector": labels,
		"podSecurityContext": section(schema{
			"runAsUser": whole(1, 1<<31-1), "runAsGroup": whole(0, 1<<31-1), "fsGroup": whole(0, 1<<31-1),
			"fsGroupChangePolicy": oneOf("OnRootMismatch", "Always"),
			"supplementalGroups":  list(whole(0, 1<<31-1)),
		}),
		"tolerations":               list(typed[corev1.Toleration](k)),
		"affinity":                  typed[corev1.Affinity](k),
		"topologySpreadConstraints": list(typed[corev1.TopologySpreadConstraint](k)),
		"probes": section(schema{
			"startup":   section(schema{"failureThreshold": whole(1, 3600)}),
			"liveness":  section(schema{"periodSeconds": whole(1, 3600), "failureThreshold": whole(1, 100)}),
			"readiness": section(schema{"periodSeconds": whole(1, 3600), "failureThreshold": whole(1, 100)}),
		}),
		"ingress": part(schema{
			"className": longName, "annotations": annotations, "hosts": some(section(schema{
				"host": host, "paths": list(section(schema{
					"path": pattern("^/"), "pathType": oneOf("Prefix", "Exact", "ImplementationSpecific"),
				}, "path")),
			}, "host")),
			"tls": list(typed[networkingv1.IngressTLS](k)),
		}, "hosts"),
		"httpRoute": part(schema{
			"annotations": annotations, "parentRefs": some(typed[gatewayv1.ParentReference](k)), "hostnames": list(host),
			"pathPrefix": pattern("^/[^?#]*$"),
		}, "parentRefs"),
		"serviceMonitor": part(schema{
			"namespace": longName, "labels": labels, "interval": duration, "scrapeTimeout": duration,
			"targetLabels": schema{
				"type": "object", "propertyNames": schema{"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}, "additionalProperties": anyText,
			},
			"relabelings": relabel, "metricRelabelings": relabel,
			"tlsConfig": typed[monitoringv1.TLSConfig](k),
			"basicAuth": typed[monitoringv1.BasicAuth](k),
		}, "interval", "scrapeTimeout"),
		"mixin": section(schema{
			"rules": part(schema{
				"namespace": longName, "labels": labels, "files": list(pattern(`^(global|shard)/[a-z*-]+\.yaml$`)),
			}),
			"dashboards": part(schema{
				"namespace": longName, "labels": labels, "annotations": annotations,
				"files": list(pattern(`^[a-z*-]+\.json$`)),
			}),
		}),
		"networkPolicy": part(schema{
			"clients": peers, "metricsFrom": peers, "egress": list(typed[networkingv1.NetworkPolicyEgressRule](k)),
			"shards": list(section(schema{
				"name": pattern(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`), "namespace": longName,
				"podSelector": typed[metav1.LabelSelector](k),
				"port":        port, "from": peers, "thanosFrom": peers, "thanosPort": port,
				"ingress": list(typed[networkingv1.NetworkPolicyIngressRule](k)),
			}, "name", "podSelector")),
		}),
		"plugin": section(schema{"datasource": part(schema{
			"namespace": longName, "labels": labels, "name": filled, "uid": pattern(`^[a-zA-Z0-9_-]{1,40}$`),
			"jsonData": schema{"type": "object"},
		}, "name", "uid")}),
		"remediator": part(schema{
			"cluster":      pattern(`^[A-Za-z0-9_.-]+$`),
			"alertmanager": pattern(`^https?://[^/\s:]+(:[0-9]+)?(/\S*)?$`), "act": yesOrNo, "existingSecret": longName,
			"maxNodes": whole(1, 100_000), "window": pattern(`^([1-9][0-9]{0,3}h([1-9][0-9]{0,3}m)?|[1-9][0-9]{0,3}m)$`),
			"maxCordoned":  schema{"type": "number", "exclusiveMinimum": 0, "maximum": 1},
			"markCordoned": yesOrNo, "fleetAlerts": pattern(`^[^"\\\n]+$`), "watchdog": pattern(`^[A-Za-z0-9_.:-]*$`),
			"watchdogScope": pattern(`^[A-Za-z0-9_.:-]*$`), "clients": peers,
			"egress": list(typed[networkingv1.NetworkPolicyEgressRule](k)),
			"maxOf": schema{
				"type": "object", "propertyNames": schema{"pattern": labelKey}, "additionalProperties": whole(1, 100_000),
			},
			"alertmanagerCaFile": pattern(`^(/\S+)?$`), "alertmanagerTokenFile": pattern(`^(/\S+)?$`), "podAnnotations": annotations,
			"extraVolumes": list(typed[corev1.Volume](k)), "extraVolumeMounts": list(typed[corev1.VolumeMount](k)),
			"leavingTaints":     list(schema{"type": "string", "pattern": labelKey}),
			"exclude":           list(pattern(`^[A-Za-z0-9!][-A-Za-z0-9_./!=,<>() ]*$`)),
			"serviceAccount":    section(schema{"create": yesOrNo, "name": longName, "annotations": annotations}),
			"resources":         section(schema{"requests": amounts(), "limits": amounts(), "claims": true}),
			"priorityClassName": longName, "nodeSelector": labels, "tolerations": list(typed[corev1.Toleration](k)),
		}, "cluster", "alertmanager", "maxNodes", "window", "maxCordoned", "fleetAlerts", "serviceAccount", "resources"),
		"extraArgs": list(schema{"type": "string", "pattern": `^--[a-z][a-z.-]*(=.*)?$`, "not": schema{
			"pattern": `^--(config\.file|web\.(metrics-|admin-)?listen-address|log\.(level|format)|web\.max-connections|web\.ready-wait|web\.shutdown-delay|web\.config\.file)(=|$)`,
		}}),
		"extraEnv":          list(typed[corev1.EnvVar](k)),
		"extraVolumes":      list(typed[corev1.Volume](k)),
		"extraVolumeMounts": list(typed[corev1.VolumeMount](k)),
		"extraObjects": list(schema{
			"type": "object", "properties": schema{
				"apiVersion": filled, "kind": filled, "metadata": schema{"type": "object", "required": []string{"name"}},
			},
			"required": []string{"apiVersion", "kind", "metadata"},
		}),
	})
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "Values of the chart spillway"
	top["$defs"] = k.defs
	return top
}

func amounts() schema {
	return schema{"type": "object", "properties": schema{"memory": memory, "cpu": cpu}, "additionalProperties": quantum}
}

// TestSchema writes values.schema.json, whose types of Kubernetes are those of its own Go packages
// and whose config is what the program takes.
func TestSchema(t *testing.T) {
	values := valuesSchema(t)
	defs := values["$defs"].(schema)
	for of := range patterns {
		dot := strings.LastIndex(of, ".")
		if d, ok := defs[of[:dot]].(schema); !ok || d["properties"].(schema)[of[dot+1:]] == nil {
			t.Errorf("%s is narrowed and is nowhere", of)
		}
	}
	for _, of := range slices.Concat(slices.Collect(maps.Keys(required)), slices.Collect(maps.Keys(only))) {
		if defs[of] == nil {
			t.Errorf("%s has keys of its own and is nowhere", of)
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(values); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(dir, "values.schema.json"), []byte(b.String()))
}
