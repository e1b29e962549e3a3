package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.yaml.in/yaml/v3"
)

var _ Sampled = (*api)(nil)

// readAtOnce is how many series one request of remote read asks for. Each is a query of its own,
// which names all its labels, so that no limit on what a query selects is met. Spillway takes no
// more in one request.
const readAtOnce = 16

// Samples reads the samples by remote read, which is exact for native histograms too, in the window
// before the time that the API was opened with. Stale markers are among them. Series that have no
// sample in the window are left out. Labels that the server adds on the way out are taken off.
func (a *api) Samples(ctx context.Context, window time.Duration, keep func(labels.Labels) bool, f withSamples) error {
	err := a.samples(ctx, window, keep, f)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (a *api) samples(ctx context.Context, window time.Duration, keep func(labels.Labels) bool, f withSamples) error {
	client, err := a.reader()
	if err != nil {
		return fmt.Errorf("%s: remote read: %w", a, err)
	}
	added, err := a.added(ctx)
	if err != nil {
		return err
	}
	r := &remoteSamples{a: a, client: client, added: added, from: a.to.Add(-window).UnixMilli(), to: a.to.UnixMilli(), f: f}
	err = a.scan(ctx, func(s *Series, asked map[string]string) error {
		if !keep(s.Labels) {
			return nil
		}
		one := *s
		one.Labels = s.Labels.Copy()
		r.series, r.asked = append(r.series, one), append(r.asked, labels.FromMap(asked))
		if len(r.series) < readAtOnce {
			return nil
		}
		return r.flush(ctx)
	})
	if err != nil {
		return err
	}
	return r.flush(ctx)
}

// reader is a client of remote read. Its URL has no user in it, since that would be in its errors.
func (a *api) reader() (remote.ReadClient, error) {
	u := *a.base
	u.User = nil
	u.Path += "/api/v1/read"
	c, err := remote.NewReadClient("spillway", &remote.ClientConfig{
		URL: &commonconfig.URL{URL: &u}, Timeout: model.Duration(scrapeTimeout), ChunkedReadLimit: config.DefaultChunkedReadLimit,
	})
	if err != nil {
		return nil, err
	}
	client := *a.client
	if a.base.User != nil {
		client.Transport = &withUser{a.base.User, client.Transport}
	}
	c.(*remote.Client).Client = &client
	return c, nil
}

// withUser adds basic authentication to requests.
type withUser struct {
	user *url.Userinfo
	next http.RoundTripper
}

func (t *withUser) RoundTrip(r *http.Request) (*http.Response, error) {
	password, _ := t.user.Password()
	r = r.Clone(r.Context())
	r.SetBasicAuth(t.user.Username(), password)
	if t.next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return t.next.RoundTrip(r)
}

// added says which labels the server adds to what it sends by remote read, and stores no series
// with: those of its configuration, and where it shows none or has none, those of the names that
// the caller gave.
func (a *api) added(ctx context.Context) (func(labels.Label) bool, error) {
	var data struct {
		YAML string `json:"yaml"`
	}
	var config struct {
		Global struct {
			External map[string]string `yaml:"external_labels"`
		} `yaml:"global"`
	}
	ans, _, err := a.ask(ctx, false, "status/config", url.Values{})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil, json.Unmarshal(ans.Data, &data) != nil, yaml.Unmarshal([]byte(data.YAML), &config) != nil,
		len(config.Global.External) == 0:
		return func(l labels.Label) bool { return a.external[l.Name] }, nil // a tenant may not see it
	}
	return func(l labels.Label) bool { return config.Global.External[l.Name] == l.Value }, nil
}

// isOf says whether what the server sent is the series that was asked for, with nothing but labels
// added.
func isOf(sent, asked labels.Labels, added func(labels.Label) bool) bool {
	same, rest := 0, true
	sent.Range(func(l labels.Label) {
		if asked.Has(l.Name) {
			if asked.Get(l.Name) == l.Value {
				same++
			}
			return
		}
		rest = rest && added(l)
	})
	return rest && same > 0 && same == asked.Len()
}

// remoteSamples collects series until there are enough for a request.
type remoteSamples struct {
	a        *api
	client   remote.ReadClient
	added    func(labels.Label) bool
	from, to int64
	series   []Series
	asked    []labels.Labels
	f        withSamples
	points   points
}

func (r *remoteSamples) flush(ctx context.Context) error {
	if len(r.series) == 0 {
		return nil
	}
	queries := make([]*prompb.Query, len(r.asked))
	for i, ls := range r.asked {
		var matchers []*labels.Matcher
		ls.Range(func(l labels.Label) {
			// Spillway refuses such a matcher; the series is known by the other labels, and
			// compared below
			if strings.ContainsRune(l.Value, 0) {
				return
			}
			matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
		})
		q, err := remote.ToQuery(r.from, r.to, matchers, nil)
		if err != nil {
			return fmt.Errorf("%s: remote read of %s: %w", r.a, ls, err)
		}
		queries[i] = q
	}
	set, err := r.client.ReadMultiple(ctx, queries, false)
	if err != nil {
		return fmt.Errorf("%s: remote read: %w", r.a, err)
	}
	var it chunkenc.Iterator
	for set.Next() {
		one := set.At()
		// A query selects series with more labels as well; these are asked for themselves, if at
		// all.
		i := slices.IndexFunc(r.asked, func(ls labels.Labels) bool { return labels.Equal(ls, one.Labels()) })
		if i < 0 {
			i = slices.IndexFunc(r.asked, func(ls labels.Labels) bool { return isOf(one.Labels(), ls, r.added) })
		}
		if i < 0 {
			continue
		}
		if it, err = r.points.read(one, it, r.from, r.to); err != nil {
			return fmt.Errorf("%s: samples of %s: %w", r.a, one.Labels(), err)
		}
		r.asked[i] = labels.EmptyLabels() // once is enough
		if len(r.points.floats)+len(r.points.histograms) == 0 {
			continue
		}
		if err := r.f(&r.series[i], r.points.floats, r.points.histograms); err != nil {
			return err
		}
	}
	if err := set.Err(); err != nil {
		return fmt.Errorf("%s: remote read: %w", r.a, err)
	}
	if w := set.Warnings(); len(w) > 0 {
		return fmt.Errorf("%s: remote read: the answer may not be whole: %w", r.a, w.AsErrors()[0])
	}
	r.series, r.asked = r.series[:0], r.asked[:0]
	return nil
}

// points are the samples of one series; the slices are used again.
type points struct {
	floats     []promql.FPoint
	histograms []promql.HPoint
}

// read reads the samples of [from, to].
func (p *points) read(s storage.Series, it chunkenc.Iterator, from, to int64) (chunkenc.Iterator, error) {
	it = s.Iterator(it)
	p.floats, p.histograms = p.floats[:0], p.histograms[:0]
	return it, p.add(it, from, to)
}

func (p *points) add(it chunkenc.Iterator, from, to int64) error {
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		t := it.AtT()
		if t < from {
			continue
		}
		if t > to {
			return nil
		}
		switch typ {
		case chunkenc.ValFloat:
			_, v := it.At()
			p.floats = append(p.floats, promql.FPoint{T: t, F: v})
		case chunkenc.ValHistogram, chunkenc.ValFloatHistogram:
			_, h := it.AtFloatHistogram(nil)
			p.histograms = append(p.histograms, promql.HPoint{T: t, H: h})
		}
	}
	return it.Err()
}
