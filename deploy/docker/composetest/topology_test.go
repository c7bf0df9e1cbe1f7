package composetest

import (
	"adbuffer/internal/testsupport"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// client opens a connection for each request, so that none stays open.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}

// process is a service's command on this machine.
type process struct {
	cmd   *exec.Cmd
	log   bytes.Buffer // read it only after the process has ended
	ended chan struct{}
}

// program returns the command of a service's image, with this machine's program for it.
func program(t *testing.T, s types.ServiceConfig) (file string, args, env []string) {
	t.Helper()
	switch {
	case s.Name == "prometheus":
		return "prometheus", s.Command, nil
	case s.Command == nil: // the command is the image's
		return binary(t), []string{"serve"}, []string{"ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml"}
	default:
		return binary(t), s.Command, nil
	}
}

// command returns a command of a service, with the service's variables.
func (l *local) command(s types.ServiceConfig, file string, args, env []string) *exec.Cmd {
	l.t.Helper()
	args, env = slices.Clone(args), slices.Clone(env)
	for name, value := range s.Environment {
		env = append(env, name+"="+*value)
	}
	for i := range args {
		args[i] = l.text(s, args[i])
	}
	for i := range env {
		env[i] = l.text(s, env[i])
	}
	cmd := exec.Command(file, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// start runs a service until the end of the test, and waits until its health check succeeds.
func (l *local) start(s types.ServiceConfig, extra ...string) *process {
	l.t.Helper()
	l.root(s)
	file, args, env := program(l.t, s)
	p := &process{cmd: l.command(s, file, args, append(env, extra...)), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		l.t.Fatalf("%s: %v", s.Name, err)
	}
	go func() {
		p.cmd.Wait() //nolint:errcheck // ProcessState shows the error
		close(p.ended)
	}()
	l.t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		<-p.ended
		if l.t.Failed() {
			l.t.Logf("%s:\n%s", s.Name, &p.log)
		}
	})
	testsupport.Eventually(l.t, s.Name+" is healthy", func() bool {
		select {
		case <-p.ended:
			l.t.Fatalf("%s ended", s.Name)
		default:
		}
		return l.healthy(s)
	})
	return p
}

// healthy runs a service's health check once.
func (l *local) healthy(s types.ServiceConfig) bool {
	l.t.Helper()
	test := s.HealthCheck.Test
	if test[0] != "CMD" {
		l.t.Fatalf("%s: %v needs a shell, which not every image has", s.Name, test)
	}
	_, _, env := program(l.t, s)
	file, args := test[1], test[2:]
	switch file {
	case "/adbuffer":
		file = binary(l.t)
	case "wget": // the images have busybox's, too
		file, args = "busybox", test[1:]
	}
	return l.command(s, file, args, env).Run() == nil
}

func TestTheSameServicesWorkTogetherAsProcesses(t *testing.T) {
	p := project(t)
	l := newLocal(t, p)
	service := func(name string) types.ServiceConfig {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if l.healthy(service("ssp")) || l.healthy(service("adbuffer-1")) || l.healthy(service("prometheus")) {
		t.Fatal("a service is healthy before it runs")
	}
	l.start(service("ssp"))
	var running []*process
	for _, s := range adbuffers(t, p) {
		// The delay is for load balancers, and this test has none.
		running = append(running, l.start(s, "ADBUFFER_SERVER_DRAIN_DELAY=0s"))
	}
	l.start(service("prometheus"))

	for _, s := range adbuffers(t, p) {
		testsupport.Eventually(l.t, "an ad through "+s.Name, func() bool {
			res, err := client.Get("http://" + l.addr(s.Name, "8080") + "/fillbuffer?pub=1&slot=top")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if source := res.Header.Get("X-Adbuffer-Source"); err != nil || source != "ssp/sim" || res.StatusCode != 200 && res.StatusCode != 204 {
				t.Fatalf("%s from %s, %v: %s", res.Status, source, err, body)
			}
			return bytes.Contains(body, []byte("seatbid")) // a fifth of the responses are no-bids
		})
	}
	for _, s := range adbuffers(t, p) {
		up := fmt.Sprintf(`up{job="adbuffer",instance=%q}`, l.addr(s.Name, "9090"))
		testsupport.Eventually(l.t, "Prometheus scrapes "+s.Name, func() bool { return l.query(up) == "1" })
	}
	testsupport.Eventually(l.t, "Prometheus has the recording rules", func() bool {
		return l.query("count(count by (__name__) ({__name__=~\"ssp:.*|route:.*|.*:adbuffer_.*\"}))") != ""
	})
	for _, p := range running {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit status %d after SIGTERM:\n%s", code, &p.log)
		}
	}
}

// query returns the value of an expression if its result is one series, else "".
func (l *local) query(expr string) string {
	l.t.Helper()
	res, err := client.Get("http://" + l.addr("prometheus", "9090") + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	var result struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(res.Body).Decode(&result); err != nil || res.StatusCode != 200 {
		l.t.Fatalf("%s: %s, %v", expr, res.Status, err)
	}
	if len(result.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(result.Data.Result[0].Value[1])
}

func TestPromtoolFindsNoFaultInPrometheusConfiguration(t *testing.T) {
	p := project(t)
	s, err := p.GetService("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	root := newLocal(t, p).root(s)
	out, err := exec.Command("promtool", "check", "config", root+"/etc/prometheus/prometheus.yml").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("alerts.rules.yml")) || !bytes.Contains(out, []byte("recording.rules.yml")) {
		t.Errorf("%v: %s", err, out)
	}
}
