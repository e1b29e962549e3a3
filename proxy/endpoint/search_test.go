package endpoint

import (
	"net/url"
	"strings"
	"testing"
)

// TestSimilarTextsAreShort: together, where similarity is asked for; not where a text only has to
// be a part of what is found, or its letters in their order.
func TestSimilarTextsAreShort(t *testing.T) {
	half := strings.Repeat("a", MaxSimilarBytes/2)
	for _, c := range []struct {
		more   string
		texts  []string
		served bool
	}{
		{"fuzz_alg=jarowinkler&fuzz_threshold=60", []string{half, half}, true},
		{"fuzz_alg=jarowinkler&fuzz_threshold=60", []string{half, half, "b"}, false},
		{"fuzz_alg=jarowinkler&fuzz_threshold=0", []string{half, half, "b"}, true},
		{"fuzz_alg=jarowinkler", []string{half, half, "b"}, true},
		{"fuzz_alg=subsequence&fuzz_threshold=60", []string{half, half, "b"}, true},
	} {
		form, err := url.ParseQuery(c.more)
		if err != nil {
			t.Fatal(err)
		}
		form["search[]"] = c.texts
		r := &Request{Filters: form}
		err = searchRules(r)
		if (err == nil) != c.served {
			t.Errorf("%s: %v", c.more, err)
		}
		if err != nil && !strings.Contains(err.Error(), "its values have 513 bytes, of which") {
			t.Error(err)
		}
	}
}
