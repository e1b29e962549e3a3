package endpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/golang/snappy"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxURLQueryBytes is how long the parameters may be in a URL where the shard takes a form as
	// well. Short requests go by GET: they appear in the shard's access log and Go may repeat them
	// on a connection that turned out to be closed.
	maxURLQueryBytes = 2048

	formType  = "application/x-www-form-urlencoded"
	protoType = "application/x-protobuf"

	// readVersion is the version of the remote read protocol.
	readVersion = "0.1.0"
	userAgent   = "Spillway"

	ndjsonType = "application/x-ndjson"
	acceptJSON = "application/json"
	// acceptText asks federation for the text format, with UTF-8 names where the shard knows them.
	acceptText = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4"
)

// Values are the parameters that Write sends, in canonical form; Encode sorts them by name. The map
// is the caller's. It is nil where there are none.
func (r *Request) Values() url.Values {
	e := Get(r.ID)
	if e == nil {
		return nil
	}
	var out url.Values
	for i := range e.Params {
		if v := e.Params[i].get(r); len(v) > 0 {
			if out == nil {
				out = make(url.Values, len(e.Params))
			}
			out[e.Params[i].Name] = slices.Clone(v)
		}
	}
	return out
}

// Path is the canonical escaped path of the request, without any prefix.
func (r *Request) Path() string {
	switch e := Get(r.ID); {
	case e == nil:
		return ""
	case r.ID == LabelValues:
		return labelPrefix + encodeLabel(r.Label) + labelSuffix
	default:
		return e.Path
	}
}

// Canonical is the request's path and its parameters in canonical form: equal Requests of an
// endpoint without a body of its own give equal texts, and different ones different texts.
func (r *Request) Canonical() string {
	e := Get(r.ID)
	if e == nil {
		return ""
	}
	return r.Path() + "?" + r.encode(e)
}

// Write makes the request for the server at base, whose path is kept as a prefix; query and
// fragment of base are not used. The result is canonical: equal Requests give equal bytes. It has
// no header but Accept, User-Agent and those that describe its body; the caller sets
// Accept-Encoding and credentials. Its body can be sent again (GetBody). The error is a *qerr.Error
// of kind Internal, for a Request that Parse cannot have made.
func (r *Request) Write(ctx context.Context, base *url.URL) (*http.Request, error) {
	e := Get(r.ID)
	if e == nil || r.ID == LabelValues && r.Label == "" || e.snappy && r.ReadQuery == nil {
		return nil, qerr.Wrap(qerr.Internal, errors.New("request of an unknown endpoint, without label or without read query"), "Spillway made a request that it does not know")
	}
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, User: base.User}
	escaped := strings.TrimRight(base.EscapedPath(), "/") + r.Path()
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "the path of a shard's URL cannot be read")
	}
	u.Path, u.RawPath = path, escaped

	method, query := http.MethodGet, r.encode(e)
	var body io.Reader
	header := http.Header{"User-Agent": {userAgent}, "Accept": {acceptJSON}}
	switch {
	case e.snappy:
		raw, err := r.ReadQuery.Marshal()
		if err != nil {
			return nil, qerr.Wrap(qerr.Internal, err, "the remote read request cannot be written")
		}
		method, body = http.MethodPost, bytes.NewReader(snappy.Encode(nil, raw))
		header.Del("Accept")
		header.Set("Content-Type", protoType)
		header.Set("Content-Encoding", "snappy")
		header.Set("X-Prometheus-Remote-Read-Version", readVersion)
	case e.post && len(query) > maxURLQueryBytes:
		method, body = http.MethodPost, strings.NewReader(query)
		header.Set("Content-Type", formType)
	default:
		u.RawQuery = query
	}
	if e.Decode == DecodeExposition {
		header.Set("Accept", acceptText)
	}
	if body == nil {
		// As http.NewRequest would make it, without writing the URL and parsing it again.
		bare := http.Request{Method: method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
		return bare.WithContext(ctx), nil
	}
	out, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "the request for a shard cannot be written")
	}
	out.Header = header
	return out, nil
}

// encode is Values().Encode() without the map.
func (r *Request) encode(e *Endpoint) string {
	var room [512]byte
	out := room[:0]
	for _, i := range e.sorted {
		p := &e.Params[i]
		for _, v := range p.get(r) {
			if len(out) > 0 {
				out = append(out, '&')
			}
			out = append(out, p.escaped...)
			out = append(out, '=')
			out = append(out, url.QueryEscape(v)...)
		}
	}
	return string(out)
}
