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

// usualCodes have a series from the start; any other status from the first scrape after its first
// response.
var usualCodes = [...]int{200, 204, 429, 500, 503}

// codes counts responses by their status. If an SSP sends more than maxCodes different statuses,
// the further ones count together.
type codes struct {
	counts  [maxCode - minCode + 1]atomic.Uint64
	beyond  atomic.Uint64 // of statuses that have no count
	last4xx atomic.Int64  // the last status from 400 to 499; 0 = none

	mu        sync.Mutex // guards hasSeries
	hasSeries map[int]bool
}

func (c *codes) init() {
	c.hasSeries = make(map[int]bool)
	for _, status := range usualCodes {
		c.hasSeries[status] = true
	}
}

// add counts a response.
func (c *codes) add(status int) {
	if status < minCode || status > maxCode {
		c.beyond.Add(1)
	} else {
		c.counts[status-minCode].Add(1)
	}
	if status/100 == 4 {
		c.last4xx.Store(int64(status))
	}
}

// each calls f with the count of each status that has a series, and with the sum of all other
// statuses.
func (c *codes) each(f func(code string, n uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := c.beyond.Load()
	for i := range c.counts {
		status, n := minCode+i, c.counts[i].Load()
		if n > 0 && len(c.hasSeries) < maxCodes {
			c.hasSeries[status] = true
		}
		if c.hasSeries[status] {
			f(strconv.Itoa(status), n)
		} else {
			other += n
		}
	}
	f("other", other)
}
