package merge

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

func TestWriterHoldsUntilFull(t *testing.T) {
	pool := admit.NewPool(4 << 20)
	b := admit.NewBudget(pool, admit.Limits{})
	var out bytes.Buffer
	w := NewWriter(&out, b)
	sizes := []int64{}
	w.OnCommit = func(size int64) { sizes = append(sizes, size) }
	unit := strings.Repeat("0123456789", 100)
	var want strings.Builder
	for w.Len() < HoldBytes-1000 {
		if _, err := w.Write([]byte(unit)); err != nil {
			t.Fatal(err)
		}
		want.WriteString(unit)
	}
	if w.Committed() || out.Len() != 0 {
		t.Fatalf("%d bytes reached the client too early", out.Len())
	}
	for range 3 {
		if _, err := w.Write([]byte(unit)); err != nil {
			t.Fatal(err)
		}
		want.WriteString(unit)
	}
	if !w.Committed() || len(sizes) != 1 || sizes[0] != -1 {
		t.Fatalf("committed %t, sizes %v", w.Committed(), sizes)
	}
	big := strings.Repeat("x", 200000)
	if _, err := w.Write([]byte(big)); err != nil {
		t.Fatal(err)
	}
	want.WriteString(big)
	if err := w.Finish([]string{"w"}, nil); err != nil {
		t.Fatal(err)
	}
	want.WriteString(`,"warnings":["w"]}`)
	if out.String() != want.String() {
		t.Error("the bytes changed")
	}
	w.Close()
	w.Close()
	if b.Held() != 0 {
		t.Errorf("%d bytes are held", b.Held())
	}
	if _, err := w.Write([]byte("late")); err == nil {
		t.Error("Write works after Close")
	}
	b.Close()
}

func TestWriterKnowsTheLengthOfASmallAnswer(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	defer w.Close()
	size := int64(0)
	w.OnCommit = func(n int64) { size = n }
	if err := errors.Join(w.Begin(), writeData(w, 1), w.Finish(nil, nil)); err != nil {
		t.Fatal(err)
	}
	if want := `{"status":"success","data":1}`; out.String() != want || size != int64(len(want)) {
		t.Errorf("got %s, announced %d", out.String(), size)
	}
}

func TestWriterRefusedByTheBudget(t *testing.T) {
	pool := admit.NewPool(3 * writeChunk)
	b := admit.NewBudget(pool, admit.Limits{})
	var out bytes.Buffer
	w := NewWriter(&out, b)
	_, err := w.Write(make([]byte, 10*writeChunk))
	qerrtest.Refused(t, err, qerr.Overloaded, "memory.budget")
	if w.Committed() || out.Len() > 0 {
		t.Error("something reached the client")
	}
	w.Close()
	b.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of the pool are in use", pool.InUse())
	}
}

type broken struct{}

var errBroken = errors.New("connection reset")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriterClientGone(t *testing.T) {
	w := NewWriter(broken{}, nil)
	defer w.Close()
	_, err := w.Write(make([]byte, 2*HoldBytes))
	if !errors.Is(err, errBroken) || !w.Committed() {
		t.Errorf("error %v, committed %t", err, w.Committed())
	}
	if qerr.From(err).Kind != qerr.Canceled {
		t.Errorf("a client that left is %v", qerr.From(err).Kind)
	}
	if err := w.Finish(nil, nil); !errors.Is(err, errBroken) {
		t.Errorf("Finish: %v", err)
	}
}

// TestPassToAClientThatLeft: the shard is not to blame.
func TestPassToAClientThatLeft(t *testing.T) {
	b := admit.NewBudget(admit.NewPool(64<<20), roomy)
	defer b.Close()
	w := NewWriter(broken{}, b)
	defer w.Close()
	_, err := Pass(t.Context(), w, Source{Name: "a", Body: bytes.NewReader(matrixDoc(1000, 100))}, b)
	if e := qerr.From(err); e.Kind != qerr.Canceled || len(e.Shards) > 0 {
		t.Errorf("got %v", err)
	}
}
