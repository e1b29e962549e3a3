//go:build !race

package cost

// raceDetector: the tests run under it, several times slower.
const raceDetector = false
