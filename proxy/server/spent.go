package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// attribute compares what the request took with its estimate, tells the console of a refusal, and
// adds what it took to what its callers have spent. What this process asks itself is in the request
// that it asks for.
func (s *Server) attribute(x *exchange, qe *qerr.Error) {
	s.compare(x, qe)
	s.showRefusal(x, qe)
	if x.ours() && x.trial == nil || x.req == nil || bare {
		return
	}
	c := attribution.Cost{
		Requests: 1, ShardSeconds: x.calls.get().Seconds(), Samples: x.budget.Samples(), Bytes: x.budget.Bytes(),
		GiBSeconds: (x.before + x.body.ByteSeconds() + x.budget.ByteSeconds() + x.client.keeps.Load().ByteSeconds()) / (1 << 30),
	}
	if x.trial != nil { // it is part of the request that was refused
		c.Requests = 0
	} else if qe != nil && qe.Kind != qerr.Canceled {
		c.Refused = 1
	}
	s.spent.Add(s.now(), attribution.Who{
		Tenant: x.caller.Tenant, User: x.caller.User, Dashboard: x.caller.Dashboard, Panel: x.caller.Panel, Rule: x.caller.Rule,
		Query: x.req.Query,
	}, c)
}

// The rows of each kind that GET usage has, and the most that may be asked for.
const (
	usageRows = 10
	usageMost = 1000
)

// adminUsage tells who has spent what in the last hour: by, which may stand several times, order
// and limit.
func (s *Server) adminUsage(w http.ResponseWriter, r *http.Request) {
	kinds, order, limit := attribution.Kinds(), "shard_s", usageRows
	for name, values := range r.URL.Query() {
		last := values[len(values)-1]
		switch name {
		case "by":
			kinds = nil
			for _, v := range values {
				if !slices.Contains(attribution.Kinds(), attribution.Kind(v)) {
					qerr.New(qerr.BadData, "by takes %s, not %.64q", either(attribution.Kinds()), v).WriteTo(w)
					return
				}
				kinds = append(kinds, attribution.Kind(v))
			}
		case "order":
			if !slices.Contains(attribution.Orders(), last) {
				qerr.New(qerr.BadData, "order takes %s, not %.64q", either(attribution.Orders()), last).WriteTo(w)
				return
			}
			order = last
		case "limit":
			n, err := strconv.Atoi(last)
			if err != nil || n < 1 || n > usageMost {
				qerr.New(qerr.BadData, "limit takes a number from 1 to %d, not %.64q", usageMost, last).WriteTo(w)
				return
			}
			limit = n
		default:
			qerr.New(qerr.BadData, "usage takes by, order and limit, not %.64q", name).WriteTo(w)
			return
		}
	}
	tops := []attribution.Top{}
	for _, k := range kinds {
		tops = append(tops, s.spent.Top(s.now(), k, order, limit))
	}
	adminData(w, tops)
}

// either is "a or b or c".
func either[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, " or ")
}
