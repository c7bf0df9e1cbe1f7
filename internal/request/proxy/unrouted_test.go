package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestTheCommonestPathsWithoutARouteAreFound(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name string
		add  func(u *unrouted)
		want string
	}{
		{"none", func(*unrouted) {}, "[]"},
		{"two", func(u *unrouted) {
			u.add([]byte("/a"), now)
			u.add([]byte("/fill\nbuffer"), now)
			u.add([]byte("/fill\nbuffer"), now)
		}, "[{/fill%0Abuffer 2} {/a 1}]"},
		// A scanner tries 10 000 paths; a client has one wrong path in 30 requests.
		{"a flood", func(u *unrouted) {
			for i := range 10_000 {
				if i%30 == 0 {
					u.add([]byte("/typo"), now)
				}
				u.add(fmt.Appendf(nil, "/scan/%d", i), now)
			}
			testsupport.Equal(t, len(u.current), 64, "%d paths are kept")
		}, "/typo"},
		{"a long path", func(u *unrouted) { u.add([]byte("/"+strings.Repeat("a", 10_000)), now) }, "[{/" + strings.Repeat("a", 79) + " 1}]"},
		{"old ones", func(u *unrouted) {
			u.add([]byte("/old"), now.Add(-70*time.Second))
			u.add([]byte("/a"), now.Add(-35*time.Second))
			u.add([]byte("/b"), now)
			u.add([]byte("/a"), now)
		}, "[{/a 2} {/b 1}]"},
		{"one of the period before the last", func(u *unrouted) {
			u.add([]byte("/old"), now.Add(-88*time.Second))
			u.add([]byte("/x"), now.Add(-29*time.Second))
		}, "[{/x 1}]"},
		{"only old ones", func(u *unrouted) { u.add([]byte("/old"), now.Add(-61*time.Second)) }, "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var u unrouted
			test.add(&u)
			got := u.commonest(3, now)
			if test.name == "a flood" {
				testsupport.True(t, len(got) == 3 && got[0].Path == "/typo" && got[0].Count > 300 && got[1].Count == 1, "the paths are %v", got)
				return
			}
			testsupport.Equal(t, fmt.Sprint(got), test.want, "the paths are %s")
		})
	}
}
