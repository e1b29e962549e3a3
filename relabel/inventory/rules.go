package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// Ruled is a Source that knows which rules are evaluated over what it stores.
type Ruled interface {
	Source
	// Rules is the data of /api/v1/rules.
	Rules(ctx context.Context) (json.RawMessage, error)
}

// Servers are the sources that know rules, of those that src is made of.
func Servers(src Source) []Ruled {
	var out []Ruled
	switch s := src.(type) {
	case *joinedSamples:
		return Servers(s.joined)
	case *joined:
		for _, one := range s.sources {
			out = append(out, Servers(one)...)
		}
	case Ruled:
		out = append(out, s)
	}
	return out
}

// Rules implements Ruled.
func (a *api) Rules(ctx context.Context) (json.RawMessage, error) {
	var data json.RawMessage
	if _, err := a.get(ctx, false, "rules", url.Values{}, &data); err != nil {
		return nil, fmt.Errorf("%s: rules: %w", a, err)
	}
	return data, nil
}
