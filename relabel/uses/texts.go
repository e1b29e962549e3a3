package uses

import "strings"

// text reads a text of a dashboard: what is shown to people, and what a panel runs. Its links are
// used, and what it asks the API.
func (w *walker) text(n *node, panel string) {
	text := n.text()
	w.set.handings(text, w.scope)
	if !strings.Contains(text, "api/v1") && !strings.Contains(text, "expr") && !strings.Contains(text, "metric=") {
		return
	}
	queries := linked(text)
	if callOf.MatchString(text) {
		asked, all := calls(text)
		queries = append(queries, asked...)
		if !all {
			u := &Use{Kind: w.kind, File: w.file, Line: n.first(), Needs: allWords(text)}
			u.Where = strings.TrimSuffix(w.title+", "+panel, ", ")
			u.Reason = "what this text asks Prometheus' API cannot be read in it; every metric named in it is kept"
			w.set.warn(u, u.Reason)
			w.set.Add(u)
		}
	}
	for _, query := range queries {
		w.add(n, panel, query)
	}
}

// parameters reads the parameters that stand beside an address: in pairs, or as one text.
func (w *walker) parameters(n *node, panel string) {
	for _, key := range []string{"params", "queryParams"} {
		value := n.get(key)
		for _, pair := range value.list() {
			if len(pair.items) == 2 && parameterOf.MatchString(pair.items[0].text()+"=") && pair.items[1].text() != "" {
				w.add(pair.items[1], panel, pair.items[1].text())
			}
		}
		for _, pair := range strings.Split(value.text(), "&") {
			if name, query, _ := strings.Cut(pair, "="); parameterOf.MatchString(name+"=") && query != "" {
				w.add(value, panel, decoded(query))
			}
		}
	}
}
