package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const (
	// partBytes bounds the text of an alternation of label values, partValues their number.
	partBytes  = 8 << 10
	partValues = 256
)

// selector selects series of one metric.
type selector struct {
	name     string
	matchers []*labels.Matcher
}

func (s selector) String() string {
	var b strings.Builder
	b.WriteString(labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, s.name).String())
	for _, m := range s.matchers {
		b.WriteString(",")
		b.WriteString(m.String())
	}
	return "{" + b.String() + "}"
}

// with adds a matcher for one of values.
func (s selector) with(label string, values ...string) selector {
	typ, text := labels.MatchEqual, values[0]
	if len(values) > 1 {
		quoted := make([]string, len(values))
		for i, v := range values {
			quoted[i] = regexp.QuoteMeta(v)
		}
		typ, text = labels.MatchRegexp, strings.Join(quoted, "|")
	}
	// Not appended in place: siblings share the beginning.
	return selector{s.name, append(s.matchers[:len(s.matchers):len(s.matchers)], labels.MustNewMatcher(typ, label, text))}
}

func (s selector) has(label string) bool {
	for _, m := range s.matchers {
		if m.Name == label {
			return true
		}
	}
	return false
}

// some asks for the selector's series and hands them on unless the answer was cut.
func (a *api) some(ctx context.Context, s selector, f func(map[string]string) error) (cut bool, err error) {
	var list []map[string]string
	cut, err = a.get(ctx, true, "series", a.params(s.String()), &list)
	if err != nil {
		return false, fmt.Errorf("%s: series of %s: %w", a, s, err)
	}
	if cut {
		return true, nil
	}
	for _, ls := range list {
		if err := f(ls); err != nil {
			return false, err
		}
	}
	return false, nil
}

// series hands on all series of the selector, in as many answers as it takes.
func (a *api) series(ctx context.Context, s selector, f func(map[string]string) error) error {
	cut, err := a.some(ctx, s, f)
	if err != nil || !cut {
		return err
	}
	label, values, err := a.split(ctx, s)
	if err != nil {
		return err
	}
	if err := a.series(ctx, s.with(label, ""), f); err != nil {
		return err
	}
	for len(values) > 0 {
		n, size := 0, 0
		for n < len(values) && n < partValues && (n == 0 || size+len(values[n]) < partBytes) {
			size += len(values[n]) + 1
			n++
		}
		if err := a.part(ctx, s, label, values[:n], f); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// part hands on the series with one of values, by halves where the answer is cut.
func (a *api) part(ctx context.Context, s selector, label string, values []string, f func(map[string]string) error) error {
	if len(values) == 1 {
		return a.series(ctx, s.with(label, values[0]), f)
	}
	cut, err := a.some(ctx, s.with(label, values...), f)
	if err != nil || !cut {
		return err
	}
	half := len(values) / 2
	if err := a.part(ctx, s, label, values[:half], f); err != nil {
		return err
	}
	return a.part(ctx, s, label, values[half:], f)
}

// split finds the label with the most values among those whose values can be listed.
func (a *api) split(ctx context.Context, s selector) (label string, values []string, err error) {
	var names []string
	cut, err := a.get(ctx, true, "labels", a.params(s.String()), &names)
	if err != nil {
		return "", nil, fmt.Errorf("%s: labels of %s: %w", a, s, err)
	}
	if cut {
		return "", nil, fmt.Errorf("%s: %s has more label names than one answer may have", a, s)
	}
	for _, name := range names {
		if name == model.MetricNameLabel || s.has(name) {
			continue
		}
		var some []string
		cut, err := a.get(ctx, false, "label/"+url.PathEscape(pathName(name))+"/values", a.params(s.String()), &some)
		if err != nil {
			return "", nil, fmt.Errorf("%s: values of %s in %s: %w", a, name, s, err)
		}
		if !cut && len(some) > len(values) {
			label, values = name, some
		}
	}
	if label == "" {
		return "", nil, fmt.Errorf("%s: the series of %s do not fit into one answer, and no label is left to ask for them in parts; "+
			"raise max_series of the endpoint, or read blocks", a, s)
	}
	return label, values, nil
}

// pathName is how the API wants a label's name in a path: names that are not of the old kind as U__
// with their characters escaped.
func pathName(name string) string {
	if model.LegacyValidation.IsValidLabelName(name) {
		return name
	}
	return model.EscapeName(name, model.ValueEncodingEscaping)
}

// families are the types of metric families.
type families struct {
	a     *api
	types map[string]model.MetricType
	// cut says that the list was not whole: what is not in it is asked for one by one.
	cut bool
}

type metadata map[string][]struct {
	Type model.MetricType `json:"type"`
}

// types asks for all metadata. A server that has no such endpoint has no types.
func (a *api) types(ctx context.Context) (*families, error) {
	t := &families{a: a, types: map[string]model.MetricType{}}
	var err error
	t.cut, err = t.ask(ctx, url.Values{})
	var status *statusError
	if errors.As(err, &status) && (status.code == http.StatusNotFound || status.code == http.StatusMethodNotAllowed) {
		err = nil
	}
	return t, err
}

func (t *families) ask(ctx context.Context, params url.Values) (cut bool, err error) {
	var data metadata
	cut, err = t.a.get(ctx, false, "metadata", params, &data)
	for name, list := range data {
		for _, m := range list {
			if old, ok := t.types[name]; ok && old != m.Type {
				m.Type = model.MetricTypeUnknown // targets do not agree
			}
			t.types[name] = m.Type
		}
	}
	return cut, err
}

// of is the type of a series by its name; family says that the name is that of the family.
func (t *families) of(ctx context.Context, name string) (typ model.MetricType, family bool, err error) {
	if t.cut {
		names := []string{name}
		for _, s := range suffixes {
			if base, ok := strings.CutSuffix(name, s.suffix); ok {
				names = append(names, base)
			}
		}
		for _, name := range names {
			if _, ok := t.types[name]; ok {
				break
			}
			if _, err := t.ask(ctx, url.Values{"metric": {name}}); err != nil {
				return "", false, err
			}
		}
	}
	_, family = t.types[name]
	return typeOf(t.types, name), family, nil
}

// intervals are the scrape intervals of jobs, where the server shows its targets; the longest of a
// job whose targets differ, so that no saving is claimed that is not there.
func (a *api) intervals(ctx context.Context) map[string]time.Duration {
	var data struct {
		ActiveTargets []struct {
			Labels         map[string]string `json:"labels"`
			ScrapeInterval string            `json:"scrapeInterval"`
		} `json:"activeTargets"`
	}
	out := map[string]time.Duration{}
	ans, _, err := a.ask(ctx, false, "targets", url.Values{"state": {"active"}})
	if err != nil || json.Unmarshal(ans.Data, &data) != nil {
		return out // a tenant may not see targets, and some servers have none
	}
	for _, t := range data.ActiveTargets {
		d, err := model.ParseDuration(t.ScrapeInterval)
		if job := t.Labels[model.JobLabel]; err == nil && job != "" {
			out[job] = max(out[job], time.Duration(d))
		}
	}
	return out
}
