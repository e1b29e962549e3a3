package shard

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// writerOf builds bare requests, for answers of endpoints whose requests do not matter here.
func writerOf(method, path string) builder {
	return func(ctx context.Context, base *url.URL, _ time.Duration) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, method, base.String()+path, nil)
	}
}

func gather(t *testing.T, reg *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return fams
}
