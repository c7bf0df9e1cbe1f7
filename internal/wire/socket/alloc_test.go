//go:build !race

package socket

import (
	"testing"
	"time"
)

func TestHotPathAllocatesNothing(t *testing.T) {
	c, peer := connect(t, "tcp")
	b := make([]byte, 100)
	at := time.Now().Add(patience)
	paths := map[string]func(){
		"Peek":        func() { c.Peek() },
		"SetDeadline": func() { at = at.Add(time.Microsecond); c.SetDeadline(at) },
		"Write and Read": func() {
			c.Write(b)
			peer.Read(b)
			peer.Write(b)
			c.Read(b)
		},
		"Read that must not block": func() {
			c.SetNonblocking(true)
			c.Read(b)
			c.SetNonblocking(false)
		},
	}
	for name, path := range paths {
		if n := testing.AllocsPerRun(1000, path); n != 0 {
			t.Errorf("%s allocates %.1f times", name, n)
		}
	}
	c.Records()
	one := record(20, 'x')
	if n := testing.AllocsPerRun(1000, func() {
		peer.Write(one)
		c.Read(b)
	}); n != 0 {
		t.Errorf("Read of a record allocates %.1f times", n)
	}
}
