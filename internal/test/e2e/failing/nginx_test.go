package failing

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// nginx answers some requests by closing the connection, each about 140 ms after another request on it. They
// say nothing about how long nginx keeps idle connections.
func TestRequestsThatNginxAnswersWithACloseTeachNoIdleLimit(t *testing.T) {
	t.Parallel()
	addr := testsupport.FreeAddr(t)
	testsupport.StartNginx(t, t.TempDir(), addr, fmt.Sprintf(`
	access_log off;
	server {
		listen %s;
		location / {
			if ($arg_close) { return 444; }
			return 200 '{}';
		}
	}`, addr))
	ab := e2e.Start(t, e2e.Single("http://"+addr+"/bid", "pool: {auto: {enabled: true}}", "breaker: {enabled: false}"))
	c := ab.Dial()
	for range 12 {
		c.Get("/fillbuffer").WantStatus("an ordinary request", 200)
		time.Sleep(140 * time.Millisecond)
		c.Get("/fillbuffer?close=1").WantStatus("a request that nginx answers with a close", 502)
	}
	testsupport.Equal(t, ab.Metric("adbuffer_pool_learned_idle_seconds", "ssp=openx"), 0, "the pool has learned an idle limit of %v s")
}
