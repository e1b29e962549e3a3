package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// OpenOptions say how to open a source by its name.
type OpenOptions struct {
	// Client asks targets and APIs; nil is one with a timeout of a minute.
	Client *http.Client
	// External are the labels that a server adds to what it sends on: an API's answers lose them.
	External []string
	// Window and Now bound what an API is asked for; see APIOptions.
	Window time.Duration
	Now    time.Time
}

// forms are what Open takes.
const forms = `a source of series is one of
  FOLDER          of pages, FOLDER/JOB/INSTANCE.prom or FOLDER/JOB.prom (also .txt, .om, .pb, each with or without .gz), or of TSDB blocks
  JOB=URL         a page of metrics, as the server would scrape it for this job
  api+URL         the query API of a Prometheus or of Spillway; api+ may be left out where the URL has no path`

// Open opens what arg names. Folders are looked at, URLs are not asked before the source is read.
func Open(ctx context.Context, arg string, o OpenOptions) (Source, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if rest, ok := strings.CutPrefix(arg, "api+"); ok {
		return API(o.Client, rest, APIOptions{External: o.External, Window: o.Window, Now: o.Now})
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		if isTSDB(arg) {
			return Blocks(arg)
		}
		return Pages(arg)
	case err == nil:
		return nil, fmt.Errorf("%s is a file; %s", arg, forms)
	case arg == "":
		return nil, errors.New("the name of a source is empty; " + forms)
	}
	job, page, ok := strings.Cut(arg, "=")
	if ok && isURL(page) {
		return Scrape(o.Client, []Target{{URL: page, Job: job}})
	}
	if isURL(arg) {
		if u, err := url.Parse(arg); err == nil && (u.Path == "" || u.Path == "/") { // no page of metrics
			return API(o.Client, arg, APIOptions{External: o.External, Window: o.Window, Now: o.Now})
		}
		return nil, fmt.Errorf("%s: is this a page of metrics, JOB=URL, or the API of a server, api+URL? %s", (&Target{URL: arg}).redacted(), forms)
	}
	return nil, fmt.Errorf("%s: there is no such folder, and it is no URL; %s", arg, forms)
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// isTSDB reports whether dir is a block or a data directory rather than a folder of pages.
func isTSDB(dir string) bool {
	if isBlock(dir) {
		return true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false // Pages says it better
	}
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err == nil && isBlock(filepath.Join(dir, e.Name())) {
			return true
		}
		if e.Name() == "wal" || e.Name() == "chunks_head" {
			return true
		}
	}
	return false
}
