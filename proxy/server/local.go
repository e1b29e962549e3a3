package server

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// writeData answers with v as the data of a success.
func (x *exchange) writeData(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return qerr.Wrap(qerr.Internal, err, "Spillway failed to write its answer; its log has the cause")
	}
	if err := x.budget.Hold(int64(len(b))); err != nil { // until the client has read it
		return err
	}
	return x.writeJSON(b)
}

// writeJSON answers with b as the data of a success.
func (x *exchange) writeJSON(b []byte) error {
	if err := x.out.Begin(); err != nil {
		return err
	}
	if _, err := x.out.Write(b); err != nil {
		return err
	}
	return x.finishJSON()
}

// formatQuery answers format_query.
func (x *exchange) formatQuery() error { return x.writeData(tree.Pretty(x.dec.Expr)) }

// statusFlags answers with Spillway's own flags, under the names of its command line.
func (x *exchange) statusFlags() error { return x.writeData(x.s.opts.Flags) }

// statusConfig answers with Spillway's own configuration, secrets starred.
func (x *exchange) statusConfig() error {
	return x.writeData(map[string]string{"yaml": string(x.st.cfg.Redacted())})
}

// runtimeInfo is Prometheus' object about its process, with what of it applies to Spillway.
type runtimeInfo struct {
	StartTime           time.Time `json:"startTime"`
	CWD                 string    `json:"CWD"`
	Hostname            string    `json:"hostname"`
	ServerTime          time.Time `json:"serverTime"`
	ReloadConfigSuccess bool      `json:"reloadConfigSuccess"`
	LastConfigTime      time.Time `json:"lastConfigTime"`
	CorruptionCount     int64     `json:"corruptionCount"`
	GoroutineCount      int       `json:"goroutineCount"`
	GOMAXPROCS          int       `json:"GOMAXPROCS"`
	GOMEMLIMIT          int64     `json:"GOMEMLIMIT"`
	GOGC                string    `json:"GOGC"`
	GODEBUG             string    `json:"GODEBUG"`
	StorageRetention    string    `json:"storageRetention"`
}

// statusRuntimeinfo answers about Spillway's own process. The working directory is nobody's
// business and stays empty.
func (x *exchange) statusRuntimeinfo() error {
	host, _ := os.Hostname() // an empty name says as much as an error
	return x.writeData(runtimeInfo{
		StartTime: x.s.started, ServerTime: x.s.now(), Hostname: host,
		ReloadConfigSuccess: x.s.reloadedWell.Load(), LastConfigTime: x.st.loaded,
		GoroutineCount: runtime.NumGoroutine(), GOMAXPROCS: runtime.GOMAXPROCS(0), GOMEMLIMIT: x.s.heap.Limit(),
		GOGC: os.Getenv("GOGC"), GODEBUG: os.Getenv("GODEBUG"),
	})
}

// statusWALReplay answers that replaying is done: Spillway has no write-ahead log.
func (x *exchange) statusWALReplay() error {
	return x.writeData(struct {
		Min     int    `json:"min"`
		Max     int    `json:"max"`
		Current int    `json:"current"`
		State   string `json:"state"`
	}{State: "done"})
}

// notifications answers that there are none: those of Prometheus are about one server's own
// configuration and start.
func (x *exchange) notifications() error { return x.writeData([]struct{}{}) }

// parseQuery answers parse_query with the syntax tree.
func (x *exchange) parseQuery() error {
	shown, err := plan.Tree(x.dec.Expr)
	if err != nil {
		return err
	}
	return x.writeData(shown)
}

// openAPI answers openapi.yaml with what Spillway itself serves. Paths are those that the client
// sees, behind the route prefix; a proxy in between may have the external URL say more.
func (x *exchange) openAPI() error {
	base := x.s.opts.ExternalURL
	if base == "" {
		base = x.s.opts.RoutePrefix + "/"
	}
	x.client.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	if _, err := x.out.Write(endpoint.OpenAPI(x.s.opts.Version, base, x.req.OpenAPINewer())); err != nil {
		return err
	}
	return x.out.End()
}
