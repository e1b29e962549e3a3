// Package randseed gives random tests their seed. One that is named with a flag comes first, then
// the variable SPILLWAY_SEED, which make test sets to a number of the commit: each commit asks
// other questions, and one commit asks the same ones wherever and however often it is tested. Else
// it is the clock. Only tests import it.
package randseed
