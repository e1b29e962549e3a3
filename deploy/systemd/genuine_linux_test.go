package systemd

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/docstest"
	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
	"github.com/spillwayproject/spillway/internal/realprom"
)

var genuine = flag.Bool("genuine", false, "boot a machine with systemd in namespaces of its own, as root")

var (
	yaml     = regexp.MustCompile("(?ms)^```yaml\n# ([a-z-]+\\.yaml)\n(.*?)^```")
	indented = regexp.MustCompile(`(?m)^ {4,}([a-z].*)$`)
	asked    = regexp.MustCompile(`(?m)^    \$ (.*)\n((?:    [^$].*\n)*)`)
	numbers  = regexp.MustCompile(`\d{6,}(\.\d+)?`)
)

// typed are the commands of a text, in its order.
func typed(t *testing.T, text string, want int) (out []string) {
	t.Helper()
	for _, m := range indented.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	if len(out) != want {
		t.Fatalf("%d commands, want %d: %q", len(out), want, out)
	}
	return out
}

// TestGenuineBareMachine follows docs/install.md, docs/upgrade.md and docs/uninstall.md on a
// machine with systemd: their own commands and texts, as they stand there.
func TestGenuineBareMachine(t *testing.T) {
	if !*genuine {
		t.Skip("a machine with systemd, as root: make test-full runs it, by -genuine")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("there is no systemd: ", err)
	}
	if !realkubetest.Inside(t, 15*time.Minute, func(dir string) {
		if out, err := exec.Command("go", "build", "-o", dir, "../../cmd/spillway").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}) {
		return
	}
	serves(t)
	m := boot(t)
	before := m.files()
	m.installs()
	m.sees()
	m.reloads()
	m.comesBack()
	m.keepsState()
	m.upgrades()
	m.leaves(before)
}

// serves starts the page's two servers.
func serves(t *testing.T) {
	t.Helper()
	program, err := realprom.Find("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []string{"9190", "9191"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "prometheus.yml")
		text := "global: {scrape_interval: 1s, external_labels: {cluster: main, prometheus_replica: '" + port + "'}}\n" +
			"scrape_configs: [{job_name: prometheus, static_configs: [{targets: ['127.0.0.1:9190', '127.0.0.1:9191']}]}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := realprom.StartProcess(realprom.ProcessOptions{
			Path: program,
			Args: []string{"--config.file=" + file, "--storage.tsdb.path=" + dir + "/data", "--web.listen-address=127.0.0.1:" + port},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// files are those that have the name, and its user.
func (m *machine) files() string {
	return m.types("find /etc /var/lib /usr/local -name '*spillway*'; getent passwd spillway || true; getent group spillway || true")
}

// brings puts a program of ours where the archive has it, in the user's home.
func (m *machine) brings(to string) {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(realkubetest.Dir(), "spillway"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.saves("program", string(b))
	m.types("install -D -m 0755 program " + to + " && rm program")
}

// installs follows "On a bare machine", in a folder in which the archive was unpacked.
func (m *machine) installs() {
	m.t.Helper()
	text := docstest.Section(m.t, "install.md", "## On a bare machine")
	m.brings("/usr/local/bin/spillway")
	unit, err := os.ReadFile("spillway.service")
	if err != nil {
		m.t.Fatal(err)
	}
	m.saves("spillway.service", string(unit))
	m.types("install -D -m 0644 spillway.service deploy/systemd/spillway.service && rm spillway.service")
	file := yaml.FindStringSubmatch(text)
	if file == nil || file[1] != "spillway.yaml" {
		m.t.Fatalf("no spillway.yaml in the page: %q", file)
	}
	m.saves("spillway.yaml", file[2])
	for _, command := range typed(m.t, text[:strings.Index(text, "```")], 5) {
		m.types(command)
	}
	m.ready()
	if got := m.types("systemctl is-enabled spillway; systemctl is-active spillway"); got != "enabled\nactive\n" {
		m.t.Errorf("it is %q", got)
	}
	// Twice memory.budget and 256 MiB, for which the unit's MemoryMax has room; then nine tenths of
	// a MemoryMax that has none.
	m.ceiling("1.34217728e+09")
	m.types("systemctl set-property --runtime spillway MemoryMax=1G && systemctl restart spillway")
	m.ready()
	m.ceiling("9.66367638e+08")
	m.types("systemctl set-property --runtime spillway MemoryMax=2G && systemctl restart spillway")
	m.ready()
}

// ceiling is what the process holds itself to.
func (m *machine) ceiling(want string) {
	m.t.Helper()
	if got := m.types("curl -sS http://127.0.0.1:9091/metrics | grep '^spillway_memory_ceiling_bytes '"); got != "spillway_memory_ceiling_bytes "+want+"\n" {
		m.t.Errorf("%swant %s", got, want)
	}
}

// sees follows "See that it works".
func (m *machine) sees() {
	m.t.Helper()
	all := asked.FindAllStringSubmatch(docstest.Section(m.t, "install.md", "## See that it works"), -1)
	if len(all) != 5 {
		m.t.Fatalf("%d commands with what they say, want 5: %q", len(all), all)
	}
	for i, c := range all {
		want := numbers.ReplaceAllString(strings.ReplaceAll(c[2], "\n    ", "\n"), "N")
		if i == 4 { // a change with a mistake
			m.types("cp /etc/spillway/spillway.yaml spillway.before && sed -i '0,/- url:/s//- ulr:/' /etc/spillway/spillway.yaml")
		}
		m.becomes(c[1], func() (string, bool) {
			out, err := m.tries("sh", "-c", c[1]+" 2>&1")
			got := numbers.ReplaceAllString(out, "N")
			return fmt.Sprintf("%v\n%s\nwant\n%s", err, out, want), strings.HasSuffix(strings.TrimSpace(got), strings.TrimSpace(want))
		})
	}
	m.types("cat spillway.before >/etc/spillway/spillway.yaml && systemctl reload spillway")
	m.ready()
}

const longRange = "/api/v1/query_range?query=up&step=3600&start=1700000000&end=1700604800"

// reloads: a change is taken up by systemctl reload, and without it.
func (m *machine) reloads() {
	m.t.Helper()
	main := m.types("systemctl show -p MainPID,NRestarts spillway")
	m.types("cp /etc/spillway/spillway.yaml spillway.before; echo 'limits: {max_range: 1h}' >>/etc/spillway/spillway.yaml; systemctl reload spillway")
	m.becomes("the new bound", func() (string, bool) { return m.refused(longRange) })
	begun := time.Now()
	m.types("cat spillway.before >/etc/spillway/spillway.yaml")
	m.becomes("the old bound", func() (string, bool) { said, refused := m.refused(longRange); return said, !refused })
	m.t.Logf("without systemctl reload a change was taken up after %s", time.Since(begun).Round(time.Second))
	if now := m.types("systemctl show -p MainPID,NRestarts spillway"); now != main {
		m.t.Errorf("it was %q, it is %q", main, now)
	}
}

// comesBack: a program that is killed, as running out of memory does, is started again.
func (m *machine) comesBack() {
	m.t.Helper()
	m.types("systemctl kill -s KILL spillway")
	m.becomes("it is started again", func() (string, bool) {
		out, err := m.tries("systemctl", "show", "-p", "NRestarts,SubState", "spillway")
		return fmt.Sprint(out, err), strings.Contains(out, "NRestarts=1") && strings.Contains(out, "SubState=running")
	})
	m.ready()
}

// keepsState: the usage log and state_dir may be in /var/lib/spillway, and nowhere else.
func (m *machine) keepsState() {
	m.t.Helper()
	m.types("printf 'usage_log: {path: /var/lib/spillway/usage.jsonl}\nstate_dir: /var/lib/spillway\n' >>/etc/spillway/spillway.yaml; systemctl restart spillway")
	m.ready()
	m.becomes("the query is in the usage log", func() (string, bool) {
		out, err := m.tries("cat", "/var/lib/spillway/usage.jsonl")
		return fmt.Sprint(out, err), strings.Contains(out, "count(up)")
	})
	if got := m.types("stat -c '%U %a' /var/lib/spillway/usage.jsonl"); got != "spillway 600\n" {
		m.t.Errorf("the usage log is %q", got)
	}
}

// upgrades follows "Reload or restart" for a bare machine, and looks at how it stopped.
func (m *machine) upgrades() {
	m.t.Helper()
	_, text, ok := strings.Cut(docstest.Section(m.t, "upgrade.md", "## Reload or restart"), "On a bare machine:")
	if !ok {
		m.t.Fatal("docs/upgrade.md says nothing about a bare machine")
	}
	m.brings("spillway-1.2.3.linux-amd64/spillway")
	for _, command := range typed(m.t, text, 3) {
		m.types(command)
	}
	m.ready()
	got := m.types("journalctl -u spillway --no-pager -o cat")
	if !strings.Contains(got, "Stopped spillway.service") || strings.Contains(got, "timed out") {
		m.t.Errorf("how it stopped: %s", got)
	}
	if got := m.types("systemctl show -p Result spillway"); got != "Result=success\n" {
		m.t.Error(got)
	}
}

// leaves follows docs/uninstall.md: nothing is left over.
func (m *machine) leaves(before string) {
	m.t.Helper()
	_, text, ok := strings.Cut(docstest.Section(m.t, "uninstall.md", "# Uninstall"), "- Bare machine:\n")
	if !ok {
		m.t.Fatal("docs/uninstall.md says nothing about a bare machine")
	}
	text, _, _ = strings.Cut(text, "\nRequests")
	for _, command := range typed(m.t, text, 8) {
		m.types(command)
	}
	if after := m.files(); after != before {
		m.t.Errorf("left over: %s", after)
	}
	if out, err := m.tries("curl", "-sS", "http://127.0.0.1:9090/-/ready"); err == nil {
		m.t.Errorf("somebody still answers: %s", out)
	}
}
