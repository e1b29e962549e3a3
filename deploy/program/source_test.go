package program

import (
	"strings"
	"testing"
)

// TestWithoutGit: what cannot be known is refused, in words that say what to do.
func TestWithoutGit(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	s := Source{Version: "1", Revision: "2"}
	if err := s.Fill(t.Context()); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	s = Source{Version: "v1.2.3", Revision: "2"}
	if err := s.Fill(t.Context()); err != nil || s.Version != "1.2.3" || s.Created.Unix() != 1700000000 {
		t.Errorf("%v: %+v", err, s)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	t.Chdir(t.TempDir())
	if err := (&Source{}).Fill(t.Context()); err == nil || !strings.Contains(err.Error(), "without git give -version") {
		t.Error(err)
	}
}

// TestPlatform: it is written as everybody writes it.
func TestPlatform(t *testing.T) {
	for want, p := range map[string]Platform{
		"linux/amd64":  {OS: "linux", Arch: "amd64"},
		"linux/arm/v7": {OS: "linux", Arch: "arm", Variant: "v7"},
	} {
		if p.String() != want {
			t.Errorf("%+v is written %s", p, p)
		}
	}
}
