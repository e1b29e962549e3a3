package trust

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Hashmod is the promise by which series were given to the shards of a group: one that has the
// label is on the shard whose hash is Of its value.
type Hashmod struct {
	// Label is the source label of the relabel rule.
	Label string
	// Modulus is at least 1.
	Modulus uint64
}

// Of is the number that Prometheus' relabel action hashmod gives a value: the last eight bytes of
// its MD5, modulo Modulus.
func (h Hashmod) Of(value string) uint64 {
	sum := md5.Sum([]byte(value))
	return binary.BigEndian.Uint64(sum[8:]) % h.Modulus
}

// maxPruneValues is how many values of one matcher are hashed, or looked up among names; more
// select nearly every shard anyway.
const maxPruneValues = 1024

// Hold are the hashes of shards that can hold series which match ms: nil where nothing is known of
// it. It is empty where two matchers exclude each other. Matchers on other labels do not matter,
// nor do those that match the empty string, since series without the label may be anywhere.
func (h Hashmod) Hold(ms []*labels.Matcher) map[uint64]bool {
	var hold map[uint64]bool
	for _, m := range ms {
		if m.Name != h.Label || m.Matches("") {
			continue
		}
		values := finite(m)
		if len(values) == 0 || len(values) > maxPruneValues {
			continue
		}
		hashes := make(map[uint64]bool, len(values))
		for _, v := range values {
			if n := h.Of(v); hold == nil || hold[n] {
				hashes[n] = true
			}
		}
		hold = hashes
	}
	return hold
}

// finite are the only values that the matcher selects; nil where they are not given one by one.
func finite(m *labels.Matcher) []string {
	switch m.Type {
	case labels.MatchEqual:
		return []string{m.Value}
	case labels.MatchRegexp:
		return m.SetMatches()
	default:
		return nil
	}
}

// Promise is what a server of the shard with that hash has to keep; see Fact.
func (h Hashmod) Promise(hash uint64) string {
	return h.Label + " " + strconv.FormatUint(h.Modulus, 10) + " " + strconv.FormatUint(hash, 10)
}

// Wrong says why a value of the label breaks it on the shard with that hash; empty where not.
func (h Hashmod) Wrong(hash uint64) func(value string) string {
	return func(value string) string {
		if n := h.Of(value); value != "" && n != hash {
			return fmt.Sprintf("it holds %s=%q, which hashes to shard %d of %d and not to %d", h.Label, clip.Said(value), n, h.Modulus, hash)
		}
		return ""
	}
}
