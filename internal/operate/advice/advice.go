package advice

import (
	"fmt"
	"time"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/exchange"
)

// ForPool describes in a sentence or two how well a pool fits the load of the last minute. If it
// does not fit, ForPool names the setting to change.
func ForPool(s *pool.Snapshot, o *pool.Options) string {
	n := &s.Need
	switch {
	case n.ArrivalsPerSecond == 0:
		return "No requests in the last minute: nothing to advise."
	case n.Load == 0:
		return "No place was released in the last minute: nothing to advise yet."
	}
	setting, limit := sizeSetting(s.Protocol, o)
	text := fmt.Sprintf("%s requests/s × %s keep %s places in use on average; with %s, 3 %% of the requests would wait.",
		Number(n.ArrivalsPerSecond), millis(n.HoldSeconds), Number(n.Load), count(n.AdvisedConnections, "connection"))
	advised, peak := n.AdvisedConnections, s.PlacesInUseMax
	if forPeak := pool.ConnectionsFor(capacity.PlacesForPeak(peak), o.PlacesPerConn(s.Protocol), s.Protocol); forPeak > max(advised, limit) {
		advised = forPeak
		text += fmt.Sprintf(" But %s were in use at once.", count(peak, "place"))
	}
	if n.Load > float64(s.PlacesLimit) {
		text += " " + countsRefused
	}
	if advised > limit {
		return fmt.Sprintf("Set %s to %d, now %d. %s", setting, advised, limit, text)
	}
	hold := time.Duration(n.HoldSeconds * float64(time.Second))
	if o.MinIdle > 2*n.AdvisedConnections {
		text += fmt.Sprintf(" pool.min_idle %d keeps more connections open than this load needs.", o.MinIdle)
	}
	return fmt.Sprintf("%s %d is enough. %s It is full at %s requests/s, or at this rate when a place is held for %s.",
		setting, limit, text, Number(capacity.FullRate(float64(s.PlacesLimit), hold)), millis(float64(s.PlacesLimit)/n.ArrivalsPerSecond))
}

// countsRefused is what advice says of a load that is larger than the pool.
const countsRefused = "This load counts requests that found no place; if clients repeat refused requests, fewer connections are enough."

// ForAuto describes what pool.auto has decided about the size and the idle timeout of a pool. It returns nil if
// pool.auto is off.
func ForAuto(s *pool.Snapshot, o *pool.Options) (all []string) {
	if a := s.Auto; a != nil {
		text := fmt.Sprintf("The pool sizes itself (pool.auto): %s now, and its load needs %d.", count(a.Limit, "place"), a.Need)
		if a.DryRun {
			text = fmt.Sprintf("A dry run of pool.auto would allow %s, and the load needs %d.", count(a.Limit, "place"), a.Need)
		}
		if len(a.Decisions) > 0 {
			d := &a.Decisions[0]
			text += fmt.Sprintf(" Its last decision: %v at %s, from %d to %d, when %.1f %% of the requests waited.",
				d.Kind, d.At.UTC().Format(time.RFC3339), d.From, d.To, 100*d.Waiting)
		}
		if a.HoldSeconds > 0 {
			text += fmt.Sprintf(" A growth brought no more responses in time, so the pool stays for %s.", millis(a.HoldSeconds))
		}
		all = append(all, text)
		if after := a.IdleTimeoutSeconds; after != o.IdleTimeout.Seconds() {
			closes := "closes"
			if a.DryRun {
				closes = "would close"
			}
			all = append(all, fmt.Sprintf("pool.auto %s idle connections after %s instead of %v: the SSP closes them after about %s idle.",
				closes, millis(after), o.IdleTimeout, millis(s.LearnedIdleSeconds)))
		}
	}
	return all
}

// sizeSetting returns the setting that bounds the connections of a pool that speaks pr, and its value.
func sizeSetting(pr exchange.Protocol, o *pool.Options) (name string, value int) {
	if pr == exchange.HTTP2 {
		if o.MaxConns < o.MaxHTTP2Conns {
			return "pool.max_conns", o.MaxConns
		}
		return "pool.max_http2_conns", o.MaxHTTP2Conns
	}
	return "pool.max_conns", o.MaxConns
}

// IdleTimeout returns the idle_timeout with which adbuffer would close idle connections before the SSP does. It
// returns 0 if the SSP's limit is unknown, or if the timeout in force is low enough.
func IdleTimeout(s *pool.Snapshot, o *pool.Options) time.Duration {
	advised := pool.IdleTimeoutBelow(time.Duration(s.LearnedIdleSeconds * float64(time.Second)))
	if o.Auto.Enabled && !o.Auto.DryRun || o.IdleTimeout > 0 && o.IdleTimeout <= advised {
		return 0
	}
	return advised
}

// ForIdleTimeout returns IdleTimeout's advice as a sentence, or "".
func ForIdleTimeout(s *pool.Snapshot, o *pool.Options) string {
	advised := IdleTimeout(s, o)
	if advised == 0 {
		return ""
	}
	return fmt.Sprintf("Set pool.idle_timeout to %v, now %v: the SSP closes connections after about %s idle.",
		advised, o.IdleTimeout, millis(s.LearnedIdleSeconds))
}
