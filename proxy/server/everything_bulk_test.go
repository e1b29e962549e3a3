package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang/snappy"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/spillwayproject/spillway/internal/seamref"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// provenance is a sample and the server that it is from.
type provenance struct {
	point
	server *fleetServer
}

// read1 is what one select must give, by label set: the samples of the segments that the proxy
// reports, taken from the data that was written into the servers. The segments themselves are held
// against the rules of splicing by code of this file, so that a wrong choice is seen as well as a
// wrong sample.
func (e *everything) read1(what string, sel raw.Selected) map[string][]provenance {
	e.t.Helper()
	out := map[string][]provenance{}
	for key, segments := range sel.Series {
		last := always
		for _, seg := range segments {
			srv := e.servers[seg.Copy]
			if srv == nil {
				e.t.Errorf("%s: %s has a segment of the unknown server %s", what, key, seg.Copy)
				continue
			}
			first, final := srv.shard.span()
			if seg.From < max(first, sel.From) || seg.Until > min(final, sel.Until) || seg.From > seg.Until || seg.From <= last {
				e.t.Errorf("%s: %s: the segment %+v is outside of its shard's span, of the window, or behind its successor: %+v", what, key, seg, segments)
			}
			last = seg.Until
			for _, p := range srv.within(key, seg.From, seg.Until) {
				out[key] = append(out[key], provenance{p, srv})
			}
		}
	}
	for _, g := range e.groups {
		for _, s := range g.shards {
			e.splicedWell(what, s, sel, out)
		}
	}
	return out
}

// within are the samples of the series that is shown under the key.
func (srv *fleetServer) within(key string, from, until int64) []point {
	var out []point
	for _, one := range srv.series {
		if srv.shard.group.shown(one.lbls).String() != key {
			continue
		}
		for _, p := range one.points {
			if p.t >= from && p.t <= until {
				out = append(out, p)
			}
		}
	}
	return out
}

// splicedWell compares the samples of one shard with those that the rules give for one of its
// replicas as the base, the same for all series. Where there is a heartbeat, a replica that was
// found to be whole may have been read alone.
func (e *everything) splicedWell(what string, s *fleetShard, sel raw.Selected, got map[string][]provenance) {
	e.t.Helper()
	first, last := s.span()
	lo, hi := max(first, sel.From), min(last, sel.Until)
	if lo > hi {
		return
	}
	keys := map[string]bool{}
	for _, srv := range s.replicas {
		for _, one := range srv.series {
			if l := s.group.shown(one.lbls); matches(l, sel.Matchers) {
				keys[l.String()] = true
			}
		}
	}
	var why []string
	ways := len(s.replicas)
	if s.group.heartbeat {
		ways *= 2
	}
	for way := range ways {
		base, alone := way%len(s.replicas), way >= len(s.replicas) || len(s.replicas) == 1
		bad := ""
		for key := range keys {
			want := s.replicas[base].within(key, lo, hi)
			if !alone {
				want = splicedByRule(s.replicas[base], s.replicas[1-base], key, lo, hi)
			}
			var have []point
			for _, p := range got[key] {
				if p.server.shard == s {
					have = append(have, p.point)
				}
			}
			if diff := differ(have, want); diff != "" {
				bad = fmt.Sprintf("%s (base %s, alone %v): %s", key, s.replicas[base].name, alone, diff)
				break
			}
		}
		if bad == "" {
			return
		}
		why = append(why, bad)
	}
	e.t.Errorf("%s: shard %s[%d]: its samples follow from neither replica as the base:\n%s", what, s.group.name, slices.Index(s.group.shards, s), strings.Join(why, "\n"))
}

// splicedByRule is what the rules of seams make of two replicas.
func splicedByRule(base, other *fleetServer, key string, lo, hi int64) []point {
	points := [][]point{base.within(key, lo, hi), other.within(key, lo, hi)}
	told := func(srv *fleetServer, copy int) []seamref.Sample {
		own := seamPoints(points[copy], copy)
		l, up := srv.target(key, lo, hi)
		return seamref.Tell(l, own, seamPoints(up, copy))
	}
	var out []point
	for _, s := range seamref.Splice(told(base, 0), told(other, 1), lo, hi) {
		of := points[s.Copy]
		out = append(out, of[slices.IndexFunc(of, func(p point) bool { return p.t == s.T })])
	}
	return out
}

func seamPoints(ps []point, copy int) []seamref.Sample {
	out := make([]seamref.Sample, len(ps))
	for i, p := range ps {
		out[i] = seamref.Sample{T: p.t, Copy: copy, Marker: stalePoint(p), Zero: p.h == nil && p.f == 0}
	}
	return out
}

// target is the name of a series, and what its server says of the target's scrapes; nothing where
// there is no series of up, or several, that it could be.
func (srv *fleetServer) target(key string, lo, hi int64) (name string, up []point) {
	var of labels.Labels
	for _, one := range srv.series {
		if l := srv.shard.group.shown(one.lbls); l.String() == key {
			of = l
		}
	}
	var found []string
	for _, one := range srv.series {
		u := srv.shard.group.shown(one.lbls)
		if u.Get("__name__") != "up" || u.Get("instance") == "" || slices.Contains(found, u.String()) {
			continue
		}
		same := true
		u.Range(func(l labels.Label) { same = same && (l.Name == "__name__" || of.Get(l.Name) == l.Value) })
		if same {
			found = append(found, u.String())
		}
	}
	if len(found) == 1 {
		up = srv.within(found[0], lo, hi)
	}
	return of.Get("__name__"), up
}

func stalePoint(p point) bool {
	return p.h == nil && value.IsStaleNaN(p.f) || p.h != nil && value.IsStaleNaN(p.h.Sum)
}

// differ says how two runs of samples differ, in times and in bits.
func differ(got, want []point) string {
	for i := range min(len(got), len(want)) {
		a, b := got[i], want[i]
		if a.t != b.t || (a.h == nil) != (b.h == nil) || a.h == nil && math.Float64bits(a.f) != math.Float64bits(b.f) ||
			a.h != nil && !sameHistogram(a.h, b.h) {
			return fmt.Sprintf("sample %d is %v at %d, want %v at %d", i, a.f, a.t, b.f, b.t)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d samples, want %d", len(got), len(want))
	}
	return ""
}

func sameHistogram(a, b *histogram.Histogram) bool {
	return a == b || a.ToFloat(nil).Equals(b.ToFloat(nil))
}

// several are selectors for requests that refuse unselective ones: usually none of these, and
// whether there is one.
func (e *everything) several(most int) (list []selector, refused bool) {
	for range 1 + e.rng.IntN(most) {
		s := e.selector(e.rng.IntN(3) > 0)
		refused = refused || s.class == "unselective"
		list = append(list, s)
	}
	return list, refused
}

// refusal checks that an unselective selector was refused, without asking for anything.
func (e *everything) refusal(what string, status int, body []byte) {
	e.t.Helper()
	var env struct{ Spillway struct{ Bound string } }
	if err := json.Unmarshal(body, &env); err != nil || status != 422 || env.Spillway.Bound != "unselective" {
		e.t.Errorf("%s: want 422 unselective: %d %.300s", what, status, body)
	}
	if n := len(e.ref.take()); n > 0 {
		e.t.Errorf("%s: %d selects were made for a refused request", what, n)
	}
	e.counts["refused"]++
}

// body sends the request and reads the answer.
func (e *everything) body(req *http.Request, err error) (int, http.Header, []byte) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, body
}

// selectedFor is what was read for the matchers in the window.
func selectedFor(all []raw.Selected, from, until int64, ms []*labels.Matcher) (raw.Selected, bool) {
	for _, s := range all {
		if (from == always || s.From == from && s.Until == until) && matchersText(s.Matchers) == matchersText(ms) {
			return s, true
		}
	}
	return raw.Selected{}, false
}

// checkFederate compares the newest sample of each series in the last five minutes.
func (e *everything) checkFederate() {
	list, refused := e.several(3)
	form := url.Values{}
	for _, s := range list {
		form.Add("match[]", s.text)
	}
	what := fmt.Sprintf("federate %v", form["match[]"])
	accept := "text/plain;version=1.0.0;escaping=allow-utf-8"
	binary := e.rng.IntN(2) == 0
	if binary {
		accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8"
	}
	e.ref.take()
	req, err := http.NewRequest(http.MethodGet, e.base+"/federate?"+form.Encode(), nil)
	req.Header.Set("Accept", accept)
	status, header, body := e.body(req, err)
	if refused {
		e.refusal(what, status, body)
		return
	}
	if status != 200 {
		e.t.Errorf("%s: %d %.300s", what, status, body)
		return
	}
	selected := e.ref.take()
	want := map[string]provenance{}
	for _, s := range list {
		sel, ok := selectedFor(selected, always, never, s.matchers)
		if !ok {
			e.t.Errorf("%s: no segments were reported", what)
			return
		}
		if d := sel.Until - sel.From; d != (5 * time.Minute).Milliseconds() {
			e.t.Errorf("%s: %dms were searched", what, d)
		}
		for key, samples := range e.read1(what, sel) {
			if _, ok := want[key]; !ok && len(samples) > 0 {
				want[key] = samples[len(samples)-1]
			}
		}
	}
	for key, p := range want {
		if stalePoint(p.point) || p.h != nil && !binary {
			delete(want, key) // these formats have no stale markers, and text has no native histograms
		}
	}
	got, err := decodeFederation(header.Get("Content-Type"), body)
	if err != nil || binary != strings.HasPrefix(header.Get("Content-Type"), "application/") {
		e.t.Errorf("%s: %v in %s %.500q", what, err, header.Get("Content-Type"), body)
		return
	}
	lastName := ""
	for _, m := range got {
		if name := m.labels.Get("__name__"); name < lastName {
			e.t.Errorf("%s: %s stands behind %s", what, name, lastName)
		} else {
			lastName = name
		}
		key := m.labels.String()
		w, ok := want[key]
		delete(want, key)
		switch {
		case !ok:
			e.t.Errorf("%s: unexpected %s", what, key)
		case m.t != w.t || w.h == nil && m.f != w.f && !(math.IsNaN(m.f) && math.IsNaN(w.f)) ||
			w.h != nil && (m.f != w.h.Sum || m.count != float64(w.h.Count)):
			e.t.Errorf("%s: %s is %v at %d, want %v at %d", what, key, m.f, m.t, w.f, w.t)
		}
		e.counts["federated series"]++
	}
	for key := range want {
		e.t.Errorf("%s: %s is missing", what, key)
	}
	e.counts["federate"]++
}

// federatedSample is one series of a federation: its value, or sum and count of its histogram.
type federatedSample struct {
	labels   labels.Labels
	t        int64
	f, count float64
}

// decodeFederation decodes the text or the binary format, in its order. The instance label that
// keeps a scraper from setting its own is left out.
func decodeFederation(contentType string, body []byte) (out []federatedSample, err error) {
	if strings.HasPrefix(contentType, "text/plain") {
		p, err := textparse.New(body, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
		if err != nil {
			return nil, err
		}
		for {
			switch kind, err := p.Next(); {
			case err == io.EOF:
				return out, nil
			case err != nil:
				return out, err
			case kind == textparse.EntrySeries:
				var s federatedSample
				_, t, v := p.Series()
				p.Labels(&s.labels)
				s.f = v
				if t != nil {
					s.t = *t
				}
				s.labels = s.labels.WithoutEmpty()
				out = append(out, s)
			}
		}
	}
	r := bufio.NewReader(bytes.NewReader(body))
	for {
		var mf dto.MetricFamily
		if err := protodelim.UnmarshalFrom(r, &mf); err == io.EOF {
			return out, nil
		} else if err != nil {
			return out, err
		}
		for _, m := range mf.Metric {
			set := map[string]string{"__name__": mf.GetName()}
			for _, l := range m.Label {
				set[l.GetName()] = l.GetValue()
			}
			s := federatedSample{labels: labels.FromMap(set).WithoutEmpty(), t: m.GetTimestampMs(), f: m.GetUntyped().GetValue()}
			if h := m.GetHistogram(); h != nil {
				s.f, s.count = h.GetSampleSum(), max(h.GetSampleCountFloat(), float64(h.GetSampleCount()))
			}
			out = append(out, s)
		}
	}
}

// checkRead compares remote reads: one to three queries, as samples or as streamed chunks.
func (e *everything) checkRead() {
	list, refused := e.several(3)
	rr := &prompb.ReadRequest{}
	streamed := e.rng.IntN(2) == 0
	if streamed {
		rr.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}
	}
	what := fmt.Sprintf("read (streamed %v)", streamed)
	for _, s := range list {
		until := e.start.UnixMilli() + e.rng.Int64N((e.length + 2*time.Minute).Milliseconds())
		from := until - e.rng.Int64N((20 * time.Minute).Milliseconds())
		q, err := remote.ToQuery(from, until, s.matchers, nil)
		if err != nil {
			e.t.Fatal(err)
		}
		rr.Queries = append(rr.Queries, q)
		what += fmt.Sprintf(" %s from %d to %d", s.text, from, until)
	}
	plain, err := rr.Marshal()
	if err != nil {
		e.t.Fatal(err)
	}
	e.ref.take()
	req, err := http.NewRequest(http.MethodPost, e.base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, plain)))
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	status, _, body := e.body(req, err)
	if refused {
		e.refusal(what, status, body)
		return
	}
	if status != 200 {
		e.t.Errorf("%s: %d %.300s", what, status, body)
		return
	}
	selected := e.ref.take()
	var got []map[string][]point
	if streamed {
		got = e.streamed(what, body, len(list))
	} else {
		got = e.sampled(what, body)
	}
	if len(got) != len(list) {
		e.t.Errorf("%s: %d results of %d queries", what, len(got), len(list))
		return
	}
	for i, q := range rr.Queries {
		sel, ok := selectedFor(selected, q.StartTimestampMs, q.EndTimestampMs, list[i].matchers)
		if !ok {
			e.t.Errorf("%s: no segments were reported", what)
			return
		}
		want := e.read1(what, sel)
		for key, samples := range want {
			var points []point
			for _, p := range samples {
				points = append(points, p.point)
			}
			if diff := differ(got[i][key], points); diff != "" {
				e.t.Errorf("%s: %s: %s", what, key, diff)
			}
			e.counts["samples read"] += len(points)
		}
		for key := range got[i] {
			if len(want[key]) == 0 {
				e.t.Errorf("%s: unexpected %s", what, key)
			}
		}
	}
	e.counts["read"]++
}

// sampled decodes an answer of samples.
func (e *everything) sampled(what string, body []byte) []map[string][]point {
	e.t.Helper()
	plain, err := snappy.Decode(nil, body)
	if err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
	var resp prompb.ReadResponse
	if err := resp.Unmarshal(plain); err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
	var out []map[string][]point
	for _, r := range resp.Results {
		m, last := map[string][]point{}, labels.EmptyLabels()
		for _, ts := range r.Timeseries {
			l := e.sortedSet(what, ts.Labels, last)
			last = l
			var list []point
			for _, s := range ts.Samples {
				list = append(list, point{t: s.Timestamp, f: s.Value})
			}
			for _, h := range ts.Histograms {
				list = append(list, point{t: h.Timestamp, h: h.ToIntHistogram()})
			}
			slices.SortStableFunc(list, func(a, b point) int { return int(a.t - b.t) })
			m[l.String()] = list
		}
		out = append(out, m)
	}
	return out
}

// streamed decodes an answer of streamed chunks; a series may come in several frames that follow
// each other.
func (e *everything) streamed(what string, body []byte, queries int) []map[string][]point {
	e.t.Helper()
	out := make([]map[string][]point, queries)
	last := make([]labels.Labels, queries)
	for i := range out {
		out[i] = map[string][]point{}
	}
	frames := remote.NewChunkedReader(bytes.NewReader(body), 8<<20, nil)
	for {
		var f prompb.ChunkedReadResponse
		if err := frames.NextProto(&f); err == io.EOF {
			return out
		} else if err != nil || f.QueryIndex >= int64(queries) {
			e.t.Fatalf("%s: %v, query %d", what, err, f.QueryIndex)
		}
		i := f.QueryIndex
		for _, ts := range f.ChunkedSeries {
			var b labels.ScratchBuilder
			for _, l := range ts.Labels {
				b.Add(l.Name, l.Value)
			}
			if l := b.Labels(); !labels.Equal(l, last[i]) {
				last[i] = e.sortedSet(what, ts.Labels, last[i])
			}
			key := last[i].String()
			for _, c := range ts.Chunks {
				chk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
				if err != nil {
					e.t.Fatalf("%s: %v", what, err)
				}
				it := chk.Iterator(nil)
				for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
					switch typ {
					case chunkenc.ValFloat:
						t, v := it.At()
						out[i][key] = append(out[i][key], point{t: t, f: v})
					default:
						t, h := it.AtHistogram(nil)
						out[i][key] = append(out[i][key], point{t: t, h: h})
					}
				}
				if it.Err() != nil {
					e.t.Fatalf("%s: %v", what, it.Err())
				}
			}
		}
	}
}

// sortedSet is a label set that is sorted, and stands behind the last.
func (e *everything) sortedSet(what string, pairs []prompb.Label, last labels.Labels) labels.Labels {
	e.t.Helper()
	var b labels.ScratchBuilder
	for i, l := range pairs {
		if i > 0 && pairs[i-1].Name >= l.Name {
			e.t.Errorf("%s: the labels of a series are not sorted: %v", what, pairs)
		}
		b.Add(l.Name, l.Value)
	}
	l := b.Labels()
	if labels.Compare(last, l) >= 0 {
		e.t.Errorf("%s: %s stands behind %s", what, l, last)
	}
	return l
}
