// Package effort measures how much a computation costs by the processor time of the process, not by
// a clock on the wall: on a machine that is busy with others everything takes longer, and nothing
// costs more. Only tests import it.
package effort

import "time"

// Of is what f costs, with whatever else the process does meanwhile.
func Of(f func()) time.Duration {
	before := SoFar()
	f()
	return SoFar() - before
}
