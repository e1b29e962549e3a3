package relabel_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// What somebody picked or typed once is not all that is asked for: a value that nothing but a usage
// log has excludes neither another value nor another job, nor does what it looked at lose a label.
// A rule's query knows its values, and so does what a panel asks for with the log's among them.
func TestPickedValues(t *testing.T) {
	var page strings.Builder
	for gpu := range 8 {
		fmt.Fprintf(&page, "xid{gpu=\"%d\",uid=\"a%d\"} 0\n", gpu, gpu)
	}
	page.WriteString("open_fds 1\n")
	src := pages(t, map[string]string{"a/1": page.String(), "b/1": page.String()})
	logged := func(rule string, queries ...string) string {
		text := ""
		for _, q := range queries {
			line, err := json.Marshal(map[string]any{
				"v": 1, "time": now.Add(-time.Hour).Format(time.RFC3339Nano), "user": "ada", "rule": rule, "endpoint": "query",
				"query": q, "verdict": "pass",
			})
			if err != nil {
				t.Fatal(err)
			}
			text += string(line) + "\n"
		}
		return text
	}
	slice := func(job string, of ...int) (out []string) {
		for _, gpu := range of {
			out = append(out, fmt.Sprintf(`%s xid{gpu="%d", uid="a%d"}`, job, gpu, gpu))
		}
		return out
	}
	others := []int{0, 1, 2, 4, 5, 6, 7}
	for name, c := range map[string]struct {
		log     string
		written []string
		want    []string
	}{
		"typed once":       {logged("", `xid{gpu="3"}`), []string{"open_fds"}, nil},
		"a job":            {logged("", `open_fds{job="a"}`), []string{"xid"}, nil},
		"names by a regex": {logged("", `{__name__=~"open_.*",job="a"}`), []string{"xid"}, nil},
		"a rule's": {
			logged("r", `xid{gpu="3",job="a"}`),
			[]string{"open_fds"},
			append(slice("a", others...), slice("b", 0, 1, 2, 3, 4, 5, 6, 7)...),
		},
		"a panel's": {
			logged("", `xid{gpu="3",uid="a3"}`),
			[]string{"open_fds", `xid{gpu="3",uid=~"$uid"}`},
			append(slice("a", others...), slice("b", others...)...),
		},
		"another panel's": {logged("", `xid{gpu="3",uid="a3"}`), []string{"open_fds", `xid{gpu="4"}`}, nil},
		"several of one": {
			logged("", `xid{gpu=~"3|4"}`),
			[]string{"open_fds", `xid{gpu!~"[567]"}`},
			append(slice("a", 5, 6, 7), slice("b", 5, 6, 7)...),
		},
		"more than a panel": {logged("", `xid{gpu=~"3|7"}`), []string{"open_fds", `xid{gpu!~"[567]"}`}, nil},
	} {
		set := queries(c.written...)
		path := write(t, filepath.Join(t.TempDir(), "usage.jsonl"), c.log)
		if err := uses.Log(t.Context(), set, path, uses.LogOptions{Now: now}); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		expect(t, src, plan(t, src, set), c.want...)
	}
}
