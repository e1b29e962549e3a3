package merge

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
)

type target struct {
	DiscoveredLabels   labels.Labels `json:"discoveredLabels"`
	Labels             labels.Labels `json:"labels"`
	ScrapePool         string        `json:"scrapePool"`
	ScrapeURL          string        `json:"scrapeUrl"`
	GlobalURL          string        `json:"globalUrl"`
	LastError          string        `json:"lastError"`
	LastScrape         time.Time     `json:"lastScrape"`
	LastScrapeDuration float64       `json:"lastScrapeDuration"`
	Health             string        `json:"health"`
	ScrapeInterval     string        `json:"scrapeInterval"`
	ScrapeTimeout      string        `json:"scrapeTimeout"`
}

type droppedTarget struct {
	DiscoveredLabels labels.Labels `json:"discoveredLabels"`
	ScrapePool       string        `json:"scrapePool"`
}

type targetDiscovery struct {
	Active        []target        `json:"activeTargets"`
	Dropped       []droppedTarget `json:"droppedTargets"`
	DroppedCounts map[string]int  `json:"droppedTargetCounts"`
}

func (d *targetDiscovery) empty() []string {
	return without(map[string]int{"activeTargets": len(d.Active), "droppedTargets": len(d.Dropped)})
}

// sameTarget orders targets by what they are, not by how they fare.
func sameTarget(a, b target) int {
	return cmp.Or(strings.Compare(a.ScrapePool, b.ScrapePool), strings.Compare(a.ScrapeURL, b.ScrapeURL),
		labels.Compare(a.Labels, b.Labels))
}

// sick is 2 for down, 1 for up, 0 for a target not scraped yet.
func sick(health string) int {
	switch health {
	case "down":
		return 2
	case "up":
		return 1
	default:
		return 0
	}
}

// MergeTargets writes the targets of all shards, their labels relabelled, sorted by scrape pool,
// URL and labels. A target that several replicas scrape is listed once: as the replica has it where
// its health is worst, and among equals where it was scraped last. Dropped targets are listed once
// too; their counts are the highest of a shard's replicas, added over shards.
func MergeTargets(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[targetDiscovery](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	out := targetDiscovery{Active: []target{}, Dropped: []droppedTarget{}}
	for i, doc := range d.docs {
		for _, t := range doc.Active {
			t.Labels = shards[i].Relabel.Labels(t.Labels)
			out.Active = append(out.Active, t)
		}
		out.Dropped = append(out.Dropped, doc.Dropped...)
	}
	slices.SortFunc(out.Active, func(a, b target) int {
		return cmp.Or(sameTarget(a, b), -cmp.Compare(sick(a.Health), sick(b.Health)), b.LastScrape.Compare(a.LastScrape),
			strings.Compare(a.LastError, b.LastError),
			cmp.Compare(a.LastScrapeDuration, b.LastScrapeDuration), strings.Compare(a.GlobalURL, b.GlobalURL),
			labels.Compare(a.DiscoveredLabels, b.DiscoveredLabels),
			strings.Compare(a.ScrapeInterval, b.ScrapeInterval), strings.Compare(a.ScrapeTimeout, b.ScrapeTimeout))
	})
	out.Active = slices.CompactFunc(out.Active, func(a, b target) bool { return sameTarget(a, b) == 0 })
	compareDropped := func(a, b droppedTarget) int {
		return cmp.Or(strings.Compare(a.ScrapePool, b.ScrapePool), labels.Compare(a.DiscoveredLabels, b.DiscoveredLabels))
	}
	slices.SortFunc(out.Dropped, compareDropped)
	out.Dropped = slices.CompactFunc(out.Dropped, func(a, b droppedTarget) bool { return compareDropped(a, b) == 0 })
	out.DroppedCounts = sumOverShards(shards, func(i int, add func(string, int)) {
		for pool, n := range d.docs[i].DroppedCounts {
			add(pool, n)
		}
	})
	d.res.Series = len(out.Active)
	return d.res, writeData(w, out)
}

// sumOverShards adds named numbers over shards, of replicas the highest. each gives the numbers of
// source i.
func sumOverShards[N cmp.Ordered](shards []Source, each func(i int, add func(name string, n N))) map[string]N {
	sums := map[string]N{}
	for _, replicas := range byShard(shards) {
		most := map[string]N{}
		for _, i := range replicas {
			each(i, func(name string, n N) {
				if have, ok := most[name]; !ok || n > have {
					most[name] = n
				}
			})
		}
		for name, n := range most {
			sums[name] += n
		}
	}
	return sums
}

type scrapePools struct {
	Names []string `json:"scrapePools"`
}

func (d *scrapePools) empty() []string { return without(map[string]int{"scrapePools": len(d.Names)}) }

// MergeScrapePools writes the names of the scrape pools of all shards, sorted, each once.
func MergeScrapePools(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[scrapePools](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	out := scrapePools{Names: []string{}}
	for _, doc := range d.docs {
		out.Names = append(out.Names, doc.Names...)
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	d.res.Series = len(out.Names)
	return d.res, writeData(w, out)
}

type alertmanager struct {
	URL string `json:"url"`
}

type alertmanagers struct {
	Active  []alertmanager `json:"activeAlertmanagers"`
	Dropped []alertmanager `json:"droppedAlertmanagers"`
}

func (d *alertmanagers) empty() []string {
	return without(map[string]int{"activeAlertmanagers": len(d.Active), "droppedAlertmanagers": len(d.Dropped)})
}

// MergeAlertmanagers writes the Alertmanagers that any server sends to, and those that any drops,
// each URL once in a list, sorted. One is in both lists where servers treat it differently.
func MergeAlertmanagers(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[alertmanagers](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	out := alertmanagers{Active: []alertmanager{}, Dropped: []alertmanager{}}
	for _, doc := range d.docs {
		out.Active = append(out.Active, doc.Active...)
		out.Dropped = append(out.Dropped, doc.Dropped...)
	}
	for _, list := range []*[]alertmanager{&out.Active, &out.Dropped} {
		slices.SortFunc(*list, func(a, b alertmanager) int { return strings.Compare(a.URL, b.URL) })
		*list = slices.Compact(*list)
	}
	d.res.Series = len(out.Active) + len(out.Dropped)
	return d.res, writeData(w, out)
}
