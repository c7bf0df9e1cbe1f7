package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// idleList is the exclusive connections that are open and not in use. The most recently used
// connection is last and goes out first, so that the list shrinks when load falls. Guarded by
// Pool.mu.
type idleList struct {
	list     []*member
	checking int // connections that the janitor has taken out to check them
}

// kept returns how many connections are idle.
func (l *idleList) kept() int { return len(l.list) + l.checking }

// take removes up to n connections, those used least recently.
func (l *idleList) take(n int) []*member {
	n = min(max(n, 0), len(l.list))
	taken := slices.Clone(l.list[:n])
	l.list = slices.Delete(l.list, 0, n)
	return taken
}

// remove removes m if it is there.
func (l *idleList) remove(m *member) {
	if i := slices.Index(l.list, m); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// startCheck moves the next batch of connections from the list to batch. The batch begins at index
// at, and ends before the first connection used after before. A batch is small, so that requests
// find most idle connections in the list. It grows with the list, so that a large pool spends
// little time on moving connections.
func (l *idleList) startCheck(batch []*member, at int, before time.Time) []*member {
	most := max(8, len(l.list)/64)
	at = min(at, len(l.list))
	end := at
	for end < len(l.list) && end-at < most && !l.list[end].used.After(before) {
		end++
	}
	batch = append(batch[:0], l.list[at:end]...)
	l.list = slices.Delete(l.list, at, end)
	l.checking = len(batch)
	return batch
}

// endCheck puts a batch back where it was.
func (l *idleList) endCheck(batch []*member, at int) {
	l.checking = 0
	l.list = slices.Insert(l.list, min(at, len(l.list)), batch...)
}

// keep makes m, which is exclusive and not in use, idle, or closes it if max_idle connections are
// idle already.
func (c *connections) keep(m *member) {
	if c.idle.kept() >= c.opts.MaxIdle {
		c.drain(m, upstream.ClosedIdle)
		return
	}
	c.idle.list = append(c.idle.list, m)
}

// popIdle takes the idle connection that was used last, or returns nil. It drains expired
// connections on the way.
func (c *connections) popIdle(now time.Time) *member {
	for n := len(c.idle.list); n > 0; n = len(c.idle.list) {
		m := c.idle.list[n-1]
		c.idle.list[n-1] = nil
		c.idle.list = c.idle.list[:n-1]
		why := m.expired(c.opts, now)
		if why == upstream.NotClosed {
			return m
		}
		c.drain(m, why)
	}
	return nil
}
