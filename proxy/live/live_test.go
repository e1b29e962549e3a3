package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

var began = time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)

// enter is a request that holds so much memory and keeps the cause that ends it.
func enter(t *Table, f Facts, held int64) (*Entry, *error) {
	cause := new(error)
	return t.Enter(f, func() State { return State{Doing: "planned", HeldBytes: held} }, func(err error) { *cause = err }), cause
}

func ids(list []Query) (out []string) {
	for _, q := range list {
		out = append(out, q.ID)
	}
	return out
}

func TestList(t *testing.T) {
	var table Table
	enter(&table, Facts{ID: "small", Started: began.Add(time.Second)}, 1)
	enter(&table, Facts{ID: "large", Started: began.Add(2 * time.Second), Query: strings.Repeat("é", MaxQueryBytes)}, 1000)
	enter(&table, Facts{ID: "old", Started: began}, 1)
	gone, _ := enter(&table, Facts{ID: "gone", Started: began}, 1)
	table.Leave(gone)
	table.Leave(gone)
	table.Leave(nil)
	list := table.List(began.Add(10 * time.Second))
	if got := ids(list); !slices.Equal(got, []string{"large", "old", "small"}) {
		t.Errorf("the order is %v", got)
	}
	if q := list[0].Query; len(q) > MaxQueryBytes+len("…") || !strings.HasSuffix(q, "é…") {
		t.Errorf("a text of %d bytes ends in %q", len(q), q[max(0, len(q)-8):])
	}
	if list[1].AgeSeconds != 10 || list[1].Doing != "planned" {
		t.Errorf("%+v", list[1])
	}
	if q, ok := table.Get("large", began); !ok || len(q.Query) != 2*MaxQueryBytes {
		t.Errorf("%t, a text of %d bytes", ok, len(q.Query))
	}
	if _, ok := table.Get("gone", began); ok {
		t.Error("what has left is there")
	}
	if list := (&Table{}).List(began); list == nil || len(list) != 0 {
		t.Errorf("an empty table is %v", list)
	}
}

func TestKill(t *testing.T) {
	var table Table
	causes := map[string]*error{}
	for i, f := range []Facts{
		{User: "ada", Dashboard: "a", Tenant: "x"},
		{User: "ada", Dashboard: "b", Tenant: "x"},
		{User: "bob", Dashboard: "a", Tenant: "y"},
	} {
		f.ID = fmt.Sprint(i)
		_, causes[f.ID] = enter(&table, f, 0)
	}
	for _, c := range []struct {
		f    Filter
		want []string
	}{
		{Filter{}, nil},
		{Filter{ID: "3"}, nil},
		{Filter{ID: "1"}, []string{"1"}},
		{Filter{User: "ada"}, []string{"0", "1"}},
		{Filter{Dashboard: "a"}, []string{"0", "2"}},
		{Filter{User: "ada", Dashboard: "a"}, []string{"0"}},
		{Filter{Tenant: "y", User: "ada"}, nil},
		{Filter{Tenant: "x", ID: "2"}, nil},
	} {
		for _, cause := range causes {
			*cause = nil
		}
		if got := table.Kill(c.f); !slices.Equal(got, c.want) {
			t.Errorf("%+v ends %v, want %v", c.f, got, c.want)
		}
		for id, cause := range causes {
			var qe *qerr.Error
			if told := errors.As(*cause, &qe) && qe.Kind == qerr.Unavailable; told != slices.Contains(c.want, id) {
				t.Errorf("%+v: %s is told %v", c.f, id, *cause)
			}
		}
	}
}

// Requests come, are listed and ended, and go, all at once.
func TestConcurrent(t *testing.T) {
	var table Table
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				e := table.Enter(Facts{ID: fmt.Sprint(i, j), User: "ada"}, func() State { return State{} }, func(error) {})
				table.List(began)
				table.Kill(Filter{User: "ada"})
				table.Leave(e)
			}
		})
	}
	wg.Wait()
	if n := len(table.List(began)); n != 0 {
		t.Errorf("%d are left", n)
	}
}
