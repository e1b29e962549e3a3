package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every variable of the runbooks' commands is in the table of their first page, and is a label that
// the alert has, or is found by an earlier command; no command needs a program inside Spillway's
// image, which has none; those on a node may do what they do, and those on a log read all of it.
func TestRunbookCommands(t *testing.T) {
	readme, err := os.ReadFile("runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	known, labelled := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				known[m[1]], labelled[m[1]] = true, strings.Contains(cells[2], " label")
			}
		}
	}
	carried := alertLabels(t)
	pages, err := filepath.Glob("runbooks/*.md")
	if err != nil || len(pages) < 50 {
		t.Fatalf("only %d pages were found: %v", len(pages), err)
	}
	smi := regexp.MustCompile(`(?m)^kubectl .*nvidia-smi`)
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
		if alert := strings.TrimSuffix(filepath.Base(page), ".md"); alert != "README" {
			for _, v := range notFound(string(text), labelled, carried[alert]) {
				t.Errorf("%s uses $%s, which not every %s has as a label: name it in the comment above an earlier command that finds it", page, v, alert)
			}
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "debug node/") && !strings.Contains(line, " --profile=sysadmin ") {
				t.Errorf("%s: without --profile=sysadmin that pod is not privileged: %s", page, line)
			}
			if what := cutShort(line); what != "" {
				t.Errorf("%s: %s: %s", page, what, line)
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

var (
	variable = regexp.MustCompile(`\$\{?([A-Z][A-Z_]+)`)
	logs     = regexp.MustCompile(`kubectl [^|;&]* ?logs ([^|;&]*)`)
	selector = regexp.MustCompile(`(^| )(-l|--selector)[ =]`)
)

// cutShort says what is wrong with a line that reads the logs of several pods.
func cutShort(line string) string {
	m := logs.FindString(line)
	switch {
	case m == "" || strings.HasPrefix(line, "#"):
	case strings.Contains(strings.Split(m, "$(")[0], "--field-selector"):
		return "kubectl logs has no --field-selector"
	case selector.MatchString(m) && !strings.Contains(m, "--tail="):
		return "with a selector kubectl shows ten lines of each pod where no --tail is given, whatever --since says"
	}
	return ""
}

// labelNames are the labels that variables stand for, where they are not called the same.
var labelNames = map[string][]string{"GROUP": {"group", "rule_group"}, "REMOTE": {"remote_name"}, "MOUNT": {"mountpoint"}}

// alwaysThere is what an alert may lack in the tests of its rule and has when it comes.
var alwaysThere = map[string]string{
	"CLUSTER": "it is an external label of the Prometheus that sends the alert, which puts it on",
}

// alertLabels are the labels of each alert in every case in which the tests of its rule see it.
func alertLabels(t *testing.T) map[string][]map[string]string {
	t.Helper()
	files, err := filepath.Glob("../alerts/tests/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("only %d files of tests were found: %v", len(files), err)
	}
	found := map[string][]map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases struct {
			Tests []struct {
				Alerts []struct {
					Name string `yaml:"alertname"`
					Want []struct {
						Labels map[string]string `yaml:"exp_labels"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal(text, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases.Tests {
			for _, a := range c.Alerts {
				for _, w := range a.Want {
					found[a.Name] = append(found[a.Name], w.Labels)
				}
			}
		}
	}
	return found
}

// notFound are the variables of a page that stand for labels which some of the alerts lack and that
// no comment above an earlier command names. A silence may use what some of them lack: an empty
// matcher meets those.
func notFound(page string, labelled map[string]bool, alerts []map[string]string) []string {
	has := func(v string) (some, all bool) {
		names := labelNames[v]
		if names == nil {
			names = []string{strings.ToLower(v)}
		}
		all = len(alerts) > 0
		for _, a := range alerts {
			there := slices.ContainsFunc(names, func(name string) bool { return a[name] != "" })
			some, all = some || there, all && there
		}
		return some, all
	}
	var missing []string
	commands, silence, _ := strings.Cut(page, "\n## How to silence\n")
	named, told, sh := map[string]bool{}, map[string]bool{}, false
	for line := range strings.Lines(commands) {
		switch {
		case strings.HasPrefix(line, "```"):
			sh = strings.HasPrefix(line, "```sh")
		case !sh:
		case strings.HasPrefix(line, "#"):
			for _, word := range regexp.MustCompile(`[A-Z][A-Z_]+`).FindAllString(line, -1) {
				named[word] = true
			}
		default:
			for _, m := range variable.FindAllStringSubmatch(line, -1) {
				if _, all := has(m[1]); labelled[m[1]] && !all && !told[m[1]] && alwaysThere[m[1]] == "" {
					missing = append(missing, m[1])
				}
			}
			for word := range named {
				told[word] = true
			}
		}
	}
	for _, m := range variable.FindAllStringSubmatch(silence, -1) {
		if some, _ := has(m[1]); labelled[m[1]] && !some && !told[m[1]] && alwaysThere[m[1]] == "" {
			missing = append(missing, m[1])
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
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

// sh are the lines of a page's blocks of commands, without comments.
func sh(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	in := false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			in = strings.HasPrefix(line, "```sh")
		case in && line != "" && !strings.HasPrefix(line, "#"):
			lines = append(lines, line)
		}
	}
	return lines
}

// inTrouble are what commands of runbooks must have, or must not have, so as to work in the very
// trouble of their page, wherever clusters are made as by kubeadm, and take nobody's work away.
var inTrouble = []struct {
	pages, which string // the pages, and those of their commands, as regular expressions
	want, never  string // what each of these has, and has not
	why          string
}{
	{
		".", `etcdctl`, `--endpoints=`, `--cluster|member list`,
		"etcd answers for all its members only where it has a leader: each is named, and asked for itself",
	},
	{".", `etcdctl`, `--cacert=.* --cert=.* --key=`, "", "etcd answers nobody without a certificate"},
	{".", `etcdctl`, `crictl exec`, "", "with kubeadm etcd is a static pod, and no host has etcdctl"},
	{"Kubelet|Node|Fleet", `(systemctl|journalctl) .*(kubelet|containerd)`, `^ssh `, "", "it is a node's log: it is read there"},
	{".", `(systemctl \S+|journalctl -u) etcd`, `crictl`, "", "with kubeadm etcd is a static pod, and no unit"},
	{
		"NodeFilesystem|NodeDisk|NodeNotReady|NodeUnreachable|NodeExporterMissing|FleetNodes", `kubectl .*debug`, "", `node/`,
		"under DiskPressure a kubelet admits no such pod, and none can be made on a disk that is dead or takes no writes",
	},
	{
		".", `pprof/goroutine.* > `, `^curl .*--cert <\(.* --key <\(.*https://127\.0\.0\.1:`, `/proxy/`,
		"the API server's proxy hands no identity on: scheduler and controller manager answer 401 or 403, or nobody reaches them",
	},
	{
		".", `conntrack -L -o extended`, `sysctl net\.netfilter\.nf_conntrack_acct.*bytes=`, `sort -t=`,
		"connections have bytes only where nf_conntrack_acct is 1, and then each way, in no column that is always the same",
	},
	{
		".", `dump_requests\?includeRequestDetails`, `cut -d, -f2,5,11,12,17`, "",
		"flow schema, flow, user, verb and resource are columns 2, 5, 11, 12 and 17 (Kubernetes 1.28 to 1.37)",
	},
	{
		"FleetNodesFailing", `ALERTS`, `last_over_time\(ALERTS{[^}]*}\[3h\]\)`, "",
		"it counts nodes that were to be rebooted within three hours, whether they are now or not",
	},
	{
		".", `kubectl `, "", `kubectl [^|;&]*\bdelete `,
		"a user's work is suspended, and what others own is theirs to delete: it does not come back",
	},
}

// TestRunbooksWorkInTheirTrouble holds the runbooks' commands against inTrouble.
func TestRunbooksWorkInTheirTrouble(t *testing.T) {
	pages, err := filepath.Glob("runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range inTrouble {
		which, want := regexp.MustCompile(c.which), regexp.MustCompile(c.want)
		read, checked := 0, 0
		for _, page := range pages {
			if !regexp.MustCompile("^(" + c.pages + ")").MatchString(filepath.Base(page)) {
				continue
			}
			read++
			for _, line := range sh(t, page) {
				if !which.MatchString(line) {
					continue
				}
				checked++
				if !want.MatchString(line) || c.never != "" && regexp.MustCompile(c.never).MatchString(line) {
					t.Errorf("%s: %s: %s", page, c.why, line)
				}
			}
		}
		if read == 0 || c.want != "" && checked == 0 {
			t.Errorf("%d pages are called %s, and %d of their commands have %s: nothing was checked", read, c.pages, checked, c.which)
		}
	}
}
