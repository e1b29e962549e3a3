//go:build !unix

package effort

import "time"

var began = time.Now()

// SoFar is the time since the process began, where its processor time is not read.
func SoFar() time.Duration { return time.Since(began) }
