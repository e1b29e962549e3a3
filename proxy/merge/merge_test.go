package merge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

var update = flag.Bool("update", false, "rewrite the wanted answers in testdata")

// mergers are all merges by the name of their endpoint, with their parameters as text.
var mergers = map[string]func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error){
	"labels": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return mergeLists(ctx, w, args, shards, true, b)
	},
	"values": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return mergeLists(ctx, w, args, shards, false, b)
	},
	"series": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeSeries(ctx, w, atoi(args["limit"]), shards, b)
	},
	"metadata": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeMetadata(ctx, w, atoi(args["limit"]), atoi(args["per_metric"]), shards, b)
	},
	"targets_metadata": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeTargetsMetadata(ctx, w, atoi(args["limit"]), shards, b)
	},
	"rules": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeRules(ctx, w, RulesPage{Limit: atoi(args["limit"]), Token: args["token"]}, shards, b)
	},
	"alerts": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeAlerts(ctx, w, shards, b)
	},
	"targets": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeTargets(ctx, w, shards, b)
	},
	"scrape_pools": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeScrapePools(ctx, w, shards, b)
	},
	"alertmanagers": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeAlertmanagers(ctx, w, shards, b)
	},
	"exemplars": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeExemplars(ctx, w, shards, b)
	},
	"tsdb": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeTSDB(ctx, w, atoi(args["limit"]), shards, b)
	},
	"walreplay": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeWALReplay(ctx, w, shards, b)
	},
	"buildinfo": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeBuildinfo(ctx, w, shards, b)
	},
	"features": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return MergeFeatures(ctx, w, shards, b)
	},
	"pass": func(ctx context.Context, w *Writer, _ map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return Pass(ctx, w, shards[0], b)
	},
	"splice": func(ctx context.Context, w *Writer, args map[string]string, shards []Source, b *admit.Budget) (Result, error) {
		return Splice(ctx, w, atoi(args["limit"]), shards, b)
	},
}

func mergeLists(ctx context.Context, w *Writer, args map[string]string, shards []Source, names bool, b *admit.Budget) (Result, error) {
	var lists []Strings
	for _, src := range shards {
		lists = append(lists, ShardStrings(ctx, src, names, b))
	}
	if fixed := args["fixed"]; fixed != "" {
		lists = append(lists, FixedStrings(strings.Split(fixed, ",")))
	}
	return MergeStrings(ctx, w, atoi(args["limit"]), lists, b)
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// words reads "series limit=2 x=y".
func words(line string) (first string, args map[string]string) {
	args = map[string]string{}
	for i, f := range strings.Fields(line) {
		if i == 0 {
			first = f
			continue
		}
		k, v, _ := strings.Cut(f, "=")
		args[k] = v
	}
	return first, args
}

// merged runs one merge to its end. In the end nothing may be held, whatever happened.
func merged(t testing.TB, endpoint string, args map[string]string, shards []Source, limits admit.Limits) (string, Result, error) {
	t.Helper()
	pool := admit.NewPool(64 << 20)
	b := admit.NewBudget(pool, limits)
	var out bytes.Buffer
	w := NewWriter(&out, b)
	err := w.Begin()
	res, merr := mergers[endpoint](t.Context(), w, args, shards, b)
	if err = errors.Join(err, merr); err == nil {
		err = w.Finish(res.Warnings, res.Infos)
	} else if w.Committed() {
		t.Error("a short answer was committed before its error")
	}
	w.Close()
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held after the merge of %s", held, endpoint)
	}
	b.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of the pool are in use", pool.InUse())
	}
	if err == nil && !json.Valid(out.Bytes()) {
		t.Errorf("the answer is not JSON: %s", out.Bytes())
	}
	return out.String(), res, err
}

// TestMergeFiles runs testdata/merge/*.txtar. In each, the last line of the comment is an endpoint
// with arguments; each file is a shard's body, its name followed by set=NAME:VALUE, drop=NAME,
// shard=NAME and limit=N; the file want is the data of the answer, or the error, and what was
// noted.
func TestMergeFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/merge/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(ar.Comment)), "\n")
			endpoint, args := words(lines[len(lines)-1])
			if mergers[endpoint] == nil {
				t.Fatalf("no endpoint %q", endpoint)
			}
			var sources []func() Source
			want := -1
			for i, f := range ar.Files {
				if f.Name == "want" {
					want = i
					continue
				}
				name, a := words(f.Name)
				set := map[string]string{}
				for _, l := range strings.Split(a["set"], ",") {
					if k, v, ok := strings.Cut(l, ":"); ok {
						set[k] = v
					}
				}
				var drop []string
				if a["drop"] != "" {
					drop = strings.Split(a["drop"], ",")
				}
				sources = append(sources, func() Source {
					return Source{
						Name: name, Shard: a["shard"], Limit: atoi(a["limit"]), Body: bytes.NewReader(bytes.TrimSpace(f.Data)),
						Relabel: NewRelabel(set, drop),
					}
				})
			}
			if want < 0 {
				ar.Files = append(ar.Files, txtar.File{Name: "want"})
				want = len(ar.Files) - 1
			}
			run := func(reverse bool) string {
				shards := make([]Source, len(sources))
				for i := range sources {
					j := i
					if reverse {
						j = len(sources) - 1 - i
					}
					shards[j] = sources[i]()
				}
				out, res, err := merged(t, endpoint, args, shards, roomy)
				if err != nil {
					var e *qerr.Error
					if !errors.As(err, &e) {
						t.Fatalf("untyped error %v", err)
					}
					return fmt.Sprintf("error %s: %s\ncause: %s\n", e.Kind, e.Message, err)
				}
				return fmt.Sprintf("%s\nseries %d truncated %t\n", indent(out), res.Series, res.Truncated)
			}
			got := run(false)
			if back := run(true); back != got && !strings.HasPrefix(got, "error") && args["ordered"] == "" {
				t.Errorf("the order of shards changes the answer:\n%s\n%s", got, back)
			}
			if *update {
				ar.Files[want].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if w := string(ar.Files[want].Data); got != w {
				t.Errorf("got:\n%s\nwant:\n%s", got, w)
			}
		})
	}
}

func indent(s string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", " "); err != nil {
		return s
	}
	return b.String()
}

// endless is a body that never ends: head, then unit again and again.
type endless struct {
	head, unit string
	block      []byte
	n          int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n < len(e.head) {
		n := copy(p, e.head[e.n:])
		e.n += n
		return n, nil
	}
	if e.block == nil {
		e.block = bytes.Repeat([]byte(e.unit), 1+4096/len(e.unit))
	}
	n := copy(p, e.block[(e.n-len(e.head))%len(e.block):])
	e.n += n
	return n, nil
}

var _ io.Reader = (*endless)(nil)
