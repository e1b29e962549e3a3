package quota

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestLimit(t *testing.T) {
	const (
		mount2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
		mount1 = "29 20 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n33 20 0:29 /pods/a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
		ok    bool
	}{
		{"no control groups", nil, 0, false},
		{"version 2, the container's own root", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/cpu.max": "150000 100000\n",
		}, 1.5, true},
		{"version 2, no limit", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/cpu.max": "max 100000\n",
		}, 0, false},
		{"version 2, the pod's limit is less than the container's", map[string]string{
			"proc/self/cgroup": "0::/pod/container\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/pod/container/cpu.max": "400000 100000\n", "sys/fs/cgroup/pod/cpu.max": "100000 100000\n",
		}, 1, true},
		{"version 1 beside an empty version 2, seen from within the pod", map[string]string{
			"proc/self/cgroup": "4:cpu,cpuacct:/pods/a/c\n0::/\n", "proc/self/mountinfo": mount1,
			"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
		}, 0.5, true},
		{"version 1, no limit", map[string]string{
			"proc/self/cgroup": "4:cpu,cpuacct:/pods/a\n", "proc/self/mountinfo": mount1,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 0, false},
		{"a group outside of what is mounted", map[string]string{
			"proc/self/cgroup": "4:cpu:/../other\n", "proc/self/mountinfo": mount1,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 2, true},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "x\n" + mount2,
			"sys/fs/cgroup/cpu.max": "0 0\n",
		}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				at := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, ok := Limit(root); got != c.want || ok != c.ok {
				t.Errorf("the limit is %g (%t), not %g (%t)", got, ok, c.want, c.ok)
			}
		})
	}
	if got := Processors(); got <= 0 || got > float64(runtime.GOMAXPROCS(0)) {
		t.Errorf("this process may use %g processors of %d", got, runtime.GOMAXPROCS(0))
	}
}
