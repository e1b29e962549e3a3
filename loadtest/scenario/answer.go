package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxParsed is the size in bytes up to which an answer is kept and looked into; of larger ones only
// the bytes are counted.
const maxParsed = 8 << 20

// checkBuckets is the check of the killer: a success with series, each of which has the label le.
func checkBuckets(body []byte) (Found, error) {
	var a struct {
		Status   string
		Error    string
		Warnings []string
		Data     []struct {
			Le *string `json:"le"`
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return Found{}, fmt.Errorf("not a Prometheus answer: %w", err)
	}
	f := Found{Series: len(a.Data), Warnings: a.Warnings}
	switch {
	case a.Status != "success":
		return f, fmt.Errorf("status %q: %s", a.Status, a.Error)
	case len(a.Data) == 0:
		return f, errors.New("success without a single series")
	}
	for i, s := range a.Data {
		if s.Le == nil {
			return f, fmt.Errorf("series %d has no label le, which is all that was asked for", i)
		}
	}
	return f, nil
}
