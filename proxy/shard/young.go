package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// youngFor is how long a server may take until it has scraped all that it will: two of the usual
// intervals of a minute.
const youngFor = 2 * time.Minute

// young says which server of the shard was started so short a time ago that what it lacks may be
// still to come; empty where none was, or none says so.
func (s *Shard) young(ctx context.Context) string {
	for _, r := range s.Replicas {
		var info struct {
			StartTime time.Time `json:"startTime"`
		}
		err := r.getData(ctx, "/api/v1/status/runtimeinfo", nil, func(raw json.RawMessage) error { return json.Unmarshal(raw, &info) })
		if age := s.topology.opts.Clock().Sub(info.StartTime); err == nil && age < youngFor {
			return fmt.Sprintf(" (%s was started %s ago and may not have scraped everything yet: try again in two minutes)",
				r.host, max(age, 0).Round(time.Second))
		}
	}
	return ""
}
