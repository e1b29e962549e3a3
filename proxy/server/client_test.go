package server

import (
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient is a connection whose client takes so many bytes in each while of 20 ms, and none of
// what is written beyond the deadline.
type slowClient struct {
	nowhere
	each  int
	taken int
	until time.Time
	mute  bool
}

func (s *slowClient) SetWriteDeadline(t time.Time) error {
	s.until = t
	return nil
}

func (s *slowClient) Write(p []byte) (n int, err error) {
	for n < len(p) {
		time.Sleep(20 * time.Millisecond)
		if s.mute || !time.Now().Before(s.until) {
			time.Sleep(time.Until(s.until))
			return n, os.ErrDeadlineExceeded
		}
		n += min(s.each, len(p)-n)
	}
	s.taken += n
	return n, nil
}

// TestSlowButSteady: a client that takes what is written, slowly, gets all of it, however much is
// written at once; one that takes nothing more is given up, and so is one that has no time left.
func TestSlowButSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20
		slow := &slowClient{nowhere: nowhere{http.Header{}}, each: 64 << 10}
		c := &clientWriter{ResponseWriter: slow, rc: http.NewResponseController(slow), most: 300 * time.Millisecond}
		for _, n := range []int{size, 1, 2 * writePiece, 2*writePiece + 1, 0} {
			slow.taken = 0
			if got, err := c.Write(make([]byte, n)); got != n || err != nil || slow.taken != n {
				t.Errorf("of %d bytes %d are written, and %d taken: %v", n, got, slow.taken, err)
			}
		}
		if want := int64(size + 1 + 4*writePiece + 1); c.n.Load() != want {
			t.Errorf("%d bytes are counted, want %d", c.n.Load(), want)
		}
		began := time.Now()
		c.until = began.Add(time.Second)
		if n, err := c.Write(make([]byte, size)); err == nil || n == 0 || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("who has a second left is written %d bytes in %s: %v", n, time.Since(began), err)
		}
		began, c.until, slow.mute = time.Now(), time.Time{}, true
		if n, err := c.Write(make([]byte, size)); err == nil || n > 0 || time.Since(began) > 400*time.Millisecond {
			t.Errorf("who takes nothing is given up after %s, with %d bytes: %v", time.Since(began), n, err)
		}
	})
}
