// Package identity answers who asks: as far as a request tells, its caller's user, dashboard, panel
// and rule.
//
// Grafana tells them in headers (X-Grafana-User, X-Dashboard-Uid, X-Panel-Id, X-Rule-Uid,
// FromAlert). Anyone can write these: they are taken as claimed, logged and shown. They choose the
// lane and flow (docs/lanes.md) of a tenant that may set them, a deny rule may name them, and what
// says that it is a rule's query is not refused after one crash (docs/deny-rules.md). Other headers
// that name someone (X-Scope-OrgID, X-Forwarded-*, Forwarded, X-Real-IP) are not looked at.
//
// Agents are told by the User-Agent of the servers through which they ask, where these name
// themselves; the same holds for it.
//
// Every field is at most MaxBytes long, valid UTF-8 and free of characters that do not print, so it
// can be put into a log or a page as it is (a page still escapes it). The package holds no state
// and allocates no more than the fields.
//
// The request's id and tenant, whose share it takes from, and its lane and flow travel in the
// context, and nothing else:
//
//	ctx := identity.With(r.Context(), identity.Request{ID: identity.NewID(), Tenant: caller.Tenant})
package identity
