package uses

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// Keep adds what people want kept, whoever asks for it: a YAML list of
//
//   - match: 'node_nvme_*'        # a metric's name, with * and ? for any characters, or a selector
//     owner: storage
//     reason: the quarterly wear report reads it
//     expires: 2027-03-31         # optional: the last day on which it counts
//     labels: [device]            # optional: those that count; all where it is absent
//
// A keep without owner or reason, an unknown field and a match that does not parse are errors with
// their line. One that has expired keeps nothing, and a warning says so.
func Keep(set *Set, path string, now time.Time) error {
	text, err := plainfile.Read(path)
	if err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	uses, warnings, err := keeps(path, text, now)
	if err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	for _, u := range uses {
		set.Add(u)
	}
	set.Warnings = append(set.Warnings, warnings...)
	return nil
}

func keeps(path string, text []byte, now time.Time) (out []*Use, warnings []string, err error) {
	docs, err := parseYAML(text, 1)
	if err != nil {
		return nil, nil, at(path, err)
	}
	var errs []error
	for _, doc := range docs {
		if doc.scalar == nil && !doc.object() && doc.items == nil {
			continue
		}
		if doc.items == nil {
			return nil, nil, inFile(path, doc.line, errors.New("this must be a list, each item with match, owner and reason"))
		}
		for _, item := range doc.items {
			u, warning, err := keep(item, now)
			if err != nil {
				errs = append(errs, inFile(path, item.line, err))
				continue
			}
			if warning != "" {
				warnings = append(warnings, fmt.Sprintf("%s:%d: %s", path, item.line, warning))
			}
			if u != nil {
				u.File, u.Line = path, item.line
				out = append(out, u)
			}
		}
	}
	return out, warnings, errors.Join(errs...)
}

func keep(item *node, now time.Time) (u *Use, warning string, err error) {
	if !item.object() {
		return nil, "", errors.New("this must have the fields match, owner and reason")
	}
	for _, key := range item.keys {
		if !slices.Contains([]string{"match", "owner", "reason", "expires", "labels"}, key) {
			return nil, "", fmt.Errorf("the field %q is none of match, owner, reason, expires, labels", key)
		}
	}
	match, owner, reason, expires := item.word("match"), strings.TrimSpace(item.word("owner")), strings.TrimSpace(item.word("reason")),
		item.word("expires")
	switch {
	case match == "":
		return nil, "", errors.New("match is missing: name a metric or a selector")
	case owner == "":
		return nil, "", fmt.Errorf("the keep of %s has no owner: name who to ask when it is in the way", match)
	case reason == "":
		return nil, "", fmt.Errorf("the keep of %s has no reason: say what it is kept for", match)
	}
	need := Need{Labels: All}
	if need.Matchers, err = matchers(match); err != nil {
		return nil, "", err
	}
	if list := item.get("labels"); list != nil {
		need.Labels = Labels{}
		for _, l := range list.items {
			need.Labels = need.Labels.Or(some(l.word()))
		}
		if list.items == nil {
			return nil, "", fmt.Errorf("labels of the keep of %s must be a list", match)
		}
	}
	if expires != "" {
		day, err := time.Parse(time.DateOnly, expires[:min(len(expires), len(time.DateOnly))])
		if err != nil {
			return nil, "", fmt.Errorf("expires of the keep of %s is no date such as 2027-03-31: %s", match, expires)
		}
		if !now.Before(day.AddDate(0, 0, 1)) {
			return nil, fmt.Sprintf("the keep of %s by %s expired on %s and keeps nothing any more: renew it or take it out", match, owner, day.Format(time.DateOnly)), nil
		}
	}
	return &Use{Kind: Kept, Where: "keep " + match, Owner: owner, Reason: reason, Query: selectorOrName(match), Needs: []Need{need}}, "",
		nil
}

// matchers are those of a selector, or of a name with * and ?.
func matchers(match string) ([]*labels.Matcher, error) {
	if strings.ContainsAny(match, "{}") {
		m, err := promql.ParseMetricSelector(match)
		if err != nil {
			return nil, fmt.Errorf("match %s is no selector: %w", match, err)
		}
		return m, nil
	}
	if !strings.ContainsAny(match, "*?") {
		return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, match)}, nil
	}
	pattern := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(match))
	m, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern)
	if err != nil {
		return nil, fmt.Errorf("match %s: %w", match, err)
	}
	return []*labels.Matcher{m}, nil
}

// selectorOrName is the match as PromQL, so that it can be asked; "" where there is none.
func selectorOrName(match string) string {
	m, err := matchers(match)
	if err != nil {
		return ""
	}
	text := (&Need{Matchers: m}).Selector()
	if _, err := promql.ParseExpr(text); err != nil {
		return ""
	}
	return text
}

// File adds the queries of a text file: one a line, or several lines that end in \; what follows #
// is a comment. Variables may have any value.
func File(set *Set, path string) error {
	text, err := plainfile.Read(path)
	if err != nil {
		return fmt.Errorf("queries: %w", err)
	}
	found := 0
	query, line := "", 0
	for i, l := range strings.Split(string(text), "\n") {
		l = strings.TrimSpace(uncommented(l))
		if query == "" {
			line = i + 1
		}
		if more, ok := strings.CutSuffix(l, `\`); ok {
			query += more + " "
			continue
		}
		if query = strings.TrimSpace(query + l); query != "" {
			u := &Use{Kind: Listed, File: path, Line: line, Where: fmt.Sprintf("%s, line %d", filepath.Base(path), line), Query: query}
			if text, err := strconv.Unquote(query); err == nil { // a list of names in JSON
				u.Query, u.Needs, u.Reason = "", textual(text, nil), "a text in quotes is no query; every metric named in it is kept"
				set.warn(u, u.Reason)
			}
			set.Add(u)
			found++
		}
		query = ""
	}
	if query != "" {
		return inFile(path, line, errors.New(`the last line ends in \, but nothing follows`))
	}
	if found == 0 {
		set.Warnings = append(set.Warnings, path+": there are no queries in it")
	}
	return nil
}

// uncommented is the line without its comment; # in a string is none.
func uncommented(line string) string {
	var quote byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '#':
			return line[:i]
		}
	}
	return line
}
