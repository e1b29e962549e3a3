package helm

import (
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// types of Kubernetes as schemas, by reflection: what they have not is refused by name, before an
// API server sees it.
type kinds struct{ defs schema }

// required are keys without which the API server refuses what the types would take.
var required = map[string][]string{
	"core.EnvVar": {"name"}, "core.Volume": {"name"}, "core.VolumeMount": {"name", "mountPath"}, "core.LocalObjectReference": {"name"},
	"core.TopologySpreadConstraint": {"maxSkew", "topologyKey", "whenUnsatisfiable"}, "gateway.ParentReference": {"name"},
	"autoscaling.MetricSpec": {"type"},
}

// only are keys of a type that the chart takes: volumes without what the restricted standard
// refuses.
var only = map[string][]string{
	"core.Volume": {"name", "configMap", "secret", "emptyDir", "projected", "downwardAPI", "csi", "persistentVolumeClaim", "ephemeral"},
}

// patterns narrow single fields.
var patterns = schema{
	"core.Toleration.operator":                        oneOf("", "Equal", "Exists"),
	"core.Toleration.effect":                          oneOf("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
	"core.TopologySpreadConstraint.whenUnsatisfiable": oneOf("DoNotSchedule", "ScheduleAnyway"),
	"core.TopologySpreadConstraint.maxSkew":           whole(1, 1<<31-1),
	"core.TopologySpreadConstraint.topologyKey":       pattern(labelKey),
	"core.EnvVar.name":                                filled,
	"core.Volume.name":                                pattern(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`),
	"core.VolumeMount.mountPath":                      pattern(`^/[^:]+$`), "meta.LabelSelector.matchLabels": labels,
	"gateway.ParentReference.name": filled, "core.LocalObjectReference.name": filled,
	"apps.RollingUpdateDeployment.maxSurge": schema{"type": []string{"integer", "string"}, "minimum": 0, "pattern": "^[0-9]+%$"},
	"apps.RollingUpdateDeployment.maxUnavailable": schema{
		"type": []string{"integer", "string"}, "minimum": 0, "pattern": "^([0-9]{1,2}|100)%$",
	},
	"networking.NetworkPolicyPort.protocol":  oneOf("TCP", "UDP", "SCTP"),
	"meta.LabelSelectorRequirement.operator": oneOf("In", "NotIn", "Exists", "DoesNotExist"),
}

func (k kinds) ref(t reflect.Type) schema {
	pkg := t.PkgPath()
	group := filepath.Base(filepath.Dir(pkg))
	if group == "apis" {
		group = "gateway"
	}
	id := group + "." + t.Name()
	if _, ok := k.defs[id]; !ok {
		k.defs[id] = nil // a type may hold itself
		keys := schema{}
		k.fields(t, id, keys)
		s := section(keys, required[id]...)
		if these := only[id]; these != nil {
			for key := range keys {
				if !contains(these, key) {
					delete(keys, key)
				}
			}
		}
		k.defs[id] = s
	}
	return schema{"$ref": "#/$defs/" + id}
}

func contains(all []string, s string) bool {
	return strings.Contains("|"+strings.Join(all, "|")+"|", "|"+s+"|")
}

func (k kinds) fields(t reflect.Type, id string, keys schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && (key == "" || strings.Contains(opts, "inline")):
			k.fields(f.Type, id, keys)
		case key == "" || key == "-":
		case patterns[id+"."+key] != nil:
			keys[key] = patterns[id+"."+key]
		default:
			keys[key] = k.of(f.Type)
		}
	}
}

func (k kinds) of(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return quantum
	case reflect.TypeFor[intstr.IntOrString]():
		return schema{"type": []string{"integer", "string"}}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.Duration]():
		return anyText
	}
	switch t.Kind() {
	case reflect.Pointer:
		return k.of(t.Elem())
	case reflect.Struct:
		return k.ref(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return anyText
		}
		return list(k.of(t.Elem()))
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": k.of(t.Elem())}
	case reflect.String:
		return anyText
	case reflect.Bool:
		return yesOrNo
	case reflect.Int32:
		return whole(-1<<31, 1<<31-1)
	case reflect.Int64, reflect.Int, reflect.Uint64:
		return schema{"type": "integer"}
	}
	panic("no schema for " + t.String())
}

// typed is the schema of a type.
func typed[T any](k kinds) schema { return k.of(reflect.TypeFor[T]()) }
