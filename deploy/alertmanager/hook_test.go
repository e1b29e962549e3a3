package alertmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// hook is a receiver that keeps what was firing at each receiver, by alert name.
type hook struct {
	mu   sync.Mutex
	seen map[string]map[string]int // receiver: alert: how often notified as firing
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Receiver string
		Alerts   []struct {
			Status string
			Labels map[string]string
		}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil || r.URL.Path != "/"+m.Receiver {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL.Path, err), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range m.Alerts {
		if a.Status == "firing" {
			if h.seen[m.Receiver] == nil {
				h.seen[m.Receiver] = map[string]int{}
			}
			h.seen[m.Receiver][key(a.Labels)]++
		}
	}
}

// key is what a table below calls an alert: its name and, where it has them, cluster, node and
// place.
func key(labels map[string]string) string {
	out := labels["alertname"]
	for _, l := range []string{"cluster", "node", "rack", "zone"} {
		if labels[l] != "" {
			out += " " + labels[l]
		}
	}
	return out
}

func (h *hook) snapshot() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string][]string{}
	for receiver, alerts := range h.seen {
		out[receiver] = slices.Sorted(maps.Keys(alerts))
	}
	return out
}

func (h *hook) count(receiver, alert string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[receiver][alert]
}

func ls(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func post(ctx context.Context, url string, alerts ...map[string]string) error {
	type alert struct {
		Labels map[string]string `json:"labels"`
		EndsAt time.Time         `json:"endsAt"`
	}
	list := []alert{}
	for _, l := range alerts {
		list = append(list, alert{l, time.Now().Add(10 * time.Minute)})
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v2/alerts", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return nil
}
