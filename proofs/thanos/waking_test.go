package thanos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// waking is the time in which both Prometheus of a shard were started and do not know yet what they
// scrape: discovery hands targets over every five seconds, and metadata are there with the first
// scrape. Until one of the two says itself what the shard has, nobody can: an answer without that
// is what is so. Nor has anybody samples of the time in which both were away: a point of a range
// from then lacks the shard, once its last sample is as old as a query looks back.
type waking struct {
	shard int // -1: no shard whose two Prometheus are struck
	done  sync.WaitGroup
	mu    sync.Mutex
	since map[string]time.Time // by question: when one of the two said it first
	began bool
	back  time.Time     // when both were there again
	away  time.Duration // for how long they were not
}

// lookback is the default of Prometheus and of Thanos.
const lookback = 5 * time.Minute

// orphan is the shard of which both Prometheus are struck, -1 if there is none.
func (d deed) orphan() int {
	for i, p := range d.ps {
		for _, o := range d.ps[:i] {
			if p.kind == prometheus && o.kind == prometheus && o.shard == p.shard {
				return p.shard
			}
		}
	}
	return -1
}

// of is the part of an answer that a shard gives.
func (q question) of(shard int) (out []string) {
	for _, name := range q.want {
		if slices.Contains([]string{fmt.Sprint("api-", shard), fmt.Sprint("temperature_", shard)}, name) ||
			len(name) > 5 && name[:5] == "node-" && name[5:6] == fmt.Sprint(shard) {
			out = append(out, name)
		}
	}
	return out
}

// look asks both Prometheus themselves until one says what the shard has, or ctx ends.
func (k *waking) look(ctx context.Context, w *world, struck time.Time) {
	if k.shard < 0 || k.began {
		return
	}
	k.began, k.back = true, time.Now()
	k.away = k.back.Sub(struck)
	for _, q := range questions {
		if q.name != "targets" && q.name != "metadata" {
			continue
		}
		own := q
		own.want = q.of(k.shard)
		for r := range replicas {
			base := "http://" + w.parts[part{prometheus, k.shard, r}.name()].addrs[0]
			k.done.Go(func() {
				for ctx.Err() == nil {
					if a, err := ask(ctx, base, own, time.Now()); err == nil && judgeOwn(own, a) {
						k.mu.Lock()
						if t := k.since[q.name]; t.IsZero() || a.ended.Before(t) {
							k.since[q.name] = a.ended
						}
						k.mu.Unlock()
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
	}
}

// judgeOwn tells whether a Prometheus has all of its shard, whatever it has besides: metrics about
// itself.
func judgeOwn(q question, a answer) bool {
	var got struct{ Data json.RawMessage }
	if json.Unmarshal([]byte(a.body), &got) != nil {
		return false
	}
	names := namesOf(got.Data)
	return !slices.ContainsFunc(q.want, func(s string) bool { return !slices.Contains(names, s) })
}

// excuses tells whether an answer lacks that shard's part alone, and was asked for before one of
// the shard's own servers had it.
func (k *waking) excuses(q question, a answer) bool {
	if k.shard >= 0 && k.began && q.back > 0 && k.away > lookback-q.back {
		return k.excusesRange(q, a)
	}
	if k.shard < 0 || !k.began || q.name != "targets" && q.name != "metadata" {
		return false
	}
	k.mu.Lock()
	since := k.since[q.name]
	k.mu.Unlock()
	if !since.IsZero() && a.began.After(since) {
		return false
	}
	rest := q
	rest.want = slices.DeleteFunc(slices.Clone(q.want), func(s string) bool { return slices.Contains(q.of(k.shard), s) })
	return judge(rest, a) == fine
}

// excusesRange tells whether the points of an answer that lack the shard, and nothing else, are of
// the time before its first scrape.
func (k *waking) excusesRange(q question, a answer) bool {
	var got struct {
		Data struct{ Result []struct{ Values [][2]any } }
	}
	if a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &got) != nil || len(got.Data.Result) != 1 {
		return false
	}
	first := k.back.Add(3 * time.Second) // they scrape every second
	for _, p := range got.Data.Result[0].Values {
		at, _ := p[0].(float64)
		switch p[1] {
		case fmt.Sprint(targets):
		case fmt.Sprint(targets - targets/shards):
			if int64(at) > first.Unix() {
				return false
			}
		default:
			return false
		}
	}
	return true
}
