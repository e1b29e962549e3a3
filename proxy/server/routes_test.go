package server

import (
	"testing"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestHandlers holds the functions that answer to the endpoint table: each row has one, and there
// are no others.
func TestHandlers(t *testing.T) {
	for _, e := range endpoint.Table {
		if handlers[e.ID] == nil {
			t.Errorf("nothing answers %s", e.ID)
		}
	}
	for id := range handlers {
		if endpoint.Get(id) == nil {
			t.Errorf("%s has a function and no row", id)
		}
	}
}
