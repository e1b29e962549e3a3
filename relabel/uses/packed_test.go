package uses

import (
	"strings"
	"testing"
)

// TestPackedFiles: what is packed by gzip is read whichever flag names its folder, and what is
// packed otherwise is named.
func TestPackedFiles(t *testing.T) {
	const rule = "groups: [{name: g, rules: [{alert: A, expr: used_rule > 0}]}]\n"
	const dashboard = `{"title":"T","schemaVersion":39,"panels":[{"targets":[{"expr":"used_board"}]}]}`
	for flag, read := range flags {
		set := new(Set)
		dir := folder(t, "d.json", `{"title":"T","panels":[],"schemaVersion":39}`, "r.yaml", "groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n",
			"a.json.gz", packed(dashboard), "b.yaml.GZ", packed(rule), "c.yml.gz", packed("{}"), "usage.jsonl.gz", packed("{}"),
			"a.zip", "PK", "b.tar.gz", packed("x"), "c.tgz", packed("x"), "d.json.zst", "x")
		if err := read(set, dir); err != nil {
			t.Errorf("--%s: %v", flag, err)
		}
		said := strings.Join(set.Warnings, "\n")
		want := "packed files are there: " + dir + "/a.zip, " + dir + "/b.tar.gz, " + dir + "/c.tgz (4 files), and are not read"
		if !set.keeps("used_rule") || !set.keeps("used_board") || !strings.Contains(said, want) {
			t.Errorf("--%s: %s\n%s", flag, strings.Join(set.lines(dir), "\n"), said)
		}
	}
	if _, err := unzip([]byte(packed(strings.Repeat(" ", 1<<20+1))), 1<<20); err == nil || err.Error() != "it is larger than 1 MiB" {
		t.Errorf("a large one: %v", err)
	}
	for text, want := range map[string]string{
		"no gzip":                                    "a.json.gz: unpack it: ",
		packed(dashboard)[:40]:                       "a.json.gz: unpack it: ",
		packed(`{"panels":[{"expr":"x"}`):            "a.json.gz:1: ",
		packed(`{"title":"T","panels":[],"rows":0}`): "",
	} {
		err := Dashboards(new(Set), folder(t, "a.json.gz", text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
