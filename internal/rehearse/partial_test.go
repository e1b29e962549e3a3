package rehearse

import (
	"net/http"
	"strings"
	"testing"
)

// TestPartialAnswer: an answer with a part of the data says nothing about the other server.
func TestPartialAnswer(t *testing.T) {
	const text = `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`
	q := &Question{Endpoint: "query", Query: "up"}
	a := new(Side).read(q, &http.Response{StatusCode: http.StatusOK}, []byte(text))
	if !strings.Contains(a.failed, "a part only (isPartial)") {
		t.Errorf("%+v", a)
	}
}
