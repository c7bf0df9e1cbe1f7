package adminview

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/request/proxy"
)

// reuse finds clients that open a connection for each request.
type reuse struct {
	mu     sync.Mutex // guards the fields below
	looks  []reuseLook
	logged time.Time // when the last line was logged
}

// reuseLook holds counts since start, as one look saw them.
type reuseLook struct {
	single   uint64 // connections that ended after one request
	requests uint64 // with preflights
	client   string // the client of the last connection that ended after one request
}

// singlesPerSecond is how many connections a second for one request each are trouble, if they are a tenth of the
// requests. Below a tenth, the connections that are reused carry the load. The alert AdbufferClientsDoNotReuse has the
// same bounds.
const singlesPerSecond = 10

// look is called every historyStep. It logs while clients do not reuse connections, at most once every limitEvery.
func (r *reuse) look(log *zap.Logger, now time.Time, single uint64, client string, routes []proxy.RouteCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := reuseLook{single: single, client: client}
	for i := range routes {
		is.requests += allOf(routes[i].Outcomes) + routes[i].Preflights
	}
	r.looks = push(r.looks, recentLooks+1, is)
	if text := r.textLocked(); text != "" && now.Sub(r.logged) >= limitEvery {
		r.logged = now
		log.Warn("clients do not reuse connections", zap.String("why", text))
	}
}

// notice says that clients do not reuse connections now. It returns "" if they do.
func (r *reuse) notice() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.textLocked()
}

func (r *reuse) textLocked() string {
	if len(r.looks) == 0 {
		return ""
	}
	first, last := r.looks[0], r.looks[len(r.looks)-1]
	single, requests, seconds := last.single-first.single, last.requests-min(last.requests, first.requests), (len(r.looks)-1)*int(historyStep.Seconds())
	if single <= recentLooks*uint64(historyStep.Seconds())*singlesPerSecond || 10*single < requests {
		return ""
	}
	return fmt.Sprintf("%d client connections ended after one request in the last %d s, with %d requests in all. The last client was %s. See keep-alive in the client, server.idle_timeout, and adbuffer_client_requests_per_connection.",
		single, seconds, requests, cmp.Or(last.client, "at a Unix socket"))
}
