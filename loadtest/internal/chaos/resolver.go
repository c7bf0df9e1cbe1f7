package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/rig"
)

// resolver is a name server, and a command that executes its arguments with it as their only name server.
type resolver struct {
	dns     *testsupport.DNS
	command []string
}

// resolvedAddrs are the addresses of all names.
var resolvedAddrs = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}

// url returns the URL of an SSP at 127.0.0.1 with a name instead of its address.
func (s *resolver) url(text string) string {
	return strings.Replace(text, resolvedAddrs[0], "calm.adbuffer.test", 1)
}

// resolves reports whether the instance looks up names. An instance that hands over does not: its new processes would know
// no addresses while look-ups fail.
func (st *instance) resolves(r *run) bool { return r.resolver != nil && !st.handsOver }

// startResolver starts the name server. Without the rights for it, no SSP has a name, and the report says so.
func (r *run) startResolver() (stop func()) {
	// resolv.conf names no port.
	dns, stop, err := testsupport.ServeDNS(fmt.Sprintf("127.55.%d.%d:53", os.Getpid()>>8&0xff, os.Getpid()&0xff))
	if err != nil {
		r.Rep.Misses("faults of name servers: " + err.Error())
		return func() {}
	}
	file := r.Write("resolv-*.conf", "nameserver "+dns.Addr.Addr().String()+"\n")
	command := []string{"unshare", "-m", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`, "sh", file}
	if out, err := exec.CommandContext(r.Ctx, command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		r.Rep.Misses(fmt.Sprintf("faults of name servers: a mount namespace: %v: %s", err, out))
		return stop
	}
	r.resolver = &resolver{dns, command}
	r.resolver.set(strings.Join(resolvedAddrs, " "), "")
	return stop
}

func (s *resolver) set(ip4, ip6 string) {
	s.dns.Set("ip4", ip4)
	s.dns.Set("ip6", ip6)
}

// subsets is a result of the name server: two of the addresses, which change each second.
const subsets = "subsets"

// nameFaults are the results of the name server for IPv4 and IPv6. Nobody listens at ::1.
var nameFaults = []struct{ name, ip4, ip6 string }{
	{"no response for IPv6", strings.Join(resolvedAddrs, " "), testsupport.DNSSilent},
	{"no response for IPv4", testsupport.DNSSilent, ""},
	{"an error for IPv4", testsupport.DNSFails, "::1"},
	{"subsets of the addresses", subsets, ""},
}

func resolverFaults() (out []namedBehaviour) {
	for _, f := range nameFaults {
		out = append(out, namedBehaviour{name: "the name server: " + f.name})
	}
	return out
}

// failResolver makes the name server fail, again and again, once all instances know the addresses. adbuffer looks
// a name up each 20 s.
func (r *run) failResolver(ctx context.Context, rnd *rand.Rand) {
	for r.resolver != nil && ctx.Err() == nil && slices.ContainsFunc(r.instances, func(st *instance) bool { return st.resolves(r) && !st.resolved.Load() }) {
		rig.Sleep(ctx, 100*time.Millisecond)
	}
	for r.resolver != nil && ctx.Err() == nil {
		i := rnd.IntN(len(nameFaults))
		f, name := nameFaults[i], resolverFaults()[i].name
		if !r.selects(name) {
			rig.Sleep(ctx, 10*time.Millisecond)
			continue
		}
		r.behavioursSeen.add(name, "")
		r.resolver.set(f.ip4, f.ip6)
		for range 5 + rnd.IntN(20) {
			if f.ip4 == subsets {
				n := rnd.IntN(len(resolvedAddrs))
				r.resolver.set(resolvedAddrs[n]+" "+resolvedAddrs[(n+1)%len(resolvedAddrs)], "")
			}
			rig.Sleep(ctx, time.Second)
		}
		r.resolver.set(strings.Join(resolvedAddrs, " "), "")
		rig.Sleep(ctx, time.Duration(rnd.Int64N(int64(5*time.Second))))
	}
}
