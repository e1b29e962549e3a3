package localprom

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// readSamples asks a remote-read endpoint for samples, as clients did before chunks were streamed.
func readSamples(ctx context.Context, url string, q *prompb.Query) (*prompb.QueryResult, error) {
	msg, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{q}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(snappy.Encode(nil, msg)))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", res.Status, body)
	}
	if body, err = snappy.Decode(nil, body); err != nil {
		return nil, err
	}
	var answer prompb.ReadResponse
	if err := proto.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	return answer.Results[0], nil
}
