//go:build !race

package proxy_test

import "testing"

// The race detector makes these cases five times as slow. Fewer run with it, and all without it.
func TestRequestsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	requestsAreHeldToTheirOwnDeadlines(t, 17, 173)
}

func TestRequestsInManyPartsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	requestsInManyPartsAreHeldToTheirOwnDeadlines(t, 2000)
}
