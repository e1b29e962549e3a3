package emit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	promrelabel "github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// oddFiles are ways in which people write a prometheus.yml with the jobs a and b.
var oddFiles = map[string]string{
	"plain":             "global:\n  scrape_interval: 30s\nscrape_configs:\n  - job_name: a\n    static_configs:\n      - targets: [x]\n  - job_name: b\n    static_configs:\n      - targets: [y]\nrule_files: []\n",
	"dashes at the key": "scrape_configs:\n- job_name: a\n  metric_relabel_configs:\n  - action: labeldrop\n    regex: pod\n  static_configs:\n  - targets: [x]\n- job_name: b\n  metric_relabel_configs:\n  # one\n  - action: labeldrop\n    regex: pod\n  # about the targets\n  static_configs:\n  - targets: [x]\n",
	"own rules last":    "scrape_configs:\n  - job_name: a\n    metric_relabel_configs:\n      # keep this\n      - source_labels: [__name__]\n        regex: 'go_.*' # why\n        action: drop\n      # - source_labels: [later]\n\n  # b is next\n  - job_name: b\n    metric_relabel_configs:\n\n        - {action: labeldrop, regex: pod}\n\n\n# the end\n",
	"wide indentation":  "scrape_configs:\n        -   job_name:   'a'\n            metrics_path:   /x\n        -   \"job_name\": \"b\"\nglobal: {scrape_interval: 1m}\n",
	"dash alone":        "scrape_configs:\n  -\n    job_name: a\n    # last word on a\n  -\n\n    job_name: b\n",
	"no end of line":    "scrape_configs:\n  - job_name: a\n  - job_name: b",
	"no end, own list":  "scrape_configs:\n  - job_name: a\n  - job_name: b\n    metric_relabel_configs:\n    - action: labeldrop\n      regex: pod",
	"CR LF":             "scrape_configs:\r\n  - job_name: a\r\n    metric_relabel_configs:\r\n      - action: labeldrop\r\n        regex: pod\r\n  - job_name: b\r\n",
	"CR LF, no end":     "scrape_configs:\r\n  - job_name: a\r\n  - job_name: b",
	"BOM":               "\ufeffscrape_configs:\n  - job_name: a\n  - job_name: b\n",
	"document marks":    "%YAML 1.1\n---\nscrape_configs:\n  - job_name: a\n  - job_name: b\n...\n",
	"empty list":        "scrape_configs:\n  - job_name: a\n    metric_relabel_configs: # none yet\n    scheme: https\n  - job_name: b\n    metric_relabel_configs:\n",
	"literal block":     "scrape_configs:\n  - job_name: a\n    metric_relabel_configs:\n      - action: drop\n        source_labels: [__name__]\n        regex: |-\n          (go_a\n          # not a comment\n          |go_b)\n    # comment on b\n  - job_name: b\n    metric_relabel_configs:\n      - action: drop\n        source_labels: [__name__]\n        regex: >-\n           long\n           # still the text\n",
	"quoted, two lines": "scrape_configs:\n  - job_name: a\n    metric_relabel_configs:\n      - action: drop\n        source_labels: [__name__]\n        regex: \"go_a\n          # part of it\"\n  - job_name: b\n    scheme: https\n",
	"anchors":           "scrape_configs:\n  - job_name: a\n    static_configs: &t\n      - targets: [x]\n  - job_name: b\n    static_configs: *t\n",
	"unicode lines":     "# one\u2028# two\u2029# three\u0085scrape_configs:\n  - job_name: a # x\u2028  - job_name: b\n",
	"lone CR":           "scrape_configs:\r  - job_name: a\r  - job_name: b\r",
	"jobs first":        "scrape_configs:\n  # the jobs\n\n  - metric_relabel_configs:\n      - action: labeldrop\n        regex: pod\n    job_name: a\n\n  - scheme: https\n    job_name: b\nrule_files:\n  - x.yml\n",
	"tabs and spaces":   "scrape_configs:   \n  - job_name: a  \t# tab\n    static_configs:\n    - targets:\n      - x\n   \n  - job_name: b\t\n",
}

func ab() *relabel.Plan {
	return planOf(dropNames("a", "a_total", "it's"), dropBuckets("a", "h_bucket", "0.5", "30.0"), dropNames("b", "b_total"),
		takeLabel("b", "c_total", "pod"))
}

// Everything that is not ours stays, byte for byte, whatever the file looks like; the second merge
// changes nothing; and with an empty plan ours go and leave no trace.
func TestMergeOddFiles(t *testing.T) {
	for name, text := range oddFiles {
		t.Run(name, func(t *testing.T) {
			p := ab()
			merged, diff, err := Merge(p, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			checkMerged(t, p, text, string(merged))
			checkDiff(t, text, string(merged), diff)
			again, none, err := Merge(p, merged)
			if err != nil || string(again) != string(merged) || none != "" {
				t.Errorf("the second merge: %v\n%s", err, none)
			}
			other := planOf(dropNames("b", "other"))
			changed, diff, err := Merge(other, merged)
			if err != nil {
				t.Fatal(err)
			}
			checkMerged(t, other, text, string(changed))
			checkDiff(t, string(merged), string(changed), diff)
			if strings.Contains(string(changed), "a_total") {
				t.Errorf("a rule that the plan no longer has is still there:\n%s", changed)
			}
			back, _, err := Merge(planOf(), changed)
			if err != nil || string(back) != text {
				t.Errorf("without rules: %v\n%q\nwas\n%q", err, back, text)
			}
		})
	}
}

func checkMerged(t *testing.T, p *relabel.Plan, before, after string) {
	t.Helper()
	was, is := load(t, before), load(t, after)
	for i, j := range is.ScrapeConfigs {
		var ours []*promrelabel.Config
		planned, err := byJob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, jr := range planned {
			if jr.job == j.JobName {
				for _, r := range jr.rules {
					ours = append(ours, r.Relabel...)
				}
			}
		}
		own := was.ScrapeConfigs[i].MetricRelabelConfigs
		if want := append(own[:len(own):len(own)], ours...); !equalConfigs(j.MetricRelabelConfigs, want) {
			t.Errorf("job %s reads\n%v\nwant\n%v", j.JobName, j.MetricRelabelConfigs, want)
		}
		j.MetricRelabelConfigs, was.ScrapeConfigs[i].MetricRelabelConfigs = nil, nil
	}
	if !reflect.DeepEqual(was, is) {
		t.Errorf("something else changed:\n%s\nbecame\n%s", was, is)
	}
	// The lines of the old file are a subsequence of the new one's.
	rest := splitLines(after)
	for _, l := range splitLines(before) {
		for len(rest) > 0 && content(rest[0]) != content(l) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			t.Fatalf("line %q is gone:\n%s", l, after)
		}
		rest = rest[1:]
	}
}

func checkDiff(t *testing.T, before, after, diff string) {
	t.Helper()
	got, err := apply(before, diff)
	if err != nil || got != after {
		t.Errorf("the diff gives %v\n%q\nwant\n%q\ndiff\n%s", err, got, after, diff)
	}
	program, err := exec.LookPath("patch")
	if err != nil || strings.Contains(before, "\r") {
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--binary", "-p0", "prometheus.yml")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("patch: %v\n%s\n%s", err, out, diff)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != after {
		t.Errorf("patch gives %v %q", err, text)
	}
}

// apply is a second reading of unified diffs, by line numbers alone.
func apply(before, diff string) (string, error) {
	a := gitLines(before)
	var out strings.Builder
	at := 0
	lines := gitLines(diff)
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		switch {
		case i < 2:
		case strings.HasPrefix(l, "@@ "):
			var from string
			if _, err := fmt.Sscanf(l, "@@ -%s", &from); err != nil {
				return "", err
			}
			first, count, _ := strings.Cut(from, ",")
			n, err := strconv.Atoi(first)
			if err != nil {
				return "", err
			}
			if count != "0" {
				n--
			}
			for ; at < n; at++ {
				out.WriteString(a[at])
			}
		default:
			text := l[1:]
			if i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\ `) {
				text = strings.TrimSuffix(text, "\n")
				i++
			}
			if l[0] != '+' {
				if at >= len(a) || a[at] != text {
					return "", fmt.Errorf("line %d is not %q", at+1, text)
				}
				at++
			}
			if l[0] != '-' {
				out.WriteString(text)
			}
		}
	}
	for ; at < len(a); at++ {
		out.WriteString(a[at])
	}
	return out.String(), nil
}

// Ours go behind what was written behind them since, which stays as it is, its comments too: a plan
// is proven against what comes out of all of the job's own rules.
func TestMergeKeepsThePlace(t *testing.T) {
	p := planOf(dropNames("a", "a_total"))
	merged, _, err := Merge(p, []byte(oddFiles["own rules last"]))
	if err != nil {
		t.Fatal(err)
	}
	behind := "      # mine too\n      - action: labeldrop\n        regex: mine # and why\n"
	text := strings.Replace(string(merged), "# spillway: end a/names/1\n", "# spillway: end a/names/1\n"+behind, 1)
	own := strings.Replace(oddFiles["own rules last"], "      # - source_labels: [later]\n", "      # - source_labels: [later]\n"+behind, 1)
	p = planOf(dropNames("a", "longer_total", "a_total"))
	again, _, err := Merge(p, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if rules := load(t, string(again)).ScrapeConfigs[0].MetricRelabelConfigs; len(rules) != 3 ||
		rules[1].Regex.String() != "mine" || rules[2].Regex.String() != "longer_total|a_total" {
		t.Errorf("%s", again)
	}
	checkMerged(t, p, own, string(again))
	if third, diff, err := Merge(p, again); err != nil || string(third) != string(again) || diff != "" {
		t.Errorf("the third merge: %v\n%s", err, diff)
	}
	if back, _, err := Merge(planOf(), again); err != nil || string(back) != own {
		t.Errorf("%v %s", err, back)
	}
}

// renames is a rule that somebody wrote behind ours: it makes a_used of some series of a_raw, so
// that a plan sees a_used, and only the rest of a_raw. It is for both spellings of the fields.
const renames = "{%s: [__name__, kind], regex: 'a_raw;1', %s: __name__, replacement: a_used}"

// What the job's own rules make of a series comes first, also where ours stood in the file before
// them: a_raw goes, and a_used, which is made of it, does not.
func TestMergeBehindRulesWrittenLater(t *testing.T) {
	merged, _, err := Merge(planOf(dropNames("a", "a_old")), []byte("scrape_configs:\n  - job_name: a\n"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(merged) + "      - " + fmt.Sprintf(renames, "source_labels", "target_label") + "\n"
	again, _, err := Merge(planOf(dropNames("a", "a_raw")), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rules := load(t, string(again)).ScrapeConfigs[0].MetricRelabelConfigs
	if !takes(rules, "a", "a_raw", "kind", "2") {
		t.Errorf("a_raw stays:\n%s", again)
	}
	if takes(rules, "a", "a_raw", "kind", "1") {
		t.Errorf("a_used is lost:\n%s", again)
	}
}

// A file that somebody indented anew is no change by hand.
func TestMergeAfterIndenting(t *testing.T) {
	p := ab()
	merged, _, err := Merge(p, []byte(oddFiles["dashes at the key"]))
	if err != nil {
		t.Fatal(err)
	}
	var deeper strings.Builder
	for line := range strings.Lines(string(merged)) {
		if !strings.HasPrefix(line, "scrape_configs") {
			line = "   " + line
		}
		deeper.WriteString(line)
	}
	again, diff, err := Merge(p, []byte(deeper.String()))
	if err != nil || string(again) != deeper.String() {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestMergeRefuses(t *testing.T) {
	merged, _, err := Merge(ab(), []byte(oddFiles["plain"]))
	if err != nil {
		t.Fatal(err)
	}
	text := string(merged)
	base := "scrape_configs:\n  - job_name: b\n"
	for name, c := range map[string]struct{ text, want string }{
		"changed regex":     {strings.Replace(text, "a_total", "a_.*", 1), "rule a/names/1 was changed by hand"},
		"changed comment":   {strings.Replace(text, "# Owner: observability.", "# Owner: me.", 1), "was changed by hand"},
		"no end mark":       {strings.Replace(text, "# spillway: end a/names/1", "", 1), "before rule a/names/1 of line"},
		"no begin mark":     {strings.Replace(text, "# spillway: begin a/names/1", "# ", 1), "ends and never began"},
		"last end missing":  {strings.Replace(text, "# spillway: end b/label/1", "", 1), "begins and never ends"},
		"no checksum":       {strings.Replace(text, "# spillway: begin a/names/1 ", "# spillway: begin a/names/1x", 1), "no checksum"},
		"no job":            {base, `no job "a"; it has "b"`},
		"not YAML":          {"a: [", "no YAML"},
		"empty":             {"", "empty"},
		"only a comment":    {"# x\n", "empty"},
		"a list":            {"- x\n", "no mapping"},
		"no jobs":           {"global: {}\n", "no list scrape_configs"},
		"two documents":     {base + "---\n" + base, "second document"},
		"not UTF-8":         {"# \xff\n" + base, "not UTF-8"},
		"flow job":          {base + "  - {job_name: a}\n", "line 3: job \"a\" is written in one piece"},
		"flow jobs":         {"scrape_configs: [{job_name: a}, {job_name: b}]\n", "in one piece"},
		"flow list":         {base + "  - job_name: a\n    metric_relabel_configs: [{action: labeldrop, regex: x}]\n", "line 4: the metric_relabel_configs of job \"a\" are written in one piece"},
		"empty flow list":   {base + "  - job_name: a\n    metric_relabel_configs: []\n", "remove the empty list"},
		"no list":           {base + "  - job_name: a\n    metric_relabel_configs: 7\n", "no list"},
		"alias":             {"scrape_configs:\n  - job_name: b\n    metric_relabel_configs: &r\n      - {action: labeldrop, regex: x}\n  - job_name: a\n    metric_relabel_configs: *r\n", "are an alias (*r)"},
		"shared anchor":     {"scrape_configs:\n  - job_name: b\n    metric_relabel_configs: &r\n      - {action: labeldrop, regex: x}\n  - job_name: a\n    metric_relabel_configs: *r\n", "shared with others by the anchor &r"},
		"merged in":         {"x: &r\n  metric_relabel_configs:\n    - {action: labeldrop, regex: x}\n" + base + "  - <<: *r\n    job_name: a\n", "from an anchor (<<)"},
		"job merged by c":   {"scrape_configs:\n  - &a\n    job_name: a\n  - job_name: b\n  - <<: *a\n    job_name: c\n", "without a change elsewhere"},
		"lax flow brackets": {base + "  - job_name: a\n    static_configs: [\n      {targets: [x]}\n]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, diff, err := Merge(ab(), []byte(c.text))
			if err == nil && c.want == "" {
				checkMerged(t, ab(), c.text, string(out))
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want %q, got %v\n%s", c.want, err, out)
			}
			if out != nil || diff != "" {
				t.Error("something came with the refusal")
			}
		})
	}
}

// The rules of a job are for the series with that label, under whatever names they are scraped.
func TestMergeByLabel(t *testing.T) {
	const text = "scrape_configs:\n  - job_name: a\n    relabel_configs:\n      - {target_label: job, replacement: b}\n  - job_name: b\n  - job_name: c\n"
	p := planOf(dropNames("b", "x_total"))
	merged, _, err := Merge(p, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := load(t, string(merged))
	for i, want := range []int{1, 1, 0} {
		if got := len(c.ScrapeConfigs[i].MetricRelabelConfigs); got != want {
			t.Errorf("job %d has %d rules\n%s", i, got, merged)
		}
	}
	if again, _, err := Merge(p, merged); err != nil || string(again) != string(merged) {
		t.Errorf("the second time: %v", err)
	}
	if back, _, err := Merge(planOf(), merged); err != nil || string(back) != text {
		t.Errorf("without rules: %v", err)
	}
	if _, _, err := Merge(planOf(dropNames("a", "x_total")), []byte(text)); err == nil ||
		!strings.Contains(err.Error(), `no job "a"; it has "b", "c"`) {
		t.Error(err)
	}
}

// All that is wrong is said at once.
func TestMergeSaysAll(t *testing.T) {
	_, _, err := Merge(ab(), []byte("scrape_configs:\n  - {job_name: a}\n  - job_name: c\n"))
	if err == nil || !strings.Contains(err.Error(), "in one piece") || !strings.Contains(err.Error(), `no job "b"`) {
		t.Error(err)
	}
}

func TestMergeLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString("scrape_configs:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "  - job_name: job%d\n    # about job %d\n    metric_relabel_configs:\n      - source_labels: [__name__]\n        regex: 'm%d_%s'\n        action: drop\n", i, i, i, strings.Repeat("x", 2000))
	}
	p := planOf(dropNames("job7", strings.Repeat("y", 1<<15)), dropNames("job199", "z"))
	merged, diff, err := Merge(p, []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	checkMerged(t, p, b.String(), string(merged))
	if got, err := apply(b.String(), diff); err != nil || got != string(merged) {
		t.Errorf("the diff is wrong: %v", err)
	}
	if n := strings.Count(diff, "\n@@ "); n != 2 {
		t.Errorf("%d hunks", n)
	}
}

// FuzzMerge: what Merge accepts keeps all that was there, and can be taken back.
func FuzzMerge(f *testing.F) {
	for _, text := range oddFiles {
		f.Add(text, "a")
		if merged, _, err := Merge(ab(), []byte(text)); err == nil {
			f.Add(string(merged), "b")
		}
	}
	f.Fuzz(func(t *testing.T, text, job string) {
		p := planOf(dropNames(job, "x"))
		clean, _, err := Merge(planOf(), []byte(text))
		if err != nil {
			return
		}
		merged, diff, err := Merge(p, []byte(text))
		if err != nil {
			return
		}
		if got, err := apply(text, diff); err != nil || got != string(merged) {
			t.Fatalf("the diff gives %v %q, want %q", err, got, merged)
		}
		if again, _, err := Merge(p, merged); err != nil || string(again) != string(merged) {
			t.Fatalf("the second merge gives %v\n%q\nwant\n%q", err, again, merged)
		}
		if back, _, err := Merge(planOf(), merged); err != nil || string(back) != string(clean) {
			t.Fatalf("taken back: %v\n%q\nwas\n%q", err, back, clean)
		}
	})
}

func FuzzDiff(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nx\nc")
	f.Add("", "a\n")
	f.Add("a\nb\na\nb\n", "b\na\n\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		if got, err := apply(a, unified("x", a, b)); err != nil || got != b {
			t.Fatalf("%v: %q to %q gives %q", err, a, b, got)
		}
	})
}

// Long stretches that differ are compared by the lines that occur once.
func TestDiffLong(t *testing.T) {
	var a, b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&a, "line %d\n", i)
		if i%1000 != 500 {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		if i%1000 == 0 {
			b.WriteString("new\n")
		}
	}
	diff := unified("x", "old\n"+a.String()+"last", b.String()+"last\n")
	if got, err := apply("old\n"+a.String()+"last", diff); err != nil || got != b.String()+"last\n" {
		t.Fatal(err)
	}
	if n := strings.Count(diff, "\n"); n > 120 {
		t.Errorf("%d lines for ten changes", n)
	}
}

// The configuration that we ship, with its anchors, discoveries and comments: every job takes rules
// and gives them back.
func TestMergeWhatWeShip(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/exporters/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("${SHARDS}", "4", "${SHARD}", "0").Replace(string(raw))
	root, err := document(text)
	if err != nil {
		t.Fatal(err)
	}
	found, refused, err := jobs(root, splitLines(text))
	if err != nil || len(found) < 10 {
		t.Fatal(len(found), err)
	}
	var rules []propose.Rule
	entries, sole := entriesOf(text)
	for label := range entries {
		rules = append(rules, dropNames(label, "x_total"))
	}
	p := planOf(rules...)
	merged, diff, err := Merge(p, []byte(text))
	if err != nil {
		t.Fatalf("%v (not editable: %v)", err, refused)
	}
	if got, err := apply(text, diff); err != nil || got != string(merged) {
		t.Errorf("the diff is wrong: %v", err)
	}
	alone, asking := 0, 0
	for name := range found {
		if sole[name] {
			alone++
		} else {
			asking++
		}
	}
	if n := strings.Count(string(merged), "regex: x_total\n"); n != alone {
		t.Errorf("%d of the %d entries of one job have the rule", n, alone)
	}
	if n := strings.Count(string(merged), ";x_total'\n"); n != asking {
		t.Errorf("%d of the %d entries of any job have the rule with its job", n, asking)
	}
	if back, _, err := Merge(planOf(), merged); err != nil || string(back) != text {
		t.Errorf("not taken back: %v", err)
	}
	t.Logf("%d jobs, %d not editable: %v", len(found), len(refused), refused)
}
