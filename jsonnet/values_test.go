package mixin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// small is a mixin of one alert and two dashboards, for what the real one should not have to be
// bent for.
func small(extra string) fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"mixin.libsonnet": file(`
{
  _config:: {
    job: 'a', limit: 10, on: true, list: [1], disabledAlerts: [],
    prices: { gpuHour: { default: 2 } }, deep: { er: { value: 1 } }, f(x): x,
    kubernetes: {
      namespace: '', labels: {}, grafanaInstances: { dashboards: 'ours' },
      grafanaSidecar: { label: 'grafana_dashboard', value: '1', folderAnnotation: 'grafana_folder' },
    },
    grafana: { folder: 'Folder' }, dcgm: { violationUnit: 'ns' },
  },
  local c = $._config,
  prometheusAlerts:: { groups: [{
    name: 'one', scope:: 'global',
    rules: [{ alert: 'TooMany', expr: 'sum(up{job="%s"}) > %d' % [c.job, c.limit], labels: { severity: 'info' } }],
  }] },
  grafanaDashboards:: { 'b.json': { uid: 'b', price: c.prices.gpuHour }, 'a.json': { uid: 'a' } },
}
` + extra),
		"lib/files.libsonnet": file(`function(m) { [m.prometheusAlerts.groups[0].scope + '/one.yaml']: m.prometheusAlerts }`),
	}
}

func renderSmall(t *testing.T, name, values, extra string, format Format) (Files, error) {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(at, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := render(small(extra), Options{Config: at, Format: format})
	if err != nil {
		// The folder's name is of no interest to the tests below.
		return nil, errText(strings.ReplaceAll(err.Error(), filepath.Dir(at)+"/", ""))
	}
	return f, nil
}

type errText string

func (e errText) Error() string { return string(e) }

func TestValues(t *testing.T) {
	tests := []struct{ name, file, values, want string }{
		{"yaml", "v.yaml", "job: b\nlimit: 3\n", `sum(up{job="b"}) > 3`},
		{"json", "v.json", `{"limit": 1000000}`, `> 1000000`},
		{"jsonnet that computes", "v.jsonnet", `{ limit: 4 * 5 }`, `> 20`},
		{"an empty file", "v.yaml", "# nothing\n", `sum(up{job="a"}) > 10`},
		{"an alias", "v.yaml", "job: &j c\nprices: {currency: }\n", "ERR v.yaml:2: prices.currency: there is no such value"},
		{"an open object", "v.yaml", "prices: {gpuHour: {H100: 3}}\n", `"H100": 3`},
		{"an open object keeps what it has", "v.yaml", "prices: {gpuHour: {H100: 3}}\n", `"default": 2`},
		{"a wrong key", "v.yaml", "job: b\nlimits: 3\n", "ERR v.yaml:2: limits: there is no such value; did you mean limit?; jsonnet/config.libsonnet has them all"},
		{"a wrong key far down", "v.json", "{\"deep\": {\n\"er\": {\n\"valve\": 3}}}", "ERR v.json:3: deep.er.valve: there is no such value; did you mean value?"},
		{"a wrong key of jsonnet", "v.jsonnet", "{ deep: { nothingLikeIt: 3 } }", "ERR v.jsonnet: deep.nothingLikeIt: there is no such value; jsonnet/config.libsonnet has them all"},
		{"a string for a number", "v.yaml", "limit: '3'\n", "ERR v.yaml:1: limit: it must be a number, it is a string"},
		{"a list for an object", "v.yaml", "deep: [1]\n", "ERR v.yaml:1: deep: it must be a object, it is a list"},
		{"an object for a list", "v.yaml", "list: {a: 1}\n", "ERR v.yaml:1: list: it must be a list, it is a object"},
		{"one of a few", "v.yaml", "dcgm: {violationUnit: us}\n", `sum(up{job="a"}) > 10`},
		{"none of a few", "v.yaml", "dcgm:\n  violationUnit: ms\n", `ERR v.yaml:2: dcgm.violationUnit: it must be one of ns, us, it is "ms"`},
		{"null", "v.yaml", "job:\n", "ERR v.yaml:1: job: it must be a string, it is a null"},
		{"a function", "v.yaml", "f: x\n", "ERR v.yaml:1: f: it must be a function, it is a string"},
		{"twice", "v.yaml", "job: a\nlimit: 1\njob: b\n", "ERR v.yaml:3: job: it is there twice"},
		{"all problems at once", "v.yaml", "jobb: a\nlimit: x\n", "ERR v.yaml:2: limit"},
		{"a list at the top", "v.yaml", "- a\n", "ERR v.yaml: it must be an object"},
		{"no YAML", "v.yaml", "a: [\n", "ERR v.yaml: yaml: line 1"},
		{"no jsonnet", "v.jsonnet", "{ a: }", "ERR v.jsonnet:1:6"},
		{"another ending", "v.toml", "a = 1", `ERR v.toml: the ending ".toml" is not known`},
		{"too large", "v.yaml", "#" + strings.Repeat("x", maxValuesBytes), "ERR v.yaml is larger than 1048576 bytes"},
		{"not a number of JSON", "v.yaml", "limit: .nan\n", "ERR v.yaml:1: limit: it cannot be written as JSON"},
		{"an infinite list", "v.yaml", "list: [.inf]\n", "ERR v.yaml:1: list: it cannot be written as JSON"},
		{"no PromQL", "v.yaml", "job: 'a\"'\n", "ERR render with the values of v.yaml: a rule is not one that Prometheus takes; is a selector or duration among your values wrong?"},
		{"an alert that is not there", "v.yaml", "disabledAlerts: [TooMeny]\n", "ERR disabledAlerts: there is no alert TooMeny; did you mean TooMany?"},
		{"a value that breaks out of a string", "v.yaml", "job: \"a' + error 'out\"\n", `job="a' + error 'out"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files, err := renderSmall(t, tt.file, tt.values, "", FormatFiles)
			want, fails := strings.CutPrefix(tt.want, "ERR ")
			switch {
			case fails && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("error %v, want %s", err, want)
			case !fails && err != nil:
				t.Error(err)
			case !fails:
				var all string
				for _, n := range files.Names() {
					all += string(files[n])
				}
				if !strings.Contains(all, want) {
					t.Errorf("no %s in\n%s", want, all)
				}
			}
		})
	}
	if _, err := render(small(""), Options{Config: "missing.yaml"}); err == nil ||
		!strings.Contains(err.Error(), "missing.yaml: no such file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := render(small(""), Options{Format: "xml"}); err == nil || !strings.Contains(err.Error(), `no format "xml"`) {
		t.Errorf("a wrong format: %v", err)
	}
}

// What is wrong with the mixin itself is said with the file and line of the jsonnet.
func TestBrokenMixin(t *testing.T) {
	tests := []struct{ name, extra, want string }{
		{"it fails", "+ { prometheusAlerts:: error 'nothing here' }", "jsonnet/mixin.libsonnet:19:24"},
		{"a field too many", "+ { prometheusAlerts:: { groups: [{ name: 'one', scope:: 'shard', rules: [{ alert: 'A', expr: 'up', four: '5m' }] }] } }", `unknown field "four"`},
		{"Thanos' own field", "+ { prometheusAlerts:: { groups: [{ name: 'one', scope:: 'shard', rules: [], partial_response_strategy: 'abort' }] } }", "partial_response_strategy is Thanos' own"},
		{"another scope", "+ { prometheusAlerts:: { groups: [{ name: 'one', scope:: 'local', rules: [] }] } }", `one: scope "local" is neither global nor shard`},
		{"two groups of a name", "+ { prometheusAlerts:: { groups: [{ name: 'one', scope:: 'shard', rules: [] }, { name: 'one', scope:: 'shard', rules: [] }] } }", `groupname: "one" is repeated in the same file`},
		{"an import from outside", "+ (import '../../etc/passwd')", "is outside of the mixin"},
		{"a wrong template", "+ { prometheusAlerts:: { groups: [{ name: 'one', scope:: 'shard', rules: [{ alert: 'A', expr: 'up', annotations: { x: '{{ $lables }}' } }] }] } }", "undefined variable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := render(small(tt.extra), Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestSmallObjects(t *testing.T) {
	files, err := renderSmall(t, "v.yaml", "kubernetes: {namespace: monitoring, labels: {release: kps}}\n", "", FormatK8s)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"prometheusrules/global-one.yaml": header + `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: spillway-global-one
  namespace: monitoring
  labels:
    app.kubernetes.io/name: spillway-mixin
    release: kps
    spillway-scope: global
spec:
  groups:
    - name: one
      rules:
        - alert: TooMany
          expr: |-
            sum(up{job="a"}) > 10
          labels:
            severity: info
`,
		"dashboards/a.yaml": header + `apiVersion: v1
kind: ConfigMap
metadata:
  name: spillway-dashboard-a
  namespace: monitoring
  labels:
    app.kubernetes.io/name: spillway-mixin
    grafana_dashboard: "1"
    release: kps
  annotations:
    grafana_folder: Folder
data:
  a.json: '{"uid":"a"}'
`,
		"grafanadashboards/a.yaml": header + `apiVersion: grafana.integreatly.org/v1beta1
kind: GrafanaDashboard
metadata:
  name: spillway-dashboard-a
  namespace: monitoring
  labels:
    app.kubernetes.io/name: spillway-mixin
    release: kps
spec:
  folder: Folder
  instanceSelector:
    matchLabels:
      dashboards: ours
  configMapRef:
    name: spillway-dashboard-a
    key: a.json
`,
	}
	names := []string{
		"dashboards/a.yaml", "dashboards/b.yaml", "grafanadashboards/a.yaml", "grafanadashboards/b.yaml",
		"prometheusrules/global-one.yaml",
	}
	if got := files.Names(); !slices.Equal(got, names) {
		t.Errorf("files %v", got)
	}
	for name, text := range want {
		if string(files[name]) != text {
			t.Errorf("%s is\n%s\nwant\n%s", name, files[name], text)
		}
	}
}

// Open objects exist among the defaults: a path that was renamed would let every key pass as a
// mistake.
func TestOpenObjectsExist(t *testing.T) {
	vm := newVM(embedded)
	defaults, err := defaultsOf(vm)
	if err != nil {
		t.Fatal(err)
	}
	for path := range open {
		at := any(defaults)
		for key := range strings.SplitSeq(path, ".") {
			m, _ := at.(map[string]any)
			at = m[key]
		}
		if _, ok := at.(map[string]any); !ok {
			t.Errorf("_config.%s is no object", path)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()[strings.LastIndex(err.Error(), ":")+2:]
		}
		return string(b)
	}
	put("alerts/global/old.yaml", header+"groups: []\n")
	put("alerts/global/own.yaml", "groups: []\n")
	put("alerts/shard/other.yaml", header)
	put("alerts/global/same.yaml", header+"x\n")
	before, err := os.Stat(filepath.Join(dir, "alerts/global/same.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f := Files{"alerts/global/new.yaml": []byte(header), "alerts/global/same.yaml": []byte(header + "x\n")}
	if err := f.Write(dir); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(dir, "alerts/global/same.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("an equal file was written again")
	}
	for name, want := range map[string]string{
		"alerts/global/new.yaml": header, "alerts/global/old.yaml": "no such file or directory", "alerts/global/own.yaml": "groups: []\n",
		"alerts/shard/other.yaml": header,
	} {
		if got := get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "alerts/global/new.yaml")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	err = Files{"alerts/global/own.yaml": []byte(header)}.Write(dir)
	if err == nil || !strings.Contains(err.Error(), "own.yaml was not written by") {
		t.Errorf("a user's file: %v", err)
	}
	if got := get("alerts/global/own.yaml"); got != "groups: []\n" {
		t.Errorf("a user's file is now %q", got)
	}
}
