// Package plugin is the datasource as Grafana meets it: one instance for each revision of a
// datasource's settings, which answers queries, health checks and resources.
//
// # What it promises
//
// A request is answered whatever its datasource's settings are: what is wrong with them is the
// answer. Queries of one request run at once, as many as Grafana's configuration says, ten at most;
// a request with more than maxQueries is refused, and so is what its answers have beyond maxPoints.
// All queries of an instance together send at most maxRequests requests at a time: alertRequests of
// them only to evaluate alerts, othersRequests only for others, userRequests at most for one user;
// the others wait, alerts least and then whoever has least under way. A query, a health check or a
// resource takes at most patience times the datasource's timeout in all.
//
// An error says whose it is: everything but a fault of this program is the downstream's, with the
// HTTP status that fits. A panic ends its query alone. When a request is given up, so is what it
// asked the proxy; Dispose closes what is idle.
//
// Requests to the proxy say who asks: X-Dashboard-Uid and X-Panel-Id as Grafana has them,
// X-Grafana-User from Grafana's own word for the user, never from a header that a browser can
// write. FromAlert and X-Rule-Uid, which the proxy has a lane for, are taken from requests for data
// only: with a call of a resource Grafana hands on what the browser sent. Alerts are evaluated on
// whole answers: they ask with partial_response=false, whatever the settings say. A user's tokens
// and cookies go on only where the settings say so (oauthPassThru, keepCookies).
//
// # Resources
//
// GET only, exactly these, JSON; parameters may stand several times but for q, limit and days, and
// what a parameter chooses is compared as it is:
//
//	/experiments?q=&team=&cluster=&namespace=&limit=   [{"name","team","cluster","namespace","state"}], those that were seen last first; q is part of the name
//	/teams, /clusters, /namespaces                     ["name"], sorted, narrowed by the others of team, cluster, namespace and experiment
//	/nodes?experiment=                                 ["name"], sorted
//	/health                                            {"version", "findings": [{"missing","fix","clusters","everywhere"}], "warnings": ["text"]}
//
// Lists are of the last 7 days, with days=N of 1 to 30. With warnings=1 a list is {"list",
// "warnings": ["text"]}: what is missing from it.
//
// Errors are {"message"} with a status; a proxy's 401 becomes 502, since Grafana's front end takes
// a 401 for the end of its own session.
//
// # What it refuses
//
// To read environment variables or files: everything comes from the instance's settings, a proxy on
// the way to the proxy (HTTP_PROXY) too. To pass on what a browser asks for: there is no way
// through to the API but query type promql, which is bound by what the proxy allows.
package plugin
