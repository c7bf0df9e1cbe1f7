// Package redistest runs a real redis-server for a test: Debian's, a process of its own.
package redistest

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// patience bounds every wait; it passes only when something is broken.
const patience = 60 * time.Second

// Server is a redis-server that keeps nothing on disk. Its methods are for one
// goroutine.
type Server struct {
	t    testing.TB
	args []string

	// Addr is where it listens on TCP, on loopback, and Socket its unix socket.
	// Both stay over restarts.
	Addr, Socket string

	cmd   *exec.Cmd
	ended chan struct{}
	out   *output
}

// output is what a process wrote.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Start starts one, for the length of the test. args are more of the server's
// own: "--requirepass", "secret".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close() //nolint:errcheck // the port is wanted, not the listener
	s := &Server{t: t, args: args, Addr: addr, Socket: filepath.Join(t.TempDir(), "redis.sock")}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Restart starts it, with no data, where it does not run.
func (s *Server) Restart() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--unixsocket", s.Socket, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(s.Socket)}, s.args...)
	s.out, s.ended = new(output), make(chan struct{})
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v; scripts/install redis-server", err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait() //nolint:errcheck // the dials below tell
		close(ended)
	}(s.cmd, s.ended)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			s.t.Fatalf("redis-server ended:\n%s", s.out)
		default:
		}
		c, err := net.Dial("unix", s.Socket)
		if err == nil {
			c.Close() //nolint:errcheck // it was opened only to see
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("redis-server does not listen: %v\n%s", err, s.out)
		}
	}
}

// Kill ends it without notice. All it knew is lost.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-s.ended
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections, and Redis does not
// respond.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause. What was sent meanwhile is answered now.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do runs one command, as an operator with these credentials.
func (s *Server) Do(name string, args ...any) any {
	s.t.Helper()
	c, err := redis.Dial("unix", s.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was read
	reply, err := c.Do(name, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return reply
}

// CPU is how much processor time the server has used.
func (s *Server) CPU() time.Duration {
	s.t.Helper()
	info, err := redis.String(s.Do("INFO", "cpu"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	var used time.Duration
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				seconds, err := strconv.ParseFloat(text, 64)
				if err != nil {
					s.t.Fatal(err)
				}
				used += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return used
}
