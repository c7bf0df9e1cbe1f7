package header

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/test/testsupport"
)

// TestCopyOutlivesTheRequest overwrites the memory of a request after the copy, and compares the
// lines that both would send.
func TestCopyOutlivesTheRequest(t *testing.T) {
	for _, peer := range []string{"", "10.0.0.1", "198.51.100.9"} {
		for _, agent := range []string{"User-Agent: phone", "X-Device-User-Agent: tv"} {
			for _, truncate := range []bool{false, true} {
				raw := head(slices.Concat(allIdentity[:14], []string{agent, "X-Adbuffer-Ssp: a", "Connection: X-B", "X-B: 1", "X-C: 2", "X-Time: 90"})...)
				from := RequestFields{TimeoutName: "X-Time"}
				mustScan(t, &from, raw)
				var addr netip.Addr
				if peer != "" {
					addr = netip.MustParseAddr(peer)
				}
				var fromID, id Identity
				fromID.Resolve(&from, addr, peer == "" || Trusted(addr, proxies), proxies, truncate)
				policy := NewPolicy(PolicyOptions{Identity: Both})
				want := string(policy.AppendRequest(nil, &from, &fromID))

				var f RequestFields
				mem := f.CopyFrom(&from, []byte("before"))
				id.CopyFrom(&fromID, &f)
				size := from.Size()
				testsupport.True(t, size == len(raw) && bytes.HasPrefix(mem, []byte("before")) && len(mem) == len("before")+size, "Size is %d of %d, the memory %q", size, len(raw), mem)
				clear(from.raw)
				from.Reset()
				fromID = Identity{}

				diff := cmp.Diff(want, string(policy.AppendRequest(nil, &f, &id)))
				testsupport.True(t, diff == "", "peer %q, %s (-want +got):\n%s", peer, agent, diff)
				name, n := f.SSP()
				timeout, timeouts := f.Timeout()
				testsupport.True(t, string(name) == "a" && n == 1 && string(timeout) == "90" && timeouts == 1, "the copy has SSP %q (%d) and timeout %q (%d)", name, n, timeout, timeouts)
			}
		}
	}
}

func TestCopyOfAnHTTP10RequestNeedsNoHost(t *testing.T) {
	from := RequestFields{HTTP10: true}
	testsupport.NoError(t, from.Scan([]byte("A: b\r\n\r\n")))
	var f RequestFields
	f.CopyFrom(&from, nil)
	v, ok := f.Lookup("a")
	testsupport.True(t, ok && string(v) == "b", "the copy has A: %q, %v", v, ok)
}

// TestCodingOfADecodedBodyDoesNotCross has lines before and behind the coding that cross as they are, in one piece.
func TestCodingOfADecodedBodyDoesNotCross(t *testing.T) {
	for _, coding := range []string{"Content-Encoding: gzip", "content-encoding:gzip"} {
		var f, mirrored RequestFields
		var id Identity
		mustScan(t, &f, head("X-A: 1", coding, "X-B: 2"))
		f.DropContentEncoding()
		mirrored.CopyFrom(&f, nil)
		for _, f := range []*RequestFields{&f, &mirrored} {
			wantLines(t, linesOf(t, NewPolicy(noIdentity).AppendRequest(nil, f, &id)), "X-A: 1", "X-B: 2")
			testsupport.True(t, f.ContentEncoding() == nil, "the decoded body has the coding %q", f.ContentEncoding())
		}
	}
}
