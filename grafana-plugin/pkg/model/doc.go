// Package model is what the datasource's front end and back end say to each other: the query, and
// the settings of an instance. Field names are those of the JSON that Grafana stores in dashboards,
// so they never change their meaning; src/types.ts has the same and a test compares both.
//
// It promises: ParseQuery and ParseSettings return everything that is wrong at once, each with its
// field and what to write instead; what they return is within the bounds that it documents, and
// defaults are filled in. It refuses queries of an unknown type, a comparison of more than
// MaxCompared runs, settings with links that are no web addresses.
//
// Bounds: a query's lists hold at most MaxNames names, of MaxNameBytes each.
package model
