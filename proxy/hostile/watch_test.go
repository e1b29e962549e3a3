package hostile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// watched is a program whose memory and processor time are looked at.
type watched struct {
	name    string
	pid     int
	share   float64 // what it may have resident, as a share of what it has at rest; 0 is all of that
	over    int64   // and beside that
	scrapes bool    // it works now and then of its own accord

	rest, most int64 // resident bytes at rest, and those that it may reach
}

// allow notes what the program has had resident until now, and what it may have.
func (w *watched) allow(t testing.TB) {
	t.Helper()
	w.rest = w.peak(t)
	w.most = int64(float64(w.rest)*cmp.Or(w.share, 1)) + w.over
	t.Logf("%s: %d MiB at rest, at most %d MiB allowed", w.name, w.rest>>20, w.most>>20)
}

// spent is the processor time that it has used.
func (w watched) spent(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may hold spaces
	ticks := 0
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// peak is the most that it had resident since reset.
func (w watched) peak(t testing.TB) int64 {
	t.Helper()
	_, peak, err := realprom.Memory(w.pid)
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	return peak
}

func (w watched) reset(t testing.TB) {
	t.Helper()
	if err := realprom.ResetPeak(w.pid); err != nil {
		t.Fatal(err)
	}
}

// client asks the proxy.
type client struct {
	http http.Client
	base string
}

func (c *client) ask(ctx context.Context, q Query) (code int, body []byte, err error) {
	path, form := "/api/v1/query", url.Values{"query": {q.Text}}
	if q.Step > 0 {
		now := time.Now()
		path = "/api/v1/query_range"
		form.Set("start", strconv.FormatInt(now.Add(-q.Range).Unix(), 10))
		form.Set("end", strconv.FormatInt(now.Unix(), 10))
		form.Set("step", strconv.Itoa(int(q.Step.Seconds())))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var head bytes.Buffer
	if _, err = io.CopyN(&head, resp.Body, 4096); err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == io.EOF { //nolint:errorlint // io.CopyN returns it as it is
		err = nil
	}
	return resp.StatusCode, head.Bytes(), err
}

// bystander is a caller who asks for something small all the while, through the proxy and, as
// often, of a server itself: what that takes is the machine's doing. On two processors that also
// have the texts' caller and the servers, and whose kernel lets a program run for 35 ms before
// another one that was woken (PREEMPT_NONE), it is as much.
type bystander struct {
	wait   sync.WaitGroup
	stop   context.CancelFunc
	took   []time.Duration
	direct []time.Duration // without the proxy
	errs   []string

	wrong int // of errs, those that are no timeout
}

func newBystander(w world) *bystander {
	ctx, cancel := context.WithCancel(context.Background())
	b := &bystander{stop: cancel}
	c, d := client{base: w.base}, client{base: w.server}
	b.wait.Go(func() {
		defer c.http.CloseIdleConnections()
		defer d.http.CloseIdleConnections()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			began := time.Now()
			code, body, err := c.ask(ctx, Query{Text: w.other})
			switch {
			case ctx.Err() != nil:
				return
			case err != nil || code != http.StatusOK:
				b.errs = append(b.errs, fmt.Sprintf("%d %.300s %v", code, body, err))
				if code != http.StatusServiceUnavailable {
					b.wrong++
				}
			default:
				b.took = append(b.took, time.Since(began))
				began = time.Now()
				if code, _, err = d.ask(ctx, Query{Text: "up"}); err == nil && code == http.StatusOK {
					b.direct = append(b.direct, time.Since(began))
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return b
}

// end stops the caller and reports how it was served.
func (b *bystander) end(t testing.TB, p patience) {
	t.Helper()
	b.stop()
	b.wait.Wait()
	slices.Sort(b.took)
	slices.Sort(b.direct)
	if len(b.took) == 0 || len(b.direct) == 0 || b.wrong > 0 || float64(len(b.errs)) > p.failed*float64(len(b.took)) {
		t.Errorf("somebody else got %d errors beside %d answers, such as %s", len(b.errs), len(b.took), strings.Join(b.errs[:min(3, len(b.errs))], "; "))
		return
	}
	p99, direct := b.took[len(b.took)*99/100], b.direct[len(b.direct)*99/100]
	if p99 >= max(p.others, 2*direct) {
		t.Errorf("somebody else was served in %s at p99, and in %s without the proxy, want less than %s", p99, direct, p.others)
	}
	t.Logf("somebody else: %d answers, p50 %s, p99 %s, longest %s; %d beyond the deadline", len(b.took), b.took[len(b.took)/2], p99, b.took[len(b.took)-1], len(b.errs))
	t.Logf("without the proxy: p50 %s, p99 %s, longest %s", b.direct[len(b.direct)/2], direct, b.direct[len(b.direct)-1])
}
