//go:build race

package proxy_test

import "testing"

// simulationall_test.go has more cases, without the race detector.
func TestRequestsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	requestsAreHeldToTheirOwnDeadlines(t, 67, 691)
}

func TestRequestsInManyPartsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	requestsInManyPartsAreHeldToTheirOwnDeadlines(t, 500)
}
