package manifesttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

var binaryDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "adbuffer-manifests-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // the pods' users run the binary in it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaryDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the binary. The first call builds it.
var build = sync.OnceValues(func() (string, error) {
	file := filepath.Join(binaryDir, "adbuffer")
	cmd := exec.Command("go", "build", "-o", file, "./cmd/adbuffer")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

func binary(t *testing.T) string {
	t.Helper()
	file, err := build()
	testsupport.NoError(t, err)
	return file
}

// command runs the binary to its end.
func command(t *testing.T, env []string, args ...string) (output string, status int) {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// process is a process that runs for the length of a test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output testsupport.LogBuffer
	ended  chan struct{}
}

// start runs a command as the user id, or as the test's own user if id is nil.
func start(t *testing.T, env []string, id *syscall.Credential, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = env, "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id, Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	testsupport.NoError(t, p.cmd.Start())
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its children too, which hold its output open
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", path, &p.output)
		}
	})
	return p
}

// await waits until re matches the output, and returns the text of its last group.
func (p *process) await(re *regexp.Regexp) string {
	p.t.Helper()
	found := ""
	testsupport.Eventually(p.t, re.String(), func() bool {
		m := re.FindStringSubmatch(p.output.String())
		if m != nil {
			found = m[len(m)-1]
			return true
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended:\n%s", p.cmd.Path, &p.output)
		default:
		}
		return false
	})
	return found
}

func (p *process) wantExit(status int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testsupport.Patience):
		p.t.Fatalf("%s did not end:\n%s", p.cmd.Path, &p.output)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("exit status %d, want %d:\n%s", got, status, &p.output)
	}
}

// response is the response to a GET; its status is 0 if none came.
type response struct {
	status int
	header http.Header
	body   string
}

// get sends a GET on its own connection. socket is the path of a Unix socket, or "" for TCP.
func get(t *testing.T, socket, url string, header ...string) response {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	testsupport.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Client{Transport: transport, Timeout: testsupport.Patience}).Do(req)
	if err != nil {
		return response{body: err.Error()}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testsupport.NoError(t, err)
	return response{res.StatusCode, res.Header, string(b)}
}

// secret is the content of every Secret of the test's pods: a token and a certificate, so that it
// fits each place that mounts it.
func secret(t *testing.T) map[string]string {
	t.Helper()
	cert, key := testsupport.PEM(t, testsupport.Certificate("localhost"))
	return map[string]string{"token": adminToken + "\n", "tls.crt": cert, "tls.key": key}
}
