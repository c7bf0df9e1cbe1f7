package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Adbuffer is a running adbuffer.
type Adbuffer struct {
	*Process
	Addr  string // host:port for clients
	Admin string // host:port of the admin listener
	// AdminTLS is whether the admin listener speaks TLS.
	AdminTLS bool
	File     string // path of the configuration
}

// Build builds adbuffer from this module, unless the user named an executable, and adds its version to the report. The
// version names the commit, if there is one, and -dirty if files were changed.
func (r *Rig) Build() {
	if r.Adbuffer == "" {
		r.Say("building adbuffer")
		commit, _ := exec.CommandContext(r.Ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output() // nothing outside of a repository
		r.Adbuffer = filepath.Join(r.Dir, "adbuffer")
		cmd := exec.CommandContext(r.Ctx, "go", "build", "-o", r.Adbuffer, "-ldflags", "-X adbuffer/internal/app/app.Commit="+strings.TrimSpace(string(commit)), "./cmd/adbuffer")
		cmd.Dir, cmd.Env = r.ModuleRoot(), append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Check(fmt.Errorf("building adbuffer in %s: %w\n%s", cmd.Dir, err, out))
		}
	}
	version, err := exec.Command(r.Adbuffer, "version").Output()
	if err != nil {
		version = []byte("of unknown version")
	}
	r.Rep.Versions["adbuffer"] = strings.Join(strings.Fields(string(version)), " ")
}

// StartAdbuffer starts adbuffer with the configuration in file and waits until it is ready. The
// configuration must have log level info and ports 0. Unless it has server.overload itself, nothing is
// refused for lack of CPU: saturation is what most tests measure. c.Argv is a command that executes its
// arguments, or nil.
func (r *Rig) StartAdbuffer(file string, c Command) *Adbuffer {
	if !bytes.Contains(Must(os.ReadFile(file))(r), []byte("overload:")) {
		c.Env = append(c.Env, "ADBUFFER_SERVER_OVERLOAD_ENABLED=false")
	}
	c.Name, c.Argv = "adbuffer", slices.Concat(c.Argv, []string{r.Adbuffer, "serve", "--config", file})
	a := &Adbuffer{File: file, Process: r.StartProcess(c)}
	a.Await(40*time.Second, "get ready", func() bool {
		lines := bufio.NewScanner(bytes.NewReader(a.Log()))
		for lines.Scan() {
			var entry struct{ Msg, Listen, Admin string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "ready" {
				a.Addr, a.Admin = entry.Listen, entry.Admin
			}
		}
		return a.Addr != ""
	})
	return a
}

// Ask sends a GET of path to the admin listener and returns the body of the response. A status other than 2xx is an error.
func (a *Adbuffer) Ask(path string) (string, error) {
	scheme := map[bool]string{false: "http://", true: "https://"}[a.AdminTLS]
	text, err := ask("GET", scheme+a.Admin+path, nil)
	return string(text), err
}

// Series reads the metrics and calls each for every series. labels has the syntax of /metrics.
func (a *Adbuffer) Series(each func(name, labels string, value float64)) error {
	text, err := a.Ask("/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, labels, _ := strings.Cut(series, "{")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("/metrics: %q: %w", line, err)
		}
		each(name, labels, v)
	}
	return nil
}

// Metric returns the sum over the series of a metric whose labels contain all of want. An element
// of want is written as name="value".
func (a *Adbuffer) Metric(name string, want ...string) float64 {
	sum, found := 0.0, false
	a.rig.Check(a.Series(func(metric, labels string, v float64) {
		if metric == name && !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(labels, part) }) {
			sum, found = sum+v, true
		}
	}))
	if !found {
		a.rig.Check(fmt.Errorf("/metrics has no %s with %s", name, strings.Join(want, ",")))
	}
	return sum
}
