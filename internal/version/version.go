// Package version orders the versions that servers say they have, with or without a v, as semantic
// versioning does (semver.org, section 11): 2.42.0 < 3.0.0-rc.1 < 3.0.0 = 3.0.0+ds < 3.15.0.
//
// It refuses nothing: text that is no such version sorts below all that are, and two of those are
// equal. It keeps nothing.
package version

import (
	"strings"

	"golang.org/x/mod/semver"
)

// Compare is negative where a is older than b, positive where it is newer, and 0 else.
func Compare(a, b string) int { return semver.Compare(canonical(a), canonical(b)) }

func canonical(v string) string { return "v" + strings.TrimPrefix(v, "v") }
