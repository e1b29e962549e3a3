package shard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestThanosPruned: a Thanos Query whose raw samples are deleted at the old end of the group's time
// has downsampled ones there, which it is never asked for; the check says so.
func TestThanosPruned(t *testing.T) {
	day := 24 * time.Hour
	empty, some := `[]`, `[{"metric":{},"value":[1,"7"]}]`
	for _, tc := range []struct {
		name        string
		from        string
		oldest      time.Duration // what its store announces
		raw, coarse string
		at          time.Duration // where it is asked; 0: nowhere
		told        bool
	}{
		{"raw deleted, by from", "-60d", 0, empty, some, 60 * day, true},
		{"raw deleted, by what the store announces", "", 90 * day, empty, some, 90 * day, true},
		{"from later than that", "-30d", 90 * day, some, some, 30 * day, false},
		{"nothing at all there", "-60d", 0, empty, empty, 60 * day, false},
		{"nobody knows where it begins", "", 0, empty, some, 0, false},
		{"it begins now", "", time.Hour, empty, some, 0, false},
		{"raw cannot be asked for", "-60d", 0, "", some, 60 * day, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := store("s1", "", jaguarA)
			if tc.oldest > 0 {
				line = strings.Replace(line, `"minTime":0`, fmt.Sprintf(`"minTime":%d`, time.Now().Add(-tc.oldest).UnixMilli()), 1)
			}
			cfg := fakeThanos(nil, fakeshard.Route{Path: storesPath, Script: page(line)})
			cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
				if !strings.Contains(r.Form.Get("query"), "count_over_time(up[2h])") {
					return fakeshard.Answer{}, false
				}
				result := tc.coarse
				if r.Form.Get("max_source_resolution") == "0s" {
					result = tc.raw
				}
				if result == "" {
					return answerJSON(http.StatusServiceUnavailable, `{"status":"error","errorType":"timeout","error":"no"}`), true
				}
				return answerJSON(http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":`+result+`}}`), true
			}
			fake := fakeshard.Start(t, cfg)
			g := thanosGroup(fake.URL())
			if tc.from != "" {
				var err error
				if g.From, err = config.ParseMoment(tc.from); err != nil {
					t.Fatal(err)
				}
			}
			problems, err := CheckOnline(t.Context(), &config.Config{Groups: []config.Group{g}})
			if err != nil {
				t.Fatal(err)
			}
			text := problems.Error()
			if strings.Contains(text, "groups[0].from") != tc.told || strings.Contains(text, "--retention.resolution-raw") != tc.told {
				t.Errorf("it says %q", text)
			}
			var asked []fakeshard.Record
			for _, r := range fake.RequestsTo(queryPath) {
				if strings.Contains(r.Form.Get("query"), "count_over_time") {
					asked = append(asked, r)
				}
			}
			if len(asked) == 0 && tc.at > 0 || len(asked) > 0 && tc.at == 0 {
				t.Fatalf("it was asked %d times", len(asked))
			}
			for _, r := range asked {
				at, err := strconv.ParseFloat(r.Form.Get("time"), 64)
				if want := time.Now().Add(2*time.Hour - tc.at); err != nil || want.Sub(time.UnixMilli(int64(at*1000))).Abs() > time.Minute {
					t.Errorf("it was asked at %s, want %v", r.Form.Get("time"), want)
				}
			}
		})
	}
}

// TestThanosOld: a Thanos Query before 0.37 has the engine of a Prometheus before 3.0, which
// differs from later ones; alone it differs from nobody. What is refused for that says so, and what
// to do.
func TestThanosOld(t *testing.T) {
	start := func(version string) config.Group {
		cfg := fakeThanos(nil)
		cfg.Version = version
		g := thanosGroup(fakeshard.Start(t, cfg).URL())
		g.Name = "old"
		return g
	}
	prometheus := group(fakeshard.Start(t, fakeshard.Config{}).URL())
	for _, tc := range []struct {
		version string
		groups  []config.Group
		differs bool
	}{
		{"0.36.1", []config.Group{start("0.36.1"), prometheus}, true},
		{"v0.9.0-rc.1", []config.Group{start("v0.9.0-rc.1"), prometheus}, true},
		{"0.37.0-rc.0", []config.Group{start("0.37.0-rc.0"), prometheus}, false},
		{"1.2.3", []config.Group{start("1.2.3"), prometheus}, false},
		{"main", []config.Group{start("main"), prometheus}, false},
		{"0.36.1, alone", []config.Group{start("0.36.1")}, false},
	} {
		t.Run(tc.version, func(t *testing.T) {
			top := build(t, Options{}, true, tc.groups...)
			top.Refresh(t.Context())
			s := top.Groups[0].Shards[0]
			d := strings.Join(top.EngineDifferences(s.Replicas[0]), "; ")
			e := qerr.From(ErrNoRaw(s))
			for _, said := range []string{d, e.Message} {
				if strings.Contains(said, "left end") != tc.differs {
					t.Errorf("differs: %q; the refusal: %q", d, e.Message)
				}
			}
			told := strings.Contains(e.Message, "0.37") && strings.Contains(e.Advice, "the same engine")
			if told != tc.differs || top.Groups[0].Trusted() == tc.differs {
				t.Errorf("the refusal: %q, %q; trusted: %t", e.Message, e.Advice, top.Groups[0].Trusted())
			}
		})
	}
}

// TestThanosUnderAnotherType: one that is not said to be one is not asked, since nobody would see
// what it leaves out: by its flags, or where they are not served by its page of stores, which a
// Prometheus is not asked for.
func TestThanosUnderAnotherType(t *testing.T) {
	const noFlags = "status 404; send no"
	asked := func(path string) fakeshard.Route { return fakeshard.Route{Path: path, Script: noFlags} }
	for _, tc := range []struct {
		name  string
		cfg   fakeshard.Config
		is    bool
		pages int // how often its page of stores was asked for
	}{
		{"by its flags", fakeThanos(nil), true, 0},
		{"by its endpoints", fakeThanos(map[string]string{"query.replica-label": "", "endpoint": "a:1"}), true, 0},
		{"by its page", fakeThanos(nil, asked("/api/v1/status/flags")), true, 1},
		{"a Prometheus", fakeshard.Config{}, false, 0},
		{"neither", fakeshard.Config{Routes: []fakeshard.Route{
			asked("/api/v1/status/config"), asked("/api/v1/status/flags"), asked(storesPath),
		}}, false, 1},
		{"another page", fakeshard.Config{Routes: []fakeshard.Route{
			asked("/api/v1/status/config"), asked("/api/v1/status/flags"),
			{Path: storesPath, Script: `header Content-Type application/json; send '{"status":"success","data":["a"]}'`},
		}}, false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := fakeshard.Start(t, tc.cfg)
			top := build(t, Options{}, true, group(fake.URL()))
			r := top.Groups[0].Shards[0].Replicas[0]
			why := strings.Join(r.misconfigured(), "; ")
			if (r.State() == Misconfigured) != tc.is || strings.Contains(why, "type: thanos") != tc.is {
				t.Errorf("it is %s: %q", r.State(), why)
			}
			if n := len(fake.RequestsTo(storesPath)); n != tc.pages {
				t.Errorf("its page of stores was asked for %d times", n)
			}
		})
	}
}

// TestRefusedLabelIsNoFailure: a label name that an old Thanos Query does not take says nothing
// about how well it is.
func TestRefusedLabelIsNoFailure(t *testing.T) {
	route := fakeshard.Route{Path: "/api/v1/label/k8s.pod/values", Script: `error 400 bad_data 'invalid label name: "k8s.pod"'`}
	fake := fakeshard.Start(t, fakeThanos(nil, route))
	s := build(t, Options{}, false, thanosGroup(fake.URL())).Groups[0].Shards[0]
	for range 2 * breakerFailures {
		_, err := ask(context.Background(), s, &endpoint.Request{ID: endpoint.LabelValues, Label: "k8s.pod"})
		if kindOf(err) != "shard_failed" || !strings.Contains(qerr.From(err).Advice, "0.40") {
			t.Fatal(err)
		}
	}
	if state := s.Replicas[0].up.breaker.current(time.Now()); state != Closed {
		t.Errorf("its breaker is %s", state)
	}
}
