package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/deploy/alertmanager"
)

// TestRunRefusesFlags: all that is wrong is said at once.
func TestRunRefusesFlags(t *testing.T) {
	var out bytes.Buffer
	wrong := []string{
		"--max-nodes=0", "--window=1s", "--max-cordoned=2", "--fleet-alerts=(", `--watchdog="`, `--watchdog-scope="`, "--act", "more",
	}
	if code := run(t.Context(), wrong, &out, nil); code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, w := range []string{
		"--cluster", "--alertmanager", "--max-nodes", "--window", "--max-cordoned", "--fleet-alerts", "--watchdog ", "--watchdog-scope",
		"--act needs --token-file", `"more"`,
	} {
		if !strings.Contains(out.String(), w) {
			t.Errorf("%s is not named:\n%s", w, out.String())
		}
	}
	if code := run(t.Context(), []string{"--no-such-flag"}, io.Discard, nil); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if code := run(t.Context(), []string{"--cluster=a", "--alertmanager=http://a", "--kubernetes-url=nowhere"}, io.Discard,
		nil); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

// elsewhere are a pod's arguments as a test can run them: any port, a token of its own, no API
// server.
func elsewhere(t *testing.T, args []string) []string {
	t.Helper()
	args = append(slices.Clone(args), "--kubernetes-url=http://127.0.0.1:1", "--kubernetes-ca-file=")
	for i, a := range args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--listen-address":
			args[i] = "--listen-address=127.0.0.1:0"
		case "--token-file", "--alertmanager-token-file", "--alertmanager-ca-file":
			text := []byte("secret")
			if name == "--alertmanager-ca-file" {
				text = newAuthority(t, "ours").pem
			}
			args[i] = name + "=" + filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(strings.TrimPrefix(args[i], name+"="), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return args
}

// start runs the program and returns its address; it ends with the test, or with stop, which gives
// the exit code.
func start(t *testing.T, args ...string) (base string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	at, code := make(chan string, 1), make(chan int, 1)
	var out safeBuffer
	go func() { code <- run(ctx, args, &out, func(a net.Addr) { at <- "http://" + a.String() }) }() // waited for by stop
	var once sync.Once
	got := -1
	stop = func() int {
		once.Do(func() { cancel(); got = <-code })
		return got
	}
	t.Cleanup(func() { stop() })
	select {
	case base = <-at:
	case c := <-code:
		code <- c
		t.Fatalf("exit code %d: %s", c, out.String())
	}
	return base, stop
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *safeBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func send(t *testing.T, method, address, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// older is a way to an Alertmanager that has just been started; age makes it an hour older on it.
func older(t *testing.T, base string) (at string, age func()) {
	t.Helper()
	to, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var aged atomic.Bool
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{DisableKeepAlives: true},
		ModifyResponse: func(res *http.Response) error {
			if !aged.Load() || res.Request.URL.Path != "/api/v2/status" {
				return nil
			}
			var status map[string]any
			if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
				return err
			}
			_ = res.Body.Close()
			began, err := time.Parse(time.RFC3339, status["uptime"].(string))
			if err != nil {
				return err
			}
			status["uptime"] = began.Add(-time.Hour)
			b, err := json.Marshal(status)
			res.Body = io.NopCloser(bytes.NewReader(b))
			res.ContentLength = -1
			res.Header.Del("Content-Length")
			return err
		},
	})
	t.Cleanup(s.Close)
	return s.URL, func() { aged.Store(true) }
}

// TestProgram runs it whole, before a real Alertmanager with the deployed routes.
func TestProgram(t *testing.T) {
	api := newFakeAPI(t, 100)
	dir := t.TempDir()
	for name, text := range map[string]string{"kube": "kube-token", "hook": "s3cret"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Alertmanager needs the program's address, and the program Alertmanager's: a door in between
	// stands for the program until it runs.
	var mu sync.Mutex
	var to string
	tr := &http.Transport{DisableKeepAlives: true}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		base := to
		mu.Unlock()
		if base == "" || r.URL.Path != "/remediation" {
			return // other receivers
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, base+"/webhook", r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		req.Header.Set("Authorization", "Bearer s3cret")
		res, err := tr.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		w.WriteHeader(res.StatusCode)
	}))
	defer door.Close()
	conf, err := alertmanager.Rehearsal(alertmanager.Config, door.URL, 100)
	if err != nil {
		t.Fatal(err)
	}
	am, err := alertmanager.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := am.Stop(); err != nil {
			t.Error(err)
		}
	}()
	at, age := older(t, am.URL())
	base, stop := start(t, "--listen-address=127.0.0.1:0", "--cluster=jaguar", "--act", "--alertmanager="+at,
		"--token-file="+filepath.Join(dir, "hook"),
		"--kubernetes-url="+api.URL, "--kubernetes-token-file="+filepath.Join(dir, "kube"), "--kubernetes-ca-file=")
	mu.Lock()
	to = base
	mu.Unlock()

	for _, c := range []struct {
		method, path, token, body string
		code                      int
	}{
		{"POST", "/webhook", "", `{"version":"4"}`, 401},
		{"POST", "/webhook", "s3cre", `{"version":"4"}`, 401},
		{"POST", "/webhook", "s3cret", `{"version":"4","alerts":[]}`, 200},
		{"POST", "/webhook", "s3cret", `{"version":"9"}`, 400},
		{"POST", "/webhook", "s3cret", `{"version":"4","alerts":[{"status":"` + strings.Repeat("x", maxPayload) + `"}]}`, 400},
		{"GET", "/webhook", "s3cret", ``, 405},
		{"GET", "/-/healthy", "", ``, 200},
		{"GET", "/elsewhere", "", ``, 404},
	} {
		if code, text := send(t, c.method, base+c.path, c.token, c.body); code != c.code {
			t.Errorf("%s %s with token %q: %d %s, want %d", c.method, c.path, c.token, code, text, c.code)
		}
	}

	alerts := func(list ...map[string]string) {
		t.Helper()
		var out []map[string]any
		for _, l := range list {
			out = append(out, map[string]any{"labels": l, "endsAt": time.Now().Add(10 * time.Minute)})
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, am.URL()+"/api/v2/alerts", bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	body := func(a alert) string {
		t.Helper()
		b, err := json.Marshal(payload{Version: "4", Alerts: []alert{a}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain until %s: %v", what, api.out())
			}
		}
	}
	const early = "alertmanager was started at 2"
	if code, text := send(t, "POST", base+"/webhook", "s3cret", body(xid(1))); code != 503 || !strings.Contains(text, early) {
		t.Errorf("%d %s: one that has just been started may not have heard of a fleet alert yet", code, text)
	}
	age()
	if code, text := send(t, "POST", base+"/webhook", "s3cret", body(xid(1))); code != 503 || !strings.Contains(text, "Watchdog") {
		t.Errorf("%d %s: without the Watchdog nobody knows whether a fleet alert fires", code, text)
	}
	alerts(map[string]string{"alertname": "Watchdog", "severity": "info"}, xid(1).Labels)
	if code, text := send(t, "POST", base+"/webhook", "s3cret", body(xid(1))); code != 503 || !strings.Contains(text, `scope="fleet"`) {
		t.Errorf("%d %s: without that of the fleet's rules nobody knows whether they are evaluated", code, text)
	}
	alerts(map[string]string{"alertname": "Watchdog", "severity": "info", "scope": "fleet", "cluster": "jaguar"})
	until("the node is cordoned", func() bool { return maps.Equal(api.out(), map[string]string{nodeOf(1): "drain-reboot"}) })
	until("it is counted", func() bool {
		_, text := send(t, "GET", base+"/metrics", "", "")
		return strings.Contains(text, `remediator_decisions_total{decision="cordoned",reason="ok"} 1`)
	})
	// A fleet alert is asked for at Alertmanager itself, and holds although its own node alerts are
	// silenced there too. One that does not wait is refused once.
	alerts(map[string]string{"alertname": "FleetGPUUnhealthy", "severity": "critical", "cluster": "jaguar"})
	if code, text := send(t, "POST", base+"/webhook", "s3cret", body(xid(2, "alertname", "GPUFellOffBus"))); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	code, metrics := send(t, "GET", base+"/metrics", "", "")
	for _, m := range []string{`remediator_decisions_total{decision="refused",reason="fleet_alert"} 1`, `remediator_decisions_total{decision="cordoned",reason="ok"} 1`, "remediator_acts 1", `remediator_nodes{state="all"} 100`} {
		if code != 200 || !strings.Contains(metrics, m) {
			t.Errorf("the metrics lack %s:\n%s", m, metrics)
		}
	}
	want := map[string]string{nodeOf(1): "drain-reboot"}
	if got := api.out(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if code := stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestFleetAlertsByDefault: what says that a share of the fleet is sick, or that nobody can tell,
// holds everything back, and is among the rules; what is about any job is not.
func TestFleetAlertsByDefault(t *testing.T) {
	var s settings
	s.flags(flag.NewFlagSet("", flag.ContinueOnError))
	held := regexp.MustCompile("^(?:" + s.fleetAlerts + ")$")
	files, err := filepath.Glob("../../../alerts/global/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		rules.Write(text)
	}
	for name, want := range map[string]bool{
		"FleetNodesFailing": true, "FleetNodesNotReady": true, "FleetUnseen": true, "LocationLost": true,
		"KubeStateMetricsIncomplete": true,
		"ScrapeJobGone":              false, "ScrapeTargetsGone": false, "NodeUnreachable": false,
	} {
		if held.MatchString(name) != want || !strings.Contains(rules.String(), "- alert: "+name+"\n") {
			t.Errorf("%s holds everything back: %v", name, !want)
		}
	}
}

// TestManifestIsADryRun: what is deployed as it stands changes nothing, and its flags are taken.
func TestManifestIsADryRun(t *testing.T) {
	var all bytes.Buffer // generated from the chart (deploy/helm)
	for _, name := range []string{"clusterrole.yaml", "deployment.yaml"} {
		text, err := os.ReadFile("../../kubernetes/remediator/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	verbs := []string{}
	var args []string
	for d := yaml.NewDecoder(&all); ; {
		var o struct {
			Kind  string
			Rules []struct{ Resources, Verbs []string }
			Spec  struct {
				Replicas int
				Strategy struct{ Type string }
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := d.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Rules {
			if !slices.Equal(r.Resources, []string{"nodes"}) {
				t.Errorf("it may touch %v", r.Resources)
			}
			verbs = append(verbs, r.Verbs...)
		}
		if o.Kind == "Deployment" {
			args = o.Spec.Template.Spec.Containers[0].Args
			if o.Spec.Replicas != 1 || o.Spec.Strategy.Type != "Recreate" {
				t.Errorf("%d replicas, %s: two at a time would each count before the other has acted", o.Spec.Replicas, o.Spec.Strategy.Type)
			}
		}
	}
	if !slices.Equal(verbs, []string{"get", "list", "patch"}) {
		t.Errorf("it may %v nodes", verbs)
	}
	for _, a := range args {
		if strings.HasPrefix(a, "--act") {
			t.Errorf("%s is set in the manifest", a)
		}
	}
	base, stop := start(t, elsewhere(t, args)...)
	if code, text := send(t, "GET", base+"/metrics", "", ""); code != 200 || !strings.Contains(text, "remediator_acts 0") {
		t.Errorf("%d\n%s", code, text)
	}
	if code := stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestChartActs: what the chart gives a program that acts is taken by it, to the last flag.
func TestChartActs(t *testing.T) {
	for _, golden := range []string{"remediator", "remediator-tls"} {
		t.Run(golden, func(t *testing.T) { chartActs(t, "../../helm/testdata/golden/"+golden+".yaml") })
	}
}

func chartActs(t *testing.T, golden string) {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name string
							Args []string
						}
					}
				}
			}
		}
		if err := d.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Kind != "Deployment" {
			continue
		}
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Name == "remediator" {
				args = c.Args
			}
		}
	}
	base, stop := start(t, elsewhere(t, args)...)
	if code, text := send(t, "GET", base+"/metrics", "", ""); code != 200 || !strings.Contains(text, "remediator_acts 1") {
		t.Errorf("%d\n%s", code, text)
	}
	if code := stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
