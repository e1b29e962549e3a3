package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// builder writes the request for a base URL and the time that the shard is given (0: no deadline).
type builder func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error)

// writer is the builder of an API request. Every endpoint that knows the parameter is told how long
// it may take, always less than we have ourselves.
func writer(req *endpoint.Request) builder {
	return func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error) {
		if timeout <= 0 || req.Timeout > 0 && req.Timeout <= timeout {
			return req.Write(ctx, base)
		}
		clone := *req // shallow: only the timeout differs, and Write changes nothing
		clone.Timeout = timeout
		return clone.Write(ctx, base)
	}
}

func (c *call) send(build builder, given time.Duration, plain bool) (*http.Response, error) {
	req, err := build(context.WithValue(c.ctx, dialedFor{}, c.ctx), c.r.up.base, given)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway could not write the request for %s", c.r.Name())
	}
	if req.URL.Host != c.r.up.base.Host || req.URL.Scheme != c.r.up.base.Scheme {
		return nil, qerr.New(qerr.Internal, "Spillway wrote a request for another server than %s", c.r.Name())
	}
	for name, value := range c.r.up.headers {
		req.Header.Set(name, value)
	}
	encoding := "gzip"
	if plain {
		encoding = "identity"
	}
	req.Header.Set("Accept-Encoding", encoding)
	req.Header.Set("User-Agent", c.r.up.opts.UserAgent)
	if id := c.r.up.opts.ID; id != "" {
		req.Header.Set(identity.HeaderVia, string(identity.From(c.ctx).Via.And(id)))
	}
	propagation.TraceContext{}.Inject(c.ctx, propagation.HeaderCarrier(req.Header))
	resp, err := c.r.up.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// accept judges status and header, and sets up the body.
func (c *call) accept(resp *http.Response) (*Response, error) {
	c.span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	c.r.up.sawDate(resp.Header.Get("Date"), c.started)
	if resp.StatusCode != http.StatusOK {
		return nil, c.status(resp)
	}
	name := c.r.Name()
	b := &body{call: c, wire: counter{r: resp.Body}, raw: resp.Body}
	switch enc := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ",")); {
	case enc == "" || enc == "identity":
	case enc == "snappy" && c.id.Decode() == endpoint.DecodeRead: // samples mode; the reader of the message undoes it
	case enc == "gzip" && c.id.Decode() != endpoint.DecodeRead:
		b.gzipped = true
	default:
		return nil, qerr.New(qerr.ShardFailed, "%s sent an encoding that Spillway did not ask for (%s); look at what stands between them", name, cleaned(enc))
	}
	ct, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		ct = ""
	}
	switch {
	case c.id.Decode() == endpoint.DecodeRead && (ct == "application/x-protobuf" || ct == "application/x-streamed-protobuf"):
		err = nil
	case c.id.Decode() == endpoint.DecodeExposition && (ct == "text/plain" || ct == "application/openmetrics-text"):
		err = nil
	case c.id.Decode() == endpoint.DecodeSearch && ct == "application/x-ndjson":
		err, b.json = nil, true // its last line says that it is whole
	case c.id.JSON() && c.id.Decode() != endpoint.DecodeSearch && ct == "application/json":
		err, b.json = nil, true
	case c.id == probeText, c.id == vitalsText:
		err = nil
	default:
		want := "JSON"
		if !c.id.JSON() {
			want = "what the endpoint promises"
		}
		first := make([]byte, headBytes)
		c.progress.Reset(c.r.up.opts.ProgressTimeout)
		n, _ := io.ReadFull(resp.Body, first) // best effort, for the log
		c.progress.Stop()
		return nil, c.malformedf(fmt.Errorf("Content-Type %q", cleaned(resp.Header.Get("Content-Type"))), first[:n],
			"%s answered with something that is not %s; is its url that of a Prometheus, and does a login page stand before it?", name, want)
	}
	text := c.id == probeText || c.id == vitalsText
	if !b.json && !text && resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 {
		// The end of such a body is the end of the connection, which looks like a cut; JSON has a
		// last brace, these have none.
		return nil, qerr.New(qerr.ShardFailed, "%s sent an answer with neither a length nor chunks, whose end cannot be told from a cut; "+
			"is there an HTTP/1.0 proxy before it?", name)
	}
	c.body = b
	return &Response{Header: resp.Header, Body: b, Replica: c.r}, nil
}
