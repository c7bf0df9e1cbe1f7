package handshake

import (
	"errors"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestAClientsPartOfAHandshakeIsBounded(t *testing.T) {
	var c ClientBytes
	b := make([]byte, 100_000)
	for _, limit := range []int{24576, 32768, 32768} { // the ClientHello, and two later parts
		for n, want := range map[int]int{0: limit, 10_000: limit - 10_000} {
			d := c
			d.CountRead(n)
			room, err := d.LimitRead(b)
			testsupport.True(t, err == nil && len(room) == want, "after %d bytes there is room for %d, %v; want %d", n, len(room), err, want)
		}
		c.CountRead(limit)
		_, err := c.LimitRead(b)
		testsupport.True(t, errors.Is(err, ErrTooLarge) && ReasonOf(err) == Invalid, "after %d bytes: %v", limit, err)
		c.ServerWrote()
	}
}
