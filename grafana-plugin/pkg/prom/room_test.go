package prom

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// halting is a body that waits behind its text until it is let go, and then ends.
type halting struct {
	text  io.Reader
	begun func()
	wait  <-chan struct{}
	end   io.Reader
}

func (e *halting) Read(p []byte) (int, error) {
	if n, err := e.text.Read(p); err == nil {
		return n, nil
	}
	if e.begun != nil {
		e.begun()
		e.begun = nil
		<-e.wait
	}
	return e.end.Read(p)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// Of large answers no more are read at a time than there is room for; small ones do not wait.
func TestRoom(t *testing.T) {
	for _, tc := range []struct {
		size, length int64
		want         int
	}{
		{smallBytes + 1<<20, -1, budgetBytes / MaxAnswerBytes},
		{32 << 20, 32 << 20, 2 * budgetBytes / MaxAnswerBytes},
		{1 << 20, -1, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			var (
				mu    sync.Mutex
				begun int
			)
			let := make(chan struct{})
			c, err := New("http://x", &http.Client{Timeout: time.Minute, Transport: answering(func(*http.Request) *http.Response {
				body := &halting{
					text: io.MultiReader(strings.NewReader(`{"a":`), io.LimitReader(spaces{}, tc.size)), wait: let,
					begun: func() { mu.Lock(); begun++; mu.Unlock() },
					end:   strings.NewReader(`1,"status":"success","data":{"resultType":"vector","result":[]}}`),
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(body), ContentLength: tc.length}
			})}, "")
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 20)
			for range cap(errs) {
				go func() {
					_, err := c.Instant(t.Context(), "up", time.Unix(0, 0))
					errs <- err
				}()
			}
			synctest.Wait()
			mu.Lock()
			if begun != tc.want {
				t.Errorf("%d answers of %d bytes are read at a time, want %d", begun, tc.size, tc.want)
			}
			mu.Unlock()
			if tc.want < cap(errs) {
				// Who waits too long is told why, and who leaves leaves.
				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan error)
				go func() {
					_, err := c.Instant(ctx, "up", time.Unix(0, 0))
					left <- err
				}()
				synctest.Wait()
				cancel()
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				time.Sleep(2 * time.Minute)
				for range cap(errs) - tc.want {
					var f *Failure
					if err := <-errs; !errors.As(err, &f) || f.Status != 503 || !strings.Contains(f.Message, "no room for one more") {
						t.Errorf("%v", err)
					}
				}
			}
			close(let)
			synctest.Wait()
			if !c.budget.TryAcquire(budgetBytes) {
				t.Error("room is still taken")
			}
		})
	}
}
