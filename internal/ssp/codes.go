package ssp

import (
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	minCode = 200
	maxCode = 599
	// maxCodes is how many different statuses of one SSP have their own series.
	maxCodes = 40
)

// usualCodes have a series from the start; any other status from its first response.
var usualCodes = [...]int{200, 204, 429, 500, 503}

// codes counts responses by their status. If an SSP sends more than maxCodes different statuses,
// the further ones count together.
type codes struct {
	counts [maxCode - minCode + 1]code
	other  atomic.Uint64

	mu    sync.Mutex // guards known, and the setting of code.known
	known int
}

type code struct {
	n     atomic.Uint64
	known atomic.Bool // has a series; never false again
}

func (c *codes) init() {
	for _, status := range usualCodes {
		c.admit(&c.counts[status-minCode])
	}
}

// add counts a response.
func (c *codes) add(status int) {
	if status < minCode || status > maxCode {
		c.other.Add(1)
		return
	}
	at := &c.counts[status-minCode]
	if at.known.Load() || c.admit(at) {
		at.n.Add(1)
	} else {
		c.other.Add(1)
	}
}

// admit gives a status a series, unless too many have one.
func (c *codes) admit(at *code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.known.Load() && c.known < maxCodes {
		c.known++
		at.known.Store(true)
	}
	return at.known.Load()
}

// each calls f with the count of each status that has a series, and with the sum of all other
// statuses.
func (c *codes) each(f func(code string, n uint64)) {
	for i := range c.counts {
		if at := &c.counts[i]; at.known.Load() {
			f(strconv.Itoa(minCode+i), at.n.Load())
		}
	}
	f("other", c.other.Load())
}
