//go:build race

package e2e

// raceEnabled: the tests, and so the binary under test, run with the race
// detector.
const raceEnabled = true
