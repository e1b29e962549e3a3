package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every variable of the runbooks' commands is in the table of their first page; no command needs a
// program inside Spillway's image, which has none; and those on a node may do what they do.
func TestRunbookCommands(t *testing.T) {
	readme, err := os.ReadFile("runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				known[m[1]] = true
			}
		}
	}
	pages, err := filepath.Glob("runbooks/*.md")
	if err != nil || len(pages) < 50 {
		t.Fatalf("only %d pages were found: %v", len(pages), err)
	}
	smi := regexp.MustCompile(`(?m)^kubectl .*nvidia-smi`)
	variable := regexp.MustCompile(`\$\{?([A-Z][A-Z_]+)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range variable.FindAllStringSubmatch(string(text), -1) {
			if !known[m[1]] {
				t.Errorf("%s uses $%s, which is not in the table of runbooks/README.md", page, m[1])
			}
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "debug node/") && !strings.Contains(line, " --profile=sysadmin ") {
				t.Errorf("%s: without --profile=sysadmin that pod is not privileged: %s", page, line)
			}
		}
		if smi.Match(text) && !strings.Contains(string(text), "/run/nvidia/driver") {
			t.Errorf("%s does not say where nvidia-smi is with the driver container of the GPU operator", page)
		}
		if strings.Contains(string(text), "exec deploy/spillway") {
			t.Errorf("%s runs a program in Spillway's image, which has none but its own", page)
		}
	}
}

// TestEtcdRunbooks: no command of an etcd that is near its end reads all of it, and each query is
// of the cluster that the alert names: the proxy has them all.
func TestEtcdRunbooks(t *testing.T) {
	for _, page := range []string{"EtcdDBNearQuota", "EtcdDBFillsIn4h", "EtcdNoLeader"} {
		text, err := os.ReadFile("runbooks/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if strings.Contains(line, "query instant $SPILLWAY") && !strings.Contains(line, `cluster="'$CLUSTER'"`) {
				t.Errorf("%s asks about every cluster: %s", page, line)
			}
			if strings.HasPrefix(line, "etcdctl") && strings.Contains(line, "--prefix") {
				t.Errorf("%s reads all keys: %s", page, line)
			}
		}
	}
}

// TestRunbookAdmin: the runbooks' admin listener is where the chart leaves it, on the loopback of
// each pod, and the page says first how to get there, pod by pod.
func TestRunbookAdmin(t *testing.T) {
	b, err := os.ReadFile("runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	row := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `SPILLWAY_ADMIN` |") {
			row = line
		}
	}
	forward, exposed := strings.Index(text, "port-forward pod/"), strings.Index(text, "`admin.exposed`")
	if !strings.Contains(row, "http://127.0.0.1:9091") || forward < 0 || exposed < forward {
		t.Errorf("the way to the admin listener: %q, port-forward at %d, admin.exposed at %d", row, forward, exposed)
	}
}
