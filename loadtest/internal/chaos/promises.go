package chaos

import (
	"fmt"
	"time"
)

// promise is a property that must hold throughout a run, in words.
type promise string

const (
	mixed    promise = "no response reaches another request, and each is whole"
	altered  promise = "SSPs receive exactly the requests that clients sent"
	twice    promise = "no SSP processes a POST twice"
	late     promise = "each request gets a response within its deadline and the allowance"
	lost     promise = "a request that an SSP received gets a response, through reloads and hand-overs too"
	unread   promise = "the first request on a connection gets a response, through reloads and hand-overs too"
	refused  promise = "correct requests are not refused, and broken ones are"
	spared   promise = "failing SSPs cost healthy SSPs nothing: at least 99.9 % of the requests to healthy SSPs succeed"
	returned promise = "when clients pause, nothing is in use: places, buffers, connections, requests"
	flat     promise = "memory, descriptors, goroutines and series are flat: last third against second third"
	orderly  promise = "processes end with status 0, and their logs report no bug"
	kept     promise = "an honest HTTP/2 client that returns credit frame by frame keeps its connection"
	blamed   promise = "a healthy SSP is not blamed for what a client does, nor for missing descriptors: no back-off, no open breaker, no connect_failed"
	answers  promise = "the admin listener answers, whatever clients do"
	turns    promise = "of two endpoints with weights 3 and 1 that close after each response, the second gets 20 to 30 % of the requests"
	copied   promise = "mirror copies of other clients' requests go on while a client states impossible deadlines"
)

var (
	modest  = promise(fmt.Sprintf("whatever clients do, a process holds at most %d MiB, and %d goroutines for each connection", maxMemory>>20, maxGoroutinesPerConn))
	greeted = promise(fmt.Sprintf("an honest client's TCP and TLS handshake takes at most %v", maxHandshake))
	sentFew = promise(fmt.Sprintf("a request that an SSP does not process is sent at most %d times", maxSendings))
	carried = promise(fmt.Sprintf("a spare carries 99 %% of the requests once all primaries have failed, hung or been slow for %v", takeover))
)

// promises are all promises, in the order of the report.
var promises = []promise{mixed, altered, twice, late, lost, unread, refused, spared, returned, flat, orderly, modest,
	kept, blamed, copied, sentFew, carried, answers, turns, greeted}

// brokenPromises counts how often each promise was broken.
type brokenPromises struct {
	tally
	say func(format string, args ...any)
}

func (b *brokenPromises) add(p promise, format string, args ...any) {
	text := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	if b.tally.add(string(p), text) <= maxExamples {
		b.say("BROKEN: %s: %s", p, text)
	}
}
