package chaos

import (
	"fmt"
	"sync"
	"time"
)

// promise is a property that must hold throughout a run.
type promise int

const (
	mixed    promise = iota // no response reaches another request
	altered                 // SSPs receive exactly the requests that clients sent
	twice                   // no SSP processes a POST twice
	late                    // each request gets a response within its deadline and the allowance
	lost                    // a request that an SSP received gets a response
	unread                  // a request on a new connection gets a response
	refused                 // a correct request is not refused, and a broken one is
	spared                  // sick SSPs cost the healthy ones nothing
	returned                // requests give everything back
	flat                    // memory, descriptors, goroutines and series do not grow
	orderly                 // processes end with status 0, and their logs report no bug
	modest                  // attacks take bounded memory and goroutines
	kept                    // the connections of honest HTTP/2 clients end by the clients
	blamed                  // healthy SSPs are not blamed
	copied                  // mirror copies continue
	few                     // a request that an SSP refuses is sent a few times
	carried                 // a spare carries the requests of failing primaries
	promises
)

var promiseText = [promises]string{
	mixed:    "no response reaches another request, and each is whole",
	altered:  "SSPs receive exactly the requests that clients sent",
	twice:    "no SSP processes a POST twice",
	late:     "each request gets a response within its deadline and the allowance",
	lost:     "a request that an SSP received gets a response, through reloads and hand-overs too",
	unread:   "the first request on a connection gets a response, through reloads and hand-overs too",
	refused:  "correct requests are not refused, and broken ones are",
	spared:   "sick SSPs cost the healthy ones nothing: at least 99.9 % of their requests succeed",
	returned: "when clients pause, nothing is in use: places, buffers, connections, requests",
	flat:     "memory, descriptors, goroutines and series are flat: last third against second third",
	orderly:  "processes end with status 0, and their logs report no bug",
	modest:   fmt.Sprintf("whatever clients do, a process holds at most %d MiB, and %d goroutines for each connection", mostMemory>>20, mostGoroutines),
	kept:     "an honest HTTP/2 client that returns credit frame by frame keeps its connection",
	blamed:   "a healthy SSP is not blamed for what a client does, nor for missing descriptors: no back-off, no open breaker, no connect_failed",
	copied:   "mirror copies of other clients' requests go on while a client states impossible deadlines",
	few:      fmt.Sprintf("a request that an SSP does not process is sent at most %d times", mostSendings),
	carried:  fmt.Sprintf("a spare carries 99 %% of the requests from %v after all primaries began to fail, hang or be slow", takeover),
}

// brokenPromises counts how often each promise was broken.
type brokenPromises struct {
	say func(format string, args ...any)

	mu       sync.Mutex // guards the fields below
	count    [promises]int
	examples [promises][]string
}

// mostExamples is how many examples of a broken promise are kept and printed.
const mostExamples = 5

func (b *brokenPromises) add(p promise, format string, args ...any) {
	text := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[p]++
	if len(b.examples[p]) < mostExamples {
		b.examples[p] = append(b.examples[p], text)
		b.say("BROKEN: %s: %s", promiseText[p], text)
	}
}

// of returns how often a promise was broken, and examples.
func (b *brokenPromises) of(p promise) (n int, examples []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[p], b.examples[p]
}

// total returns how often any promise was broken.
func (b *brokenPromises) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.count {
		n += c
	}
	return n
}
