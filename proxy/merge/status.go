package merge

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/internal/version"
	"github.com/spillwayproject/spillway/proxy/admit"
)

type tsdbStat struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

type headStats struct {
	NumSeries     uint64 `json:"numSeries"`
	NumLabelPairs int64  `json:"numLabelPairs"`
	ChunkCount    int64  `json:"chunkCount"`
	MinTime       int64  `json:"minTime"`
	MaxTime       int64  `json:"maxTime"`
}

type tsdbStatus struct {
	HeadStats                   *headStats `json:"headStats"`
	SeriesCountByMetricName     []tsdbStat `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName  []tsdbStat `json:"labelValueCountByLabelName"`
	MemoryInBytesByLabelName    []tsdbStat `json:"memoryInBytesByLabelName"`
	SeriesCountByLabelValuePair []tsdbStat `json:"seriesCountByLabelValuePair"`
}

// MergeTSDB writes the shards' status/tsdb as one: each number is the highest of a shard's
// replicas, added over shards; times are the earliest and the latest; of each list the first limit
// entries by value are kept (0 is 10, as in Prometheus).
//
// There are two things that a sum cannot know: a name that is not among the first of every shard is
// counted too low, and a label value that several shards have is counted once for each. The lists
// are for finding what is big, and for that they are good enough.
func MergeTSDB(ctx context.Context, w *Writer, limit int, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[tsdbStatus](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	for i, doc := range d.docs {
		if doc.HeadStats == nil {
			return d.res, shardErr(ctx, shards[i].Name, &ScanError{Kind: WrongShape, Reason: "it has no headStats"})
		}
	}
	if limit <= 0 {
		limit = 10
	}
	var out tsdbStatus
	heads := sumOverShards(shards, func(i int, add func(string, int64)) {
		h := d.docs[i].HeadStats
		add("series", int64(h.NumSeries))
		add("pairs", h.NumLabelPairs)
		add("chunks", h.ChunkCount)
	})
	out.HeadStats = &headStats{NumSeries: uint64(heads["series"]), NumLabelPairs: heads["pairs"], ChunkCount: heads["chunks"]}
	for i, doc := range d.docs {
		if i == 0 {
			out.HeadStats.MinTime, out.HeadStats.MaxTime = doc.HeadStats.MinTime, doc.HeadStats.MaxTime
		}
		out.HeadStats.MinTime = min(out.HeadStats.MinTime, doc.HeadStats.MinTime)
		out.HeadStats.MaxTime = max(out.HeadStats.MaxTime, doc.HeadStats.MaxTime)
	}
	top := func(list func(*tsdbStatus) []tsdbStat) []tsdbStat {
		sums := sumOverShards(shards, func(i int, add func(string, uint64)) {
			for _, s := range list(&d.docs[i]) {
				add(s.Name, s.Value)
			}
		})
		all := make([]tsdbStat, 0, len(sums))
		for name, n := range sums {
			all = append(all, tsdbStat{name, n})
		}
		slices.SortFunc(all, func(a, b tsdbStat) int {
			return cmp.Or(cmp.Compare(b.Value, a.Value), strings.Compare(a.Name, b.Name))
		})
		return all[:min(limit, len(all))]
	}
	out.SeriesCountByMetricName = top(func(s *tsdbStatus) []tsdbStat { return s.SeriesCountByMetricName })
	out.LabelValueCountByLabelName = top(func(s *tsdbStatus) []tsdbStat { return s.LabelValueCountByLabelName })
	out.MemoryInBytesByLabelName = top(func(s *tsdbStatus) []tsdbStat { return s.MemoryInBytesByLabelName })
	out.SeriesCountByLabelValuePair = top(func(s *tsdbStatus) []tsdbStat { return s.SeriesCountByLabelValuePair })
	return d.res, writeData(w, out)
}

type walReplay struct {
	Min     int64  `json:"min"`
	Max     int64  `json:"max"`
	Current int64  `json:"current"`
	State   string `json:"state,omitempty"`
}

// left is the number of segments still to be replayed.
func (s walReplay) left() int64 { return max(0, s.Max-s.Current) }

// MergeWALReplay writes the status of the shard that has most left to replay: when that one is
// done, all are.
func MergeWALReplay(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[walReplay](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	var worst walReplay
	if len(d.docs) > 0 {
		worst = slices.MaxFunc(d.docs, func(a, b walReplay) int {
			return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(a.Max, b.Max), cmp.Compare(a.Min, b.Min),
				cmp.Compare(a.Current, b.Current), strings.Compare(a.State, b.State))
		})
	}
	return d.res, writeData(w, worst)
}

// buildInfo has no field features: Grafana takes a server that has it for Mimir.
type buildInfo struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	Branch    string `json:"branch"`
	BuildUser string `json:"buildUser"`
	BuildDate string `json:"buildDate"`
	GoVersion string `json:"goVersion"`
}

// MergeBuildinfo writes the build information of the shard with the lowest version: clients
// conclude from it what they may ask, and every shard is asked. A version that does not begin with
// a number (main-abc, from a custom build) counts only where no shard has another one. The shards
// must be of one product: versions of several are not to be compared.
func MergeBuildinfo(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[buildInfo](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	for i, doc := range d.docs {
		if doc.Version == "" {
			return d.res, shardErr(ctx, shards[i].Name, &ScanError{Kind: WrongShape, Reason: "it has no version"})
		}
	}
	docs := d.docs
	if own := slices.DeleteFunc(slices.Clone(docs), func(b buildInfo) bool { return !numbered(b.Version) }); len(own) > 0 {
		docs = own
	}
	var lowest buildInfo
	if len(docs) > 0 {
		lowest = slices.MinFunc(docs, func(a, b buildInfo) int {
			return cmp.Or(version.Compare(a.Version, b.Version),
				strings.Compare(a.Revision, b.Revision), strings.Compare(a.Branch, b.Branch),
				strings.Compare(a.BuildUser, b.BuildUser), strings.Compare(a.BuildDate, b.BuildDate),
				strings.Compare(a.GoVersion, b.GoVersion))
		})
	}
	return d.res, writeData(w, lowest)
}

// numbered tells whether the version begins with a number.
func numbered(version string) bool {
	version = strings.TrimPrefix(version, "v")
	return version != "" && version[0] >= '0' && version[0] <= '9'
}

// What Spillway serves itself, whatever the servers do, and what it never serves. A category in
// neverServed is so as a whole.
var (
	ownServed = []string{
		"openapi_3.1", "openapi_3.2", "search", fuzzAlgorithm + "jarowinkler", fuzzAlgorithm + "subsequence",
	}
	neverServed = map[string][]string{
		"api":           {"admin", "lifecycle", "otlp_write_receiver", "remote_write_receiver"},
		"otlp_receiver": nil,
		"ui":            nil,
	}
)

const fuzzAlgorithm = "search_fuzz_alg_"

// MergeFeatures writes what all shards have: of each category the features that every shard lists,
// true where it is true everywhere. What Spillway never serves is false, and what it serves itself
// is true.
func MergeFeatures(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[map[string]map[string]bool](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	out := map[string]map[string]bool{}
	if len(d.docs) == 0 {
		return d.res, writeData(w, out)
	}
	for category, features := range d.docs[0] {
		common := map[string]bool{}
		for name := range features {
			all, on := true, true
			for _, doc := range d.docs {
				value, has := doc[category][name]
				all, on = all && has, on && value
			}
			if all {
				common[name] = on
			}
		}
		everywhere := true
		for _, doc := range d.docs {
			_, has := doc[category]
			everywhere = everywhere && has
		}
		if everywhere {
			own(category, common)
			out[category] = common
		}
	}
	return d.res, writeData(w, out)
}

// own sets what is not the servers' to say.
func own(category string, features map[string]bool) {
	never, some := neverServed[category]
	for name := range features {
		if some && (never == nil || slices.Contains(never, name) || strings.HasPrefix(name, fuzzAlgorithm)) {
			features[name] = false
		}
	}
	if category == "api" {
		for _, name := range ownServed {
			features[name] = true
		}
	}
}
