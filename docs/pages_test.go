package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

var (
	// yamlFile is a text of a page that says in its first line which file it is.
	yamlFile = regexp.MustCompile("(?ms)^```yaml\n# ([a-z-]+\\.yaml)\n(.*?)^```")
	listens  = regexp.MustCompile(`--web\.listen-address=(127\.0\.0\.1:\d+)`)
)

// reader is somebody who does what a page says, in a folder of their own.
type reader struct {
	t     *testing.T
	dir   string
	bin   string            // folder with the programs
	ports map[string]string // where the page's addresses are here
}

// read begins with a page: the folder has rules, of which one asks for all series.
func read(t *testing.T) *reader {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not on this machine: the page's commands are not run", tool)
		}
	}
	r := &reader{t: t, dir: t.TempDir(), bin: t.TempDir(), ports: map[string]string{}}
	server, err := realprom.Find("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{
		"spillway": realpromtest.Spillway(t), "spillway-next": realpromtest.Spillway(t), "prometheus": server,
	} {
		if err := os.Symlink(program, filepath.Join(r.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(r.dir, "rules"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.save("rules/api.yml", `groups:
  - name: api
    rules:
      - {record: "job:up:sum", expr: sum by (job) (up)}
      - {alert: TargetDown, expr: up == 0}
      - {alert: TooManySeries, expr: 'count({__name__=~".+"}) > 1e6'}
`)
	return r
}

// prometheus starts a Prometheus that scrapes itself, in the place of the page's, and waits until
// it has done so. Its data are in the folder data.
func (r *reader) prometheus(page string) {
	r.t.Helper()
	s := realpromtest.Start(r.t, realprom.Options{
		Config:         "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: p, static_configs: [{targets: ['localhost:1']}]}]\n",
		ExternalLabels: labels.FromStrings("cluster", "main", "prometheus_replica", "a"),
		Flags:          []string{"--web.enable-admin-api"},
	})
	if err := os.Symlink(s.Dir(), filepath.Join(r.dir, "data")); err != nil {
		r.t.Fatal(err)
	}
	r.ports[page] = strings.TrimPrefix(s.URL(), "http://")
	r.until("it has scraped", func() bool { return strings.Contains(r.get(s.URL()+"/api/v1/query?query=up"), `"__name__":"up"`) })
}

// free gives addresses of the page free ports here.
func (r *reader) free(pages ...string) {
	r.t.Helper()
	ports, err := realprom.FreePorts(len(pages))
	if err != nil {
		r.t.Fatal(err)
	}
	for i, page := range pages {
		r.ports[page] = fmt.Sprintf("127.0.0.1:%d", ports[i])
	}
}

func (r *reader) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within a minute: %s", what)
		}
	}
}

var alone = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// get is the body of an answer, "" without one.
func (r *reader) get(url string) string {
	resp, err := alone.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // half a body is one that lacks what is looked for
	return string(b)
}

func (r *reader) save(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(r.here(text)), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// here has this machine's addresses in the place of the page's.
func (r *reader) here(text string) string {
	var pairs []string
	for page, here := range r.ports {
		pairs = append(pairs, page, here)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// follow runs the page's commands, those of its console blocks, and looks whether they print what
// the page says, line after line, where … stands for anything. It returns how many there were.
func (r *reader) follow(text string) (n int) {
	r.t.Helper()
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(block[1], "$ ") {
			r.t.Fatalf("this block begins with no command:\n%s", block[1])
		}
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimRight(part, "\n"), "\n")
			n++
			if proxy, ok := strings.CutSuffix(command, " &"); ok {
				r.start(proxy)
				continue
			}
			out, err := r.command(command).CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 1 &&
				strings.Contains(command, "rehearse upgrade") && strings.Contains(want, "\nrefusal: ") {
				err = nil // which is how it tells that something would change
			}
			if err != nil {
				r.t.Errorf("$ %s\n%v\n%s", command, err, out)
			}
			r.holds(command, want, string(out))
		}
	}
	return n
}

func (r *reader) command(line string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", r.here(line))
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+r.bin+":"+os.Getenv("PATH"))
	return cmd
}

// holds looks for the page's lines in what was printed.
func (r *reader) holds(command, want, got string) {
	r.t.Helper()
	lines := strings.Split(got, "\n")
	for line := range strings.SplitSeq(want, "\n") {
		if line == "" {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(r.here(line)), "…", ".*") + "$")
		found := false
		for len(lines) > 0 && !found {
			found = pattern.MatchString(lines[0])
			lines = lines[1:]
		}
		if !found {
			r.t.Errorf("$ %s\nthe page says\n%s\nand it printed\n%s", command, line, got)
			return
		}
	}
}

// start runs a proxy or a Prometheus until the test ends, and returns when it is ready. Where the
// page leaves a proxy's admin listener at its default, it is elsewhere here.
func (r *reader) start(command string) {
	r.t.Helper()
	if !strings.HasPrefix(command, "prometheus ") && !strings.Contains(command, "--web.admin-listen-address") {
		command += " --web.admin-listen-address=127.0.0.1:9091"
	}
	cmd := r.command("exec " + command)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // gone already is what Wait tells
		if err := <-ended; err != nil {
			r.t.Errorf("%s: %v", command, err)
		}
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", command, log.String())
		}
	})
	m := listens.FindStringSubmatch(command)
	ready := "http://" + r.here(m[1]) + "/-/ready"
	r.until(command+" is ready", func() bool { return strings.Contains(strings.ToLower(r.get(ready)), "is ready") })
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFirstHour follows first-hour.md in front of a real Prometheus: its file, all its commands,
// and what they are said to print.
func TestFirstHour(t *testing.T) {
	text := page(t, "first-hour.md")
	r := read(t)
	r.prometheus("127.0.0.1:9090")
	r.free("127.0.0.1:9095", "127.0.0.1:9091")
	files := 0
	for _, m := range yamlFile.FindAllStringSubmatch(text, -1) {
		if m[1] == "spillway.yaml" {
			files++
			r.save(m[1], m[2])
		}
	}
	if n := r.follow(text); files != 1 || n < 12 {
		t.Errorf("%d files, %d commands", files, n)
	}
	// What is kept by systemd is what was tried in the terminal.
	tried := "spillway proxy --config.file=spillway.yaml --web.listen-address=127.0.0.1:9095"
	kept := "\nExecStart=/usr/local/bin/" + strings.Replace(tried, "=spillway.yaml", "=/etc/spillway/spillway.yaml", 1) + "\n"
	if !strings.Contains(text, "$ "+tried+" &\n") || !strings.Contains(text, "\nExecStart="+kept) {
		t.Errorf("the unit's drop-in does not run\n%s", tried)
	}
}

// TestUpgrade follows upgrade.md with a Spillway in front of a real Prometheus, which people have
// asked two things.
func TestUpgrade(t *testing.T) {
	text := page(t, "upgrade.md")
	r := read(t)
	r.prometheus("127.0.0.1:9190")
	r.free("127.0.0.1:9090", "127.0.0.1:9091", "127.0.0.1:9095", "127.0.0.1:9096", "127.0.0.1:9191", "127.0.0.1:9192")
	for _, m := range yamlFile.FindAllStringSubmatch(text, -1) {
		r.save(m[1], m[2])
	}
	r.save("spillway.yaml", `groups:
  - name: main
    labels: {cluster: main}
    replica_labels: [prometheus_replica]
    heartbeat: up
    shards: [{replicas: [{url: "http://127.0.0.1:9190"}]}]
usage_log: {path: usage.jsonl}
state_dir: state
`)
	for _, name := range []string{"state", "now", "next"} { // the two of an earlier rehearsal
		if err := os.Mkdir(filepath.Join(r.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.start("spillway proxy --config.file=spillway.yaml --web.listen-address=127.0.0.1:9090")
	now := time.Now()
	form := url.Values{
		"query": {"up"}, "step": {"60"},
		"start": {fmt.Sprint(now.Add(-6 * time.Hour).Unix())}, "end": {fmt.Sprint(now.Unix())},
	}
	for path, dashboard := range map[string]string{"query_range?" + form.Encode(): "fleet", "query?query=count(up)": ""} {
		req, err := http.NewRequest(http.MethodGet, r.here("http://127.0.0.1:9090/api/v1/")+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Dashboard-Uid", dashboard)
		resp, err := alone.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // its status is what counts
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
	r.until("the usage log has both", func() bool {
		b, err := os.ReadFile(filepath.Join(r.dir, "usage.jsonl"))
		return err == nil && bytes.Count(b, []byte("\n")) == 2 && json.Valid(bytes.SplitN(b, []byte("\n"), 2)[0])
	})
	r.until("there are samples of the second in which a command asks for its time", func() bool {
		return strings.Contains(r.get(r.here("http://127.0.0.1:9190/api/v1/query?query=up+offset+3s")), `"__name__":"up"`)
	})
	if n := r.follow(text); n < 13 {
		t.Errorf("%d commands", n)
	}
}
