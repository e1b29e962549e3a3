package inventory

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestPartialAnswer: what a part of a cluster stores is not what there is.
func TestPartialAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","isPartial":true,"data":[]}`)
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	_, err = (&api{client: server.Client(), base: base}).get(t.Context(), false, "labels", url.Values{}, &data)
	if err == nil || !strings.Contains(err.Error(), "not whole (isPartial)") {
		t.Errorf("error %v", err)
	}
}
