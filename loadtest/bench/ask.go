package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the most of an answer that Get reads.
const maxAnswer = 64 << 20

// Get reads a whole answer of at most 64 MiB. One that is longer, or whose status is not 200, is an
// error. It is for what is read beside a measurement: what is measured is asked by each benchmark
// itself.
func Get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Redacted(), err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s: %s", req.URL.Redacted(), res.Status, bytes.TrimSpace(body[:min(len(body), 300)]))
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer of %s has more than %d MiB", req.URL.Redacted(), maxAnswer>>20)
	}
	return body, nil
}
