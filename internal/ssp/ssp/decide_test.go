package ssp

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// TestDecisionsAboutRetries lists each kind of error in each state that matters, and what the rules decide.
func TestDecisionsAboutRetries(t *testing.T) {
	with := func(e exchange.Error, set func(*exchange.Error)) exchange.Error {
		set(&e)
		return e
	}
	overHTTP1 := exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, OverHTTP1: true}
	isolateUnsent := with(notSent, func(e *exchange.Error) { e.Isolate = exchange.IsolateNext })
	isolateSent := with(cutMidResponse, func(e *exchange.Error) { e.Isolate = exchange.IsolateNext })
	unsent := with(notProcessed, func(e *exchange.Error) { e.Unsent = true })
	goaway := with(notProcessed, func(e *exchange.Error) { e.Isolate = exchange.IsolateLast })
	untrusted := exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent}
	backsOff := exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Err: &refused}
	tinyLimit := exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.NotSent}
	misdirected := exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.NotProcessed}
	malformed := exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed}

	once := retryRules{limit: 1, stale: StaleIdempotent}
	get := failure{idempotent: true, at: 50 * msec}
	post := failure{at: 50 * msec}
	reused := failure{reused: true, acquired: 40 * msec, at: 40 * msec}
	after40ms := failure{acquired: 40 * msec, at: 41 * msec}
	pipelined := failure{protocol: exchange.HTTP1Pipelined, served: 5}
	http2 := failure{protocol: exchange.HTTP2, served: 5}
	sentAgain := retries{resends: 1, resent: true, refused: true}

	for _, c := range []struct {
		name  string
		err   exchange.Error
		rules retryRules
		f     failure
		n     retries
		want  decision
	}{
		{"HTTP/1 wanted", overHTTP1, once, post, retries{}, decision{kind: retryNotProcessed, next: retries{overHTTP1: true}}},
		{"HTTP/1 wanted, tokens and retries used up", overHTTP1, once, post, retries{limited: 1, resends: 2, unsent: 9}, decision{kind: retryNotProcessed, next: retries{limited: 1, resends: 2, unsent: 9, overHTTP1: true}}},
		{"HTTP/1 wanted twice", overHTTP1, once, post, retries{overHTTP1: true}, noRetry},

		{"isolation wanted, not sent", isolateUnsent, once, post, retries{}, decision{kind: retryNotSent, next: retries{isolated: true}}},
		{"isolation wanted, sent", isolateSent, once, post, retries{}, decision{kind: retryNotProcessed, next: retries{resends: 1, isolated: true}}},
		{"isolation wanted, sent again", isolateSent, once, post, retries{resends: 1}, decision{kind: retryNotProcessed, pause: 10 * msec, token: true, next: retries{resends: 2, isolated: true}}},
		{"isolation wanted, sent too often", isolateSent, once, post, retries{resends: 2}, noRetry},
		{"isolation wanted twice, not sent", isolateUnsent, once, post, retries{isolated: true}, noRetry},
		{"isolation wanted twice, sent", isolateSent, once, post, retries{isolated: true}, noRetry},

		{"no byte left adbuffer", unsent, retryRules{}, after40ms, retries{}, decision{kind: retryNotProcessed, next: retries{unsent: 1, resent: true}}},
		{"no byte left adbuffer, third time", unsent, retryRules{}, after40ms, retries{unsent: 2}, decision{kind: retryNotProcessed, next: retries{unsent: 3, resent: true}}},
		{"no byte left adbuffer, fourth time", unsent, retryRules{}, after40ms, retries{unsent: 3}, decision{kind: retryNotProcessed, pause: 4 * msec, next: retries{unsent: 4, resent: true}}},
		{"no byte left adbuffer, early", unsent, retryRules{}, failure{acquired: 2 * msec, at: 2 * msec}, retries{unsent: 3}, decision{kind: retryNotProcessed, pause: msec, next: retries{unsent: 4, resent: true}}},
		{"no byte left adbuffer, slowly", unsent, retryRules{}, failure{acquired: 40 * msec, at: 46 * msec}, retries{unsent: 3}, decision{kind: retryNotProcessed, next: retries{unsent: 4, resent: true}}},
		{"a kept connection was closed", notSent, retryRules{}, reused, retries{}, decision{kind: retryNotSent, next: retries{unsent: 1}}},
		{"a kept connection was closed, fourth time", notSent, retryRules{}, reused, retries{unsent: 3}, decision{kind: retryNotSent, pause: 5 * msec, next: retries{unsent: 4}}},

		{"a pipelined connection that served well closed", notProcessed, once, pipelined, retries{}, decision{kind: retryNotProcessed, next: retries{closed: 1, resent: true}}},
		{"a pipelined connection that served well closed, third time", notProcessed, once, pipelined, retries{closed: 2}, decision{kind: retryNotProcessed, next: retries{closed: 3, resent: true}}},
		{"a pipelined connection that served well closed, fourth time", notProcessed, once, pipelined, retries{closed: 3}, decision{kind: retryNotProcessed, next: retries{closed: 3, resends: 1, resent: true, refused: true}}},
		{"a pipelined connection that served little closed", notProcessed, once, failure{protocol: exchange.HTTP1Pipelined, served: 4}, sentAgain, decision{kind: retryNotProcessed, pause: 10 * msec, token: true, next: retries{resends: 2, resent: true, refused: true}}},

		{"refused", notProcessed, once, post, retries{}, decision{kind: retryNotProcessed, next: retries{resends: 1, resent: true, refused: true}}},
		{"refused, retry.max 0", notProcessed, retryRules{}, post, retries{}, decision{kind: retryNotProcessed, next: retries{resends: 1, resent: true, refused: true}}},
		{"refused twice", notProcessed, once, post, sentAgain, decision{kind: retryNotProcessed, pause: 10 * msec, token: true, next: retries{resends: 2, resent: true, refused: true}}},
		{"refused twice, retry.max 0", notProcessed, retryRules{}, post, sentAgain, noRetry},
		{"refused twice, the connection served well", notProcessed, once, http2, sentAgain, decision{kind: retryNotProcessed, pause: 10 * msec, next: retries{resends: 2, resent: true, refused: true}}},
		{"refused three times", notProcessed, once, post, retries{resends: 2}, noRetry},
		{"refused four times, retry.max 3", notProcessed, retryRules{limit: 3}, post, retries{resends: 3}, decision{kind: retryNotProcessed, pause: 40 * msec, token: true, next: retries{resends: 4, resent: true, refused: true}}},
		{"refused 30 times, retry.max 100", notProcessed, retryRules{limit: 100}, post, retries{resends: 29}, decision{kind: retryNotProcessed, pause: 10240 * msec, token: true, next: retries{resends: 30, resent: true, refused: true}}},
		{"GOAWAY", goaway, once, post, retries{}, decision{kind: retryNotProcessed, next: retries{resends: 1, resent: true, refused: true}}},
		{"GOAWAY, last retry", goaway, once, post, sentAgain, decision{kind: retryNotProcessed, pause: 10 * msec, token: true, next: retries{resends: 2, resent: true, refused: true, isolated: true}}},
		{"GOAWAY, second retry of four", goaway, retryRules{limit: 3}, post, sentAgain, decision{kind: retryNotProcessed, pause: 10 * msec, token: true, next: retries{resends: 2, resent: true, refused: true}}},
		{"GOAWAY, last retry of four", goaway, retryRules{limit: 3}, post, retries{resends: 3}, decision{kind: retryNotProcessed, pause: 40 * msec, token: true, next: retries{resends: 4, resent: true, refused: true, isolated: true}}},
		{"misdirected", misdirected, once, post, retries{}, decision{kind: retryNotProcessed, next: retries{resends: 1, resent: true, refused: true}}},

		{"dial failed", refused, once, post, retries{}, decision{kind: retryNotSent, token: true, next: retries{limited: 1}}},
		{"dial failed, retry.max 0", refused, retryRules{}, post, retries{}, noRetry},
		{"dial failed twice", refused, once, post, retries{limited: 1}, noRetry},
		{"dial failed twice, retry.max 2", refused, retryRules{limit: 2}, post, retries{limited: 1}, decision{kind: retryNotSent, token: true, next: retries{limited: 2}}},
		{"dial failed after the request was refused", refused, once, post, sentAgain, decision{kind: retryNotSent, token: true, next: retries{limited: 1, resends: 1}}},
		{"TLS failed", untrusted, once, post, retries{}, decision{kind: retryNotSent, token: true, next: retries{limited: 1}}},
		{"every address is in back-off", backsOff, once, get, retries{}, noRetry},
		{"a new connection was closed", notSent, once, post, retries{}, decision{kind: retryNotSent, token: true, next: retries{limited: 1}}},
		{"over a tiny limit of the SSP", tinyLimit, once, reused, retries{}, decision{kind: retryNotSent, token: true, next: retries{limited: 1}}},

		{"stale GET", stale, once, get, retries{}, decision{kind: retryStale, token: true, next: retries{resends: 1}}},
		{"stale GET, the connection served well", stale, once, failure{idempotent: true, served: 5}, retries{}, decision{kind: retryStale, next: retries{resends: 1}}},
		{"stale GET, second time", stale, once, get, sentAgain, decision{kind: retryStale, pause: 10 * msec, token: true, next: retries{resends: 2}}},
		{"stale GET, third time", stale, once, get, retries{resends: 2}, noRetry},
		{"stale GET, never", stale, retryRules{limit: 1, stale: StaleNever}, get, retries{}, noRetry},
		{"stale POST", stale, once, post, retries{}, noRetry},
		{"stale POST, all", stale, retryRules{limit: 1, stale: StaleAll}, post, retries{}, decision{kind: retryStale, token: true, next: retries{resends: 1}}},

		{"cut within the response", cutMidResponse, retryRules{limit: 9, stale: StaleAll}, get, retries{}, noRetry},
		{"malformed response", malformed, retryRules{limit: 9, stale: StaleAll}, get, retries{}, noRetry},
	} {
		c.f.err = &c.err
		testsupport.Equal(t, c.rules.decide(c.f, c.n), c.want, "%[2]s: %+[1]v", c.name)
	}
}

// TestOutcomesThatAreNeverRetried covers the outcomes that end a request, however little of it was sent.
func TestOutcomesThatAreNeverRetried(t *testing.T) {
	retried := map[exchange.Outcome]bool{exchange.ConnectFailed: true, exchange.TLSFailed: true, exchange.ConnLost: true, exchange.BadResponse: true}
	for o := range exchange.Outcomes {
		for _, p := range []exchange.Progress{exchange.NotSent, exchange.NotProcessed} {
			e := exchange.Error{Outcome: o, Progress: p}
			d := retryRules{limit: 9, stale: StaleAll}.decide(failure{err: &e, idempotent: true, served: 5, at: time.Second}, retries{})
			testsupport.Equal(t, d.kind != firstAttempt, retried[o], "%[2]v, progress %[3]d: sent again: %[1]v", o, p)
		}
	}
}
