package helm

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/spillwayproject/spillway/proxy/config"
)

// TestUsageLog: a pod with a usage log has a volume that takes all of it, and a configuration whose
// log has no volume, or one that is too small, is refused with the value that mends it.
func TestUsageLog(t *testing.T) {
	const folder = "/var/lib/spillway-usage/"
	mount := obj{
		"extraVolumes":      []any{obj{"name": "mine", "emptyDir": obj{}}},
		"extraVolumeMounts": []any{obj{"name": "mine", "mountPath": "/var/log/spillway/"}},
	}
	on := obj{"usageLog": obj{"enabled": true}}
	for _, c := range []struct {
		log    any
		values obj
		path   string // what the program writes to; empty is none
		volume bool
		want   string // the error
	}{
		{nil, nil, "", false, ""},
		{nil, on, folder + "usage.jsonl", true, ""},
		{obj{"path": folder + "mine.jsonl", "max_size": "1GiB", "max_files": 2}, on, folder + "mine.jsonl", true, ""},
		{obj{"path": "/var/log/spillway/usage.jsonl"}, mount, "/var/log/spillway/usage.jsonl", false, ""},
		{obj{"path": "/var/log/spillway/usage.jsonl"}, nil, "", false, "set usageLog.enabled"},
		{obj{"path": "usage.jsonl"}, on, "", false, "usage.jsonl is on no volume"},
		{obj{"path": folder + "../usage.jsonl"}, on, "", false, "/var/lib/usage.jsonl is on no volume"},
		{obj{"path": folder + "usage.jsonl"}, nil, "", false, "set usageLog.enabled"},
		{obj{"path": folder + "usage.jsonl", "max_size": "1GiB", "max_files": 3}, on, "", false, "more than usageLog.sizeLimit (3Gi)"},
		{nil, obj{"usageLog": obj{"enabled": true, "sizeLimit": "2Gi"}}, "", false, "more than usageLog.sizeLimit (2Gi)"},
		{nil, obj{"usageLog": obj{"enabled": true, "sizeLimit": "1Gi"}}, "", false, "more than usageLog.sizeLimit (1Gi)"},
	} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		for k, v := range c.values {
			values[k] = v
		}
		if c.log != nil {
			values["config"].(obj)["usage_log"] = c.log
		}
		all, err := render(values)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v: %v, want %q", c.log, c.values, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v, %v: %v", c.log, c.values, err)
			continue
		}
		check(t, all)
		text, _ := configOf(all)
		got, err := config.Parse([]byte(text), ".")
		if err != nil || got.UsageLog.Path != c.path {
			t.Errorf("%v, %v: it writes %q (%v)", c.log, c.values, got.UsageLog.Path, err)
		}
		volume := false
		pod := find[*appsv1.Deployment](t, all, "spillway").Spec.Template.Spec
		for _, v := range pod.Volumes {
			volume = volume || v.Name == "usage-log" && v.EmptyDir != nil && v.EmptyDir.SizeLimit.String() == "3Gi"
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == "usage-log" && m.MountPath+"/" != folder {
				t.Errorf("it is mounted at %s", m.MountPath)
			}
		}
		if volume != c.volume {
			t.Errorf("%v, %v: it has a volume of its own: %v", c.log, c.values, volume)
		}
	}
}
