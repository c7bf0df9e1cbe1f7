package failing

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// withResolver runs its first argument as /etc/resolv.conf of the command that follows.
const withResolver = `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`

// startWithDNS starts adbuffer with one SSP, and with a mount namespace in which a name server of the test is the
// only one. The SSP's host is a name, and it closes each connection after a response.
func startWithDNS(t *testing.T, ip4, ip6 string) (*e2e.Process, *testsupport.DNS) {
	t.Helper()
	testsupport.NeedsRoot(t)
	// resolv.conf names no port, so the server needs port 53, at an address that no other test uses.
	addr := fmt.Sprintf("127.53.%d.%d:53", os.Getpid()>>8&0xff, os.Getpid()&0xff)
	if strings.HasPrefix(ip6, testsupport.DNSSilent) {
		addr = strings.Replace(addr, "127.53.", "127.54.", 1)
	}
	dns, err := testsupport.StartDNS(t, addr)
	testsupport.NoError(t, err)
	dns.Set("ip4", ip4)
	dns.Set("ip6", ip6)
	resolver := filepath.Join(t.TempDir(), "resolv.conf")
	testsupport.NoError(t, os.WriteFile(resolver, []byte("nameserver "+dns.Addr.Addr().String()+"\n"), 0o644))
	inside := []string{"-m", "sh", "-c", withResolver, "sh", resolver}
	s := e2e.SSPWith(t, sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 1}})
	_, port, _ := net.SplitHostPort(s.Addr())
	config := e2e.Single("http://ssp.adbuffer.test:"+port+"/bid", "breaker: {enabled: false}", "ejection: {enabled: false}", "timeouts: {connect: 2s}")
	cmd := exec.Command("unshare", append(inside, e2e.Binary(t), "serve", "--config", e2e.WriteConfig(t, config))...)
	cmd.Env = append(append(os.Environ(), e2e.Patient()...), "GODEBUG=netdns=go")
	ab := e2e.LaunchCommand(t, cmd, (*e2e.Process).FindListeners)
	ab.AwaitReady()
	return ab, dns
}

// The SSP is reached though its name server responds for IPv4 only, and never for IPv6.
func TestAnSSPIsReachedThoughTheResolverNeverRespondsForIPv6(t *testing.T) {
	t.Parallel()
	ab, dns := startWithDNS(t, "127.0.0.1", testsupport.DNSSilent)
	for range 3 {
		ab.Get("/fillbuffer").WantFill("openx")
	}
	testsupport.True(t, dns.Queries("ip6") > 0, "IPv6 was not looked up")
	ab.WantMetric(0, "adbuffer_dns_failing_names", "ssp=openx")
}

// After one SERVFAIL for IPv4, requests still go to the IPv4 address, since no server listens at the IPv6 address.
func TestOneFailedQueryLosesNoAddress(t *testing.T) {
	t.Parallel()
	ab, dns := startWithDNS(t, "127.0.0.1", "::1")
	c := ab.Dial()
	c.Get("/fillbuffer").WantFill("openx")
	dns.Set("ip4", testsupport.DNSFails)
	before := dns.Queries("ip4")
	testsupport.Eventually(t, "the next look-up fails", func() bool {
		c.Get("/fillbuffer").WantFill("openx")
		return dns.Queries("ip4") > before && ab.Metric("adbuffer_dns_failing_names", "ssp=openx") == 1
	})
	for range 100 {
		c.Get("/fillbuffer").WantFill("openx")
	}
	dns.Set("ip4", "127.0.0.1 127.0.0.2")
	testsupport.Eventually(t, "the log says which address came", func() bool {
		c.Get("/fillbuffer").WantFill("openx")
		line, ok := ab.Log.Line("the addresses of an SSP have changed")
		return ok && fmt.Sprint(line["host"], line["came"], line["went"], len(line["in_use"].([]any))) == "ssp.adbuffer.test[127.0.0.2] [] 3"
	})
	ab.AwaitMetric(0, "adbuffer_dns_failing_names", "ssp=openx")
}
