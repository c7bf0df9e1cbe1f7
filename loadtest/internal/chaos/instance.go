package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// instance is an address at which an adbuffer serves clients. adbuffer reloads its configuration
// again and again. If the instance hands over, new processes replace the old ones.
type instance struct {
	name      string
	encrypted bool
	guarded   bool // clients need certificates, the admin listener has TLS, and max_connections is guardedConnections
	handsOver bool
	addr      string
	admin     string
	file      string
	tls       *tls.Config // of clients

	process atomic.Pointer[rig.Adbuffer] // the process that serves the instance now

	stalls             stalls             // of the process that serves now
	replaced           atomic.Int64       // when the process began to serve, in nanoseconds since 1970
	resolved           atomic.Bool        // an SSP that has a name has responded
	responses          recentResponses    // of healthy SSPs
	starving           atomic.Int64       // when the process had no descriptor left, in nanoseconds since 1970
	last               map[string]float64 // the sums of the last sample; written by watch
	surplus            bool               // too many goroutines in the last sample; written by watch
	reloads, handovers int                // written by change
	samples            []sample           // in the pauses; written by pauses
	busy               []sample           // each second; written by watch
}

// readTimeout limits how long a pause waits for hostile clients.
const readTimeout = 4 * time.Second

// A process that is replaced drains for drainTimeout at most, which is longer than every request's deadline.
const (
	drainDelay   = time.Second
	drainTimeout = 10 * time.Second
)

func (r *run) startInstances() {
	r.cert = r.Certificate("chaos", "127.0.0.1")
	clients := rig.Must(sspsim.NewCA())(r.Rig)
	r.clientCA = filepath.Join(r.Dir, "chaos-clients.pem")
	r.Check(clients.WriteFile(r.clientCA))
	own := rig.Must(clients.ClientCert("chaos"))(r.Rig)
	long := own
	long.Certificate = slices.Concat(own.Certificate, r.extra)
	r.longChain = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{long}}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.cert.Authority)
	for _, st := range []*instance{
		{name: "cleartext", addr: ""},
		{name: "TLS", encrypted: true, guarded: true},
		{name: "cleartext, handed over", handsOver: true},
		{name: "TLS, handed over", encrypted: true, handsOver: true},
	} {
		st.tls = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: []tls.Certificate{own}}
		st.addr = r.FreeAddr()
		st.admin = r.FreeAddr()
		st.file = r.Write("chaos-*.yaml", r.config(st, rand.New(rand.NewPCG(r.options.seed, 0))))
		st.process.Store(r.startProcess(st))
		r.instances = append(r.instances, st)
	}
}

func (r *run) startProcess(st *instance) *rig.Adbuffer {
	c := rig.Command{Piped: !st.handsOver, Env: []string{"GODEBUG=netdns=go",
		"ADBUFFER_SERVER_LISTEN=" + st.addr, "ADBUFFER_ADMIN_LISTEN=" + st.admin, "ADBUFFER_SERVER_REUSE_PORT=" + fmt.Sprint(st.handsOver),
		fmt.Sprintf("GOMEMLIMIT=%dMiB", memoryLimit), "ADBUFFER_SERVER_DRAIN_DELAY=" + drainDelay.String(), "ADBUFFER_SERVER_DRAIN_TIMEOUT=" + drainTimeout.String()}}
	if st.resolves(r) {
		c.Argv = r.resolver.command
	}
	a := r.StartAdbuffer(st.file, c)
	a.AdminTLS = st.guarded
	return a
}

// config returns an instance's configuration. rnd chooses the settings that reloads change.
func (r *run) config(st *instance, rnd *rand.Rand) string {
	c := rig.Config{Deadline: r.defaultDeadline().String()}
	if st.encrypted {
		c.Cert = r.cert
	}
	connections := maxConnections
	if st.guarded {
		connections = guardedConnections
		c.ClientCA = r.clientCA
		c.Admin = fmt.Sprintf("tls: {cert_file: %q, key_file: %q}, client_ca_file: %q", r.cert.Cert, r.cert.Key, r.clientCA)
	}
	c.Server = append(c.Server, fmt.Sprintf("max_connections: %d", connections), fmt.Sprintf("max_buffered_bytes: %d", maxBufferedBytes), "h2c: true", "read_timeout: "+readTimeout.String(), "write_timeout: 10s",
		fmt.Sprintf("fairness: {key: %q}", []string{"client_ip", "query:cb", "header:X-Request-Id"}[rnd.IntN(3)]))
	if r.options.overload {
		c.Server = append(c.Server, fmt.Sprintf("overload: {dry_run: %v}", rnd.IntN(4) == 0))
	}
	var names, tiers []string
	for _, s := range r.ssps {
		ssp := s.config
		if s.resolved && st.resolves(r) {
			ssp.URLs = []string{r.resolver.url(ssp.URLs[0])}
		}
		if !s.healthy && s.apart == nil {
			// A reload changes the limits of the pool in place, or replaces the pool.
			ssp.Pool = strings.Replace(ssp.Pool, "max_conns: 64", fmt.Sprintf("max_conns: %d", 8+rnd.IntN(56)), 1)
			ssp.More = append(ssp.More, "max_buffered_bytes: 33554432", fmt.Sprintf("headers: {set: [{name: X-Version, value: %q}]}", fmt.Sprint(rnd.IntN(3))),
				fmt.Sprintf("timeouts: {connect: %dms}", 150+100*rnd.IntN(2)))
		}
		if s.shaped {
			ssp.More = append(ssp.More, limit(rnd))
		}
		c.SSPs = append(c.SSPs, &ssp)
		if s.apart != nil {
			continue
		}
		names = append(names, s.name)
		tiers = append(tiers, fmt.Sprintf("{name: %s, timeout: %dms}", s.name, 100+50*rnd.IntN(3)))
	}
	all := strings.Join(names, ", ")
	rnd.Shuffle(len(tiers), func(i, j int) { tiers[i], tiers[j] = tiers[j], tiers[i] })
	c.Routes = []string{
		"{name: single, match: {path: /single}, client_choice: true, ssps: [" + all + "]}",
		"{name: split, match: {path: /split}, mode: split, ssps: [" + all + "]}",
		"{name: waterfall, match: {path: /waterfall}, mode: waterfall, ssps: [" + strings.Join(tiers, ", ") + "]}",
		"{name: first, match: {path: /first}, mode: parallel-first, ssps: [" + all + "]}",
		"{name: all, match: {path: /all}, mode: parallel-all, ssps: [" + all + "]}",
		"{name: mirrored, match: {path: /mirrored}, ssps: [calm2], mirror: {ssp: trial, share: 1}}",
		"{name: hung, match: {path: /hung}, ssps: [hung]}",
		"{name: large, match: {path: /large}, ssps: [large]}",
		"{name: group, match: {path: /group}, ssps: [group]}",
		"{name: turns, match: {path: /turns}, ssps: [turns]}",
		"{name: chain, match: {path: /chain}, ssps: [chain]}",
		"{name: merged, match: {path: /merged}, mode: parallel-all, merge: openrtb, ssps: [calm1, blocks]}",
		"{name: read, match: {path: /read, openrtb: [{path: id, exists: true}]}, ssps: [calm1]}",
	}
	text, err := c.YAML()
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return text
}

// limit returns the limit of a shaped SSP. It drops requests at random, or by one of two lists of keys. The load exceeds 3
// requests a second most of the time, 30 now and then, and 1 000 never.
func limit(rnd *rand.Rand) string {
	keys := []string{"", "query:m, query:len", "header:Content-Type, openrtb:/imp/0/id, query:cb"}[rnd.IntN(3)]
	return fmt.Sprintf("qps: {limit: %d, shape: {keys: [%s], explore: %v, max_loss: %v, dry_run: %v}}",
		[]int{3, 30, 1000}[rnd.IntN(3)], keys, []float64{0.03, 0.3}[rnd.IntN(2)], []float64{0, 0.2}[rnd.IntN(2)], rnd.IntN(4) == 0)
}

// change reloads an instance's configuration, and replaces its process, until the context ends.
func (r *run) change(ctx context.Context, st *instance, rnd *rand.Rand) {
	const every = 3 * time.Second
	for n := 1; ; n++ {
		rig.Sleep(ctx, every/2+time.Duration(rnd.Int64N(int64(every))))
		if ctx.Err() != nil {
			return
		}
		r.whileRunning(func() {
			switch {
			case st.handsOver && n%3 == 0:
				r.handOver(st)
			case n%6 == 1 && r.selects(noDescriptors):
				r.starve(ctx, st)
			case n%6 == 5 && !st.handsOver && r.selects(noLogReader):
				r.behavioursSeen.add(noLogReader, "")
				st.process.Load().LoseLog(func() {
					r.reload(st, rnd) // which writes lines
					rig.Sleep(ctx, time.Second)
				})
			default:
				r.reload(st, rnd)
			}
		})
	}
}

func (r *run) reload(st *instance, rnd *rand.Rand) {
	temporary := st.file + ".new"
	r.Check(os.WriteFile(temporary, []byte(r.config(st, rnd)), 0o600))
	r.Check(os.Rename(temporary, st.file))
	st.reloads++
	r.Check(st.process.Load().Signal(syscall.SIGHUP))
}

// handOver starts a new process. It drains the old process when the new one is ready.
func (r *run) handOver(st *instance) {
	next := r.startProcess(st)
	st.handovers++
	st.replaced.Store(time.Now().UnixNano())
	r.drain(st, st.process.Swap(next))
}

// drain makes a process of an instance drain and exit, as an operator does.
func (r *run) drain(st *instance, a *rig.Adbuffer) {
	err := a.Signal(syscall.SIGTERM)
	status, waited := a.AwaitEnd(drainDelay + drainTimeout + 10*time.Second)
	err = errors.Join(err, waited)
	if err != nil || status != 0 {
		r.broken.add(orderly, "%s: a process that drained: exit status %d, %v: %s", st.name, status, err, a.LastLog())
		a.Stop()
	}
	r.inspect(st, a)
}

func (r *run) inspect(st *instance, a *rig.Adbuffer) {
	log := a.Log()
	for _, bad := range []string{"DATA RACE", "panic", "BUG:", "fatal error", `"level":"error"`} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			line := log[bytes.LastIndexByte(log[:i], '\n')+1:]
			r.broken.add(orderly, "%s: the log has %q: %s", st.name, bad, line[:min(len(line), 1000)])
		}
	}
}

func (r *run) end(st *instance) {
	a := st.process.Load()
	if !a.Running() {
		r.broken.add(orderly, "%s: the process ended: %s", st.name, a.LastLog())
		return
	}
	r.drain(st, a)
}

// noLogReader is the name of the time in which nobody reads the log.
const noLogReader = "nobody reads the log"

// noDescriptors is the name of the time without descriptors.
const noDescriptors = "no descriptor is left"

// starve limits the descriptors of a process to fewer than are open for a while, so that it can neither dial nor accept.
func (r *run) starve(ctx context.Context, st *instance) {
	const length = 700 * time.Millisecond
	a := st.process.Load()
	used := rig.Must(load.Read(a.PID))(r.Rig)
	restore := a.LimitFiles(used.Files * 3 / 4)
	r.behavioursSeen.add(noDescriptors, "")
	st.starving.Store(time.Now().UnixNano())
	rig.Sleep(ctx, length)
	// New connections had to wait until adbuffer had descriptors again.
	st.stalls.sum.Add(int64(length))
	restore()
	st.starving.Store(time.Now().UnixNano())
}

// starved reports whether the process had no descriptor a moment ago.
func (st *instance) starved() bool {
	return time.Since(time.Unix(0, st.starving.Load())) < 2*time.Second
}
