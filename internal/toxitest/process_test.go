package toxitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// patience bounds every wait of a test; it passes only when something is broken.
const patience = 60 * time.Second

var dir string // of the binary

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log through a logger of their own
	var err error
	if dir, err = os.MkdirTemp("", "adbuffer-toxi-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the binary, of the module above, once.
var build = sync.OnceValues(func() (string, error) {
	file := filepath.Join(dir, "adbuffer")
	cmd := exec.Command("go", "build", "-o", file, "./cmd/adbuffer")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

// process is an adbuffer that runs.
type process struct {
	t       *testing.T
	traffic string // host:port
	log     syncBuffer
}

// start runs adbuffer with a configuration, for the length of the test.
func start(t *testing.T, config string) *process {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t}
	cmd := exec.Command(binary, "serve", "--config", file)
	cmd.Env = append(os.Environ(), "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s")
	cmd.Stderr = &p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("adbuffer: %v", err)
			}
		case <-time.After(patience):
			cmd.Process.Kill()
			t.Error("adbuffer did not stop")
		}
		for _, bad := range []string{"panic", "BUG:", "fatal error"} {
			if strings.Contains(p.log.String(), bad) {
				t.Errorf("adbuffer's log has %q", bad)
			}
		}
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	for end := time.Now().Add(patience); p.traffic == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("adbuffer did not get ready:\n%s", p.log.String())
		}
		for line := range strings.Lines(p.log.String()) {
			var entry struct{ Msg, Listen string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "ready" {
				p.traffic = entry.Listen
			}
		}
	}
	return p
}

// response is what a client got.
type response struct {
	status int
	source string // X-Adbuffer-Source
	cb     string // X-Echo-Cb
	body   []byte
	took   time.Duration
}

func (r *response) String() string {
	return fmt.Sprintf("%d %s after %v, %d bytes: %.100q", r.status, r.source, r.took.Round(time.Millisecond), len(r.body), r.body)
}

// client keeps a connection of its own.
func client() *http.Client { return &http.Client{Transport: &http.Transport{}, Timeout: patience} }

// ask sends a request to an SSP. An error is adbuffer's: it closed without a response.
func (p *process) ask(c *http.Client, deadline time.Duration, method, ssp, cb, body string) (*response, error) {
	req, err := http.NewRequest(method, "http://"+p.traffic+"/fillbuffer/"+ssp+"?cb="+cb, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Adbuffer-Timeout-Ms", strconv.FormatInt(deadline.Milliseconds(), 10))
	began := time.Now()
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the response to %s was cut", cb), err)
	}
	return &response{res.StatusCode, res.Header.Get("X-Adbuffer-Source"), res.Header.Get("X-Echo-Cb"), text, time.Since(began)}, nil
}

// syncBuffer is what a process wrote.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
