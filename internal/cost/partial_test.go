package cost

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPartialAnswer: a cluster of VictoriaMetrics says by a flag that a part did not answer.
func TestPartialAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}`)
	}))
	defer server.Close()
	c, err := NewClient(server.URL, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.once(t.Context(), "api/v1/query_range", nil)
	if err == nil || !strings.Contains(err.Error(), "a part of it only (isPartial)") {
		t.Errorf("error %v", err)
	}
}
