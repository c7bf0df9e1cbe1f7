package capacity

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestHTTP2ConnsAreTheFewestThatCarryThePlaces(t *testing.T) {
	for _, c := range []struct{ places, streams, want int }{
		{0, 100, 0}, {-5, 100, 0}, {1, 100, 1}, {100, 100, 1}, {101, 100, 2}, {1680, 100, 17}, {7, 1, 7}, {7, 0, 7}, {7, -1, 7},
	} {
		testsupport.Equal(t, HTTP2Conns(c.places, c.streams), c.want, "HTTP2Conns(%[2]d, %[3]d) = %[1]d", c.places, c.streams)
	}
}

// grow simulates the pool's rule: a request goes to the connection with the fewest requests. If it
// finds half of the streams in use on each, the pool opens another connection.
func grow(places, streams int) int {
	var inUse []int
	for range places {
		least := -1
		for i := range inUse {
			if least < 0 || inUse[i] < inUse[least] {
				least = i
			}
		}
		if least < 0 || 2*inUse[least] >= streams {
			inUse = append(inUse, 0)
			least = len(inUse) - 1
		}
		inUse[least]++
	}
	return len(inUse)
}

func TestHTTP2GrownConnsMatchThePoolsRulePlayedOut(t *testing.T) {
	for _, streams := range []int{1, 2, 3, 7, 10, 100, 101, 250} {
		for places := range 420 {
			got, want := HTTP2GrownConns(places, streams), grow(places, streams)
			testsupport.MustTrue(t, got == want, "HTTP2GrownConns(%d, %d) = %d, want %d", places, streams, got, want)
			testsupport.MustTrue(t, HTTP2GrownConns(places, streams) >= HTTP2Conns(places, streams), "%d places, %d streams: fewer connections half full than full", places, streams)
		}
	}
}
