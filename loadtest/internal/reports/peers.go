package reports

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// peersUpstream is what all proxies forward to.
type peersUpstream struct {
	HTTP   string // http://host:port
	TLS1   string // https://host:port, HTTP/1.1
	TLS2   string // https://host:port, HTTP/2
	CAFile string
	Body   []byte // of every response
}

// peerRow is one proxy with one protocol to the upstream.
type peerRow struct {
	Name     string // "haproxy h1"
	Program  string // "haproxy"
	Protocol string // h1 | pipelined | h1tls | h2tls
	Addr     string
	Process  *rig.Process
}

// usage adds up the proxy's processes.
func (r peerRow) usage() (load.Usage, error) { return load.ReadTree(r.Process.PID) }

// peer starts one program in all protocols that it is compared in.
type peer struct {
	name  string
	start func(context.Context, *engine.Env, *peersUpstream) ([]peerRow, error)
}

// all is every program, adbuffer first.
var all = []peer{
	{"adbuffer", startAdbuffer},
	{"nginx", startNginx},
	{"haproxy", startHAProxy},
	{"envoy", startEnvoy},
	{"caddy", startCaddy},
	{"reverseproxy", startReverseProxy},
	{"fastify", startFastify},
}

// PeerNames returns the names of all programs.
func PeerNames() []string {
	var out []string
	for _, p := range all {
		out = append(out, p.name)
	}
	return out
}

// oneCore keeps Go programs from using more threads than the core they have.
const oneCore = "GOMAXPROCS=1"

func startAdbuffer(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	var rows []peerRow
	for _, v := range []struct{ name, protocol, url, pool string }{
		{"h1", "http1", u.HTTP, "max_conns: 1024"},
		{"pipelined", "http1-pipelined", u.HTTP, "max_conns: 2, pipeline_depth: 64"},
		{"h1tls", "http1", u.TLS1, "max_conns: 1024"},
		{"h2tls", "http2", u.TLS2, "max_conns: 2"},
	} {
		if v.url == "" {
			continue
		}
		ssp := engine.SSPConfig{Name: "ssp", URL: v.url + "/bid", Protocol: v.protocol, Pool: v.pool + ", max_pending: 4096, pending_timeout: 1s"}
		if v.url != u.HTTP {
			ssp.CAFile = u.CAFile
		}
		a, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "2s", SSPs: []engine.SSPConfig{ssp}}.YAML(), e.ProxyCores, oneCore)
		if err != nil {
			return rows, err
		}
		rows = append(rows, peerRow{"adbuffer " + v.name, "adbuffer", v.name, a.Addr, a.Process})
	}
	return rows, nil
}

func startReverseProxy(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	bin, err := e.Rig.BuildPackage(ctx, "./loadtest/peers/prototypes")
	if err != nil {
		return nil, err
	}
	var rows []peerRow
	for _, v := range []struct {
		name, url string
		more      []string
	}{{"h1", u.HTTP, nil}, {"h1tls", u.TLS1, []string{"-ca", u.CAFile}}, {"h2tls", u.TLS2, []string{"-ca", u.CAFile, "-http2"}}} {
		if v.url == "" {
			continue
		}
		row, err := startOnPort(ctx, e, "reverseproxy", "net/http "+v.name, v.name, []string{oneCore}, func(addr string) []string {
			return append([]string{bin, "reverseproxy", "-listen", addr, "-upstream", v.url}, v.more...)
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// fastifyDir returns the folder of the fastify programs, or an error that says
// how to install what they need.
func fastifyDir(ctx context.Context) (string, error) {
	root, err := rig.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "loadtest", "peers", "fastify")
	if _, err := exec.LookPath("node"); err != nil {
		return "", fmt.Errorf("node: %w", rig.ErrMissing)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "fastify")); err != nil {
		return "", fmt.Errorf("fastify: %w; run npm ci --prefix loadtest/peers/fastify", rig.ErrMissing)
	}
	return dir, nil
}

func startFastify(ctx context.Context, e *engine.Env, u *peersUpstream) ([]peerRow, error) {
	dir, err := fastifyDir(ctx)
	if err != nil {
		return nil, err
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := e.Rig.Start(rig.Command{Name: "fastify", Argv: []string{"node", "server.js", fmt.Sprint(port), u.HTTP}, Cores: e.ProxyCores, Dir: dir, Env: []string{"NODE_ENV=production"}})
	if err != nil {
		return nil, err
	}
	return []peerRow{{"fastify h1", "fastify", "h1", addr, p}}, p.AwaitPort(ctx, addr, startTimeout)
}

// startOnPort starts a program that listens where it is told.
func startOnPort(ctx context.Context, e *engine.Env, program, name, protocol string, env []string, argv func(addr string) []string) (peerRow, error) {
	port, err := rig.FreePort()
	if err != nil {
		return peerRow{}, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := e.Rig.Start(rig.Command{Name: program, Argv: argv(addr), Cores: e.ProxyCores, Env: env})
	if err != nil {
		return peerRow{}, err
	}
	return peerRow{name, program, protocol, addr, p}, p.AwaitPort(ctx, addr, startTimeout)
}

// missing says that an error is only that a program is not installed.
func missing(err error) bool {
	return errors.Is(err, rig.ErrMissing) || errors.Is(err, exec.ErrNotFound)
}

// wanted filters programs by name; no names want all.
func wanted(name string, only []string) bool { return len(only) == 0 || slices.Contains(only, name) }
