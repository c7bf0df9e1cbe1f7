package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"adbuffer/internal/capacity"
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// advice says in a sentence or two how well a pool fits the last minute's load,
// and which setting to change if it does not.
func advice(s *pool.Snapshot, o *pool.Options) string {
	n := &s.Need
	switch {
	case n.ArrivalsPerSecond == 0:
		return "No requests in the last minute: nothing to advise."
	case n.Load == 0:
		return "No place was given back in the last minute: nothing to advise yet."
	}
	setting, limit := sizeSetting(s.Protocol, o)
	text := fmt.Sprintf("%s requests/s × %s keep %s places busy on average; %s would let 3 %% of them wait.",
		amount(n.ArrivalsPerSecond), millis(n.HoldSeconds), amount(n.Load), count(n.AdvisedConnections, "connection"))
	if n.AdvisedConnections > limit {
		return fmt.Sprintf("Set %s to %d, now %d. %s", setting, n.AdvisedConnections, limit, text)
	}
	hold := time.Duration(n.HoldSeconds * float64(time.Second))
	return fmt.Sprintf("%s %d is enough. %s Full at %s requests/s, or at this rate once a place is held for %s.",
		setting, limit, text, amount(capacity.FullRate(float64(s.PlacesLimit), hold)), millis(float64(s.PlacesLimit)/n.ArrivalsPerSecond))
}

// sizeSetting is what bounds the connections of a pool that speaks pr.
func sizeSetting(pr upstream.Protocol, o *pool.Options) (name string, value int) {
	if pr == upstream.HTTP2 {
		if o.MaxConns < o.MaxHTTP2Conns {
			return "pool.max_conns", o.MaxConns
		}
		return "pool.max_http2_conns", o.MaxHTTP2Conns
	}
	return "pool.max_conns", o.MaxConns
}

// advisedIdleTimeout is an idle_timeout with which we close first: 5 % below
// what was learned, at least a second, rounded down to what people write. 0 while
// nothing is learned, or where idle_timeout is as low already.
func advisedIdleTimeout(s *pool.Snapshot, o *pool.Options) time.Duration {
	learned := time.Duration(s.LearnedIdleSeconds * float64(time.Second))
	advised := min(learned*19/20, learned-time.Second).Truncate(time.Second)
	if advised < time.Second { // there is no room for a second
		advised = max(learned/2, 10*time.Millisecond).Truncate(10 * time.Millisecond)
	}
	if learned == 0 || o.IdleTimeout > 0 && o.IdleTimeout <= advised {
		return 0
	}
	return advised
}

// idleAdvice is the sentence for that, empty where there is none.
func idleAdvice(s *pool.Snapshot, o *pool.Options) string {
	advised := advisedIdleTimeout(s, o)
	if advised == 0 {
		return ""
	}
	return fmt.Sprintf("Set pool.idle_timeout to %v, now %v: the SSP closes connections that are idle for about %s.",
		advised, o.IdleTimeout, millis(s.LearnedIdleSeconds))
}

// amount writes a number for people: three digits, thousands apart.
func amount(v float64) string {
	if v > 0 && v < 0.01 {
		return "less than 0.01"
	}
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return amount(float64(n)) + " " + noun + "s"
}

// millis writes seconds as milliseconds, or as seconds from one on.
func millis(seconds float64) string {
	if seconds >= 1 {
		return amount(seconds) + " s"
	}
	return amount(1000*seconds) + " ms"
}
