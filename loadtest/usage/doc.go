// Package usage simulates who looks at a cluster, as the proxy's usage log would tell of it: people
// with dashboards open, a ruler, and people who explore.
//
//	lines, err := usage.Write(w, usage.Options{Dashboards: all, Rules: rules, End: now, Length: 24 * time.Hour})
//
// # What it promises
//
// The lines are those that package proxy/usage writes, in the order of their time, and the same for
// the same options. Queries are those of the dashboards and rules that are given, with the
// variables filled in as Grafana does, and what people type into Explore, which no file tells of:
// Explored. Working hours are busier than nights; a dashboard that is open asks all its panels each
// minute.
//
// # What it refuses
//
// Dashboards with variables that nothing fills, and rules that do not parse.
//
// # Memory
//
// The dashboards, and one session for each user.
package usage
