package relabel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// nearlyAll is the share of series from which on a plan is hardly what somebody wants: a server is
// not run for a twentieth of what it stores.
const nearlyAll = 0.95

const (
	// nearlyEvery is the share of stored metrics from which on a caller without a name is one that
	// takes stock. It is less than all: some are new since then.
	nearlyEvery = 0.8
	// fewMetrics is how many metrics are so few that somebody may well look at all of them.
	fewMetrics = 20
)

// askedForAll warns of metrics that are kept because some program asked for all there are by name,
// one after the other. Whether that is a use (a backup, a copy elsewhere) or an inventory (one that
// a gateway took the mark from) its owner has to say.
func askedForAll(n *uses.Nameless, inv *inventory.Inventory) string {
	stored, asked := map[string]bool{}, 0
	for _, m := range inv.Metrics {
		if !stored[m.Name] {
			stored[m.Name] = true
			if n.Metrics[m.Name] {
				asked++
			}
		}
	}
	if len(stored) < fewMetrics || float64(asked) < nearlyEvery*float64(len(stored)) {
		return ""
	}
	return fmt.Sprintf("Callers without a name asked for nearly every metric: %d of %d, from %s to %s (UTC). Each of them counts as used, so that hardly anything goes. Whoever copies all metrics uses all "+
		"of them; whoever only lists what there is (an exporter of names, an inventory through a gateway that takes the User-Agent away) uses none: take its lines out of the usage log, or choose a "+
		"--window that begins after them, and make the plan again.", asked, len(stored), n.From.UTC().Format(time.DateTime), n.To.UTC().Format(time.DateTime))
}

// scaledByUnknown finds the metrics of autoscalers that are stored under no name that is known:
// what an adapter makes them of counts as unused, and an autoscaler without its metric no longer
// scales. Those of outside are often of another system, which is a warning. Where rules of an
// adapter were given, what these discover is kept; what keep.yaml names is known.
func scaledByUnknown(set *uses.Set, inv *inventory.Inventory) (alarm string, warnings []string) {
	if set.AdapterGiven() {
		return "", nil
	}
	names := set.Recorded()
	for _, m := range inv.Metrics {
		names[m.Name] = true
	}
	var unknown []string
	known := slices.Collect(maps.Keys(names))
	for _, u := range set.Uses {
		stored := func(n uses.Need) bool { return slices.ContainsFunc(known, n.Names) }
		if u.Scales.Metric == "" || slices.ContainsFunc(u.Needs, stored) || set.Keeps(u.Scales.Metric) {
			continue
		}
		if u.Scales.Type == "external" {
			warnings = append(warnings, u.Place()+": it is stored under no name that is known; where it is made of series of these servers, "+adviceForScaled)
			continue
		}
		unknown = append(unknown, u.Place())
	}
	if len(unknown) == 0 {
		return "", warnings
	}
	more := ""
	if n := len(unknown) - maxScaled; n > 0 {
		unknown, more = unknown[:maxScaled], fmt.Sprintf("; and %d more", n)
	}
	return "Autoscalers ask for metrics that are stored under no name that is known: " + strings.Join(unknown, "; ") + more + ". What they are made of counts as unused, and an autoscaler " +
		"whose metric is gone no longer scales: " + adviceForScaled + ", and make the plan again.", warnings
}

const (
	// maxScaled is how many metrics of autoscalers an alarm names.
	maxScaled = 20
	// adviceForScaled is how such a metric becomes known.
	adviceForScaled = "give prometheus-adapter's configuration (--autoscalers), or name in keep.yaml both what it is made of and the metric itself"
)

// alarms are what the reader of a plan has to know first.
func alarms(set *uses.Set, inv *inventory.Inventory, proof prove.Proof, stored, dropped propose.Saving) []string {
	var out []string
	if set.Covers == 0 {
		why := "no usage log was given"
		if set.Logs > 0 {
			why = "the usage log has no line of the time that counts"
		}
		out = append(out, "No logged query was looked at: "+why+". What people ask in Explore, in runbooks and from programs is not known, and what nothing else uses goes. "+
			"Let Spillway write a usage log for as long as the rarest of them takes (usage_log in its configuration), and make the plan again with --usage.")
	}
	if set.Lost.Requests > 0 {
		out = append(out, fmt.Sprintf("The usage log lost requests, so that nothing here is proven: %s. What these asked is not known, and what nothing else uses goes. See why it lost them (spillway_usage_log_dropped_total: "+
			"a full or slow disk), and make the plan again with a --window that begins after it, once that is as long as the rarest use takes.", set.Lost))
	}
	if !slices.ContainsFunc(set.Uses, func(u *uses.Use) bool { return u.Kind == uses.Rule && !u.Guessed }) {
		out = append(out, "No rule was looked at: none was given. What alerts and recording rules read counts as unused, and an alert whose metric goes is silent from then on. Give all rules "+
			"(--rules, --grafana, or the API of the server that evaluates them as one more --scrape=api+URL), and make the plan again.")
	}
	if len(set.Refused) > 0 {
		out = append(out, "Not shown, and not looked at: "+strings.Join(set.Refused, "; ")+". What only these use counts as unused. Give a token that may read them, or what is exported from there (--rules, --dashboards), and make the plan again.")
	}
	switch c := set.Coverage; {
	case set.Covers > 0 && c.Little():
		text := fmt.Sprintf("The usage log has little of the time that was asked for: %s of %s, since %s (UTC)", uses.Span(c.Lines), uses.Span(c.Window), c.Since.UTC().Format(time.DateTime))
		if c.Holes != "" {
			text += ", and no line from " + c.Holes
		}
		out = append(out, text+". What was asked before and in between is not known, and what nothing else uses goes. Give all files of the log, of all replicas of Spillway, wait until it is as long as the rarest use takes, or choose the --window that it has.")
	case c.Ended > 0:
		out = append(out, fmt.Sprintf("The usage log ends on %s (UTC), %s ago. What was asked since is not known: what nothing else uses goes, the newest dashboards first. Give all files of the log, "+
			"of all replicas of Spillway, see that it is written (usage_log, spillway_usage_log_errors_total), and make the plan again.", c.Until.UTC().Format(time.DateTime), uses.Span(c.Ended)))
	}
	if text := askedForAll(&set.Nameless, inv); text != "" {
		out = append(out, text)
	}
	if why := proof.Replay.Weak(); why != "" {
		out = append(out, "The replay showed little: "+why+". What the rules take was counted series by series all the same; that no answer changes was hardly looked at. Make the plan again of a source that has "+
			"samples of the last half hour, and give the queries that people ask (--dashboards, --rules, --usage).")
	}
	if share := float64(dropped.Series) / float64(max(stored.Series, 1)); share > nearlyAll {
		out = append(out, fmt.Sprintf("Nearly everything goes: %d of %d series. Hardly anybody stores that much for nothing; more likely the uses of it were not given. Name every folder of dashboards "+
			"(--dashboards, --grafana), rules (--rules) and autoscalers (--autoscalers), and the usage log (--usage); look at the largest rules in the report; then put the rules on one server first.",
			dropped.Series, stored.Series))
	}
	if len(set.Unrendered) > 0 {
		out = append(out, "Not rendered, and not read: "+strings.Join(set.Unrendered, "; ")+". What only these sources ask counts as unused. Where all that comes of them was given, leave them out (--exclude='*.libsonnet' --exclude='*.jsonnet', or --exclude='*.json.tpl'); until then nothing here is proven.")
	}
	if left := set.LeftOut(); left != "" {
		out = append(out, "Left out by --exclude: "+left+". What is used in there was not looked at and counts as unused: see that nobody reads these files, or give them without --exclude.")
	}
	if ignored := set.IgnoredListings(); ignored != "" {
		out = append(out, "Left out by --ignore-listings: "+ignored+". They keep nothing, and no longer list what only series had that go: a variable of a dashboard may lose values. See that nobody minds, or make the plan without it.")
	}
	if text, _ := scaledByUnknown(set, inv); text != "" {
		out = append(out, text)
	}
	if text, _ := measuring(set); text != "" && dropped.Series > 0 {
		out = append(out, text)
	}
	if text := keptByFew(set, stored, dropped); text != "" {
		out = append(out, text)
	}
	return out
}

const (
	// hardlyAny is the share of series up to which a plan takes hardly anything.
	hardlyAny = 0.05
	// namedUses is how many uses an alarm names.
	namedUses = 3
)

// keptByFew warns of a plan that takes hardly anything, where queries that name no metric may be
// why.
func keptByFew(set *uses.Set, stored, dropped propose.Saving) string {
	all := set.Everything()
	if len(all) == 0 || float64(dropped.Series) > hardlyAny*float64(stored.Series) {
		return ""
	}
	var places []string
	for _, u := range all[:min(len(all), namedUses)] {
		places = append(places, fmt.Sprintf("%s: %s", u.Place(), clip.Text(u.Query, 200)))
	}
	if more := len(all) - len(places); more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("Hardly anything goes: %d of %d series. Queries that name no metric keep all that they match: %s. The proxy refuses most of such queries by default (unselective). "+
		"Who can do without one leaves its file out, or gives it a metric's name, and makes the plan again; --ignore-listings leaves out all that only list series or values of labels.", dropped.Series, stored.Series, strings.Join(places, "; "))
}
