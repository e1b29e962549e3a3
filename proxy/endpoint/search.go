package endpoint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Bounds of the search endpoints. Those of Prometheus 3.15 are the same where it has any.
const (
	// MaxSearchTerms is how many different texts one search may have.
	MaxSearchTerms = 32
	// MaxSearchTermBytes caps one text: what a value costs grows with its length times the text's.
	MaxSearchTermBytes = 256
	// MaxSimilarBytes caps all texts together where it is asked which values are similar: what a
	// value costs grows with its length times theirs.
	MaxSimilarBytes = 512
	// DefaultSearchLimit is limit where it is absent, and DefaultSearchBatch batch_size.
	DefaultSearchLimit, DefaultSearchBatch = 100, 100
)

// searchLimits are the search endpoints' own: they are asked while someone types.
var searchLimits = Limits{Timeout: 10 * time.Second, MaxSeries: 10_000, MaxResponseBytes: 32 << 20}

const searchDoc = "as lines of JSON: batches of results, then a line that says whether there are more (`has_more`). " +
	"A shard that does not serve this (before 3.15, or without --enable-feature=search-api) is asked for all of them, and what is found is the same."

var errNoLabel = errors.New(`missing required parameter "label"`)

// searchParams are the parameters of all search endpoints, own ones first.
func searchParams(own ...Param) []Param {
	return append(own,
		filterList("search[]", KindText, "node_cpu",
			"Texts; what is like one of them is found, everything where there is none. At most 32 of 256 bytes each, and 512 bytes in all with fuzz_alg=jarowinkler and a fuzz_threshold.").
			with(func(p *Param) { p.MaxCount, p.MaxBytes = MaxSearchTerms, MaxSearchTermBytes }),
		enumParam("fuzz_alg", "subsequence", "subsequence (the default) or jarowinkler: what being like a text means.",
			word, "subsequence", "jarowinkler"),
		boundedParam("fuzz_threshold", "60", "How like, 0 (the default) to 100.", 0, 100),
		filterParam("case_sensitive", KindBool, "false", "Whether case counts; true where absent.", boolWord),
		enumParam("sort_by", "alpha", "alpha (the default), or score: the likest first; that needs search[].", word, "alpha", "score"),
		enumParam("sort_dir", "asc", "asc (the default) or dsc, with sort_by=alpha.", word, "asc", "dsc"),
		filterParam("include_score", KindBool, "true", "Says with each result how like it is, 0 to 1.", boolWord),
		matchParam("Selectors; a series needs to match one of them. Where absent, all series count."),
		startParam(), endParam(),
		numberParam("limit", "At most so many, 1 or more; 100 where absent, and at most Spillway's own limit.",
			func(r *Request) *int { return &r.Limit }).
			with(func(p *Param) {
				p.Min, p.set = 1, func(r *Request, v []string) (err error) { r.Limit, err = positive(v[0]); return err }
			}),
		filterParam("batch_size", KindNumber, "100", "How many results a line has, 1 or more; 100 where absent.", func(s string) (string, error) {
			n, err := positive(s)
			return strconv.Itoa(n), err
		}).with(func(p *Param) { p.Min = 1 }),
		timeoutParam(), partialParam())
}

// word reads one of the words, spelled exactly so, as the search endpoints of Prometheus do.
func word(words ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", fmt.Errorf("%s must be one of %q", quoted(s), words)
		}
		return s, nil
	}
}

func boolWord(s string) (string, error) {
	b, err := parseBool(s)
	return strconv.FormatBool(b), err
}

func positive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s must be a positive integer", quoted(s))
	}
	return n, nil
}

// searchRules refuses what Prometheus refuses, in its words, and fills in what a search means that
// does not say it. An empty text finds nothing in particular: it is left out.
func searchRules(r *Request) error {
	said := func(name string) string {
		if v := r.Filters[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	if r.Start.Set && r.End.Set && r.End.Ms < r.Start.Ms {
		return qerr.Prometheus("end timestamp must not be before start timestamp")
	}
	if terms := slices.DeleteFunc(r.Filters["search[]"], func(s string) bool { return s == "" }); len(terms) > 0 {
		r.Filters["search[]"] = terms
	} else {
		delete(r.Filters, "search[]")
	}
	by, dir := said("sort_by"), said("sort_dir")
	switch {
	case dir != "" && by == "":
		return qerr.Prometheus("sort_dir is only valid when sort_by is set")
	case dir != "" && by == "score":
		return qerr.Prometheus("sort_dir is not supported for sort_by=score")
	case by == "score" && len(r.Filters["search[]"]) == 0:
		// With nothing but an empty text a Prometheus answers in whatever order its index has.
		return qerr.Prometheus("sort_by=score requires search[] to be set")
	}
	bytes := 0
	for _, text := range r.Filters["search[]"] {
		bytes += len(text)
	}
	if how := said("fuzz_threshold"); bytes > MaxSimilarBytes && said("fuzz_alg") == "jarowinkler" && strings.Trim(how, "0") != "" {
		return qerr.New(qerr.BadData, "invalid parameter %q: its values have %d bytes, of which fuzz_alg=jarowinkler with a fuzz_threshold is served at most %d in all; "+
			"search for fewer or shorter texts, or with fuzz_alg=subsequence", "search[]", bytes, MaxSimilarBytes)
	}
	if r.Limit == 0 {
		r.Limit = DefaultSearchLimit
	}
	if len(r.Filters) == 0 {
		r.Filters = nil
	}
	return nil
}
