package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxBytes is the longest that a field of a Caller can be. Grafana's uids have at most 40 bytes,
// its logins 190.
const MaxBytes = 200

// The headers that are read, in canonical form.
const (
	HeaderUser      = "X-Grafana-User"
	HeaderDashboard = "X-Dashboard-Uid"
	HeaderPanel     = "X-Panel-Id"
	HeaderRule      = "X-Rule-Uid"
	HeaderFromAlert = "Fromalert" // Grafana writes FromAlert, which is Fromalert on the wire
)

// InventoryAgent is the product that spillway relabel names in its User-Agent, before a slash and
// the version, while it asks what is stored. See Caller.Inventory.
const InventoryAgent = "spillway-relabel"

// rulerAgent is the User-Agent of a Thanos ruler (thanos rule, cmd/thanos/rule.go).
const rulerAgent = "thanos-rule"

// agents are the products that servers of tools for language models (MCP) name in their User-Agent,
// before a slash and the version: what asks through them is an agent that chooses its queries by
// itself. Those that send what their HTTP library does cannot be told.
var agents = []string{
	"prometheus-mcp", // github.com/prometheus/prometheus-mcp, pkg/prometheus/api.go
	"mcp-grafana",    // github.com/grafana/mcp-grafana, mcpgrafana.go
}

// Caller is who asks. The zero Caller is nobody in particular.
type Caller struct {
	// Tenant is the tenant that the request was authenticated as; empty where there are no tenants.
	Tenant string
	// User is the login of a Grafana user.
	User string
	// Dashboard is the uid of a Grafana dashboard.
	Dashboard string
	// Panel is the id of a panel on it.
	Panel string
	// Rule is the uid of a Grafana alert rule.
	Rule string
	// Alert tells whether the request says that it evaluates an alert rule.
	Alert bool
	// Ruler tells that the request's User-Agent is a ruler's, which sends no headers of its own:
	// all that it asks is for a rule. It is claimed as Alert is.
	Ruler bool
	// Claimed tells that some of User, Dashboard, Panel, Rule and Alert was said by a caller that
	// is not known to be allowed to say it.
	Claimed bool
	// Inventory tells that the request says it comes from spillway relabel, which asks for every
	// name that is stored, and names nobody. Anyone can say so, and all that it changes is the
	// field purpose of the usage log, and that drop rules are not told of: a caller who says so
	// falsely takes its own request out of what drop rules keep, and nobody else's.
	Inventory bool
	// Agent is the product by which an agent asks, one of a few that are known; empty for others.
	// It is claimed as Inventory is: anyone can say so, and all that it changes is the log and the
	// field purpose of the usage log, and the lane of a tenant that may set headers.
	Agent string
}

// FromRequest returns who the request says it is from. Where a header stands several times, the
// first one counts. The headers are not changed.
func FromRequest(r *http.Request) Caller {
	c := Caller{
		User:      Clean(r.Header.Get(HeaderUser)),
		Dashboard: Clean(r.Header.Get(HeaderDashboard)),
		Panel:     Clean(r.Header.Get(HeaderPanel)),
		Rule:      Clean(r.Header.Get(HeaderRule)),
		Alert:     strings.EqualFold(r.Header.Get(HeaderFromAlert), "true"),
	}
	c.Claimed = c != (Caller{})
	c.Ruler = r.UserAgent() == rulerAgent
	// A gateway that writes this User-Agent on everything leaves the names of those who look at
	// something.
	c.Inventory = !c.Claimed && strings.HasPrefix(r.UserAgent(), InventoryAgent+"/")
	if product, _, ok := strings.Cut(r.UserAgent(), "/"); ok && slices.Contains(agents, product) {
		c.Agent = product
	}
	return c
}

// ForRule tells whether the request says that it is asked for an alert or a rule.
func (c Caller) ForRule() bool { return c.Alert || c.Rule != "" || c.Ruler }

// LogValue is the fields that are set, in a group. Whoever logs it need not know that they are
// claimed: the group says so.
func (c Caller) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	for _, f := range []struct{ key, value string }{
		{"tenant", c.Tenant}, {"user", c.User}, {"dashboard", c.Dashboard}, {"panel", c.Panel}, {"rule", c.Rule},
	} {
		if f.value != "" {
			attrs = append(attrs, slog.String(f.key, f.value))
		}
	}
	if c.Alert {
		attrs = append(attrs, slog.Bool("alert", true))
	}
	if c.Claimed {
		attrs = append(attrs, slog.Bool("claimed", true))
	}
	if c.Inventory {
		attrs = append(attrs, slog.Bool("inventory", true))
	}
	if c.Agent != "" {
		attrs = append(attrs, slog.String("agent", c.Agent))
	}
	return slog.GroupValue(attrs...)
}

// Clean makes text of a stranger fit for a log line: bytes that are not UTF-8 and characters that
// do not print (control characters, line breaks, marks that turn the direction of writing) are
// taken out, spaces at the ends are cut, and what is longer than MaxBytes is cut at a rune
// boundary. Cleaning twice is cleaning once.
func Clean(s string) string {
	const readAtMost = 8 * MaxBytes // what stands beyond cannot matter but for text that is mostly unprintable
	if len(s) > readAtMost {
		s = s[:readAtMost]
	}
	if plain(s) && len(s) <= MaxBytes {
		return strings.TrimSpace(s)
	}
	var b strings.Builder
	for _, r := range strings.TrimSpace(s) {
		if r == utf8.RuneError || !unicode.IsGraphic(r) {
			continue
		}
		if b.Len() == 0 && unicode.IsSpace(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > MaxBytes {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimRightFunc(b.String(), unicode.IsSpace)
}

// plain tells whether the text is printable ASCII, as nearly all of these headers are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Request is the part of a request's identity that travels in its context.
type Request struct {
	// ID is the request's own, unique while the process lives and beyond; see NewID.
	ID string
	// Tenant is as in Caller.
	Tenant string
	// Peer is whose share of anything the request takes from; see HolderOf.
	Peer string
	// Lane is the name of the lane that it waits in; empty is the default one.
	Lane string
	// Flow is the hash of the flow that it belongs to in its lane; see FlowOf.
	Flow uint64
	// Arrived is when the request came, in nanoseconds since 1970: its turn wherever it waits.
	Arrived int64
	// Via is the Spillways that it has come through, without this one.
	Via Via
}

// Peer is the address, without the port, of the other end of the connection: of all that a request
// tells about its sender, the one thing that a stranger cannot make up. A proxy in front, Grafana
// included, is one peer, whoever asks through it.
func Peer(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().String()
	}
	return ""
}

// Holder is whose share an address takes from, where each may have one only: an IPv4 address,
// however it is written, or the 64 bits of an IPv6 address that one machine is given to choose the
// others from. It is the zero Prefix for the zero Addr.
func Holder(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // fails for no address of 32 or 128 bits
	return p
}

// HolderOf is the Holder of the request's connection in words: an IPv4 address, or a network of
// IPv6; empty where its address is not known.
func HolderOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	p := Holder(at.Addr())
	if p.Addr().Is4() {
		return p.Addr().String()
	}
	return p.String()
}

type contextKey struct{}

// With returns a context that carries the request.
func With(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the request that the context carries, or the zero Request.
func From(ctx context.Context) Request {
	r, _ := ctx.Value(contextKey{}).(Request)
	return r
}

var flowSeed = maphash.MakeSeed()

// FlowOf is the hash of whatever tells one flow from another, in this process: nobody outside can
// choose a name that falls together with somebody else's.
func FlowOf(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(flowSeed)
	for _, p := range parts {
		_, _ = h.WriteString(p) // never fails, by its documentation
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// NewID returns an id for a request: 16 hexadecimal digits at random. A client's own request id is
// never taken, since it would let one client pose as another's query in the log or kill it.
func NewID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}
