package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// idleList holds the exclusive connections that are open and not in use. The most recently used
// connection is last and is taken first, so that the list shrinks when the load falls. Guarded by
// Pool.mu.
type idleList struct {
	list []*member
	kept *int // counts the idle connections of all endpoints, including those that the janitor checks
}

func (l *idleList) push(m *member) {
	l.list = append(l.list, m)
	*l.kept++
}

// popOldest removes and returns the least recently used connection. The list must not be empty.
func (l *idleList) popOldest() *member {
	m := l.list[0]
	l.list = slices.Delete(l.list, 0, 1)
	*l.kept--
	return m
}

// remove removes m if it is there.
func (l *idleList) remove(m *member) {
	if i := slices.Index(l.list, m); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
		*l.kept--
	}
}

// startCheck moves the next connections from the list to batch. The batch begins at index at, and
// ends before the first connection that was used after before. A batch is small, so that requests
// find most idle connections in the list. It grows with the list, so that a large pool spends
// little time on moving connections.
func (l *idleList) startCheck(batch []*member, at int, before time.Time) []*member {
	limit := max(8, len(l.list)/64)
	at = min(at, len(l.list))
	end := at
	for end < len(l.list) && end-at < limit && !l.list[end].used.After(before) {
		end++
	}
	batch = append(batch[:0], l.list[at:end]...)
	l.list = slices.Delete(l.list, at, end)
	return batch
}

// endCheck puts the remaining connections of a batch back.
func (l *idleList) endCheck(batch []*member, at, dropped int) {
	*l.kept -= dropped
	l.list = slices.Insert(l.list, min(at, len(l.list)), batch...)
}

// keep makes m, which is exclusive and not in use, idle. If max_idle connections are idle already,
// or the SSP is about to close m, it closes m.
func (c *connections) keep(m *member) {
	if m.idleLimit <= 0 || c.kept >= c.opts.MaxIdle {
		c.drain(m, exchange.ClosedIdle)
		return
	}
	m.ep.idle.push(m)
}

// drainIdle drains up to n idle connections, the least recently used ones.
func (c *connections) drainIdle(n int) {
	for ; n > 0; n-- {
		var oldest *endpoint
		for _, e := range c.endpoints.all {
			if len(e.idle.list) > 0 && (oldest == nil || e.idle.list[0].used.Before(oldest.idle.list[0].used)) {
				oldest = e
			}
		}
		if oldest == nil {
			return
		}
		c.drain(oldest.idle.popOldest(), exchange.ClosedDrain)
	}
}

// popIdle takes the most recently used idle connection of e, or returns nil. If http1 is true, it takes no
// HTTP/2 connection. It drains expired connections that it meets.
func (c *connections) popIdle(e *endpoint, http1 bool, now time.Time) *member {
	l := &e.idle
	for i := len(l.list) - 1; i >= 0; i-- {
		m := l.list[i]
		if http1 && m.single {
			continue
		}
		if last := len(l.list) - 1; i == last { // for most requests
			l.list[last], l.list = nil, l.list[:last]
		} else {
			l.list = slices.Delete(l.list, i, i+1)
		}
		*l.kept--
		why := c.idleRule.expired(m, now)
		if why == exchange.NotClosed {
			return m
		}
		c.drain(m, why)
	}
	return nil
}
