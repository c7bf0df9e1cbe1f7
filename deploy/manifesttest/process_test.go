package manifesttest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
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
)

// patience bounds every wait of a test; it passes only when something is broken.
const patience = 60 * time.Second

var binaryDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "adbuffer-manifests-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // the pods' users run what is in it
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

// build makes the binary, of the module above, once.
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
	if err != nil {
		t.Fatal(err)
	}
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

// process is one that runs for the length of a test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// start runs it as id, or as the test itself if that is nil.
func start(t *testing.T, env []string, id *syscall.Credential, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = env, "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id, Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	must(t, p.cmd.Start())
	go func() {
		p.cmd.Wait() //nolint:errcheck // ProcessState shows the error
		close(p.ended)
	}()
	t.Cleanup(func() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its children too, which hold its output open
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", path, p.output())
		}
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await returns what re's group matches in the output, once it does.
func (p *process) await(re *regexp.Regexp) string {
	p.t.Helper()
	found := ""
	eventually(p.t, re.String(), func() bool {
		m := re.FindStringSubmatch(p.output())
		if m != nil {
			found = m[len(m)-1]
			return true
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended:\n%s", p.cmd.Path, p.output())
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
	case <-time.After(patience):
		p.t.Fatalf("%s did not end:\n%s", p.cmd.Path, p.output())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("exit status %d, want %d:\n%s", got, status, p.output())
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not come: %s", what)
		}
	}
}

// response is a URL's response; status 0 if there was none.
type response struct {
	status int
	header http.Header
	body   string
}

// get asks on a connection of its own; socket is a unix socket's path, or "" for TCP.
func get(t *testing.T, socket, url string, header ...string) response {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return response{body: err.Error()}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must(t, err)
	return response{res.StatusCode, res.Header, string(b)}
}

// secret is what every Secret of the test's pods holds: a token and a
// certificate, so that it fits whatever mounts it.
func secret(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return map[string]string{
		"token":   adminToken + "\n",
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
}
