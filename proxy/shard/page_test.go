package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// pageOf is what a server answers to one of the prober's questions.
func pageOf(ctx context.Context, r *Replica, path string, q url.Values) (page []byte, err error) {
	err = r.get(ctx, probeJSON, path, q, middlePage, func(p []byte) error {
		page = bytes.Clone(p)
		return nil
	})
	return page, err
}

func nobody(error) {}

// TestDesksEnd: a server that stalls in the middle of a page is ended after deskTime, so that
// others wait for it no longer.
func TestDesksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesks()
		var stalled sync.WaitGroup
		for range middlePages {
			stalled.Go(func() {
				ctx, end := context.WithCancelCause(t.Context())
				in, out := io.Pipe()
				go func() {
					_, _ = out.Write(make([]byte, smallPage+1))
					<-ctx.Done()
					out.CloseWithError(context.Cause(ctx))
				}()
				if err := d.read(ctx, in, end, nil); !errors.Is(err, errSlowPage) {
					t.Errorf("%v, want %v", err, errSlowPage)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		err := d.read(t.Context(), bytes.NewReader(make([]byte, smallPage)), nobody, func([]byte) error { return nil })
		if took := time.Since(began); err != nil || took != deskTime {
			t.Errorf("%v after %s, want %s", err, took, deskTime)
		}
		stalled.Wait()
	})
}

// TestDesks: of a hundred servers that say much about themselves, a few are listened to at a time;
// one that says little waits for none of them, and one whose time is over says why.
func TestDesks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesks()
		var (
			mu    sync.Mutex
			now   = map[int]int{} // readers that use a page of so many bytes
			most  = map[int]int{}
			wg    sync.WaitGroup
			kinds = map[int]int{smallPage - 1: 0, middlePage - 1: middlePages, maxFactBytes: largePages}
		)
		for size := range kinds {
			for range 100 {
				wg.Go(func() {
					want := bytes.Repeat([]byte("x"), size)
					err := d.read(t.Context(), bytes.NewReader(want), nobody, func(page []byte) error {
						if !bytes.Equal(page, want) {
							t.Errorf("%d bytes of %d, or others", len(page), size)
						}
						mu.Lock()
						now[size]++
						most[size] = max(most[size], now[size])
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						now[size]--
						mu.Unlock()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		if most[smallPage-1] != 100 {
			t.Errorf("%d small pages at once, of 100", most[smallPage-1])
		}
		mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.read(ctx, bytes.NewReader(make([]byte, smallPage)), nobody, nil); !errors.Is(err, errDesk) {
			t.Errorf("%v, want %v", err, errDesk)
		}
		wg.Wait()
		for size, places := range kinds {
			if places > 0 && most[size] > places {
				t.Errorf("%d pages of %d bytes at once, of %d", most[size], size, places)
			}
		}
		if len(d.middle)+len(d.large) != 0 {
			t.Error("a desk was not left")
		}
		broken := errors.New("broken")
		page := io.MultiReader(bytes.NewReader(make([]byte, 2*middlePage)), iotest.ErrReader(broken))
		if err := d.read(t.Context(), page, nobody, nil); !errors.Is(err, broken) {
			t.Error(err)
		}
		if len(d.middle)+len(d.large) != 0 {
			t.Error("a desk was not left after an error")
		}
	})
}

// TestEarly: what is read of a body before its time is all there for its reader, whether there was
// room for the whole of it or not.
func TestEarly(t *testing.T) {
	for _, tc := range []struct {
		size  int
		most  int64
		whole bool
	}{
		{100, 0, true},
		{middlePage - 1, 0, true},
		{3 * middlePage, -1, false}, // nobody holds
		{3 * middlePage, 12 * middlePage, true},
	} {
		t.Run(fmt.Sprint(tc.size, tc.most), func(t *testing.T) {
			want := bytes.Repeat([]byte("0123456789"), tc.size/10+1)[:tc.size]
			b := bytes.NewReader(want)
			var held int64
			hold := func(n int64) error {
				if held += n; held > tc.most {
					return errors.New("no room")
				}
				return nil
			}
			if tc.most < 0 {
				hold = nil
			}
			page, whole, err := early(b, hold)
			if err != nil || whole != tc.whole {
				t.Fatal(whole, err)
			}
			if got, err := io.ReadAll(io.MultiReader(bytes.NewReader(page), b)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
			}
		})
	}
}

// TestEarlyWithoutRoom: where there is no room, that is the error, and not that something lacks.
func TestEarlyWithoutRoom(t *testing.T) {
	full := errors.New("no room")
	if _, _, err := early(bytes.NewReader(make([]byte, 3*middlePage)), func(int64) error { return full }); err != full {
		t.Error(err)
	}
}

// TestGlobalSettings: the section global is found wherever it stands, and what is no such section
// is not taken for it.
func TestGlobalSettings(t *testing.T) {
	const section = "global:\n  scrape_interval: 15s\n  evaluation_interval: 30s\n" +
		"  external_labels:\n    cluster: a\n\n    note: |-\n      x\n      global:\n"
	much := "scrape_configs:\n" + strings.Repeat("- job_name: a\n", 10_000)
	for name, tc := range map[string]struct {
		yaml, want string
	}{
		"small": {"rule_files:\n- a.yml\n" + section, `30s map[cluster:a note:x` + "\n" + `global:]`},
		"first": {section + much + "rule_files:\n- a.yml\n", `30s map[cluster:a note:x` + "\n" + `global:]`},
		"last":  {"rule_files:\n- a.yml\n" + much + section, `30s map[cluster:a note:x` + "\n" + `global:]`},
		"none":  {"scrape_configs:\n- job_name: a\n  params:\n    x: ['global:']\n" + much, ` map[]`},
		"in a text": {
			"a:\n  b: |-\n    global:\n      evaluation_interval: 1s\n" + much + section,
			`30s map[cluster:a note:x` + "\n" + `global:]`,
		},
		"with a comment": {"# all\nglobal: {evaluation_interval: 7s, external_labels: {a: b}}\n" + much, `7s map[a:b]`},
		"too large": {
			"global:\n external_labels:\n  a: " + strings.Repeat("b", smallPage),
			"its section global has more than 65536 bytes",
		},
		"no YAML": {"global: [\n", "it is not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := globalSettings(fmt.Appendf(nil, `{"yaml":%q}`, tc.yaml))
			got := fmt.Sprint(g.EvaluationInterval, " ", g.ExternalLabels)
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestConstant: what may look at a series is none.
func TestConstant(t *testing.T) {
	for query, want := range map[string]bool{
		"0.99": true, "vector(0.99)": true, "vector(1) * 100": true, "time() - 3600": true, "2 ^ 1e3": true, "vector(1) > bool 0": true,
		"": false, "up": false, "sum(up)": false, "vectors": false, "time_a": false, "5m": false, "x0": false, "timepi": false,
		"a:1": false, `{x="1"}`: false,
	} {
		if got := constant(query); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}
