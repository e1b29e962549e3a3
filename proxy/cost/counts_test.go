package cost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(i int) Key { return KeyOf("heron[0]", "series", fmt.Sprintf("m%d", i), 0, 3_600_000) }

// all is an ask that finds the same number for all keys, after a while.
func all(number int64, after time.Duration, asked *atomic.Int32) func([]Key, func(int, int64)) error {
	return func(keys []Key, found func(int, int64)) error {
		if asked != nil {
			asked.Add(int32(len(keys)))
		}
		time.Sleep(after)
		for i := range keys {
			found(i, number)
		}
		return nil
	}
}

// TestCountsAskOnce: however many want a number at once, one asks for it; it is known then, and
// whoever wants others besides asks for those alone.
func TestCountsAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var asked atomic.Int32
		for i := range 50 {
			go func() {
				keys := []Key{key(i % 5), key(i%5 + 1)}
				got, err := c.Find(t.Context(), "lane", keys, all(7, time.Second, &asked))
				if err != nil || got[keys[0]] != 7 || got[keys[1]] != 7 {
					t.Errorf("%v %v", got, err)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := asked.Load(); n != 6 {
			t.Errorf("%d questions for 6 numbers", n)
		}
		if n, ok := c.Known(key(3)); !ok || n != 7 {
			t.Errorf("%d %v", n, ok)
		}
		if _, ok := c.Known(key(9)); ok {
			t.Error("a number that nobody asked for is known")
		}
	})
}

// TestCountsWaitForTheirOwn: who waits for a number that somebody else asks for has it when it is
// there, however long the others take that are asked for with it.
func TestCountsWaitForTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		go func() {
			_, _ = c.Find(t.Context(), "lane", []Key{key(1), key(2)}, func(_ []Key, found func(int, int64)) error {
				time.Sleep(time.Second)
				found(1, 5)
				time.Sleep(time.Hour)
				return errors.New("the other one hangs")
			})
		}()
		synctest.Wait()
		began := time.Now()
		got, err := c.Find(t.Context(), "lane", []Key{key(2)}, nil)
		if took := time.Since(began); err != nil || got[key(2)] != 5 || took != time.Second {
			t.Errorf("%v %v after %s", got, err, took)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n, ok := c.Known(key(2)); !ok || n != 5 {
			t.Error("what was found is lost with what was not")
		}
		if _, ok := c.Known(key(1)); ok {
			t.Error("what was not found is known")
		}
	})
}

// TestCountsFail: the error is that of whoever asked; those who waited ask themselves, and who has
// no time to wait does not.
func TestCountsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		broken := errors.New("broken")
		go func() {
			if _, err := c.Find(t.Context(), "lane", []Key{key(1)}, func([]Key, func(int, int64)) error {
				time.Sleep(time.Second)
				return broken
			}); !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Find(short, "lane", []Key{key(1)}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who cannot wait: %v", err)
		}
		got, err := c.Find(t.Context(), "lane", []Key{key(1)}, all(3, 0, nil))
		if err != nil || got[key(1)] != 3 {
			t.Errorf("who waited: %v %v", got, err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Find(t.Context(), "lane", []Key{key(2)}, func([]Key, func(int, int64)) error { panic("a fault") })
		}()
		if got, err = c.Find(t.Context(), "lane", []Key{key(2)}, all(4, 0, nil)); err != nil || got[key(2)] != 4 {
			t.Errorf("after a fault: %v %v", got, err)
		}
	})
}

// TestCountsOfNothing: that there is nothing is told, and not remembered.
func TestCountsOfNothing(t *testing.T) {
	var c Counts
	got, err := c.Find(t.Context(), "lane", []Key{key(1), key(2)}, func(_ []Key, found func(int, int64)) error {
		found(0, 0)
		found(0, 9) // the first counts
		return nil
	})
	if n, ok := got[key(1)]; err != nil || !ok || n != 0 {
		t.Errorf("%v %v", got, err)
	}
	if _, ok := got[key(2)]; ok {
		t.Error("what was not found is in the result")
	}
	for i := 1; i <= 2; i++ {
		if _, ok := c.Known(key(i)); ok {
			t.Errorf("%d is remembered", i)
		}
	}
	if len(c.seen) != 0 || c.used.Len() != 0 {
		t.Errorf("%d are left", len(c.seen))
	}
}

// TestCountsArePatient: whoever waits for a number that takes somebody else long asks after two
// seconds, and so does the next one after that; a number that comes late is still one.
func TestCountsArePatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := c.Find(t.Context(), "lane", []Key{key(1)}, all(5, time.Hour, nil))
			if err != nil || got[key(1)] != 5 {
				t.Errorf("who asked first: %v %v", got, err)
			}
		})
		synctest.Wait()
		began := time.Now()
		for range 3 {
			wg.Go(func() {
				got, err := c.Find(t.Context(), "lane", []Key{key(1)}, all(7, 100*time.Millisecond, nil))
				if took := time.Since(began); err != nil || got[key(1)] != 7 || took > patience+200*time.Millisecond {
					t.Errorf("who waited: %v %v after %s", got, err, took)
				}
			})
		}
		wg.Wait()
		if n, ok := c.Known(key(1)); !ok || n != 7 {
			t.Errorf("%d %v is known", n, ok)
		}
	})
}

// TestCountsAskSeldom: of many who wait for a number that a server takes long for few ask again,
// and who is in another lane waits for none of them.
func TestCountsAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var asked atomic.Int64
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				lane, takes := "grafana", 30*time.Second
				if i == 490 {
					lane, takes = "on-call", 100*time.Millisecond
				}
				began := time.Now()
				got, err := c.Find(t.Context(), lane, []Key{key(1)}, func(_ []Key, found func(int, int64)) error {
					asked.Add(1)
					time.Sleep(takes)
					found(0, 7)
					return nil
				})
				if took := time.Since(began); err != nil || got[key(1)] != 7 || lane == "on-call" && took != takes {
					t.Errorf("%s: %v %v after %s", lane, got, err, took)
				}
			})
		}
		wg.Wait()
		if n := asked.Load(); n != 6 { // at once, after 2, 6, 14 and 22 seconds, and on call
			t.Errorf("it was asked %d times", n)
		}
	})
}

// TestCountsAreTakenTogether: of several numbers that others take long for those that come next are
// asked for with the first, not after it.
func TestCountsAreTakenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / 2)
				_, _ = c.Find(t.Context(), "lane", []Key{key(i)}, all(1, time.Hour, nil))
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		got, err := c.Find(t.Context(), "lane", []Key{key(0), key(1)}, all(7, 20*time.Second, nil))
		if took := time.Since(began); err != nil || len(got) != 2 || took != 21*time.Second {
			t.Errorf("%v %v after %s", got, err, took)
		}
		wg.Wait()
	})
}

// TestCountsForgetWhoLeft: who asks no longer keeps nobody of his lane waiting.
func TestCountsForgetWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var wg sync.WaitGroup
		left := errors.New("left")
		for i, who := range []struct {
			lane string
			asks time.Duration
			err  error
		}{{"low", time.Hour, nil}, {"on-call", 30 * time.Second, left}, {"low", time.Hour, nil}} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Second)
				_, _ = c.Find(t.Context(), who.lane, []Key{key(1)}, func([]Key, func(int, int64)) error {
					time.Sleep(who.asks)
					return who.err
				})
			})
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		lanes := slices.Clone(c.seen[key(1)].Value.(*count).lanes)
		c.mu.Unlock()
		if slices.Contains(lanes, "on-call") || len(lanes) != 2 {
			t.Errorf("there ask %v", lanes)
		}
		wg.Wait()
		if len(c.seen) != 0 || c.used.Len() != 0 {
			t.Errorf("%d are left", len(c.seen))
		}
	})
}

// TestCountsRemember: what the caller knows is known, also that there is nothing; what was found
// stays.
func TestCountsRemember(t *testing.T) {
	var c Counts
	none, found := KeyOf("s", "series", "none", 0, 1), KeyOf("s", "series", "x", 0, 1)
	if _, err := c.Find(t.Context(), "lane", []Key{none, found}, func(keys []Key, tell func(int, int64)) error {
		for i, k := range keys {
			tell(i, map[Key]int64{found: 7}[k])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Known(none); ok {
		t.Error("0 is remembered without being told to")
	}
	c.Remember(none, 0)
	c.Remember(found, 0)
	n, ok := c.Known(none)
	if m, also := c.Known(found); !ok || !also || n != 0 || m != 7 {
		t.Errorf("%d %v, %d %v", n, ok, m, also)
	}
	for i := range MaxCounts + 10 {
		c.Remember(KeyOf("s", "series", fmt.Sprint(i), 0, 1), 1)
	}
	if len(c.seen) != MaxCounts || c.used.Len() != MaxCounts {
		t.Errorf("%d are remembered", len(c.seen))
	}
}

// TestKeysShare: a number is counted over all of the longest window that shares its key, so that it
// is none too small for any; what is to be believed for ten minutes only is not shared for longer.
func TestKeysShare(t *testing.T) {
	const until = int64(1_790_000_000_000)
	for _, w := range []int64{0, 1, 300_000, 3_600_000, 5_000_000, 86_400_000, 30 * 86_400_000} {
		key := KeyOf("s", "series", "x", until-w, until)
		from := Whole(until-w, until)
		if from > until-w || KeyOf("s", "series", "x", from, until) != key || KeyOf("s", "series", "x", from-1, until) == key {
			t.Errorf("%d ms: the whole window has %d", w, until-from)
		}
		soon := key.Soon(until)
		if soon == key || soon == KeyOf("s", "series", "x", from-1, until).Soon(until) || soon == key.Soon(until+minPeriod.Milliseconds()) {
			t.Errorf("%d ms: %v is shared", w, soon)
		}
	}
}

// TestCountsForget: there are never more than MaxCounts, and those that were used last stay.
func TestCountsForget(t *testing.T) {
	var c Counts
	var many []Key
	for i := range MaxCounts + 100 {
		many = append(many, key(i))
	}
	for batch := range slices.Chunk(many, 50) {
		if _, err := c.Find(t.Context(), "lane", batch, all(1, 0, nil)); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Known(key(0)); !ok {
			t.Fatal("what is used all the while is forgotten")
		}
	}
	if len(c.seen) != MaxCounts || c.used.Len() != MaxCounts {
		t.Errorf("%d numbers are held, in a list of %d", len(c.seen), c.used.Len())
	}
	if _, ok := c.Known(key(1)); ok {
		t.Error("what was not used for longest is held")
	}
}

// TestKeyOf: windows that move on with the clock share a number for ten minutes at least, and for
// less than half of their length beyond that.
func TestKeyOf(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		keys := map[Key]bool{}
		const moves = 1000
		for i := range moves {
			until := 1_790_000_000_000 + int64(i)*time.Minute.Milliseconds()
			keys[KeyOf("s", "series", "x", until-length.Milliseconds(), until)] = true
		}
		least, most := moves*int(time.Minute)/int(max(10*time.Minute, length/2)), moves*int(time.Minute)/int(max(10*time.Minute, length/4))
		if n := len(keys); n < least || n > most+2 {
			t.Errorf("a window of %s has %d keys in 1000 minutes, want %d to %d", length, n, least, most+2)
		}
	}
	one := KeyOf("s", "series", "x", 0, 1000)
	others := []Key{KeyOf("s", "series", "x", 0, 10_000), KeyOf("r", "series", "x", 0, 1000), KeyOf("s", "x", "series", 0, 1000)}
	if slices.Contains(others, one) {
		t.Error("different windows or shards share a number")
	}
	if KeyOf("a", "bc", "x", 0, 1000) == KeyOf("ab", "c", "x", 0, 1000) {
		t.Error("what stands in another field shares a number")
	}
	grid := Grid{Steps: 60, Step: 60_000, Interval: 15_000}
	weight := WeightKey("s", "x", grid, 1000)
	for _, g := range []Grid{
		{Steps: 240, Step: 60_000, Interval: 15_000},
		{Steps: 60, Step: 15_000, Interval: 15_000},
		{Steps: 60, Step: 60_000, Interval: 60_000},
	} {
		if WeightKey("s", "x", g, 1000) == weight {
			t.Errorf("%+v weighs what %+v does", g, grid)
		}
	}
}

// TestLate: who waits no longer is told which numbers nobody has found for him: not those that are
// known, nor those that he asked for himself.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		c.Remember(key(1), 5)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.Find(t.Context(), "lane", []Key{key(2)}, all(7, time.Hour, nil)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Find(ctx, "lane", []Key{key(1), key(2), key(3)}, func(_ []Key, found func(int, int64)) error {
			found(0, 0)
			return nil
		})
		var late *Late
		if !errors.As(err, &late) || !slices.Equal(late.Keys, []Key{key(2)}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a second: %v, %+v", err, late)
		}
		wg.Wait()
	})
}

// TestFoundMeanwhile: what others have found while one's own question took all of his patience is
// known, and nobody is late.
func TestFoundMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counts
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.Find(t.Context(), "lane", []Key{key(2)}, all(7, time.Second, nil)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got, err := c.Find(ctx, "lane", []Key{key(1), key(2)}, all(3, 1600*time.Millisecond, nil))
		if err != nil || got[key(1)] != 3 || got[key(2)] != 7 {
			t.Errorf("%v, %v", got, err)
		}
		wg.Wait()
	})
}
