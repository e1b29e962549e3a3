package relabel

import (
	"fmt"
	"strings"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// measuring tells of uses that say how much is scraped or stored: rules change their answers by
// what they drop. An alert among them may fire for that.
func measuring(set *uses.Set) (alarm, warning string) {
	var alerts, others []string
	for _, u := range set.Measuring() {
		if u.Alerts {
			alerts = append(alerts, u.Place())
		} else {
			others = append(others, u.Place())
		}
	}
	if len(alerts) > 0 {
		alarm = "Alerts ask how much is stored (scrape_samples_post_metric_relabeling, scrape_series_added, prometheus_tsdb_head_series), which falls by what the rules drop, and may fire for that: " +
			some(alerts) + ". Whether they do was not looked at: look at their thresholds before you load the rules."
	}
	if len(others) > 0 {
		warning = "how much is stored falls by what the rules drop, and so does what asks for that: " + some(others)
	}
	return alarm, warning
}

// some names the first of many places.
func some(places []string) string {
	if more := len(places) - maxPlaces; more > 0 {
		return strings.Join(places[:maxPlaces], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(places, "; ")
}

// maxPlaces is how many uses are named in one sentence.
const maxPlaces = 20
