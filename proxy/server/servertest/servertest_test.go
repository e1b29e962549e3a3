package servertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// TestStart: what Start gives answers as the whole server does, with the labels of the
// configuration, until it is stopped; a second stop changes nothing.
func TestStart(t *testing.T) {
	shard, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, ExternalLabels: labels.FromStrings("cluster", "jaguar")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shard.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := shard.Load("load 1m\n  m 1x10"); err != nil {
		t.Fatal(err)
	}
	url, stop := Start(t, fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}]", shard.URL()))
	get := func() (string, error) {
		res, err := client.Get(url + "/api/v1/query?query=m&time=60")
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	if body, err := get(); err != nil || !strings.Contains(body, `"cluster":"jaguar"`) || !strings.Contains(body, `[60,"1"]`) {
		t.Errorf("it answers %s, %v", body, err)
	}
	stop()
	if body, err := get(); err == nil {
		t.Errorf("stopped, it answers %s", body)
	}
	stop()
}
