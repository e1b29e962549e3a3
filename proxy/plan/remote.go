package plan

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// replica reads one replica by remote read, as streamed chunks: the server holds one frame at a
// time, and so does Spillway.
type replica struct {
	r        *shard.Replica
	budget   *admit.Budget
	maxBytes int64
	spare    bool // others of its shard are read too
}

var _ raw.Copy = (*replica)(nil)

// Name implements raw.Copy.
func (c *replica) Name() string { return c.r.Name() }

// Read implements raw.Copy.
func (c *replica) Read(ctx context.Context, q raw.Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	query, err := remote.ToQuery(q.From, q.Until, Filled(q.Matchers), q.Hints)
	if err != nil {
		return err
	}
	resp, err := c.r.Do(ctx, &endpoint.Request{
		ID: endpoint.Read,
		ReadQuery: &prompb.ReadRequest{
			Queries:               []*prompb.Query{query},
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		},
	}, shard.CallOptions{MaxBytes: c.maxBytes, Class: shard.Heavy, Spare: c.spare, Waits: q.Waits})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/x-streamed-protobuf") {
		return resp.Malformed(errors.New("remote read did not answer with streamed chunks; Prometheus 2.13 or later does"))
	}
	body := &charged{r: resp.Body, budget: c.budget}
	frames := newFrames(body, c.budget)
	defer frames.close()
	for {
		var frame prompb.ChunkedReadResponse
		err := frames.next(&frame)
		if err == io.EOF {
			return nil
		}
		var refused *qerr.Error
		if errors.As(err, &refused) {
			return err
		}
		if err != nil {
			if body.err != nil { // the bound, the connection or the request's end; not the shard's writing
				return body.err
			}
			return resp.Malformed(err)
		}
		for _, s := range frame.ChunkedSeries {
			if err := emit(s.Labels, s.Chunks); err != nil {
				return err
			}
		}
	}
}

// charged counts what is read against the request's budget and remembers the error that ended it.
type charged struct {
	r      io.Reader
	budget *admit.Budget
	err    error
}

func (c *charged) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		if berr := c.budget.AddBytes(int64(n)); berr != nil {
			err = berr
		}
	}
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}
